// The weights of a 16-bit softmax.

#ifndef SPILLWAY_HOST_SOFTMAX_WEIGHTS_H_
#define SPILLWAY_HOST_SOFTMAX_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <vector>

namespace spillway::host {

// SoftmaxWeight(scale, distance from the row's largest, cut), up to the first 0: all further
// ones are 0, too. Not empty. Users of one scale share it while one of them lives;
// thread-safe.
std::shared_ptr<const std::vector<uint16_t>> CutSoftmaxWeights(float scale);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_SOFTMAX_WEIGHTS_H_
