// Square f32 matrices in tiles, and symmetric systems of equations with them.

#ifndef SPILLWAY_QUANTIZE_TILED_MATRIX_H_
#define SPILLWAY_QUANTIZE_TILED_MATRIX_H_

#include <cstddef>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"

namespace spillway {

// A square f32 matrix in tiles of 64 x 64 whose elements lie together (row-major),
// one tile column after another; `dim` is padded to whole tiles.
class TiledMatrix {
 public:
  static constexpr size_t kTile = 64;

  TiledMatrix() = default;
  // Zeros.
  explicit TiledMatrix(size_t dim);

  size_t tiles() const { return tiles_; }  // a side
  size_t padded_dim() const { return tiles_ * kTile; }
  float* Tile(size_t row, size_t col) { return data() + (col * tiles_ + row) * kTile * kTile; }
  const float* Tile(size_t row, size_t col) const {
    return data() + (col * tiles_ + row) * kTile * kTile;
  }
  float& At(size_t i, size_t j) {
    return Tile(i / kTile, j / kTile)[i % kTile * kTile + j % kTile];
  }
  float At(size_t i, size_t j) const {
    return Tile(i / kTile, j / kTile)[i % kTile * kTile + j % kTile];
  }

 private:
  float* data() const { return reinterpret_cast<float*>(buffer_.data()); }
  size_t tiles_ = 0;
  AlignedBuffer buffer_;
};

// out[j * out_stride + i] = in[i * in_stride + j] for `rows` rows of 64.
void TransposeTile(const float* in, size_t in_stride, size_t rows, float* out, size_t out_stride);

// out[rows of tile i] += factor * matrix(tile i, tile column `col`) * in, for tile rows
// [first, last). `in` is [64][64]: the values that the column's 64 columns are multiplied with,
// for 64 vectors at once; `out` is [padded_dim][64].
void AddTileColumn(const TiledMatrix& matrix, size_t col, size_t first, size_t last,
                   const float* in, float factor, float* out);

// Replaces the lower tiles of a symmetric matrix by its Cholesky factor L,
// a = L L^T, one tile column after another. False when it is not positive
// definite. The result does not depend on the number of threads.
bool Cholesky(TiledMatrix& a, ThreadPool* pool);

// Solves a x = b for 64 vectors at once.
class SymmetricSolver {
 public:
  // `a`: its lower tiles are the Cholesky factor of the system's matrix.
  explicit SymmetricSolver(TiledMatrix a);

  size_t padded_dim() const { return factor_.padded_dim(); }

  // In place; `values` is [padded_dim][64]. May be called from several threads.
  void Solve(float* values) const;

 private:
  TiledMatrix factor_;                        // L below the diagonal, L^T above
  std::vector<float> inverses_, inverses_t_;  // of the tiles on the diagonal
};

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_TILED_MATRIX_H_
