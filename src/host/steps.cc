#include "host/steps.h"

#include <algorithm>

#include "host/fused_kernels.h"

namespace spillway::host {
namespace {

constexpr size_t kNone = SIZE_MAX;

// Who makes and who reads each tensor.
class Uses {
 public:
  explicit Uses(const Graph& graph)
      : graph_(graph), maker_(graph.tensors().size(), kNone), readers_(graph.tensors().size()) {
    for (size_t i = 0; i < graph.ops().size(); ++i) {
      for (const TensorId id : graph.ops()[i].outputs) maker_[id] = i;
      for (const TensorId id : graph.ops()[i].inputs) readers_[id].push_back(i);
    }
    for (const TensorId id : graph.outputs()) readers_[id].push_back(kNone);
  }

  // The operation that makes `id`, when it is a `type`.
  const Op* MakerOf(TensorId id, OpType type) const {
    if (maker_[id] == kNone) return nullptr;
    const Op& op = graph_.ops()[maker_[id]];
    return op.type == type ? &op : nullptr;
  }
  size_t IndexOf(const Op& op) const { return static_cast<size_t>(&op - graph_.ops().data()); }
  bool HasOneReader(TensorId id) const { return readers_[id].size() == 1; }

 private:
  const Graph& graph_;
  std::vector<size_t> maker_;
  std::vector<std::vector<size_t>> readers_;
};

// Both parts of a concatenated cache; false when `id` is something else.
bool SplitCache(const Uses& uses, TensorId id, uint32_t axis, std::vector<size_t>& ops,
                std::optional<TensorId>& cache, TensorId& fresh) {
  const Op* concat = uses.MakerOf(id, OpType::kConcat);
  if (concat == nullptr) {
    fresh = id;
    return true;
  }
  if (concat->inputs.size() != 2 || concat->attributes.axis != axis || !uses.HasOneReader(id)) {
    return false;
  }
  cache = concat->inputs[0];
  fresh = concat->inputs[1];
  ops.push_back(uses.IndexOf(*concat));
  return true;
}

// The attention block that ends with `last`.
std::optional<Step> MatchAttention(const Graph& graph, const Uses& uses, const Op& last) {
  if (last.type != OpType::kMatMul) return std::nullopt;
  const Op* softmax = uses.MakerOf(last.inputs[0], OpType::kSoftmax);
  if (softmax == nullptr) return std::nullopt;
  const Op* add = uses.MakerOf(softmax->inputs[0], OpType::kAdd);
  if (add == nullptr) return std::nullopt;
  const Op* product = uses.MakerOf(add->inputs[0], OpType::kMatMul);
  if (product == nullptr || graph.tensor(product->inputs[0]).shape.size() != 4) return std::nullopt;
  Step step;
  AttentionTensors& tensors = step.attention.emplace();
  tensors.q = product->inputs[0];
  tensors.scores = product->outputs[0];
  tensors.masked = add->outputs[0];
  tensors.weights = softmax->outputs[0];
  tensors.mixed = last.outputs[0];
  for (const TensorId id : {tensors.scores, tensors.masked, tensors.weights}) {
    if (!uses.HasOneReader(id)) return std::nullopt;
  }
  tensors.mask = add->inputs[1];
  if (const Op* tile = uses.MakerOf(add->inputs[1], OpType::kTile); tile != nullptr) {
    tensors.mask = tile->inputs[0];
    const uint32_t repeats = graph.tensor(tensors.q).shape[2] / graph.tensor(tensors.mask).shape[2];
    if (tile->attributes.ints != std::vector<uint32_t>{1, 1, repeats, 1}) return std::nullopt;
  }
  if (!SplitCache(uses, product->inputs[1], 3, step.ops, tensors.k_cache, tensors.k_new) ||
      !SplitCache(uses, last.inputs[1], 2, step.ops, tensors.v_cache, tensors.v_new)) {
    return std::nullopt;
  }
  for (const Op* op : {product, add, softmax, &last}) step.ops.push_back(uses.IndexOf(*op));
  std::sort(step.ops.begin(), step.ops.end());
  step.output = tensors.mixed;
  step.inputs = {tensors.q, tensors.mask, tensors.k_new, tensors.v_new};
  if (tensors.k_cache) step.inputs.push_back(*tensors.k_cache);
  if (tensors.v_cache) step.inputs.push_back(*tensors.v_cache);
  if (!CanFuseAttention(graph, tensors)) return std::nullopt;
  return step;
}

// Steps whose output is read by a later one or by the caller.
std::vector<Step> DropUnused(const Graph& graph, std::vector<Step> steps) {
  std::vector<bool> used(graph.tensors().size(), false);
  for (const TensorId id : graph.outputs()) used[id] = true;
  std::vector<Step> kept;
  for (size_t i = steps.size(); i-- > 0;) {
    if (!used[steps[i].output]) continue;
    for (const TensorId id : steps[i].inputs) used[id] = true;
    kept.push_back(std::move(steps[i]));
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace

std::vector<Step> SingleSteps(const Graph& graph) {
  std::vector<Step> steps;
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    steps.push_back({{i}, op.inputs, op.outputs[0], std::nullopt});
  }
  return steps;
}

std::vector<Step> FusedSteps(const Graph& graph) {
  const Uses uses(graph);
  std::vector<Step> steps = SingleSteps(graph);
  std::vector<bool> taken(steps.size(), false);
  for (size_t i = 0; i < steps.size(); ++i) {
    std::optional<Step> group = MatchAttention(graph, uses, graph.ops()[i]);
    if (!group) continue;
    for (const size_t op : group->ops) taken[op] = op != i;
    steps[i] = std::move(*group);
  }
  std::vector<Step> kept;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!taken[i]) kept.push_back(std::move(steps[i]));
  }
  return DropUnused(graph, std::move(kept));
}

}  // namespace spillway::host
