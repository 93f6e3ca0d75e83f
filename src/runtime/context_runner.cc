#include "runtime/context_runner.h"

#include <fmt/format.h>

#include <utility>

namespace spillway {
namespace {

constexpr uint64_t kAlignment = 64;

Status CheckPlaces(const std::string& graph, const std::vector<ContextTensor>& tensors,
                   const std::vector<uint64_t>& places, uint64_t block) {
  if (tensors.size() != places.size()) {
    return InvalidArgumentError(fmt::format("graph {} has {} tensors, but places for {}", graph,
                                            tensors.size(), places.size()));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t bytes = tensors[i].Bytes();
    if (places[i] % kAlignment != 0 || places[i] > block || bytes > block - places[i]) {
      return InvalidArgumentError(fmt::format(
          "graph {}, tensor \"{}\" of {} bytes does not fit at offset {} of a block of {} bytes "
          "(offsets are multiples of {})",
          graph, tensors[i].name, bytes, places[i], block, kAlignment));
    }
  }
  return OkStatus();
}

}  // namespace

uint64_t IoLayout::Add(uint64_t size) {
  const uint64_t offset = bytes;
  bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

Status ContextRunner::Bind(const IoLayout& layout) {
  SPILLWAY_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Create(layout.bytes));
  return Bind(layout, std::move(memory));
}

Status ContextRunner::Bind(const IoLayout& layout, SharedMemory memory) {
  if (bound_) return FailedPreconditionError("the contexts' memory is bound already");
  const std::vector<ContextInfo>& contexts = info_.contexts;
  if (layout.contexts.size() != contexts.size() || memory.bytes().size() < layout.bytes) {
    return InvalidArgumentError(fmt::format(
        "a layout for {} contexts in {} bytes does not fit {} contexts and a block of {} bytes",
        layout.contexts.size(), layout.bytes, contexts.size(), memory.bytes().size()));
  }
  for (size_t c = 0; c < contexts.size(); ++c) {
    if (layout.contexts[c].size() != contexts[c].graphs.size()) {
      return InvalidArgumentError(fmt::format("a layout for {} graphs of context {}, which has {}",
                                              layout.contexts[c].size(), c,
                                              contexts[c].graphs.size()));
    }
    for (size_t g = 0; g < contexts[c].graphs.size(); ++g) {
      const ContextGraph& graph = contexts[c].graphs[g];
      const IoLayout::GraphPlaces& places = layout.contexts[c][g];
      SPILLWAY_RETURN_IF_ERROR(CheckPlaces(graph.name, graph.inputs, places.inputs, layout.bytes));
      SPILLWAY_RETURN_IF_ERROR(
          CheckPlaces(graph.name, graph.outputs, places.outputs, layout.bytes));
    }
  }
  memory_ = std::move(memory);
  SPILLWAY_RETURN_IF_ERROR(UseMemory(layout));
  bound_ = true;
  return OkStatus();
}

Status ContextRunner::CheckGraph(size_t context, size_t graph) const {
  const std::vector<ContextInfo>& contexts = info_.contexts;
  if (context < contexts.size() && graph < contexts[context].graphs.size()) return OkStatus();
  return InvalidArgumentError(fmt::format(
      "graph {} of context {} cannot run: there are {} contexts{}", graph, context, contexts.size(),
      context < contexts.size()
          ? fmt::format(", this one with {} graphs", contexts[context].graphs.size())
          : ""));
}

}  // namespace spillway
