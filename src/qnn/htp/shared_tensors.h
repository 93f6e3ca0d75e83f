// Inputs and outputs of a context's graphs in memory that the DSP sees, registered once.

#ifndef SPILLWAY_QNN_HTP_SHARED_TENSORS_H_
#define SPILLWAY_QNN_HTP_SHARED_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "qnn/api/manager.h"
#include "spillway/status.h"

namespace spillway::qnn::htp {

// Of one context, which outlives it, as does the memory. Deregisters when it goes.
// Not thread-safe.
class SharedTensors {
 public:
  // `fd` and `bytes` of the block that all tensors are in.
  SharedTensors(Context* context, int fd, uint64_t bytes);
  ~SharedTensors();
  SharedTensors(const SharedTensors&) = delete;
  SharedTensors& operator=(const SharedTensors&) = delete;

  // From now on `graph`, one of the context's, reads its inputs and writes its outputs at these
  // byte offsets. A place and shape that another graph has registered is not registered again.
  // kVendor: the platform refuses; the graph then goes on with ordinary buffers.
  Status Use(Graph* graph, std::span<const uint64_t> inputs, std::span<const uint64_t> outputs);

 private:
  Result<abi::Handle> Register(const TensorInfo& tensor, uint64_t offset);
  Result<std::vector<abi::Handle>> RegisterAll(const std::vector<TensorInfo>& tensors,
                                               std::span<const uint64_t> offsets);

  Context* context_;
  int fd_;
  uint64_t bytes_;
  // [offset, type, sizes]
  std::map<std::tuple<uint64_t, uint32_t, std::vector<uint32_t>>, abi::Handle> handles_;
  std::vector<Graph*> graphs_;
};

}  // namespace spillway::qnn::htp

#endif  // SPILLWAY_QNN_HTP_SHARED_TENSORS_H_
