// VectorOps with Highway: this file is compiled once a target.

#include <cmath>

#include "host/kernel_table.h"

// Vectors of unknown length cannot be kept in arrays, as the products below do.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
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

void FinishProduct(double* a, const double* base, double unit, const double* correction,
                   const double* factor, size_t n) {
  const D d;
  const auto units = hn::Set(d, unit);
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto sum = hn::Mul(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, base + i)), units);
        const auto corrected = hn::Add(hn::Floor(sum), hn::LoadU(d, correction + i));
        hn::StoreU(hn::Mul(corrected, hn::LoadU(d, factor + i)), d, a + i);
      },
      [&](size_t i) { a[i] = (std::floor((a[i] + base[i]) * unit) + correction[i]) * factor[i]; });
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

// x / (1 + exp(-u(x))) / out_scale for x = a * in_scale. Vectors differ from the scalar
// functions by some units of the last place: a value that is so near to the middle between
// two integers that this could matter is computed by the scalar one.
template <typename Argument, typename Scalar>
HWY_INLINE void Sigmoidal(double* a, double in_scale, double out_scale, size_t n,
                          const Argument& argument, const Scalar& scalar) {
  const D d;
  const auto in = hn::Set(d, in_scale);
  const auto out = hn::Set(d, out_scale);
  const auto one = hn::Set(d, 1.0);
  const auto half = hn::Set(d, 0.5);
  const auto near = hn::Set(d, 1e-5);
  const auto most = hn::Set(d, 700.0);  // exp() stays finite
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto q = hn::LoadU(d, a + i);
        const auto x = hn::Mul(q, in);
        const auto e = hn::Exp(d, hn::Min(hn::Neg(argument(d, x)), most));
        const auto steps = hn::Div(hn::Div(x, hn::Add(one, e)), out);
        const auto middle = hn::Abs(hn::Sub(hn::Sub(steps, hn::Floor(steps)), half));
        hn::StoreU(steps, d, a + i);
        if (hn::AllFalse(d, hn::Lt(middle, near))) return;
        HWY_ALIGN double values[hn::MaxLanes(D())];
        hn::Store(x, d, values);
        for (size_t j = 0; j < hn::Lanes(d); ++j) a[i + j] = scalar(values[j]) / out_scale;
      },
      [&](size_t i) { a[i] = scalar(a[i] * in_scale) / out_scale; });
}

void Silu(double* a, double in_scale, double out_scale, size_t n) {
  Sigmoidal(
      a, in_scale, out_scale, n, [](D, auto x) HWY_ATTR { return x; }, SiluOf);
}

// 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)).
void GeluTanh(double* a, double in_scale, double out_scale, size_t n) {
  Sigmoidal(
      a, in_scale, out_scale, n,
      [](D d, auto x) HWY_ATTR {
        const auto cubic = hn::Mul(hn::Mul(hn::Mul(x, x), x), hn::Set(d, 0.044715));
        return hn::Mul(hn::Add(x, cubic), hn::Set(d, 1.59576912160573071175));
      },
      GeluTanhOf);
}

uint16_t RescaleU16(uint16_t* q, size_t n, int32_t offset, double factor, const OutputSpec& spec) {
  const D d;
  const hn::Rebind<int32_t, D> di;
  const hn::Rebind<uint16_t, D> d16;
  const auto add = hn::Set(di, offset);
  const auto by = hn::Set(d, factor);
  const auto lo = hn::Set(d, spec.lo);
  const auto hi = hn::Set(d, spec.hi);
  const auto subtract = hn::Set(di, spec.offset);
  auto max = hn::Zero(di);
  int32_t rest = 0;
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto centred = hn::Add(hn::PromoteTo(di, hn::LoadU(d16, q + i)), add);
        const auto steps = hn::Mul(by, hn::PromoteTo(d, centred));
        const auto rounded = hn::DemoteTo(di, hn::Round(hn::Min(hn::Max(steps, lo), hi)));
        const auto out = hn::Sub(rounded, subtract);
        max = hn::Max(max, out);
        hn::StoreU(hn::DemoteTo(d16, out), d16, q + i);
      },
      [&](size_t i) {
        const int32_t out = spec.Quantize(factor * (q[i] + offset));
        rest = out > rest ? out : rest;
        q[i] = static_cast<uint16_t>(out);
      });
  const int32_t lanes = hn::GetLane(hn::MaxOfLanes(di, max));
  return static_cast<uint16_t>(lanes > rest ? lanes : rest);
}

void CutU16(uint16_t* q, double f, size_t n) {
  const D d;
  const hn::Rebind<int32_t, D> di;
  const hn::Rebind<uint16_t, D> d16;
  const auto by = hn::Set(d, f);
  const auto hi = hn::Set(d, 65535.0);
  ForEach(
      n, hn::Lanes(d),
      [&](size_t i) HWY_ATTR {
        const auto v = hn::PromoteTo(d, hn::PromoteTo(di, hn::LoadU(d16, q + i)));
        const auto cut = hn::Min(hn::Floor(hn::Mul(v, by)), hi);
        hn::StoreU(hn::DemoteTo(d16, hn::DemoteTo(di, cut)), d16, q + i);
      },
      [&](size_t i) {
        const double cut = std::floor(q[i] * f);
        q[i] = static_cast<uint16_t>(cut < 65535.0 ? cut : 65535.0);
      });
}

uint32_t LookUpU16(uint16_t* q, size_t n, uint16_t max, const uint16_t* table, uint32_t last) {
  uint32_t sum = 0;
  size_t i = 0;
#if HWY_MAX_BYTES >= 32  // the others have no gathers
  const hn::ScalableTag<int32_t> di;
  const hn::Rebind<uint16_t, decltype(di)> d16;
  const auto from = hn::Set(di, max), end = hn::Set(di, static_cast<int32_t>(last));
  const auto low = hn::Set(di, 0xFFFF);
  auto sums = hn::Zero(di);
  for (; i + hn::Lanes(di) <= n; i += hn::Lanes(di)) {
    const auto below = hn::Min(hn::Sub(from, hn::PromoteTo(di, hn::LoadU(d16, q + i))), end);
    // Gathers two elements at a time; the first is meant.
    const auto pairs =
        hn::GatherOffset(di, reinterpret_cast<const int32_t*>(table), hn::Add(below, below));
    const auto found = hn::And(pairs, low);
    sums = hn::Add(sums, found);
    hn::StoreU(hn::DemoteTo(d16, found), d16, q + i);
  }
  sum = static_cast<uint32_t>(hn::GetLane(hn::SumOfLanes(di, sums)));
#endif
  for (; i < n; ++i) {
    const uint32_t below = static_cast<uint32_t>(max - q[i]);
    q[i] = table[below < last ? below : last];
    sum += q[i];
  }
  return sum;
}

// Four rows of 16 columns become 16 columns of four neighbours.
HWY_INLINE void PackFour(const uint8_t* const (&rows)[4], size_t column, int8_t* out) {
  const hn::FixedTag<uint8_t, 16> d8;
  const hn::FixedTag<uint16_t, 8> d16;
  const auto flip = hn::Set(d8, 0x80);
  const auto r0 = hn::LoadU(d8, rows[0] + column);
  const auto r1 = hn::LoadU(d8, rows[1] + column);
  const auto r2 = hn::LoadU(d8, rows[2] + column);
  const auto r3 = hn::LoadU(d8, rows[3] + column);
  const auto low01 = hn::BitCast(d16, hn::InterleaveLower(d8, r0, r1));
  const auto low23 = hn::BitCast(d16, hn::InterleaveLower(d8, r2, r3));
  const auto high01 = hn::BitCast(d16, hn::InterleaveUpper(d8, r0, r1));
  const auto high23 = hn::BitCast(d16, hn::InterleaveUpper(d8, r2, r3));
  const auto store = [&](auto v, size_t at) HWY_ATTR {
    hn::StoreU(hn::Xor(hn::BitCast(d8, v), flip), d8, reinterpret_cast<uint8_t*>(out) + at);
  };
  store(hn::InterleaveLower(d16, low01, low23), 0);
  store(hn::InterleaveUpper(d16, low01, low23), 16);
  store(hn::InterleaveLower(d16, high01, high23), 32);
  store(hn::InterleaveUpper(d16, high01, high23), 48);
}

void PackColumns(const uint8_t* b, size_t ldb, size_t k, size_t n, size_t block_stride,
                 int8_t* packed) {
  // 0x80 becomes 0 when its top bit is flipped: what is not there.
  HWY_ALIGN uint8_t rest[4][16];
  for (size_t i = 0; i < k; i += 4) {
    int8_t* out = packed + i / 4 * 64;
    size_t c = 0;
    if (i + 4 <= k) {
      const uint8_t* const rows[4] = {b + i * ldb, b + (i + 1) * ldb, b + (i + 2) * ldb,
                                      b + (i + 3) * ldb};
      // The next columns are the next block's; rows are too far apart to be fetched ahead by
      // the processor itself.
      for (const uint8_t* row : rows) __builtin_prefetch(row + n);
      for (; c + 16 <= n; c += 16) PackFour(rows, c, out + c / 16 * block_stride);
    }
    for (; c < n; c += 16) {
      for (size_t r = 0; r < 4; ++r) {
        for (size_t j = 0; j < 16; ++j) {
          rest[r][j] = i + r < k && c + j < n ? b[(i + r) * ldb + c + j] : 0x80;
        }
      }
      const uint8_t* const rows[4] = {rest[0], rest[1], rest[2], rest[3]};
      PackFour(rows, 0, out + c / 16 * block_stride);
    }
  }
}

// Products keep a tile of sums in registers.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr size_t kTileRows = 4;  // 32 vector registers
constexpr size_t kTileRowChannels = 6;
constexpr size_t kTileVectors = 4;
#else
constexpr size_t kTileRows = 3;  // 16 vector registers
constexpr size_t kTileRowChannels = 4;
constexpr size_t kTileVectors = 3;
#endif

// Rows of a times N rows of b over k values; sums run along the rows.
template <size_t Rows, size_t N>
void RowsTile(const float* a, size_t lda, const float* b, size_t ldb, size_t k, bool accumulate,
              float* out, size_t ldo) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<DF> sums[Rows][N];
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t c = 0; c < N; ++c) sums[r][c] = hn::Zero(d);
  }
  size_t i = 0;
  for (; i + lanes <= k; i += lanes) {
    hn::Vec<DF> left[Rows];
    for (size_t r = 0; r < Rows; ++r) left[r] = hn::LoadU(d, a + r * lda + i);
    for (size_t c = 0; c < N; ++c) {
      const auto right = hn::LoadU(d, b + c * ldb + i);
      for (size_t r = 0; r < Rows; ++r) sums[r][c] = hn::MulAdd(left[r], right, sums[r][c]);
    }
  }
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t c = 0; c < N; ++c) {
      float sum = hn::GetLane(hn::SumOfLanes(d, sums[r][c]));
      for (size_t j = i; j < k; ++j) sum += a[r * lda + j] * b[c * ldb + j];
      out[r * ldo + c] = accumulate ? out[r * ldo + c] + sum : sum;
    }
  }
}

template <size_t N>
void RowsStrip(const float* a, size_t rows, size_t lda, const float* b, size_t ldb, size_t k,
               bool accumulate, float* out, size_t ldo) {
  size_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows) {
    RowsTile<kTileRows, N>(a + r * lda, lda, b, ldb, k, accumulate, out + r * ldo, ldo);
  }
  for (; r < rows; ++r) RowsTile<1, N>(a + r * lda, lda, b, ldb, k, accumulate, out + r * ldo, ldo);
}

void ProductRowsF32(const float* a, size_t rows, size_t k, const float* b, size_t n, float* out,
                    size_t ldo) {
  constexpr size_t kDepth = 1024;  // a strip of b stays in the first-level cache
  for (size_t i = 0; i < k; i += kDepth) {
    const size_t depth = k - i < kDepth ? k - i : kDepth;
    size_t c = 0;
    for (; c + kTileRowChannels <= n; c += kTileRowChannels) {
      RowsStrip<kTileRowChannels>(a + i, rows, k, b + c * k + i, k, depth, i > 0, out + c, ldo);
    }
    for (; c < n; ++c) RowsStrip<1>(a + i, rows, k, b + c * k + i, k, depth, i > 0, out + c, ldo);
  }
}

// Rows of a times N vectors of b's columns; sums run down the columns.
template <size_t Rows, size_t N>
void ColumnsTile(const float* a, size_t lda, const float* b, size_t ldb, size_t k, float* out,
                 size_t ldo) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<DF> sums[Rows][N];
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t c = 0; c < N; ++c) sums[r][c] = hn::Zero(d);
  }
  for (size_t i = 0; i < k; ++i) {
    hn::Vec<DF> right[N];
    for (size_t c = 0; c < N; ++c) right[c] = hn::LoadU(d, b + i * ldb + c * lanes);
    for (size_t r = 0; r < Rows; ++r) {
      const auto left = hn::Set(d, a[r * lda + i]);
      for (size_t c = 0; c < N; ++c) sums[r][c] = hn::MulAdd(left, right[c], sums[r][c]);
    }
  }
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t c = 0; c < N; ++c) hn::StoreU(sums[r][c], d, out + r * ldo + c * lanes);
  }
}

template <size_t N>
void ColumnsStrip(const float* a, size_t rows, size_t k, const float* b, size_t ldb, float* out,
                  size_t ldo) {
  size_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows) {
    ColumnsTile<kTileRows, N>(a + r * k, k, b, ldb, k, out + r * ldo, ldo);
  }
  for (; r < rows; ++r) ColumnsTile<1, N>(a + r * k, k, b, ldb, k, out + r * ldo, ldo);
}

void ProductColumnsF32(const float* a, size_t rows, size_t k, const float* b, size_t ldb, size_t n,
                       float* out, size_t ldo) {
  const size_t lanes = hn::Lanes(DF());
  size_t c = 0;
  for (; c + kTileVectors * lanes <= n; c += kTileVectors * lanes) {
    ColumnsStrip<kTileVectors>(a, rows, k, b + c, ldb, out + c, ldo);
  }
  for (; c + lanes <= n; c += lanes) ColumnsStrip<1>(a, rows, k, b + c, ldb, out + c, ldo);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t j = c; j < n; ++j) {
      double sum = 0.0;
      for (size_t i = 0; i < k; ++i) sum += static_cast<double>(a[r * k + i]) * b[i * ldb + j];
      out[r * ldo + j] = static_cast<float>(sum);
    }
  }
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
  float squares = 0.0f;
  RowsTile<1, 1>(x, 0, x, 0, n, false, &squares, 0);
  const double mean = static_cast<double>(squares) / static_cast<double>(n);
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
      .load = Load,
      .store = Store,
      .scale = Scale,
      .multiply = Multiply,
      .add = Add,
      .rotate = Rotate,
      .finish_product = FinishProduct,
      .sum_squares = SumSquares,
      .max = Max,
      .silu = Silu,
      .gelu_tanh = GeluTanh,
      .rescale_u16 = RescaleU16,
      .cut_u16 = CutU16,
      .look_up_u16 = LookUpU16,
      .pack_columns = PackColumns,
      .product_rows_f32 = ProductRowsF32,
      .product_columns_f32 = ProductColumnsF32,
      .add_f32 = AddF32,
      .multiply_f32 = MultiplyF32,
      .silu_f32 = SiluF32,
      .gelu_tanh_f32 = GeluTanhF32,
      .rms_norm_f32 = RmsNormF32,
      .softmax_f32 = SoftmaxF32,
      .rotate_f32 = RotateF32,
  };
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
