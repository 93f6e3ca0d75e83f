#include "host/steps.h"

#include <algorithm>
#include <unordered_map>

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
  // The caller reads it, as it is or in another shape.
  bool IsResult(TensorId id) const {
    for (const size_t reader : readers_[id]) {
      if (reader == kNone) return true;
      const Op& op = graph_.ops()[reader];
      if (op.type == OpType::kReshape && IsResult(op.outputs[0])) return true;
    }
    return false;
  }

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
  step.kind = Step::Kind::kAttention;
  step.outputs = {tensors.mixed};
  step.inputs = {tensors.q, tensors.mask, tensors.k_new, tensors.v_new};
  if (tensors.k_cache) step.inputs.push_back(*tensors.k_cache);
  if (tensors.v_cache) step.inputs.push_back(*tensors.v_cache);
  if (!CanFuseAttention(graph, tensors)) return std::nullopt;
  return step;
}

// The fast Linear that makes `id` for one reader.
const Op* MatchLinear(const Graph& graph, const Uses& uses, TensorId id) {
  const Op* linear = uses.MakerOf(id, OpType::kLinear);
  if (linear == nullptr || !uses.HasOneReader(id)) return nullptr;
  return IsFastIntegerLinear(graph, *linear) ? linear : nullptr;
}

bool IsByteOrShort(const Tensor& tensor) {
  return IsFixedPoint(tensor.dtype) && DTypeSize(tensor.dtype) <= 2;
}

// product = activation(gate x) * (up x).
std::optional<Step> MatchGatedLinears(const Graph& graph, const Uses& uses, const Op& product) {
  if (product.type != OpType::kMul || !IsByteOrShort(graph.tensor(product.outputs[0]))) {
    return std::nullopt;
  }
  for (const size_t first : {0, 1}) {
    const TensorId active = product.inputs[first];
    const Op* activation = uses.MakerOf(active, OpType::kSilu);
    if (activation == nullptr) activation = uses.MakerOf(active, OpType::kGeluTanh);
    if (activation == nullptr || !uses.HasOneReader(active)) continue;
    const Op* gate = MatchLinear(graph, uses, activation->inputs[0]);
    const Op* up = MatchLinear(graph, uses, product.inputs[1 - first]);
    if (gate == nullptr || up == nullptr || gate->inputs[0] != up->inputs[0] ||
        graph.tensor(gate->outputs[0]).shape != graph.tensor(up->outputs[0]).shape ||
        !IsByteOrShort(graph.tensor(active))) {
      continue;
    }
    Step step;
    step.kind = Step::Kind::kGatedLinears;
    for (const Op* op : {gate, up, activation, &product}) step.ops.push_back(uses.IndexOf(*op));
    step.inputs = {gate->inputs[0]};
    step.outputs = {product.outputs[0]};
    return step;
  }
  return std::nullopt;
}

std::optional<Step> MatchLinearAdd(const Graph& graph, const Uses& uses, const Op& add) {
  if (add.type != OpType::kAdd || !IsByteOrShort(graph.tensor(add.outputs[0]))) return std::nullopt;
  for (const size_t at : {1, 0}) {
    const Op* linear = MatchLinear(graph, uses, add.inputs[at]);
    const TensorId other = add.inputs[1 - at];
    if (linear == nullptr || other == add.inputs[at] || !IsByteOrShort(graph.tensor(other)) ||
        graph.tensor(other).role == TensorRole::kConstant ||
        graph.tensor(other).shape != graph.tensor(add.inputs[at]).shape) {
      continue;
    }
    Step step;
    step.kind = Step::Kind::kLinearAdd;
    step.ops = {uses.IndexOf(*linear), uses.IndexOf(add)};
    step.inputs = {linear->inputs[0], other};
    step.outputs = {add.outputs[0]};
    return step;
  }
  return std::nullopt;
}

// Where single steps are Linears of one input, the first becomes a step of them all and the
// others empty. The head stays by itself: its rows are limited apart.
void JoinLinears(const Graph& graph, const Uses& uses, std::vector<Step>& steps) {
  std::unordered_map<TensorId, size_t> first_of;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind != Step::Kind::kSingle || steps[i].ops.empty()) continue;
    const Op& op = graph.ops()[steps[i].ops[0]];
    if (!IsFastIntegerLinear(graph, op) || uses.IsResult(op.outputs[0])) continue;
    const auto [place, is_first] = first_of.emplace(op.inputs[0], i);
    if (is_first) continue;
    Step& group = steps[place->second];
    group.kind = Step::Kind::kLinears;
    group.ops.push_back(steps[i].ops[0]);
    group.inputs = {op.inputs[0]};
    group.outputs.push_back(op.outputs[0]);
    steps[i] = {};
  }
}

// Steps with an output that is read by a later one or by the caller.
std::vector<Step> DropUnused(const Graph& graph, std::vector<Step> steps) {
  std::vector<bool> used(graph.tensors().size(), false);
  for (const TensorId id : graph.outputs()) used[id] = true;
  std::vector<Step> kept;
  for (size_t i = steps.size(); i-- > 0;) {
    const auto is_used = [&](TensorId id) { return used[id]; };
    if (std::none_of(steps[i].outputs.begin(), steps[i].outputs.end(), is_used)) continue;
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
    Step& step = steps.emplace_back();
    step.ops = {i};
    step.inputs = graph.ops()[i].inputs;
    step.outputs = {graph.ops()[i].outputs[0]};
  }
  return steps;
}

std::vector<Step> FusedSteps(const Graph& graph) {
  const Uses uses(graph);
  std::vector<Step> steps = SingleSteps(graph);
  for (size_t i = 0; i < steps.size(); ++i) {
    const Op& op = graph.ops()[i];
    std::optional<Step> group = MatchAttention(graph, uses, op);
    if (!group) group = MatchGatedLinears(graph, uses, op);
    if (!group) group = MatchLinearAdd(graph, uses, op);
    if (!group) continue;
    for (const size_t member : group->ops) steps[member] = {};
    steps[i] = std::move(*group);
  }
  JoinLinears(graph, uses, steps);
  return DropUnused(graph, std::move(steps));
}

std::vector<bool> FindCacheInputs(const Graph& graph, const std::vector<Step>& steps) {
  // How each tensor is read.
  std::vector<bool> as_keys(graph.tensors().size()), as_values(as_keys), otherwise(as_keys);
  for (const Step& step : steps) {
    const bool cached = step.attention && step.attention->k_cache;
    const size_t others = step.inputs.size() - (cached ? 2 : 0);
    for (size_t i = 0; i < others; ++i) otherwise[step.inputs[i]] = true;
    if (!cached) continue;
    as_keys[*step.attention->k_cache] = true;
    as_values[*step.attention->v_cache] = true;
  }
  for (const TensorId id : graph.outputs()) otherwise[id] = true;
  std::vector<bool> found(graph.inputs().size());
  size_t caches = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const TensorId id = graph.inputs()[i];
    found[i] = as_keys[id] != as_values[id] && !otherwise[id];
    caches += found[i] ? 1 : 0;
  }
  const auto all = std::count(as_keys.begin(), as_keys.end(), true) +
                   std::count(as_values.begin(), as_values.end(), true);
  if (caches != static_cast<size_t>(all)) found.assign(found.size(), false);
  return found;
}

}  // namespace spillway::host
