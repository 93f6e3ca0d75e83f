// The weights of a softmax in fixed point, by distance from the largest value.

#ifndef SPILLWAY_HOST_SOFTMAX_WEIGHTS_H_
#define SPILLWAY_HOST_SOFTMAX_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "host/quant_math.h"

namespace spillway::host {

// SoftmaxWeight(scale, distance from the row's largest, cut) for distances up to `range`, or to
// the first 0: all further ones are 0, too. Not empty.
template <typename T>
std::vector<T> SoftmaxWeights(float scale, int64_t range, bool cut) {
  std::vector<T> weights;
  for (int64_t below = 0; below <= range; ++below) {
    weights.push_back(static_cast<T>(SoftmaxWeight(scale, below, cut)));
    if (weights.back() == 0) break;
  }
  return weights;
}

// Those of 16 bits on both sides, which fit in 16 bits. Users of one scale share them while
// one of them lives; thread-safe.
std::shared_ptr<const std::vector<uint16_t>> CutSoftmaxWeights(float scale);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_SOFTMAX_WEIGHTS_H_
