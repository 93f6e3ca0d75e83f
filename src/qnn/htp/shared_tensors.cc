#include "qnn/htp/shared_tensors.h"

#include <fmt/format.h>

#include "qnn/htp/abi_htp.h"

namespace spillway::qnn::htp {
namespace {

constexpr uint32_t kCustomMemory = 2;  // of abi::MemDescriptor
constexpr uint32_t kSharedBuffer = 1;  // of abi::HtpMemory

}  // namespace

SharedTensors::SharedTensors(Context* context, int fd, uint64_t bytes)
    : context_(context), fd_(fd), bytes_(bytes) {}

SharedTensors::~SharedTensors() {
  for (Graph* graph : graphs_) graph->UseBuffers();
  std::vector<abi::Handle> handles;
  for (const auto& [place, handle] : handles_) handles.push_back(handle);
  context_->DeregisterMemory(handles);
}

Result<abi::Handle> SharedTensors::Register(const TensorInfo& tensor, uint64_t offset) {
  const auto place = std::make_tuple(offset, static_cast<uint32_t>(tensor.dtype), tensor.dims);
  const auto known = handles_.find(place);
  if (known != handles_.end()) return known->second;
  abi::HtpMemory memory = {};
  memory.type = kSharedBuffer;
  memory.size = bytes_;
  memory.shared = {fd_, offset};
  abi::MemDescriptor descriptor = {};
  descriptor.shape = {static_cast<uint32_t>(tensor.dims.size()),
                      const_cast<uint32_t*>(tensor.dims.data()), nullptr};
  descriptor.data_type = tensor.dtype;
  descriptor.mem_type = kCustomMemory;
  descriptor.custom = &memory;
  SPILLWAY_ASSIGN_OR_RETURN(const abi::Handle handle, context_->RegisterMemory(descriptor));
  handles_.emplace(place, handle);
  return handle;
}

Result<std::vector<abi::Handle>> SharedTensors::RegisterAll(const std::vector<TensorInfo>& tensors,
                                                            std::span<const uint64_t> offsets) {
  if (tensors.size() != offsets.size()) {
    return InternalError(fmt::format("{} places for {} tensors", offsets.size(), tensors.size()));
  }
  std::vector<abi::Handle> handles;
  for (size_t i = 0; i < tensors.size(); ++i) {
    SPILLWAY_ASSIGN_OR_RETURN(handles.emplace_back(), Register(tensors[i], offsets[i]));
  }
  return handles;
}

Status SharedTensors::Use(Graph* graph, std::span<const uint64_t> inputs,
                          std::span<const uint64_t> outputs) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto in, RegisterAll(graph->inputs(), inputs));
  SPILLWAY_ASSIGN_OR_RETURN(const auto out, RegisterAll(graph->outputs(), outputs));
  graph->UseMemory(in, out);
  graphs_.push_back(graph);
  return OkStatus();
}

}  // namespace spillway::qnn::htp
