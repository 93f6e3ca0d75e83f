// The step graphs of a model, checked against the graph contract of
// docs/architecture.md: which input is what, how many tokens a call takes, and
// what all shards and both graphs must agree on.

#ifndef SPILLWAY_RUNTIME_STEP_GRAPHS_H_
#define SPILLWAY_RUNTIME_STEP_GRAPHS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "package/package.h"
#include "runtime/model_executor.h"
#include "spillway/status.h"

namespace spillway {

// One graph of one shard. Inputs and outputs are known by their order:
//   inputs   0 hidden (or token ids), 1 mask, 2 positions, then k of each layer,
//            then v of each layer; no k and v when AR == CL
//   outputs  0 logits (last shard) or hidden, then k_new and v_new likewise
struct StepGraph {
  std::shared_ptr<const Graph> graph;
  uint32_t ar_len = 0;
  uint32_t context_len = 0;
  uint32_t layers = 0;
  bool has_cache = false;  // AR < CL

  static constexpr size_t kHidden = 0, kMask = 1, kPositions = 2;
  size_t KInput(uint32_t layer) const { return 3 + layer; }
  size_t VInput(uint32_t layer) const { return 3 + layers + layer; }
  static constexpr size_t kMainOutput = 0;
  size_t KOutput(uint32_t layer) const { return 1 + layer; }
  size_t VOutput(uint32_t layer) const { return 1 + layers + layer; }

  const Tensor& input(size_t index) const { return graph->tensor(graph->inputs()[index]); }
  const Tensor& output(size_t index) const { return graph->tensor(graph->outputs()[index]); }
};

struct StepGraphs {
  ModelIo io;
  // One a shard; empty when the model has no such graph.
  std::vector<StepGraph> prefill, decode;
  // Bytes of the constants that one decode step reads whole (tables that are
  // looked up by row are not counted), each once; of prefill without decode.
  uint64_t weight_bytes = 0;

  const std::vector<StepGraph>& of(StepKind kind) const {
    return kind == StepKind::kPrefill ? prefill : decode;
  }
  const std::vector<StepGraph>& any() const { return decode.empty() ? prefill : decode; }
};

// `shards[s]` holds the graphs of shard s, named kPrefillGraphName and
// kDecodeGraphName; every shard has the same ones, at least one. What does not
// follow the contract is kCorruptData and names shard, graph and tensor.
Result<StepGraphs> ReadStepGraphs(
    const std::vector<std::vector<std::shared_ptr<const Graph>>>& shards);

// The same for an opened package.
Result<StepGraphs> ReadStepGraphs(const Package& package);

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_STEP_GRAPHS_H_
