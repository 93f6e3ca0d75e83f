#include "model/rope.h"

#include <cmath>

namespace spillway {

std::vector<double> RopeFrequencies(const RopeConfig& rope) {
  std::vector<double> frequencies;
  for (uint32_t i = 0; i < rope.dim / 2; ++i) {
    const double frequency = std::pow(static_cast<double>(rope.theta), -2.0 * i / rope.dim);
    frequencies.push_back(rope.factors.empty() ? frequency : frequency / rope.factors[i]);
  }
  return frequencies;
}

RopeTurn MakeRopeTurn(const RopeConfig& rope, uint32_t positions) {
  RopeTurn turn;
  for (const double frequency : RopeFrequencies(rope)) {
    turn.cos.push_back(static_cast<float>(std::cos(positions * frequency)));
    turn.sin.push_back(static_cast<float>(std::sin(positions * frequency)));
  }
  return turn;
}

}  // namespace spillway
