#include "host/float_product.h"

#include <algorithm>

#ifdef SPILLWAY_HAVE_OPENBLAS
#include <cblas.h>
#endif

namespace spillway::host {
namespace {

// Below, dot products are faster than a general product's set-up.
constexpr size_t kFewRows = 2;

#ifdef SPILLWAY_HAVE_OPENBLAS
// The host splits the work itself.
void UseOneThread() {
  [[maybe_unused]] static const bool kDone = [] {
    openblas_set_num_threads(1);
    return true;
  }();
}

blasint Int(size_t value) { return static_cast<blasint>(value); }
#endif

}  // namespace

void ProductWithRows(const VectorOps& vectors, const float* a, size_t rows, size_t k,
                     const float* b, size_t n, float* out, size_t ldo) {
#ifdef SPILLWAY_HAVE_OPENBLAS
  if (rows > kFewRows) {
    UseOneThread();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, Int(rows), Int(n), Int(k), 1.0f, a, Int(k),
                b, Int(k), 0.0f, out, Int(ldo));
    return;
  }
#endif
  for (size_t c = 0; c < n; ++c) {
    for (size_t r = 0; r < rows; ++r) out[r * ldo + c] = vectors.dot_f32(a + r * k, b + c * k, k);
  }
}

void ProductWithColumns(const VectorOps& vectors, const float* a, size_t rows, size_t k,
                        const float* b, size_t ldb, size_t n, float* out, size_t ldo) {
#ifdef SPILLWAY_HAVE_OPENBLAS
  if (rows > kFewRows) {
    UseOneThread();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, Int(rows), Int(n), Int(k), 1.0f, a,
                Int(k), b, Int(ldb), 0.0f, out, Int(ldo));
    return;
  }
#endif
  for (size_t r = 0; r < rows; ++r) {
    float* row = out + r * ldo;
    std::fill(row, row + n, 0.0f);
    for (size_t i = 0; i < k; ++i) vectors.multiply_add_f32(a[r * k + i], b + i * ldb, n, row);
  }
}

}  // namespace spillway::host
