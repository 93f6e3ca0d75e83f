// Angles of the rotary embedding.

#ifndef SPILLWAY_MODEL_ROPE_H_
#define SPILLWAY_MODEL_ROPE_H_

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace spillway {

// The angle per position of each pair of coordinates, [rope.dim / 2]: pair i has
// theta^(-2 i / dim) / factor_i.
std::vector<double> RopeFrequencies(const RopeConfig& rope);

// By how much the pairs of a key turn when its token moves: [rope.dim / 2] each.
struct RopeTurn {
  std::vector<float> cos, sin;
};
// For `positions` positions. YaRN's attention factor, which keys have already, is left out.
RopeTurn MakeRopeTurn(const RopeConfig& rope, uint32_t positions);

}  // namespace spillway

#endif  // SPILLWAY_MODEL_ROPE_H_
