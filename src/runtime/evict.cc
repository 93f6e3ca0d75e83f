#include "runtime/evict.h"

#include <utility>

#include "model/rope.h"

namespace spillway {

KeyShift MakeKeyShift(const RopeConfig& rope, uint32_t positions, std::vector<float> rotation) {
  RopeTurn turn = MakeRopeTurn(rope, positions);
  KeyShift shift;
  shift.positions = positions;
  shift.cos = std::move(turn.cos);
  shift.sin = std::move(turn.sin);
  shift.rotation = std::move(rotation);
  return shift;
}

}  // namespace spillway
