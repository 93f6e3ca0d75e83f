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

// Rows x (Blocks * 16 channels); sums' rows are `stride` apart.
template <size_t Rows, size_t Blocks, size_t Planes>
void LinearTile(const std::byte* x, size_t row_bytes, const int8_t* w, size_t k_groups,
                size_t stride, double* sums) {
  __m512i sum[Rows][Blocks][Planes];
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t b = 0; b < Blocks; ++b) {
      for (size_t p = 0; p < Planes; ++p) sum[r][b][p] = _mm512_setzero_si512();
    }
  }
  for (size_t g = 0; g < k_groups; ++g) {
    __m512i weights[Blocks];
#pragma GCC unroll 4
    for (size_t b = 0; b < Blocks; ++b) {
      weights[b] = _mm512_loadu_si512(w + (b * k_groups + g) * 64);
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
  for (size_t r = 0; r < Rows; ++r) {
    for (size_t b = 0; b < Blocks; ++b) {
      double* out = sums + r * stride + b * 16;
      for (size_t i = 0; i < 16; ++i) out[i] = 0.0;
      Simd::AddToDoubles(out, sum[r][b][0], Planes == 2 ? 256.0 : 1.0);
      if constexpr (Planes == 2) Simd::AddToDoubles(out, sum[r][b][1], 1.0);
    }
  }
}

template <size_t Rows, size_t Planes>
void LinearRows(const std::byte* x, size_t row_bytes, const int8_t* weights, size_t k_groups,
                size_t blocks, double* sums) {
  constexpr size_t kBlocks = Rows <= 2 ? 4 : 2;  // 8 to 24 accumulators
  const size_t stride = blocks * 16;
  size_t b = 0;
  for (; b + kBlocks <= blocks; b += kBlocks) {
    LinearTile<Rows, kBlocks, Planes>(x, row_bytes, weights + b * k_groups * 64, k_groups, stride,
                                      sums + b * 16);
  }
  for (; b < blocks; ++b) {
    LinearTile<Rows, 1, Planes>(x, row_bytes, weights + b * k_groups * 64, k_groups, stride,
                                sums + b * 16);
  }
}

template <size_t Planes>
void LinearPlanes(const std::byte* x, size_t row_bytes, size_t rows, const int8_t* weights,
                  size_t k_groups, size_t blocks, double* sums) {
  size_t r = 0;
  const auto next = [&](auto count) {
    constexpr size_t kCount = decltype(count)::value;
    for (; r + kCount <= rows; r += kCount) {
      LinearRows<kCount, Planes>(x + r * row_bytes, row_bytes, weights, k_groups, blocks,
                                 sums + r * blocks * 16);
    }
  };
  next(std::integral_constant<size_t, 6>());
  next(std::integral_constant<size_t, 4>());
  next(std::integral_constant<size_t, 2>());
  next(std::integral_constant<size_t, 1>());
}

void Linear(const std::byte* prepared, size_t row_bytes, size_t rows, DType dtype,
            const int8_t* weights, size_t k_groups, size_t blocks, double* sums) {
  if (IsWide(dtype)) {
    LinearPlanes<2>(prepared, row_bytes, rows, weights, k_groups, blocks, sums);
  } else {
    LinearPlanes<1>(prepared, row_bytes, rows, weights, k_groups, blocks, sums);
  }
}

}  // namespace avx512vnni

const IntegerProducts& Avx512VnniProducts() {
  static constexpr IntegerProducts kProducts = {avx512vnni::LinearRowBytes, avx512vnni::LinearBase,
                                                avx512vnni::PrepareLinearRow, avx512vnni::Linear,
                                                avx512vnni::pairs::MatMul};
  return kProducts;
}

}  // namespace spillway::host
HWY_POP_ATTRIBUTES

#endif  // defined(__x86_64__)
