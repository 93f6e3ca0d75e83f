// Integer products with AVX-512 VNNI. Linear takes activations as one (8-bit) or
// two (16-bit: high, low) planes of unsigned bytes, the operand order of the
// instruction u8 x s8; the weights are read as they are stored.

#if defined(__x86_64__)

// GCC 12's own headers leave undefined vectors uninitialised and then warn about it.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <hwy/base.h>
#include <immintrin.h>

#include <type_traits>

#include "host/kernel_table.h"

#define SPILLWAY_DOT_ADD(sum, a, b) _mm512_dpwssd_epi32(sum, a, b)

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
namespace spillway::host {
namespace avx512vnni {

#include "host/avx512_simd-inl.h"

namespace pairs {  // Linear is replaced below, MatMul is used as it is
#include "host/int_products-inl.h"
}  // namespace pairs

bool IsWide(DType dtype) { return dtype == DType::kU16 || dtype == DType::kS16; }
size_t Padded(size_t k) { return (k + 3) / 4 * 4; }

size_t LinearRowBytes(DType dtype, size_t k) { return Padded(k) * (IsWide(dtype) ? 2 : 1); }

// Signed types are shifted to unsigned ones.
int32_t LinearBase(DType dtype) {
  return dtype == DType::kS16 ? -32768 : dtype == DType::kS8 ? -128 : 0;
}

void PrepareLinearRow(const std::byte* x, DType dtype, size_t k, std::byte* prepared) {
  uint8_t* out = reinterpret_cast<uint8_t*>(prepared);
  const size_t padded = Padded(k);
  if (IsWide(dtype)) {
    const uint16_t* in = reinterpret_cast<const uint16_t*>(x);
    const uint16_t flip = dtype == DType::kS16 ? 0x8000 : 0;
    for (size_t i = 0; i < k; ++i) out[i] = static_cast<uint8_t>((in[i] ^ flip) >> 8);
    for (size_t i = 0; i < k; ++i) out[padded + i] = static_cast<uint8_t>(in[i]);
    for (size_t i = k; i < padded; ++i) out[i] = out[padded + i] = 0;
    return;
  }
  const uint8_t* in = reinterpret_cast<const uint8_t*>(x);
  const uint8_t flip = dtype == DType::kS8 ? 0x80 : 0;
  for (size_t i = 0; i < k; ++i) out[i] = in[i] ^ flip;
  for (size_t i = k; i < padded; ++i) out[i] = 0;
}

// Sums of a tile of Rows rows and Blocks blocks of 16 channels, kept in registers: for each
// plane of the activations, with the high bytes' plane first.
template <size_t Rows, size_t Blocks, size_t Planes>
struct Tile {
  __m512i sum[Rows][Blocks][Planes];

  void Clear() {
#pragma GCC unroll 32
    for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (size_t b = 0; b < Blocks; ++b) {
#pragma GCC unroll 2
        for (size_t p = 0; p < Planes; ++p) sum[r][b][p] = _mm512_setzero_si512();
      }
    }
  }

  void Multiply(const std::byte* x, size_t row_bytes, const int8_t* w, size_t k_groups) {
    Clear();
    for (size_t g = 0; g < k_groups; ++g) {
      __m512i weights[Blocks];
#pragma GCC unroll 4
      for (size_t b = 0; b < Blocks; ++b) {
        const int8_t* at = w + (b * k_groups + g) * 64;
        // Few rows wait for the weights: the next ones are asked for in time.
        if (Rows <= 3) _mm_prefetch(reinterpret_cast<const char*>(at) + kAhead, _MM_HINT_T0);
        weights[b] = _mm512_loadu_si512(at);
      }
#pragma GCC unroll 8
      for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
        for (size_t p = 0; p < Planes; ++p) {
          const __m512i values = Simd::Broadcast32(x + r * row_bytes + p * k_groups * 4 + g * 4);
#pragma GCC unroll 4
          for (size_t b = 0; b < Blocks; ++b) {
            sum[r][b][p] = _mm512_dpbusd_epi32(sum[r][b][p], values, weights[b]);
          }
        }
      }
    }
  }

 private:
  static constexpr size_t kAhead = 2048;
};

// Stores the sums as they are.
struct PlainSums {
  double* sums;
  size_t stride;

  template <size_t Rows, size_t Blocks, size_t Planes>
  void Take(const Tile<Rows, Blocks, Planes>& tile, size_t row, size_t column) const {
    for (size_t r = 0; r < Rows; ++r) {
      for (size_t b = 0; b < Blocks; ++b) {
        double* out = sums + (row + r) * stride + column + b * 16;
        for (size_t i = 0; i < 16; ++i) out[i] = 0.0;
        Simd::AddToDoubles(out, tile.sum[r][b][0], Planes == 2 ? 256.0 : 1.0);
        if constexpr (Planes == 2) Simd::AddToDoubles(out, tile.sum[r][b][1], 1.0);
      }
    }
  }
};

// Finishes them. With two planes the sum is 256 high + low, whose floor in units of 256 is
// high + floor(low / 256).
class Finisher {
 public:
  Finisher(const ProductFinish& finish, size_t columns, std::byte* out, size_t out_stride)
      : finish_(finish),
        columns_(columns),
        size_(DTypeSize(finish.out.dtype)),
        out_(out),
        stride_(out_stride),
        lo_(_mm512_set1_pd(finish.out.lo)),
        hi_(_mm512_set1_pd(finish.out.hi)),
        offset_(_mm512_set1_epi32(finish.out.offset)) {}

  template <size_t Rows, size_t Blocks, size_t Planes>
  void Take(const Tile<Rows, Blocks, Planes>& tile, size_t row, size_t column) const {
#pragma GCC unroll 4
    for (size_t b = 0; b < Blocks; ++b) {
      const size_t c = column + b * 16;
      const __m512d corrections[2] = {_mm512_loadu_pd(finish_.correction + c),
                                      _mm512_loadu_pd(finish_.correction + c + 8)};
      const __m512d factors[2] = {_mm512_loadu_pd(finish_.factor + c),
                                  _mm512_loadu_pd(finish_.factor + c + 8)};
#pragma GCC unroll 8
      for (size_t r = 0; r < Rows; ++r) {
        __m512i sum = tile.sum[r][b][0];
        if constexpr (Planes == 2) {
          sum = _mm512_add_epi32(sum, _mm512_srai_epi32(tile.sum[r][b][1], 8));
        }
        const __m256i low = Steps(_mm512_castsi512_si256(sum), corrections[0], factors[0]);
        const __m256i high = Steps(_mm512_extracti64x4_epi64(sum, 1), corrections[1], factors[1]);
        const __m512i q =
            _mm512_sub_epi32(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), offset_);
        Store(q, out_ + (row + r) * stride_ + c * size_, columns_ - c);
      }
    }
  }

 private:
  __m256i Steps(__m256i sum, __m512d correction, __m512d factor) const {
    const __m512d steps = _mm512_mul_pd(_mm512_add_pd(_mm512_cvtepi32_pd(sum), correction), factor);
    return _mm512_cvtpd_epi32(_mm512_min_pd(_mm512_max_pd(steps, lo_), hi_));
  }

  void Store(__m512i q, std::byte* out, size_t left) const {
    const __mmask16 mask = left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
    if (size_ == 2) {
      _mm256_mask_storeu_epi16(out, mask, _mm512_cvtepi32_epi16(q));
    } else {
      _mm_mask_storeu_epi8(out, mask, _mm512_cvtepi32_epi8(q));
    }
  }

  const ProductFinish& finish_;
  size_t columns_, size_;
  std::byte* out_;
  size_t stride_;
  __m512d lo_, hi_;
  __m512i offset_;
};

template <size_t Planes, typename Sink>
class Product {
 public:
  // `prepared` rows, `row_bytes` apart, by `blocks` blocks of 16 channels.
  static void Run(const std::byte* prepared, size_t row_bytes, size_t rows, const int8_t* weights,
                  size_t k_groups, size_t blocks, const Sink& sink) {
    size_t r = 0;
    const auto next = [&](auto count) {
      constexpr size_t kRows = decltype(count)::value;
      for (; r + kRows <= rows; r += kRows) {
        RunRows<kRows>(prepared + r * row_bytes, row_bytes, r, weights, k_groups, blocks, sink);
      }
    };
    next(std::integral_constant<size_t, 6>());
    next(std::integral_constant<size_t, 4>());
    next(std::integral_constant<size_t, 3>());
    next(std::integral_constant<size_t, 2>());
    next(std::integral_constant<size_t, 1>());
  }

 private:
  template <size_t Rows>
  static void RunRows(const std::byte* x, size_t row_bytes, size_t row, const int8_t* weights,
                      size_t k_groups, size_t blocks, const Sink& sink) {
    // 8 to 24 sums in registers.
    constexpr size_t kBlocks = Rows * Planes <= 6 ? 4 : 2;
    size_t b = 0;
    for (; b + kBlocks <= blocks; b += kBlocks) {
      RunTile<Rows, kBlocks>(x, row_bytes, row, weights, k_groups, b, sink);
    }
    for (; b < blocks; ++b) RunTile<Rows, 1>(x, row_bytes, row, weights, k_groups, b, sink);
  }

  template <size_t Rows, size_t Blocks>
  static void RunTile(const std::byte* x, size_t row_bytes, size_t row, const int8_t* weights,
                      size_t k_groups, size_t block, const Sink& sink) {
    Tile<Rows, Blocks, Planes> tile;
    tile.Multiply(x, row_bytes, weights + block * k_groups * 64, k_groups);
    sink.Take(tile, row, block * 16);
  }
};

void Linear(const std::byte* prepared, size_t row_bytes, size_t rows, DType dtype,
            const int8_t* weights, size_t k_groups, size_t blocks, double* sums) {
  const PlainSums sink = {sums, blocks * 16};
  if (IsWide(dtype)) {
    Product<2, PlainSums>::Run(prepared, row_bytes, rows, weights, k_groups, blocks, sink);
  } else {
    Product<1, PlainSums>::Run(prepared, row_bytes, rows, weights, k_groups, blocks, sink);
  }
}

void LinearQuantized(const std::byte* prepared, size_t row_bytes, size_t rows, DType dtype,
                     const int8_t* weights, size_t k_groups, size_t columns,
                     const ProductFinish& finish, std::byte* out, size_t out_stride) {
  const Finisher sink(finish, columns, out, out_stride);
  const size_t blocks = (columns + 15) / 16;
  if (IsWide(dtype)) {
    Product<2, Finisher>::Run(prepared, row_bytes, rows, weights, k_groups, blocks, sink);
  } else {
    Product<1, Finisher>::Run(prepared, row_bytes, rows, weights, k_groups, blocks, sink);
  }
}

// One row by Blocks blocks of 16 channels of 4-bit weights. A block of K has a multiplier for
// each channel, so its sums are kept apart until it ends.
template <size_t Blocks, size_t Planes>
class NibbleTile {
 public:
  NibbleTile(const std::byte* x, const NibbleColumns& columns, size_t block)
      : x_(x), columns_(columns), block_(block) {}

  Tile<1, Blocks, Planes> Run() {
    const size_t groups = columns_.k_groups, step = columns_.block_groups;
    total_.Clear();
    if (columns_.multipliers == nullptr) {
      Add(0, groups, total_);
      return total_;
    }
    const size_t k_blocks = (groups + step - 1) / step;
    for (size_t i = 0; i < k_blocks; ++i) {
      part_.Clear();
      Add(i * step, i + 1 < k_blocks ? (i + 1) * step : groups, part_);
      AddScaled(i, k_blocks);
    }
    return total_;
  }

 private:
  using Sums = Tile<1, Blocks, Planes>;

  void Add(size_t first, size_t last, Sums& sums) const {
    const __m512i mask = _mm512_set1_epi8(15);
    const __m512i eight = _mm512_set1_epi8(8);
    for (size_t g = first; g < last; ++g) {
      __m512i low[Planes], high[Planes];
#pragma GCC unroll 2
      for (size_t p = 0; p < Planes; ++p) {
        const std::byte* at = x_ + (p * columns_.k_groups + g) * 8;
        low[p] = Simd::Broadcast32(at);
        high[p] = Simd::Broadcast32(at + 4);
      }
#pragma GCC unroll 4
      for (size_t b = 0; b < Blocks; ++b) {
        const std::byte* at = columns_.data + ((block_ + b) * columns_.k_groups + g) * 64;
        _mm_prefetch(reinterpret_cast<const char*>(at) + 2048, _MM_HINT_T0);
        const __m512i pairs = _mm512_loadu_si512(at);
        const __m512i a = _mm512_sub_epi8(_mm512_and_si512(pairs, mask), eight);
        const __m512i c =
            _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(pairs, 4), mask), eight);
#pragma GCC unroll 2
        for (size_t p = 0; p < Planes; ++p) {
          sums.sum[0][b][p] = _mm512_dpbusd_epi32(sums.sum[0][b][p], low[p], a);
          sums.sum[0][b][p] = _mm512_dpbusd_epi32(sums.sum[0][b][p], high[p], c);
        }
      }
    }
  }

  void AddScaled(size_t k_block, size_t k_blocks) {
#pragma GCC unroll 4
    for (size_t b = 0; b < Blocks; ++b) {
      const uint8_t* at = columns_.multipliers + ((block_ + b) * k_blocks + k_block) * 16;
      const __m512i by = Simd::WidenU8(at);
#pragma GCC unroll 2
      for (size_t p = 0; p < Planes; ++p) {
        total_.sum[0][b][p] =
            _mm512_add_epi32(total_.sum[0][b][p], _mm512_mullo_epi32(part_.sum[0][b][p], by));
      }
    }
  }

  const std::byte* x_;
  const NibbleColumns& columns_;
  size_t block_;
  Sums total_, part_;
};

template <size_t Planes>
void RowByNibbles(const std::byte* x, const NibbleColumns& columns, const Finisher& sink) {
  const size_t blocks = (columns.count + 15) / 16;
  size_t b = 0;
  for (; b + 4 <= blocks; b += 4) {
    sink.Take(NibbleTile<4, Planes>(x, columns, b).Run(), 0, b * 16);
  }
  for (; b < blocks; ++b) sink.Take(NibbleTile<1, Planes>(x, columns, b).Run(), 0, b * 16);
}

void NibbleRow(const std::byte* prepared, DType dtype, const NibbleColumns& columns,
               const ProductFinish& finish, std::byte* out) {
  const Finisher sink(finish, columns.count, out, 0);
  if (IsWide(dtype)) {
    RowByNibbles<2>(prepared, columns, sink);
  } else {
    RowByNibbles<1>(prepared, columns, sink);
  }
}

}  // namespace avx512vnni

const IntegerProducts& Avx512VnniProducts() {
  static constexpr IntegerProducts kProducts = {
      avx512vnni::LinearRowBytes, avx512vnni::LinearBase,    avx512vnni::PrepareLinearRow,
      avx512vnni::Linear,         avx512vnni::pairs::MatMul, avx512vnni::LinearQuantized,
      avx512vnni::NibbleRow};
  return kProducts;
}

}  // namespace spillway::host
HWY_POP_ATTRIBUTES

#endif  // defined(__x86_64__)
