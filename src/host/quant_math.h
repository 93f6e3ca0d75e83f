// The fixed-point formulas that every kernel of an operation shares.
//
// A quantised operation is exact up to a sum or product of integers (below 2^53,
// so exact in a double whatever the order), which is then multiplied once by a
// double and rounded half to even. Kernels that follow this give the same bits on
// every processor. The compiler must not fuse a multiplication and an addition
// here (-ffp-contract=off).

#ifndef SPILLWAY_HOST_QUANT_MATH_H_
#define SPILLWAY_HOST_QUANT_MATH_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "graph/graph.h"

namespace spillway::host {

// Largest |offset| that the kernels accept: sums stay exact, and the zero of any
// 16-bit encoding is inside.
inline constexpr int32_t kMaxOffset = 65536;

inline int32_t LoadInt(const std::byte* data, DType dtype, size_t i) {
  switch (dtype) {
    case DType::kU8:
      return reinterpret_cast<const uint8_t*>(data)[i];
    case DType::kS8:
      return reinterpret_cast<const int8_t*>(data)[i];
    case DType::kU16:
      return reinterpret_cast<const uint16_t*>(data)[i];
    case DType::kS16:
      return reinterpret_cast<const int16_t*>(data)[i];
    default:
      return reinterpret_cast<const int32_t*>(data)[i];
  }
}

inline void StoreInt(std::byte* data, DType dtype, size_t i, int32_t value) {
  switch (dtype) {
    case DType::kU8:
      reinterpret_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(value);
      break;
    case DType::kS8:
      reinterpret_cast<int8_t*>(data)[i] = static_cast<int8_t>(value);
      break;
    case DType::kU16:
      reinterpret_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(value);
      break;
    case DType::kS16:
      reinterpret_cast<int16_t*>(data)[i] = static_cast<int16_t>(value);
      break;
    default:
      reinterpret_cast<int32_t*>(data)[i] = value;
      break;
  }
}

// How a real value in units of the output's scale becomes the stored integer:
// saturate to [lo, hi], round half to even, subtract the offset. Saturating first
// is the same as last because the bounds are integers.
struct OutputSpec {
  DType dtype = DType::kU16;
  int32_t offset = 0;
  double lo = 0.0, hi = 0.0;  // smallest and largest stored value + offset

  OutputSpec() = default;
  explicit OutputSpec(const Tensor& tensor)
      : dtype(tensor.dtype),
        offset(tensor.encoding.offset),
        lo(static_cast<double>(DTypeMin(tensor.dtype) + tensor.encoding.offset)),
        hi(static_cast<double>(DTypeMax(tensor.dtype) + tensor.encoding.offset)) {}

  int32_t Quantize(double steps) const {
    return static_cast<int32_t>(std::nearbyint(std::clamp(steps, lo, hi))) - offset;
  }
};

// The factor from a product of centred integers (q + offset) of `a` and `b` to
// steps of `out`.
inline double ProductFactor(float a_scale, float b_scale, float out_scale) {
  return static_cast<double>(a_scale) * b_scale / out_scale;
}
// The vendor's arithmetic in products of u16 activations: the sum of the stored
// integers' products is cut to units of 256 (two passes of 8 bits, the low one
// shifted away), the zero-point correction is rounded to such units on its own,
// halves down, and a bias is cut towards zero. Measured on its simulator; 99.7% of
// results are then equal, the rest one step off. 4-bit weights, per channel and in
// blocks, count as the integers q and q * block scale. `unit` is 1/256 for such products
// and 1 for those that are exact (then these functions change nothing):
//   steps = factor / unit * (floor(sum * unit) + correction)
inline double ProductUnit(DType a, DType b) {
  const bool two_passes = a == DType::kU16 && (b == DType::kS8 || b == DType::kU8);
  return two_passes ? 1.0 / 256.0 : 1.0;
}
// `zero_point`: offset of a times the sum of b's centred integers, an integer.
inline double ZeroPointCorrection(double zero_point, double unit) {
  return std::ceil(zero_point * unit - 0.5);
}
inline double BiasCorrection(double bias, double unit) { return std::trunc(bias * unit); }

inline double RatioFactor(float in_scale, float out_scale) {
  return static_cast<double>(in_scale) / out_scale;
}

// The factors of a sum: steps = a (qa + offset a) + b (qb + offset b). The vendor
// has 15 bits for the larger one and the same unit for both when it adds 16-bit
// values (measured: its results are then reproduced exactly).
struct SumFactors {
  double a, b;
};
inline SumFactors MakeSumFactors(float a_scale, float b_scale, float out_scale, DType out) {
  SumFactors factors = {RatioFactor(a_scale, out_scale), RatioFactor(b_scale, out_scale)};
  if (out != DType::kU16) return factors;
  int shift = 0;
  while (shift < 30 && std::nearbyint(std::max(factors.a, factors.b) * (2 << shift)) <= 32767) {
    ++shift;
  }
  const double unit = 1 << shift;
  return {std::nearbyint(factors.a * unit) / unit, std::nearbyint(factors.b * unit) / unit};
}

// Scale of channel n of a weight.
inline float ChannelScale(const Encoding& encoding, size_t n) {
  return encoding.kind == Encoding::Kind::kPerTensor ? encoding.scale : encoding.channel_scales[n];
}

inline double SiluOf(double x) { return x / (1.0 + std::exp(-x)); }
inline double GeluTanhOf(double x) {
  constexpr double kSqrt2OverPi = 0.79788456080286535588;
  return 0.5 * x * (1.0 + std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x)));
}

// RmsNorm: steps = floor(factor * inv * ((q + offset) * (gamma + gamma offset))),
// with inv from the exact integer sum of squares of (q + offset). The vendor
// rounds this operation down.
inline double RmsInverse(double sum_squares, double scale, double count, double epsilon) {
  return 1.0 / std::sqrt(scale * scale * sum_squares / count + epsilon);
}

// Softmax: exp(scale * (q - max q)) as an integer, so that the sum of a row is
// exact in any order. With 16 bits the vendor cuts the weights to units of 2^-15 and
// the result to whole steps (measured: 98% of results reproduced, the others within
// 11 steps); otherwise units of 2^-31 and the nearest step.
inline bool SoftmaxIsCut(DType in, DType out) { return in == DType::kU16 && out == DType::kU16; }
// In two factors, so that a table takes few exponentials: of multiples of kSoftmaxStride, and
// of the rest.
inline constexpr int64_t kSoftmaxStride = 128;
inline double SoftmaxFactor(double scale, int64_t below_max) {
  return std::exp(-scale * static_cast<double>(below_max));
}
inline uint32_t SoftmaxWeight(double coarse, double fine, bool cut) {
  const double weight = coarse * fine;
  return static_cast<uint32_t>(cut ? std::floor(weight * 32768.0)
                                   : std::nearbyint(weight * 2147483648.0));
}
inline uint32_t SoftmaxWeight(double scale, int64_t below_max, bool cut) {
  const int64_t rest = below_max % kSoftmaxStride;
  return SoftmaxWeight(SoftmaxFactor(scale, below_max - rest), SoftmaxFactor(scale, rest), cut);
}

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_QUANT_MATH_H_
