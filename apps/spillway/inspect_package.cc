// spillway inspect of a package.

#include <fmt/format.h>

#include <map>
#include <memory>
#include <vector>

#include "inspect.h"
#include "json_text.h"
#include "package/package.h"
#include "text.h"

namespace spillway::cli {
namespace {

struct ShardGraph {
  uint32_t shard;
  std::shared_ptr<const Graph> graph;
};

// The graphs of every shard, in the order in which a prompt meets them, then the evictor,
// which counts as a shard of its own.
Result<std::vector<ShardGraph>> GraphsOf(const Package& package) {
  std::vector<ShardGraph> graphs;
  for (uint32_t shard = 0; shard < package.manifest().shards.size(); ++shard) {
    for (const char* name : {kPrefillGraphName, kDecodeGraphName}) {
      if (name == kPrefillGraphName && package.manifest().prefill_ar_len == 0) continue;
      SPILLWAY_ASSIGN_OR_RETURN(auto graph, package.FindGraph(shard, name));
      graphs.push_back({shard, std::move(graph)});
    }
  }
  if (package.evictor() != nullptr) {
    graphs.push_back({static_cast<uint32_t>(package.manifest().shards.size()), package.evictor()});
  }
  return graphs;
}

const char* RoleName(TensorRole role) {
  switch (role) {
    case TensorRole::kInput:
      return "input";
    case TensorRole::kOutput:
      return "output";
    case TensorRole::kConstant:
      return "constant";
    case TensorRole::kInternal:
      return "internal";
  }
  return "";
}

bool Listed(const Tensor& tensor, const InspectOptions& options) {
  if (options.tensors) return true;
  return options.graphs &&
         (tensor.role == TensorRole::kInput || tensor.role == TensorRole::kOutput);
}

std::string GraphText(const ShardGraph& entry, const InspectOptions& options) {
  std::map<std::string, uint64_t> uses;
  for (const Op& op : entry.graph->ops()) ++uses[std::string(OpTypeName(op.type))];
  std::string text = fmt::format("\n{}, shard {}: {} operations\n ", entry.graph->name(),
                                 entry.shard, entry.graph->ops().size());
  for (const auto& [name, count] : uses) text += fmt::format(" {} {}", count, name);
  TextTable table({"", "tensor", "type", "shape", "encoding"});
  for (const Tensor& tensor : entry.graph->tensors()) {
    if (!Listed(tensor, options)) continue;
    table.AddRow({RoleName(tensor.role), tensor.name, std::string(DTypeName(tensor.dtype)),
                  ShapeToString(tensor.shape), tensor.encoding.ToString()});
  }
  return text + "\n" + table.ToString(2);
}

Json GraphJson(const ShardGraph& entry, const InspectOptions& options) {
  Json json = {{"name", entry.graph->name()},
               {"shard", entry.shard},
               {"operations", entry.graph->ops().size()},
               {"tensors", Json::array()}};
  for (const Tensor& tensor : entry.graph->tensors()) {
    if (!Listed(tensor, options)) continue;
    json["tensors"].push_back({{"name", tensor.name},
                               {"role", RoleName(tensor.role)},
                               {"type", DTypeName(tensor.dtype)},
                               {"shape", tensor.shape},
                               {"encoding", tensor.encoding.ToString()}});
  }
  return json;
}

std::string ShardsText(const PackageManifest& m) {
  TextTable table({"shard", "layers", "context binary", "bytes", "weights in it", "spill-fill",
                   "for the simulator"});
  for (size_t i = 0; i < m.shards.size(); ++i) {
    const ShardInfo& shard = m.shards[i];
    const bool built = !shard.context_file.empty();
    table.AddRow(
        {std::to_string(i),
         fmt::format("{}..{}", shard.first_layer,
                     shard.first_layer + shard.num_layers - (shard.num_layers > 0 ? 1 : 0)),
         built ? shard.context_file : "none", built ? BytesText(shard.context_bytes) : "",
         built ? BytesText(shard.weight_bytes) : "", built ? BytesText(shard.spill_fill_bytes) : "",
         shard.plain_file.empty() ? "none" : shard.plain_file});
  }
  return table.ToString(2);
}

std::string ToText(const Package& package) {
  const PackageManifest& m = package.manifest();
  std::string text = fmt::format("{}: package, made by {}\n", package.path(), m.producer);
  text += fmt::format("model         {} ({}), from {}\n", m.config.name, m.config.architecture,
                      m.model_file);
  text += fmt::format("mode          {}, context {} tokens, {} a call\n", m.mode, m.context_len,
                      m.prefill_ar_len == 0 ? fmt::format("{}", m.decode_ar_len)
                                            : fmt::format("prompt {} and answer {}",
                                                          m.prefill_ar_len, m.decode_ar_len));
  text += fmt::format("types         {}, KV cache {}, inputs and outputs as {}\n", m.recipe,
                      DTypeName(m.kv_dtype), m.io_profile);
  text += fmt::format("chip          {}, SLC allocator {}, weight sharing {}\n", m.soc,
                      m.slc_allocator ? "on" : "off", m.weight_sharing ? "on" : "off");
  text += "shards\n" + ShardsText(m);
  if (m.evictor.has_value()) {
    const EvictorInfo& evictor = *m.evictor;
    text += fmt::format(
        "evictor       attention sink {},{}: {}\n", evictor.sink, evictor.batch,
        evictor.context_file.empty()
            ? "no context binary"
            : fmt::format("{}, {}", evictor.context_file, BytesText(evictor.context_bytes)));
  }
  TextTable files({"file", "bytes", "hash"});
  for (const PackageFile& file : m.files) {
    files.AddRow({file.name, BytesText(file.bytes), file.hash});
  }
  return text + "files, each as the manifest says\n" + files.ToString(2);
}

}  // namespace

Status InspectPackage(const InspectOptions& options, Console& console) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto package, Package::Open(options.path));
  SPILLWAY_ASSIGN_OR_RETURN(const auto graphs, GraphsOf(*package));
  if (console.json) {
    Json json = Json::parse(package->manifest().ToJson(), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return InternalError("the manifest does not print as a JSON object");
    json["kind"] = "package";
    json["path"] = package->path();
    json["shard_graphs"] = Json::array();
    for (const ShardGraph& entry : graphs)
      json["shard_graphs"].push_back(GraphJson(entry, options));
    return console.Print(JsonText(json));
  }
  std::string text = ToText(*package);
  if (options.graphs || options.tensors) {
    for (const ShardGraph& entry : graphs) text += GraphText(entry, options);
  }
  return console.Print(text);
}

}  // namespace spillway::cli
