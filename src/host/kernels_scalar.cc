// Integer products as plain loops, with the same packed weights and prepared rows
// as the vector versions.

#include "host/kernel_table.h"

namespace spillway::host {
namespace {

// Prepared rows are s32, q as it is.
size_t LinearRowBytes(DType /*dtype*/, size_t k) { return (k + 3) / 4 * 4 * sizeof(int32_t); }
int32_t LinearBase(DType /*dtype*/) { return 0; }

void PrepareLinearRow(const std::byte* x, DType dtype, size_t k, std::byte* prepared) {
  int32_t* out = reinterpret_cast<int32_t*>(prepared);
  for (size_t i = 0; i < k; ++i) out[i] = LoadInt(x, dtype, i);
  for (size_t i = k; i < (k + 3) / 4 * 4; ++i) out[i] = 0;
}

void Linear(const std::byte* prepared, size_t row_bytes, size_t rows, DType /*dtype*/,
            const int8_t* weights, size_t k_groups, size_t blocks, double* sums) {
  for (size_t r = 0; r < rows; ++r) {
    const int32_t* x = reinterpret_cast<const int32_t*>(prepared + r * row_bytes);
    for (size_t b = 0; b < blocks; ++b) {
      const int8_t* w = weights + b * k_groups * 64;
      int64_t sum[16] = {};
      for (size_t g = 0; g < k_groups; ++g) {
        for (size_t i = 0; i < 64; ++i) sum[i / 4] += x[g * 4 + i % 4] * w[g * 64 + i];
      }
      for (size_t c = 0; c < 16; ++c) sums[(r * blocks + b) * 16 + c] = static_cast<double>(sum[c]);
    }
  }
}

void MatMul(const int16_t* a, size_t a_stride, size_t rows, const std::byte* b, DType b_dtype,
            size_t ldb, size_t k, size_t n, std::byte* /*scratch*/, double* sums) {
  const int32_t base = MatMulBaseB(b_dtype);
  for (size_t i = 0; i < rows * n; ++i) sums[i] = 0.0;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < k; ++i) {
      const double value = a[r * a_stride + i];
      for (size_t c = 0; c < n; ++c) {
        sums[r * n + c] += value * (LoadInt(b, b_dtype, i * ldb + c) - base);
      }
    }
  }
}

}  // namespace

const IntegerProducts& ScalarProducts() {
  static constexpr IntegerProducts kProducts = {LinearRowBytes, LinearBase, PrepareLinearRow,
                                                Linear, MatMul};
  return kProducts;
}

}  // namespace spillway::host
