// Random numbers that are the same on every machine.

#ifndef SPILLWAY_BASE_RANDOM_H_
#define SPILLWAY_BASE_RANDOM_H_

#include <cstdint>

namespace spillway {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014):
// one addition and a mixing function; any seed is good.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, 1), with 53 random bits.
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

}  // namespace spillway

#endif  // SPILLWAY_BASE_RANDOM_H_
