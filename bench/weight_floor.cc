// The floor under a decoder's cost estimate: a graph pair with the weight products of
// a package and nothing else, compiled like the package's own.
//
//   weight_floor PACKAGE [SOC [LEVEL]]
//
// Prints one JSON object: {"prefill_forward": {"estimate_us", "read_bytes"}, "kv_forward":
// {...}, "weight_bytes", "context_bytes"}, as the vendor's cost model has it (only some
// SoCs have one: SA8255, SA8797).

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "compiler/vendor_job.h"
#include "package/package.h"
#include "qnn/api/library.h"

namespace spillway {
namespace {

// The Linear operations of a graph, in their order. An input whose maker is left out
// reads the last product of its shape instead, or a graph input.
class Floor {
 public:
  explicit Floor(const Graph& from) : from_(from), to_(from.name()) {}

  Result<std::shared_ptr<const Graph>> Make() {
    for (const Op& op : from_.ops()) {
      if (op.type == OpType::kLinear) AddLinear(op);
    }
    for (const auto& [id, used] : made_) {
      if (!used) to_.MarkOutput(id);
    }
    SPILLWAY_RETURN_IF_ERROR(to_.Validate());
    return std::make_shared<const Graph>(std::move(to_));
  }

 private:
  void AddLinear(const Op& op) {
    const Tensor& x = from_.tensor(op.inputs[0]);
    std::vector<TensorId> inputs = {InputFor(x)};
    for (size_t i = 1; i < op.inputs.size(); ++i)
      inputs.push_back(to_.AddTensor(from_.tensor(op.inputs[i])));
    Tensor y = from_.tensor(op.outputs[0]);
    y.role = TensorRole::kInternal;
    const TensorId out = to_.AddTensor(y);
    to_.AppendOp({op.type, op.name, inputs, {out}, op.attributes});
    last_[y.shape] = out;
    made_.push_back({out, false});
  }

  // The last product of the shape stands in, with its own encoding.
  TensorId InputFor(const Tensor& x) {
    const auto found = last_.find(x.shape);
    if (found != last_.end()) {
      for (auto& [id, used] : made_) used = used || id == found->second;
      return found->second;
    }
    const TensorId id = to_.AddInput(x.name, x.dtype, x.shape);
    to_.mutable_tensor(id).encoding = x.encoding;
    last_[x.shape] = id;
    return id;
  }

  const Graph& from_;
  Graph to_;
  std::map<Shape, TensorId> last_;
  std::vector<std::pair<TensorId, bool>> made_;
};

Result<std::string> Measure(const std::string& path, const std::string& soc, uint32_t level) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto package, Package::Open(path));
  const std::string folder = path + ".floor";
  SPILLWAY_ASSIGN_OR_RETURN(PackageWriter writer, PackageWriter::Create(folder));
  std::vector<std::shared_ptr<const Graph>> graphs;
  for (const char* name : {kPrefillGraphName, kDecodeGraphName}) {
    SPILLWAY_ASSIGN_OR_RETURN(const auto graph, package->FindGraph(0, name));
    SPILLWAY_ASSIGN_OR_RETURN(graphs.emplace_back(), Floor(*graph).Make());
  }
  SPILLWAY_RETURN_IF_ERROR(writer.AddShard(graphs));
  SPILLWAY_RETURN_IF_ERROR(writer.FinishGraphs({}));
  VendorJob job;
  job.folder = writer.PathOf("");
  job.output_path = writer.PathOf("context_0.bin");
  SPILLWAY_ASSIGN_OR_RETURN(job.qnn_lib_dir, qnn::FindLibraryDir(""));
  job.htp.soc = soc;
  job.htp.optimization_level = level;
  job.htp.weight_sharing = true;
  SPILLWAY_ASSIGN_OR_RETURN(const VendorResult result, RunVendorJobInWorker(job, 600, {}));
  nlohmann::ordered_json json;
  for (const GraphReport& graph : result.shard.graphs) {
    json[graph.name] = {{"estimate_us", graph.estimate_us}, {"read_bytes", graph.read_bytes}};
  }
  json["weight_bytes"] = result.shard.weight_bytes;
  json["context_bytes"] = result.shard.context_bytes;
  return json.dump(2) + "\n";  // the writer's folder goes with it
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s PACKAGE [SOC [LEVEL]]\n", argv[0]);
    return 2;
  }
  const auto json = spillway::Measure(argv[1], argc > 2 ? argv[2] : "SA8255",
                                      argc > 3 ? static_cast<uint32_t>(std::atoi(argv[3])) : 3);
  if (!json.ok()) {
    std::fprintf(stderr, "%s\n", json.status().ToString().c_str());
    return 1;
  }
  std::fputs(json->c_str(), stdout);
  return 0;
}
