// IEEE half and bfloat16 to and from float, exact both ways where possible,
// round half to even otherwise. The portable reference; kernels have their own.

#ifndef SPILLWAY_BASE_FLOAT16_H_
#define SPILLWAY_BASE_FLOAT16_H_

#include <cstdint>
#include <cstring>

namespace spillway {

inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1f;
  uint32_t mantissa = half & 0x3ffu;
  uint32_t bits;
  if (exponent == 0x1f) {
    bits = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else if (mantissa == 0) {
    bits = sign;
  } else {
    exponent = 113;
    while ((mantissa & 0x400u) == 0) {
      mantissa <<= 1;
      --exponent;
    }
    bits = sign | (exponent << 23) | ((mantissa & 0x3ffu) << 13);
  }
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint16_t FloatToHalf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits >= 0x7f800000u) {  // infinity or NaN
    return static_cast<uint16_t>(sign | 0x7c00u | (bits > 0x7f800000u ? 0x200u : 0u));
  }
  if (bits >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (bits < 0x33000001u) return sign;                                    // rounds to zero
  uint32_t exponent = bits >> 23;
  uint32_t mantissa = (bits & 0x7fffffu) | 0x800000u;
  uint32_t shift = 13;
  uint32_t base = 0;
  if (exponent < 113) {
    shift += 113 - exponent;  // subnormal half
  } else {
    base = (exponent - 113) << 10;
  }
  const uint32_t half_ulp = 1u << (shift - 1);
  const uint32_t remainder = mantissa & ((1u << shift) - 1);
  uint32_t rounded = mantissa >> shift;
  if (remainder > half_ulp || (remainder == half_ulp && (rounded & 1u) != 0)) ++rounded;
  return static_cast<uint16_t>(sign | (base + rounded));
}

inline float Bfloat16ToFloat(uint16_t value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

}  // namespace spillway

#endif  // SPILLWAY_BASE_FLOAT16_H_
