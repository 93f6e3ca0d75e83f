// Random numbers that are the same on every machine.

#ifndef SPILLWAY_TESTS_SUPPORT_RANDOM_H_
#define SPILLWAY_TESTS_SUPPORT_RANDOM_H_

#include <cstdint>

namespace spillway::test {

// SplitMix64 (Steele, Lea and Flood, 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Below `bound`, which is not 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  // In [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // Close to the standard normal: twelve uniform numbers, so no libm.
  double Gauss() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }

 private:
  uint64_t state_;
};

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_SUPPORT_RANDOM_H_
