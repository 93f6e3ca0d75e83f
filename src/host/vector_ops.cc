// VectorOps with Highway: this file is compiled once a target.

#include <cmath>

#include "host/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/vector_ops.cc"
// Highway asks for this order of its headers.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace spillway::host {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<double>;
using DF = hn::ScalableTag<float>;
using VD = hn::Vec<D>;

// Loops over whole vectors, then over the rest one by one.
template <typename Vectors, typename Single>
HWY_INLINE void ForEach(size_t n, size_t lanes, const Vectors& vectors, const Single& single) {
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) vectors(i);
  for (; i < n; ++i) single(i);
}

template <typename T>
void LoadAs(const T* in, size_t n, int32_t offset, double* out) {
  const D d;
  const hn::Rebind<int32_t, D> di;
  const hn::Rebind<T, D> dt;
  const auto add = hn::Set(di, offset);
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto q = hn::PromoteTo(di, hn::LoadU(dt, in + i));
        hn::StoreU(hn::PromoteTo(d, hn::Add(q, add)), d, out + i);
      },
      [&](size_t i) { out[i] = in[i] + offset; });
}

void Load(const std::byte* in, DType dtype, size_t n, int32_t offset, double* out) {
  switch (dtype) {
    case DType::kU8:
      return LoadAs(reinterpret_cast<const uint8_t*>(in), n, offset, out);
    case DType::kS8:
      return LoadAs(reinterpret_cast<const int8_t*>(in), n, offset, out);
    case DType::kU16:
      return LoadAs(reinterpret_cast<const uint16_t*>(in), n, offset, out);
    default:
      return LoadAs(reinterpret_cast<const int16_t*>(in), n, offset, out);
  }
}

template <typename T>
void StoreAs(const double* steps, size_t n, const OutputSpec& spec, T* out) {
  const D d;
  const hn::Rebind<int32_t, D> di;
  const hn::Rebind<T, D> dt;
  const auto lo = hn::Set(d, spec.lo);
  const auto hi = hn::Set(d, spec.hi);
  const auto offset = hn::Set(di, spec.offset);
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto v = hn::Min(hn::Max(hn::LoadU(d, steps + i), lo), hi);
        const auto q = hn::Sub(hn::DemoteTo(di, hn::Round(v)), offset);
        hn::StoreU(hn::DemoteTo(dt, q), dt, out + i);
      },
      [&](size_t i) { out[i] = static_cast<T>(spec.Quantize(steps[i])); });
}

void Store(const double* steps, size_t n, const OutputSpec& spec, std::byte* out) {
  switch (spec.dtype) {
    case DType::kU8:
      return StoreAs(steps, n, spec, reinterpret_cast<uint8_t*>(out));
    case DType::kS8:
      return StoreAs(steps, n, spec, reinterpret_cast<int8_t*>(out));
    case DType::kU16:
      return StoreAs(steps, n, spec, reinterpret_cast<uint16_t*>(out));
    default:
      return StoreAs(steps, n, spec, reinterpret_cast<int16_t*>(out));
  }
}

void Scale(double* a, double f, size_t n) {
  const D d;
  const auto factor = hn::Set(d, f);
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, a + i), factor), d, a + i); },
      [&](size_t i) { a[i] *= f; });
}

void Multiply(double* a, const double* b, double f, size_t n) {
  const D d;
  const auto factor = hn::Set(d, f);
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto product = hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
        hn::StoreU(hn::Mul(factor, product), d, a + i);
      },
      [&](size_t i) { a[i] = f * (a[i] * b[i]); });
}

void Add(double* a, double fa, const double* b, double fb, size_t n) {
  const D d;
  const auto factor_a = hn::Set(d, fa);
  const auto factor_b = hn::Set(d, fb);
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto left = hn::Mul(factor_a, hn::LoadU(d, a + i));
        hn::StoreU(hn::Add(left, hn::Mul(factor_b, hn::LoadU(d, b + i))), d, a + i);
      },
      [&](size_t i) { a[i] = fa * a[i] + fb * b[i]; });
}

void Rotate(const double* a, const double* b, const double* c, const double* s, double fc,
            double fs, size_t n, double* out) {
  const D d;
  const auto factor_c = hn::Set(d, fc);
  const auto factor_s = hn::Set(d, fs);
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto along = hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, c + i));
        const auto across = hn::Mul(hn::LoadU(d, b + i), hn::LoadU(d, s + i));
        hn::StoreU(hn::Add(hn::Mul(factor_c, along), hn::Mul(factor_s, across)), d, out + i);
      },
      [&](size_t i) { out[i] = fc * (a[i] * c[i]) + fs * (b[i] * s[i]); });
}

void FinishLinear(double* a, const double* correction, const double* factor, size_t n) {
  const D d;
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto sum = hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, correction + i));
        hn::StoreU(hn::Mul(sum, hn::LoadU(d, factor + i)), d, a + i);
      },
      [&](size_t i) { a[i] = (a[i] + correction[i]) * factor[i]; });
}

void FinishMatMul(double* a, const double* columns, double column_factor, double row, double factor,
                  size_t n) {
  const D d;
  const auto by_column = hn::Set(d, column_factor);
  const auto by_row = hn::Set(d, row);
  const auto scale = hn::Set(d, factor);
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto correction = hn::Mul(by_column, hn::LoadU(d, columns + i));
        const auto sum = hn::Add(hn::Add(hn::LoadU(d, a + i), correction), by_row);
        hn::StoreU(hn::Mul(scale, sum), d, a + i);
      },
      [&](size_t i) { a[i] = factor * ((a[i] + column_factor * columns[i]) + row); });
}

double SumSquares(const double* a, size_t n) {
  const D d;
  auto sums = hn::Zero(d);
  double rest = 0.0;
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto v = hn::LoadU(d, a + i);
        sums = hn::Add(sums, hn::Mul(v, v));
      },
      [&](size_t i) { rest += a[i] * a[i]; });
  return hn::GetLane(hn::SumOfLanes(d, sums)) + rest;
}

double Max(const double* a, size_t n) {
  const D d;
  auto max = hn::Set(d, a[0]);
  double rest = a[0];
  ForEach(
      n, hn::Lanes(d), [&](size_t i) HWY_ATTR { max = hn::Max(max, hn::LoadU(d, a + i)); },
      [&](size_t i) { rest = a[i] > rest ? a[i] : rest; });
  const double lanes = hn::GetLane(hn::MaxOfLanes(d, max));
  return lanes > rest ? lanes : rest;
}

float DotF32(const float* a, const float* b, size_t n) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d);
  auto s1 = hn::Zero(d);
  auto s2 = hn::Zero(d);
  auto s3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s0);
    s1 = hn::MulAdd(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes), s1);
    s2 = hn::MulAdd(hn::LoadU(d, a + i + 2 * lanes), hn::LoadU(d, b + i + 2 * lanes), s2);
    s3 = hn::MulAdd(hn::LoadU(d, a + i + 3 * lanes), hn::LoadU(d, b + i + 3 * lanes), s3);
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s0);
  float rest = 0.0f;
  for (; i < n; ++i) rest += a[i] * b[i];
  const auto sum = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
  return hn::GetLane(hn::SumOfLanes(d, sum)) + rest;
}

void AddF32(const float* a, const float* b, size_t n, float* out) {
  const DF d;
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i)
          HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i); },
      [&](size_t i) { out[i] = a[i] + b[i]; });
}

void MultiplyF32(const float* a, const float* b, size_t n, float* out) {
  const DF d;
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i)
          HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i); },
      [&](size_t i) { out[i] = a[i] * b[i]; });
}

void MultiplyAddF32(float a, const float* b, size_t n, float* out) {
  const DF d;
  const auto factor = hn::Set(d, a);
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        hn::StoreU(hn::MulAdd(factor, hn::LoadU(d, b + i), hn::LoadU(d, out + i)), d, out + i);
      },
      [&](size_t i) { out[i] += a * b[i]; });
}

// Applies f to each value: whole vectors, then the rest through a padded one, so
// that a value's result does not depend on its place.
template <typename F>
HWY_INLINE void Map(const float* x, size_t n, float* out, const F& f) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, x + i)), d, out + i);
  if (i == n) return;
  HWY_ALIGN float rest[hn::MaxLanes(DF())] = {};
  for (size_t j = i; j < n; ++j) rest[j - i] = x[j];
  hn::StoreU(f(hn::LoadU(d, rest)), d, rest);
  for (size_t j = i; j < n; ++j) out[j] = rest[j - i];
}

void SiluF32(const float* x, size_t n, float* out) {
  const DF d;
  const auto one = hn::Set(d, 1.0f);
  // Beyond, exp(-x) overflows where the result is already 0 in f32.
  const auto lowest = hn::Set(d, -87.0f);
  Map(x, n, out, [&](auto v) HWY_ATTR {
    const auto e = hn::Exp(d, hn::Neg(hn::Max(v, lowest)));
    return hn::Div(v, hn::Add(one, e));
  });
}

void GeluTanhF32(const float* x, size_t n, float* out) {
  const DF d;
  const auto cubic = hn::Set(d, 0.044715f);
  // 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)), which keeps small values exact.
  const auto minus_two_root = hn::Set(d, -1.5957691216057308f);
  const auto one = hn::Set(d, 1.0f);
  const auto highest = hn::Set(d, 87.0f);
  Map(x, n, out, [&](auto v) HWY_ATTR {
    const auto inner = hn::MulAdd(hn::Mul(hn::Mul(cubic, v), v), v, v);
    const auto e = hn::Exp(d, hn::Min(hn::Mul(minus_two_root, inner), highest));
    return hn::Div(v, hn::Add(one, e));
  });
}

void RmsNormF32(const float* x, const float* gamma, float epsilon, size_t n, float* out) {
  const double mean = static_cast<double>(DotF32(x, x, n)) / static_cast<double>(n);
  const float inverse = static_cast<float>(1.0 / std::sqrt(mean + epsilon));
  const DF d;
  const auto factor = hn::Set(d, inverse);
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto v = hn::Mul(hn::LoadU(d, x + i), factor);
        hn::StoreU(hn::Mul(v, hn::LoadU(d, gamma + i)), d, out + i);
      },
      [&](size_t i) { out[i] = x[i] * inverse * gamma[i]; });
}

void SoftmaxF32(const float* x, size_t n, float* out) {
  const DF d;
  float max = x[0];
  for (size_t i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
  const auto shift = hn::Set(d, max);
  Map(x, n, out, [&](auto v) HWY_ATTR { return hn::Exp(d, hn::Sub(v, shift)); });
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += out[i];
  const float inverse = static_cast<float>(1.0 / sum);
  const auto factor = hn::Set(d, inverse);
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, out + i), factor), d, out + i); },
      [&](size_t i) { out[i] *= inverse; });
}

void RotateF32(const float* a, const float* b, const float* c, const float* s, float fs, size_t n,
               float* out) {
  const DF d;
  const auto sign = hn::Set(d, fs);
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto along = hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, c + i));
        const auto across = hn::Mul(hn::LoadU(d, b + i), hn::LoadU(d, s + i));
        hn::StoreU(hn::Add(along, hn::Mul(sign, across)), d, out + i);
      },
      [&](size_t i) { out[i] = a[i] * c[i] + fs * (b[i] * s[i]); });
}

const VectorOps& Table() {
  static constexpr VectorOps kOps = {
      Load,         Store,       Scale,      Multiply,   Add,      Rotate,      FinishLinear,
      FinishMatMul, SumSquares,  Max,        DotF32,     AddF32,   MultiplyF32, MultiplyAddF32,
      SiluF32,      GeluTanhF32, RmsNormF32, SoftmaxF32, RotateF32};
  return kOps;
}

}  // namespace HWY_NAMESPACE
}  // namespace spillway::host
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spillway::host {

const VectorOps& HighwayVectorOps(CpuTarget target) {
  switch (target) {
#if HWY_TARGETS & HWY_AVX3
    case CpuTarget::kAvx512Vnni:
    case CpuTarget::kAvx512:
      return N_AVX3::Table();
#endif
#if HWY_TARGETS & HWY_AVX2
    case CpuTarget::kAvx2:
      return N_AVX2::Table();
#endif
#if HWY_TARGETS & HWY_SSE4
    case CpuTarget::kSse4:
      return N_SSE4::Table();
#endif
#if HWY_TARGETS & HWY_NEON
    case CpuTarget::kNeon:
      return N_NEON::Table();
#endif
    default:
      return ScalarVectorOps();
  }
}

}  // namespace spillway::host
#endif  // HWY_ONCE
