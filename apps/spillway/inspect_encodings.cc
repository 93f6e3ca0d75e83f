// spillway inspect --encodings: the type and encoding of every tensor of a package.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "inspect.h"
#include "json_text.h"
#include "package/package.h"
#include "text.h"

namespace spillway::cli {
namespace {

// Every tensor once: a name has one encoding in all graphs.
Result<std::vector<Tensor>> TensorsOf(const Package& package) {
  std::vector<Tensor> tensors;
  std::set<std::string> seen;
  const auto add = [&](const Tensor& tensor) {
    if (seen.insert(tensor.name).second) tensors.push_back(tensor);
  };
  if (package.embedding().data != nullptr) add(package.embedding());
  for (const std::vector<Tensor>* prefix : {&package.prefix_k(), &package.prefix_v()}) {
    for (const Tensor& tensor : *prefix) add(tensor);
  }
  const PackageManifest& manifest = package.manifest();
  for (uint32_t shard = 0; shard < manifest.shards.size(); ++shard) {
    for (const char* name : {kPrefillGraphName, kDecodeGraphName}) {
      if (name == kPrefillGraphName && manifest.prefill_ar_len == 0) continue;
      SPILLWAY_ASSIGN_OR_RETURN(const auto graph, package.FindGraph(shard, name));
      for (const Tensor& tensor : graph->tensors()) add(tensor);
    }
  }
  return tensors;
}

std::string KindName(Encoding::Kind kind) {
  switch (kind) {
    case Encoding::Kind::kNone:
      return "none";
    case Encoding::Kind::kPerTensor:
      return "per_tensor";
    case Encoding::Kind::kPerChannel:
      return "per_channel";
    case Encoding::Kind::kBlock:
      return "block";
  }
  return "";
}

Json ToJson(const Tensor& tensor) {
  const Encoding& encoding = tensor.encoding;
  Json json = {{"name", tensor.name},
               {"type", DTypeName(tensor.dtype)},
               {"constant", tensor.role == TensorRole::kConstant},
               {"kind", KindName(encoding.kind)}};
  if (encoding.kind == Encoding::Kind::kNone) return json;
  json["bits"] = encoding.bits;
  if (encoding.kind == Encoding::Kind::kPerTensor) {
    json["scale"] = encoding.scale;
    json["offset"] = encoding.offset;
    return json;
  }
  json["axis"] = encoding.axis;
  json["scales"] = encoding.channel_scales;
  if (encoding.kind == Encoding::Kind::kBlock) {
    json["block_size"] = encoding.block_size;
    json["block_scales"] = encoding.block_scales.size();
  }
  return json;
}

std::string ScalesText(const Encoding& encoding) {
  if (encoding.kind == Encoding::Kind::kPerTensor) return fmt::format("{:.6g}", encoding.scale);
  if (encoding.channel_scales.empty()) return "";
  const auto [least, most] =
      std::minmax_element(encoding.channel_scales.begin(), encoding.channel_scales.end());
  return fmt::format("{:.3g} .. {:.3g}", *least, *most);
}

std::vector<std::string> Row(const Tensor& tensor) {
  const Encoding& encoding = tensor.encoding;
  std::string kind, range;
  if (encoding.kind == Encoding::Kind::kPerTensor) {
    kind = fmt::format("offset {}", encoding.offset);
    range = fmt::format("{:.4g} .. {:.4g}",
                        DequantizeValue(static_cast<int32_t>(DTypeMin(tensor.dtype)), encoding),
                        DequantizeValue(static_cast<int32_t>(DTypeMax(tensor.dtype)), encoding));
  } else if (encoding.kind == Encoding::Kind::kBlock) {
    kind = fmt::format("blocks of {}", encoding.block_size);
  } else if (encoding.kind == Encoding::Kind::kPerChannel) {
    kind = fmt::format("{} channels", encoding.channel_scales.size());
  }
  return {tensor.name,
          std::string(DTypeName(tensor.dtype)),
          encoding.bits == 0 ? "" : std::to_string(encoding.bits),
          ScalesText(encoding),
          kind,
          range};
}

}  // namespace

Status InspectEncodings(const InspectOptions& options, Console& console) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto package, Package::Open(options.path));
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<Tensor> tensors, TensorsOf(*package));
  const PackageManifest& manifest = package->manifest();
  if (console.json) {
    Json json = {{"kind", "encodings"},
                 {"path", package->path()},
                 {"recipe", Json::parse(manifest.recipe_json, nullptr, false)},
                 {"tensors", Json::array()}};
    for (const Tensor& tensor : tensors) json["tensors"].push_back(ToJson(tensor));
    return console.Print(JsonText(json));
  }
  TextTable table({"tensor", "type", "bits", "scale", "offset or granularity", "range"});
  for (const Tensor& tensor : tensors) table.AddRow(Row(tensor));
  return console.Print(
      fmt::format("{}: recipe {}, {} tensors\n", package->path(), manifest.recipe, tensors.size()) +
      table.ToString(2));
}

}  // namespace spillway::cli
