// The steps that an executor runs: single operations, and groups of them that one
// kernel computes without keeping what lies between.

#ifndef SPILLWAY_HOST_STEPS_H_
#define SPILLWAY_HOST_STEPS_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace spillway::host {

// The tensors of one attention block (docs/operations.md):
//   mixed = softmax(q k + mask) v, with k = [k_cache, k_new] and v = [v_cache, v_new]
// q [1, kv_heads, group * AR, head_dim], k_* [1, kv_heads, head_dim, columns],
// v_* [1, kv_heads, columns, head_dim], mask [1, 1, AR, CL].
struct AttentionTensors {
  TensorId q = 0, mask = 0, k_new = 0, v_new = 0;
  std::optional<TensorId> k_cache, v_cache;                 // none when AR == CL
  TensorId scores = 0, masked = 0, weights = 0, mixed = 0;  // what the operations make
};

struct Step {
  std::vector<size_t> ops;       // indices, in the graph's order; the last makes `output`
  std::vector<TensorId> inputs;  // of a single operation: as it has them
  TensorId output = 0;
  std::optional<AttentionTensors> attention;  // for a group
};

// Every operation by itself.
std::vector<Step> SingleSteps(const Graph& graph);

// Groups where kernels for them exist; what a group makes besides its output must be used
// by nothing else. Operations whose output nobody reads any more are left out. `graph`
// passed Validate().
std::vector<Step> FusedSteps(const Graph& graph);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_STEPS_H_
