// Where a graph's tensors live while it runs.

#ifndef SPILLWAY_HOST_PLAN_H_
#define SPILLWAY_HOST_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "host/steps.h"

namespace spillway::host {

inline constexpr size_t kArenaAlignment = 64;

// A block of memory that is needed from step `first` to step `last`, inclusive.
struct Lifetime {
  size_t bytes = 0;
  size_t first = 0, last = 0;
};

// Offsets (multiples of kArenaAlignment) such that blocks alive at the same step
// do not overlap: largest first, each at the lowest offset that is free.
struct ArenaLayout {
  std::vector<size_t> offsets;
  size_t bytes = 0;
};
ArenaLayout LayOutArena(const std::vector<Lifetime>& blocks);

// The memory of each tensor of a graph.
struct MemoryPlan {
  enum class Place : uint8_t {
    kNone,      // never used
    kConstant,  // the constant's own bytes
    kInput,     // graph input number `index`
    kOutput,    // graph output number `index`
    kArena,     // arena + `index`
  };
  struct Location {
    Place place = Place::kNone;
    size_t index = 0;
    TensorId root = 0;  // the tensor whose memory this is (a Reshape shares it)
  };
  std::vector<Location> tensors;
  // Per step: true when its output already is its input's memory (Reshape).
  std::vector<bool> skip;
  size_t arena_bytes = 0;
};

// `graph` passed Validate(); `steps` are all of its steps, in order.
MemoryPlan PlanMemory(const Graph& graph, const std::vector<Step>& steps);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_PLAN_H_
