// Integer products with the 8-bit matrix instructions of ARMv8.6: single rows by dot
// products of unsigned with signed bytes (SUDOT), pairs of rows as products of 2 x 8 with
// 8 x 2 matrices (USMMLA). The products of attention are those of plain NEON.

#if defined(__aarch64__)

#include <arm_neon.h>

#include <type_traits>

#include "host/kernel_table.h"

#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm")
namespace spillway::host {
namespace neon_i8mm {
namespace {

struct Dot {
  static constexpr bool kSignedRows = false;
  template <int kLane>
  static int32x4_t Add(int32x4_t sum, int8x16_t weights, uint8x16_t values) {
    return vsudotq_laneq_s32(sum, weights, values, kLane);
  }
};

#include "host/neon_dot-inl.h"

// Sums of 2 * Pairs rows and half a block. A vector holds two rows of two channels:
// channels 0 and 2, 1 and 3, 4 and 6, 5 and 7 of the half.
template <size_t Pairs, size_t Planes>
struct MatrixTile {
  int32x4_t sum[Pairs][Planes][4];

  // `w`: the half's first group; two groups of inputs of a channel are put side by side.
  void Multiply(const uint8_t* x, size_t row_bytes, const int8_t* w, size_t k_groups) {
    for (auto& pair : sum) {
      for (auto& plane : pair) {
        for (int32x4_t& vector : plane) vector = vdupq_n_s32(0);
      }
    }
    size_t g = 0;
    for (; g + 2 <= k_groups; g += 2, w += 128) {
      Step(x + 4 * g, row_bytes, PlaneBytes(k_groups), vld1q_s8(w), vld1q_s8(w + 64),
           vld1q_s8(w + 16), vld1q_s8(w + 80));
    }
    if (g == k_groups) return;
    const int8x16_t none = vdupq_n_s8(0);
    Step(x + 4 * g, row_bytes, PlaneBytes(k_groups), vld1q_s8(w), none, vld1q_s8(w + 16), none);
  }

  void Step(const uint8_t* x, size_t row_bytes, size_t plane_bytes, int8x16_t first,
            int8x16_t first_next, int8x16_t second, int8x16_t second_next) {
    const int8x16_t weights[4] = {Even(first, first_next), Odd(first, first_next),
                                  Even(second, second_next), Odd(second, second_next)};
#pragma GCC unroll 2
    for (size_t r = 0; r < Pairs; ++r) {
#pragma GCC unroll 2
      for (size_t p = 0; p < Planes; ++p) {
        const uint8_t* at = x + 2 * r * row_bytes + p * plane_bytes;
        const uint8x16_t values = vcombine_u8(vld1_u8(at), vld1_u8(at + row_bytes));
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; ++v) {
          sum[r][p][v] = vusmmlaq_s32(sum[r][p][v], values, weights[v]);
        }
      }
    }
  }

  void Store(double* sums, size_t stride) const {
    for (size_t r = 0; r < Pairs; ++r) {
      for (size_t v = 0; v < 4; ++v) {
        int32_t lanes[Planes][4];
        for (size_t p = 0; p < Planes; ++p) vst1q_s32(lanes[p], sum[r][p][v]);
        for (size_t i = 0; i < 4; ++i) {
          const size_t channel = v / 2 * 4 + v % 2 + i % 2 * 2;
          sums[(2 * r + i / 2) * stride + channel] = PlaneSum<Planes>(lanes, i);
        }
      }
    }
  }

 private:
  static int8x16_t Even(int8x16_t a, int8x16_t b) {
    return vreinterpretq_s8_s32(vtrn1q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
  }
  static int8x16_t Odd(int8x16_t a, int8x16_t b) {
    return vreinterpretq_s8_s32(vtrn2q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
  }
};

template <size_t Pairs, size_t Planes>
void MatrixRows(const std::byte* x, size_t row_bytes, const int8_t* weights, size_t k_groups,
                size_t blocks, double* sums) {
  for (size_t b = 0; b < blocks; ++b) {
    for (size_t half = 0; half < 2; ++half) {
      MatrixTile<Pairs, Planes> tile;
      tile.Multiply(reinterpret_cast<const uint8_t*>(x), row_bytes,
                    weights + b * k_groups * 64 + half * 32, k_groups);
      tile.Store(sums + b * 16 + half * 8, blocks * 16);
    }
  }
}

template <size_t Planes>
void LinearPlanes(const std::byte* x, size_t row_bytes, size_t rows, const int8_t* weights,
                  size_t k_groups, size_t blocks, double* sums) {
  size_t r = 0;
  const auto next = [&](auto pairs) {
    constexpr size_t kPairs = decltype(pairs)::value;
    for (; r + 2 * kPairs <= rows; r += 2 * kPairs) {
      MatrixRows<kPairs, Planes>(x + r * row_bytes, row_bytes, weights, k_groups, blocks,
                                 sums + r * blocks * 16);
    }
  };
  next(std::integral_constant<size_t, 2>());  // at most 16 accumulators
  next(std::integral_constant<size_t, 1>());
  if (r < rows) {
    DotRows<1, Planes>(x + r * row_bytes, row_bytes, weights, k_groups, blocks,
                       sums + r * blocks * 16);
  }
}

void Linear(const std::byte* prepared, size_t row_bytes, size_t rows, DType dtype,
            const int8_t* weights, size_t k_groups, size_t blocks, double* sums) {
  const auto linear = IsWide(dtype) ? LinearPlanes<2> : LinearPlanes<1>;
  linear(prepared, row_bytes, rows, weights, k_groups, blocks, sums);
}

}  // namespace
}  // namespace neon_i8mm

const IntegerProducts& NeonI8mmProducts() {
  static const IntegerProducts kProducts = {neon_i8mm::LinearRowBytes,   neon_i8mm::LinearBase,
                                            neon_i8mm::PrepareLinearRow, neon_i8mm::Linear,
                                            NeonProducts().matmul,       nullptr,
                                            neon_i8mm::NibbleRow};
  return kProducts;
}

}  // namespace spillway::host
#pragma GCC pop_options

#endif  // defined(__aarch64__)
