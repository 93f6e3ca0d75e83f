// The weights of a softmax in fixed point, by distance from the largest value.

#ifndef SPILLWAY_HOST_SOFTMAX_WEIGHTS_H_
#define SPILLWAY_HOST_SOFTMAX_WEIGHTS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "host/quant_math.h"

namespace spillway::host {

// SoftmaxWeight(scale, distance from the row's largest, cut) for distances up to `range`, or to
// the first 0: all further ones are 0, too. Not empty.
template <typename T>
std::vector<T> SoftmaxWeights(float scale, int64_t range, bool cut) {
  std::array<double, kSoftmaxStride> fine;
  for (int64_t i = 0; i < kSoftmaxStride; ++i) fine[i] = SoftmaxFactor(scale, i);
  std::vector<T> weights;
  for (int64_t below = 0; below <= range; below += kSoftmaxStride) {
    const double coarse = SoftmaxFactor(scale, below);
    for (int64_t i = 0; i < std::min(kSoftmaxStride, range + 1 - below); ++i) {
      weights.push_back(static_cast<T>(SoftmaxWeight(coarse, fine[i], cut)));
      if (weights.back() == 0) return weights;
    }
  }
  return weights;
}

// Those of 16 bits on both sides, which fit in 16 bits, and an element more, which readers of
// two at a time may touch. Users of one scale share them while one of them lives; thread-safe.
std::shared_ptr<const std::vector<uint16_t>> CutSoftmaxWeights(float scale);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_SOFTMAX_WEIGHTS_H_
