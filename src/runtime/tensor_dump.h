// TensorDump: the tensors that each step of a run computes, as files.
//
//   <folder>/<step>/<graph>/<tensor>.bin   the values: little-endian, row-major
//   <folder>/<step>/<graph>/tensors.json   [{"name","file","dtype","shape","scale",
//                                          "offset"}, ...] in the order of computing
//
// Steps are six digits from 000000 on; a step is one call of one graph, all shards.
// real = scale * (value + offset); both are 0 for a tensor without an encoding. A
// file's name is the tensor's with every byte but letters, digits, '.', '_' and '-'
// as %XX. A step's folder appears at once, complete.

#ifndef SPILLWAY_RUNTIME_TENSOR_DUMP_H_
#define SPILLWAY_RUNTIME_TENSOR_DUMP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/types.h"
#include "runtime/host_model_executor.h"
#include "runtime/model_executor.h"
#include "spillway/status.h"

namespace spillway {

// Not thread-safe.
class TensorDump {
 public:
  // Creates the folder. kInvalidArgument when it is there and not empty.
  static Result<std::shared_ptr<TensorDump>> Create(const std::string& folder);
  ~TensorDump();

  Status BeginStep(const std::string& graph);
  // Writes one tensor of the step; what fails is returned by EndStep. A name that the
  // step has already is left out: every shard computes some tensors anew (the tiled mask,
  // rows of tables), to the same values.
  void Add(const std::string& name, DType dtype, const Shape& shape, const Encoding& encoding,
           std::span<const std::byte> values);
  Status EndStep();

 private:
  struct Entry {
    std::string name, file, dtype;
    Shape shape;
    float scale = 0;
    int32_t offset = 0;
  };

  explicit TensorDump(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;
  uint32_t steps_ = 0;
  std::string staging_;  // of the step that has begun; empty: none
  std::string graph_;
  std::vector<Entry> entries_;
  std::set<std::string> files_;
  Status status_;
};

// `executor`, with every tensor that a run computes written to `dump`. All rows of the
// logits are computed.
std::unique_ptr<ModelExecutor> DumpTensors(std::unique_ptr<HostModelExecutor> executor,
                                           std::shared_ptr<TensorDump> dump);

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_TENSOR_DUMP_H_
