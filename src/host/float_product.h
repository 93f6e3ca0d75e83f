// The f32 matrix products of the host: OpenBLAS when the build has it, otherwise
// loops over VectorOps.

#ifndef SPILLWAY_HOST_FLOAT_PRODUCT_H_
#define SPILLWAY_HOST_FLOAT_PRODUCT_H_

#include <cstddef>

#include "host/kernel_table.h"

namespace spillway::host {

// out[r * ldo + c] = sum_k a[r * k + i] * b[c * k + i], for `rows` and `n`. Runs on
// the calling thread. The result depends on the shape, not on the thread.
void ProductWithRows(const VectorOps& vectors, const float* a, size_t rows, size_t k,
                     const float* b, size_t n, float* out, size_t ldo);

// out[r * ldo + c] = sum_k a[r * k + i] * b[i * ldb + c].
void ProductWithColumns(const VectorOps& vectors, const float* a, size_t rows, size_t k,
                        const float* b, size_t ldb, size_t n, float* out, size_t ldo);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_FLOAT_PRODUCT_H_
