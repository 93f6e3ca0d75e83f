// Integer products with the dot-product instructions of ARMv8.2 (SDOT). Rows become
// signed bytes, for the weights are; the products of attention are those of plain NEON.

#if defined(__aarch64__)

#include <arm_neon.h>

#include <type_traits>

#include "host/kernel_table.h"

#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
namespace spillway::host {
namespace neon_dotprod {
namespace {

struct Dot {
  static constexpr bool kSignedRows = true;
  template <int kLane>
  static int32x4_t Add(int32x4_t sum, int8x16_t weights, uint8x16_t values) {
    return vdotq_laneq_s32(sum, weights, vreinterpretq_s8_u8(values), kLane);
  }
};

#include "host/neon_dot-inl.h"

template <size_t Planes>
void LinearPlanes(const std::byte* x, size_t row_bytes, size_t rows, const int8_t* weights,
                  size_t k_groups, size_t blocks, double* sums) {
  size_t r = 0;
  const auto next = [&](auto count) {
    constexpr size_t kCount = decltype(count)::value;
    for (; r + kCount <= rows; r += kCount) {
      DotRows<kCount, Planes>(x + r * row_bytes, row_bytes, weights, k_groups, blocks,
                              sums + r * blocks * 16);
    }
  };
  next(std::integral_constant<size_t, 4 / Planes>());  // 16 accumulators
  next(std::integral_constant<size_t, 2 / Planes>());
  next(std::integral_constant<size_t, 1>());
}

void Linear(const std::byte* prepared, size_t row_bytes, size_t rows, DType dtype,
            const int8_t* weights, size_t k_groups, size_t blocks, double* sums) {
  const auto linear = IsWide(dtype) ? LinearPlanes<2> : LinearPlanes<1>;
  linear(prepared, row_bytes, rows, weights, k_groups, blocks, sums);
}

}  // namespace
}  // namespace neon_dotprod

const IntegerProducts& NeonDotprodProducts() {
  static const IntegerProducts kProducts = {
      neon_dotprod::LinearRowBytes, neon_dotprod::LinearBase, neon_dotprod::PrepareLinearRow,
      neon_dotprod::Linear,         NeonProducts().matmul,    nullptr,
      neon_dotprod::NibbleRow};
  return kProducts;
}

}  // namespace spillway::host
#pragma GCC pop_options

#endif  // defined(__aarch64__)
