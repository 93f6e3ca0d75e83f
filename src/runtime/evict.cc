#include "runtime/evict.h"

#include <cmath>
#include <utility>

namespace spillway {

KeyShift MakeKeyShift(const RopeConfig& rope, uint32_t positions, std::vector<float> rotation) {
  KeyShift shift;
  shift.positions = positions;
  shift.rotation = std::move(rotation);
  for (uint32_t i = 0; i < rope.dim / 2; ++i) {
    double frequency = std::pow(static_cast<double>(rope.theta), -2.0 * i / rope.dim);
    if (!rope.factors.empty()) frequency /= rope.factors[i];
    shift.cos.push_back(static_cast<float>(std::cos(positions * frequency)));
    shift.sin.push_back(static_cast<float>(std::sin(positions * frequency)));
  }
  return shift;
}

}  // namespace spillway
