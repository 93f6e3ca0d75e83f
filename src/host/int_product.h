// Products of prepared rows with packed columns, finished and stored: what Linear and
// attention share.

#ifndef SPILLWAY_HOST_INT_PRODUCT_H_
#define SPILLWAY_HOST_INT_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "host/kernel_table.h"

namespace spillway::host {

struct ProductRows {
  const std::byte* data = nullptr;  // as prepare_linear_row() writes them
  size_t row_bytes = 0, count = 0;
  DType dtype = DType::kU16;
};

struct ProductColumns {
  const int8_t* data = nullptr;  // kPackedN16K4, whole blocks of 16 columns
  size_t k_groups = 0, count = 0;
};

// Doubles of scratch memory that QuantizedProduct needs.
inline constexpr size_t kProductScratch = size_t{48} * 64;

// out(r, c) = the finished product of row r and column c; rows of out are `out_stride`
// bytes apart. The arrays of `finish` have whole blocks of 16 columns.
void QuantizedProduct(const KernelTable& table, const ProductRows& rows,
                      const ProductColumns& columns, const ProductFinish& finish, double* scratch,
                      std::byte* out, size_t out_stride);

// sums[c] = the sum of column c's values, for whole blocks of 16 columns. `scratch` holds k
// bytes and a prepared u8 row of k = 4 * k_groups values.
void ColumnSums(const KernelTable& table, const ProductColumns& columns, std::byte* scratch,
                double* sums);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_INT_PRODUCT_H_
