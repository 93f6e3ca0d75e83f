#include "host/plan.h"

#include <algorithm>
#include <numeric>

namespace spillway::host {
namespace {

using Place = MemoryPlan::Place;

size_t Align(size_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

bool Overlap(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

// Roots: every tensor starts as its own; a Reshape joins its output to its
// input's memory where the caller's buffers allow it.
void ShareReshapes(const Graph& graph, const std::vector<Step>& steps, MemoryPlan& plan) {
  auto& tensors = plan.tensors;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (graph.ops()[steps[i].ops[0]].type != OpType::kReshape) continue;
    const TensorId in = tensors[steps[i].inputs[0]].root;
    const TensorId out = steps[i].outputs[0];
    if (tensors[out].place == Place::kArena) {
      const bool readable =
          tensors[in].place != Place::kConstant || !graph.tensor(in).data->bytes().empty();
      if (!readable) continue;
      tensors[out].root = in;
      plan.skip[i] = true;
    } else if (tensors[out].place == Place::kOutput && tensors[in].place == Place::kArena) {
      // The producer writes straight into the graph's output; so does everything
      // that already shares its memory.
      for (auto& location : tensors) {
        if (location.root == in) location.root = out;
      }
      plan.skip[i] = true;
    }
  }
}

void PlaceInArena(const Graph& graph, const std::vector<Step>& steps, MemoryPlan& plan) {
  const size_t count = graph.tensors().size();
  std::vector<Lifetime> lifetimes(count);
  std::vector<bool> used(count, false);
  for (size_t step = 0; step < steps.size(); ++step) {
    const auto touch = [&](TensorId id) {
      const TensorId root = plan.tensors[id].root;
      Lifetime& life = lifetimes[root];
      if (!used[root]) life.first = step;
      used[root] = true;
      life.last = step;
      life.bytes = std::max<size_t>(life.bytes, graph.tensor(id).Bytes());
    };
    for (const TensorId id : steps[step].inputs) touch(id);
    for (const TensorId id : steps[step].outputs) touch(id);
  }
  std::vector<Lifetime> blocks;
  std::vector<TensorId> ids;
  for (TensorId id = 0; id < count; ++id) {
    if (plan.tensors[id].place != Place::kArena || plan.tensors[id].root != id) continue;
    if (!used[id]) {
      plan.tensors[id].place = Place::kNone;
      continue;
    }
    blocks.push_back(lifetimes[id]);
    ids.push_back(id);
  }
  const ArenaLayout layout = LayOutArena(blocks);
  for (size_t i = 0; i < ids.size(); ++i) plan.tensors[ids[i]].index = layout.offsets[i];
  plan.arena_bytes = layout.bytes;
}

}  // namespace

ArenaLayout LayOutArena(const std::vector<Lifetime>& blocks) {
  ArenaLayout layout;
  layout.offsets.assign(blocks.size(), 0);
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  std::vector<size_t> placed;  // by rising offset
  for (const size_t i : order) {
    const size_t bytes = Align(std::max<size_t>(blocks[i].bytes, 1));
    size_t offset = 0;
    for (const size_t other : placed) {
      if (!Overlap(blocks[i], blocks[other])) continue;
      if (layout.offsets[other] >= offset + bytes) break;
      offset =
          std::max(offset, layout.offsets[other] + Align(std::max<size_t>(blocks[other].bytes, 1)));
    }
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), i,
                         [&](size_t a, size_t b) { return layout.offsets[a] < layout.offsets[b]; }),
        i);
  }
  return layout;
}

MemoryPlan PlanMemory(const Graph& graph, const std::vector<Step>& steps) {
  MemoryPlan plan;
  plan.skip.assign(steps.size(), false);
  plan.tensors.resize(graph.tensors().size());
  for (TensorId id = 0; id < plan.tensors.size(); ++id) {
    plan.tensors[id].root = id;
    plan.tensors[id].place =
        graph.tensor(id).role == TensorRole::kConstant ? Place::kConstant : Place::kArena;
  }
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    auto& location = plan.tensors[graph.inputs()[i]];
    location.place = Place::kInput;
    location.index = i;
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    auto& location = plan.tensors[graph.outputs()[i]];
    location.place = Place::kOutput;
    location.index = i;
  }
  ShareReshapes(graph, steps, plan);
  PlaceInArena(graph, steps, plan);
  for (auto& location : plan.tensors) {
    const auto& root = plan.tensors[location.root];
    location.place = root.place;
    location.index = root.index;
  }
  return plan;
}

}  // namespace spillway::host
