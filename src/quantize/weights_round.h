// Rounding of weights, in a form that compilers turn into vectors.

#ifndef SPILLWAY_QUANTIZE_WEIGHTS_ROUND_H_
#define SPILLWAY_QUANTIZE_WEIGHTS_ROUND_H_

namespace spillway {

// The integer nearest to `value`, ties to even, within -limit..limit (limit at most 2^20).
inline float RoundClamped(float value, float limit) {
  // Adding 1.5 * 2^23 leaves no bits for a fraction.
  constexpr float kNoFraction = 12582912.0f;
  value = value < -limit ? -limit : value;
  value = value > limit ? limit : value;
  return (value + kNoFraction) - kNoFraction;
}

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_WEIGHTS_ROUND_H_
