// The second moments of a Linear's inputs, X^T X, and the triangular factor that
// GPTQ rounds with.

#ifndef SPILLWAY_QUANTIZE_HESSIAN_H_
#define SPILLWAY_QUANTIZE_HESSIAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "quantize/tiled_matrix.h"
#include "spillway/status.h"

namespace spillway {

// Second moments of the inputs of one or several Linears that read the same
// tensor. Filled by Add(), then Finish(); afterwards const methods may be called
// from several threads. Memory while rows come in: dim^2 floats; Finish() needs
// three times that, and keeps two.
//
// H is X^T X / rows with what lies beside the diagonal multiplied by rows / (rows + dim): sums
// over few rows show dependences between inputs that other text does not have, and rounding must
// not count on those (in the manner of Ledoit and Wolf, 2004).
// The error of a row of weights w rounded to v is then (w - v) H (w - v)^T. With the columns in
// `order()` (largest second moment first) and H + damping = U U^T, U upper triangular, it is the
// sum over columns j of (U_jj (t_j - v_j))^2 where
//   t_j = w_j + sum over i < j of (w_i - v_i) U_ij / U_jj,
// so rounding t_j instead of w_j compensates the errors of the columns before
// (GPTQ; Frantar et al., 2022, in the form of Babai's nearest plane).
class InputHessian {
 public:
  explicit InputHessian(uint32_t dim);

  // Adds `count` rows of `dim` f32. The result depends on the sequence of rows
  // only, not on how calls divide it nor on the number of threads.
  void Add(const float* rows, size_t count, ThreadPool* pool);

  // Ends the adding. `damping` is added to the diagonal in units of its mean.
  // kCorruptData when an input was not finite. With `factorise` false only
  // second_moments() is there afterwards and the matrix is dropped.
  Status Finish(ThreadPool* pool, bool factorise = true, float damping = 0.01f);

  uint32_t dim() const { return dim_; }
  uint64_t rows() const { return rows_; }
  // mean of x_k^2, in the order of the inputs; after Finish().
  const std::vector<float>& second_moments() const { return second_moments_; }

  // After Finish() with `factorise`:
  bool factorised() const { return factorised_; }
  // Column j of the matrices below is input order()[j].
  const std::vector<uint32_t>& order() const { return order_; }
  // H, without damping; 1 on the diagonal beyond dim.
  const TiledMatrix& matrix() const { return matrix_; }
  // (j, i) = U_ij / U_jj for i < j; zeros elsewhere.
  const TiledMatrix& factor() const { return factor_; }

 private:
  void Flush(ThreadPool* pool);
  void SortColumns(ThreadPool* pool);
  bool Factorise(double damping, ThreadPool* pool);

  uint32_t dim_;
  uint64_t rows_ = 0;
  bool factorised_ = false;
  TiledMatrix matrix_, factor_;
  std::vector<float> second_moments_;
  std::vector<uint32_t> order_;
  // Rows not added yet: [tile column][row][64], and the same transposed.
  size_t waiting_ = 0;
  AlignedBuffer chunk_, transposed_;
};

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_HESSIAN_H_
