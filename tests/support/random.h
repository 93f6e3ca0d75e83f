// Random numbers that are the same on every machine.

#ifndef SPILLWAY_TESTS_SUPPORT_RANDOM_H_
#define SPILLWAY_TESTS_SUPPORT_RANDOM_H_

#include <cstdint>

#include "base/random.h"

namespace spillway::test {

class Random : public SplitMix64 {
 public:
  using SplitMix64::SplitMix64;
  // Below `bound`, which is not 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
};

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_SUPPORT_RANDOM_H_
