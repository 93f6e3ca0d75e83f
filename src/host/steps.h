// The steps that an executor runs: single operations, and groups of them that one
// kernel computes without keeping what lies between.

#ifndef SPILLWAY_HOST_STEPS_H_
#define SPILLWAY_HOST_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace spillway::host {

// The tensors of one attention block:
//   mixed = softmax(q k + mask) v, with k = [k_cache, k_new] and v = [v_cache, v_new]
// q [1, kv_heads, group * AR, head_dim], k_* [1, kv_heads, head_dim, columns],
// v_* [1, kv_heads, columns, head_dim], mask [1, 1, AR, CL].
struct AttentionTensors {
  TensorId q = 0, mask = 0, k_new = 0, v_new = 0;
  std::optional<TensorId> k_cache, v_cache;                 // none when AR == CL
  TensorId scores = 0, masked = 0, weights = 0, mixed = 0;  // what the operations make
};

struct Step {
  enum class Kind : uint8_t {
    kSingle,
    kAttention,     // inputs: q, mask, k_new, v_new, k_cache, v_cache
    kLinears,       // Linears of one input; ops: they; inputs: x
    kGatedLinears,  // ops: gate, up, activation, product; inputs: x
    kLinearAdd,     // ops: Linear, Add; inputs: x, the other summand
  };
  Kind kind = Kind::kSingle;
  std::vector<size_t> ops;       // indices in the graph
  std::vector<TensorId> inputs;  // of a single operation: as it has them
  std::vector<TensorId> outputs;
  std::optional<AttentionTensors> attention;  // kAttention
};

// Every operation by itself.
std::vector<Step> SingleSteps(const Graph& graph);

// Groups where kernels for them exist; what a group makes besides its outputs is used by
// nothing else. Operations whose output nobody reads any more are left out. `graph` passed
// Validate().
std::vector<Step> FusedSteps(const Graph& graph);

// Which inputs of the graph attention steps alone read, as the keys or the values of their
// caches. None when one of the steps has another cache.
std::vector<bool> FindCacheInputs(const Graph& graph, const std::vector<Step>& steps);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_STEPS_H_
