#include "host/int_product.h"

#include <algorithm>
#include <cstring>

namespace spillway::host {
namespace {

constexpr size_t kRows = 48;
constexpr size_t kColumns = 64;
static_assert(kRows * kColumns == kProductScratch);

}  // namespace

void QuantizedProduct(const KernelTable& table, const ProductRows& rows,
                      const ProductColumns& columns, const ProductFinish& finish, double* scratch,
                      std::byte* out, size_t out_stride) {
  const IntegerProducts& products = *table.products;
  const bool is_unsigned = rows.dtype == DType::kU8 || rows.dtype == DType::kU16;
  if (products.linear_quantized != nullptr && is_unsigned) {
    products.linear_quantized(rows.data, rows.row_bytes, rows.count, rows.dtype, columns.data,
                              columns.k_groups, columns.count, finish, out, out_stride);
    return;
  }
  const size_t size = DTypeSize(finish.out.dtype);
  for (size_t c = 0; c < columns.count; c += kColumns) {
    const size_t count = std::min(kColumns, columns.count - c);
    const size_t blocks = (count + 15) / 16;
    const int8_t* data = columns.data + c / 16 * columns.k_groups * 64;
    for (size_t r = 0; r < rows.count; r += kRows) {
      const size_t band = std::min(kRows, rows.count - r);
      products.linear(rows.data + r * rows.row_bytes, rows.row_bytes, band, rows.dtype, data,
                      columns.k_groups, blocks, scratch);
      for (size_t i = 0; i < band; ++i) {
        double* sums = scratch + i * blocks * 16;
        table.vectors->finish_product(sums, finish.base + c, finish.unit, finish.correction + c,
                                      finish.factor + c, count);
        table.vectors->store(sums, count, finish.out, out + (r + i) * out_stride + c * size);
      }
    }
  }
}

void ColumnSums(const KernelTable& table, const ProductColumns& columns, std::byte* scratch,
                double* sums) {
  const IntegerProducts& products = *table.products;
  const size_t k = columns.k_groups * 4;
  std::byte* prepared = scratch + k;
  std::memset(scratch, 1, k);
  products.prepare_linear_row(scratch, DType::kU8, k, prepared);
  products.linear(prepared, products.linear_row_bytes(DType::kU8, k), 1, DType::kU8, columns.data,
                  columns.k_groups, (columns.count + 15) / 16, sums);
  const double one = 1 - products.linear_base(DType::kU8);  // as it was prepared
  if (one == 1.0) return;
  for (size_t c = 0; c < (columns.count + 15) / 16 * 16; ++c) sums[c] /= one;
}

}  // namespace spillway::host
