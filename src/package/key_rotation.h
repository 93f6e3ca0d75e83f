// The matrix that a package's keys are rotated with, where it has one.

#ifndef SPILLWAY_PACKAGE_KEY_ROTATION_H_
#define SPILLWAY_PACKAGE_KEY_ROTATION_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "spillway/status.h"

namespace spillway {

// The values of the constant "key_rotation.weight" [head_dim, head_dim] of a step graph,
// row-major: cached keys are rotary keys times it. Empty when the graph has none.
// kCorruptData for another shape or type.
Result<std::vector<float>> ReadKeyRotation(const Graph& graph, uint32_t head_dim);

}  // namespace spillway

#endif  // SPILLWAY_PACKAGE_KEY_ROTATION_H_
