#include "quantize/tiled_matrix.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "host/dispatch.h"
#include "host/kernel_table.h"

namespace spillway {
namespace {

constexpr size_t kTile = TiledMatrix::kTile;

const host::VectorOps& Ops() { return *host::KernelsFor(host::SelectTarget()).vectors; }

// The Cholesky factor of a tile, in place in its lower triangle; the upper one
// becomes zeros. False when it is not positive definite.
bool FactorTile(float* tile) {
  double a[kTile][kTile];
  for (size_t i = 0; i < kTile; ++i) {
    for (size_t j = 0; j <= i; ++j) a[i][j] = tile[i * kTile + j];
  }
  for (size_t j = 0; j < kTile; ++j) {
    double pivot = a[j][j];
    for (size_t k = 0; k < j; ++k) pivot -= a[j][k] * a[j][k];
    if (!(pivot > 0.0)) return false;
    a[j][j] = std::sqrt(pivot);
    for (size_t i = j + 1; i < kTile; ++i) {
      double sum = a[i][j];
      for (size_t k = 0; k < j; ++k) sum -= a[i][k] * a[j][k];
      a[i][j] = sum / a[j][j];
    }
  }
  for (size_t i = 0; i < kTile; ++i) {
    for (size_t j = 0; j < kTile; ++j) {
      tile[i * kTile + j] = j <= i ? static_cast<float>(a[i][j]) : 0.0f;
    }
  }
  return true;
}

// The inverse of a lower triangular tile.
void InvertTile(const float* lower, float* inverse) {
  double a[kTile][kTile] = {};
  for (size_t j = 0; j < kTile; ++j) {
    for (size_t i = j; i < kTile; ++i) {
      double sum = i == j ? 1.0 : 0.0;
      for (size_t k = j; k < i; ++k) sum -= lower[i * kTile + k] * a[k][j];
      a[i][j] = sum / lower[i * kTile + i];
    }
  }
  for (size_t i = 0; i < kTile; ++i) {
    for (size_t j = 0; j < kTile; ++j) inverse[i * kTile + j] = static_cast<float>(a[i][j]);
  }
}

// out = a * b, tiles all.
void MultiplyTile(const float* a, const float* b, float* out) {
  Ops().product_columns_f32(a, kTile, kTile, b, kTile, kTile, out, kTile);
}

}  // namespace

TiledMatrix::TiledMatrix(size_t dim)
    : tiles_((dim + kTile - 1) / kTile), buffer_(tiles_ * tiles_ * kTile * kTile * sizeof(float)) {
  std::memset(buffer_.data(), 0, buffer_.size());
}

void TransposeTile(const float* in, size_t in_stride, size_t rows, float* out, size_t out_stride) {
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < kTile; ++j) out[j * out_stride + i] = in[i * in_stride + j];
  }
}

void AddTileColumn(const TiledMatrix& matrix, size_t col, size_t first, size_t last,
                   const float* in, float factor, float* out) {
  alignas(64) float product[kTile * kTile];
  for (size_t row = first; row < last; ++row) {
    MultiplyTile(matrix.Tile(row, col), in, product);
    float* to = out + row * kTile * kTile;
    for (size_t n = 0; n < kTile * kTile; ++n) to[n] += factor * product[n];
  }
}

bool Cholesky(TiledMatrix& a, ThreadPool* pool) {
  const host::VectorOps& ops = Ops();
  const size_t tiles = a.tiles();
  std::vector<float> inverse(kTile * kTile), inverse_t(kTile * kTile);
  for (size_t k = 0; k < tiles; ++k) {
    if (!FactorTile(a.Tile(k, k))) return false;
    InvertTile(a.Tile(k, k), inverse.data());
    TransposeTile(inverse.data(), kTile, kTile, inverse_t.data(), kTile);
    const size_t rest = tiles - k - 1;
    pool->ParallelFor(rest, 1, [&](size_t begin, size_t end, size_t) {
      alignas(64) float product[kTile * kTile];
      for (size_t i = k + 1 + begin; i < k + 1 + end; ++i) {
        ops.product_columns_f32(a.Tile(i, k), kTile, kTile, inverse_t.data(), kTile, kTile, product,
                                kTile);
        std::memcpy(a.Tile(i, k), product, sizeof(product));
      }
    });
    pool->ParallelFor(rest, 1, [&](size_t begin, size_t end, size_t) {
      alignas(64) float right[kTile * kTile];
      alignas(64) float product[kTile * kTile];
      for (size_t j = k + 1 + begin; j < k + 1 + end; ++j) {
        TransposeTile(a.Tile(j, k), kTile, kTile, right, kTile);
        for (size_t i = j; i < tiles; ++i) {
          ops.product_columns_f32(a.Tile(i, k), kTile, kTile, right, kTile, kTile, product, kTile);
          float* out = a.Tile(i, j);
          for (size_t n = 0; n < kTile * kTile; ++n) out[n] -= product[n];
        }
      }
    });
  }
  return true;
}

SymmetricSolver::SymmetricSolver(TiledMatrix a)
    : factor_(std::move(a)),
      inverses_(factor_.tiles() * kTile * kTile),
      inverses_t_(inverses_.size()) {
  for (size_t k = 0; k < factor_.tiles(); ++k) {
    float* inverse = inverses_.data() + k * kTile * kTile;
    InvertTile(factor_.Tile(k, k), inverse);
    TransposeTile(inverse, kTile, kTile, inverses_t_.data() + k * kTile * kTile, kTile);
    for (size_t i = k + 1; i < factor_.tiles(); ++i) {
      TransposeTile(factor_.Tile(i, k), kTile, kTile, factor_.Tile(k, i), kTile);
    }
  }
}

void SymmetricSolver::Solve(float* values) const {
  const size_t tiles = factor_.tiles();
  alignas(64) float solved[kTile * kTile];
  const auto divide = [&](const std::vector<float>& inverses, size_t k) {
    MultiplyTile(inverses.data() + k * kTile * kTile, values + k * kTile * kTile, solved);
    std::memcpy(values + k * kTile * kTile, solved, sizeof(solved));
  };
  for (size_t k = 0; k < tiles; ++k) {
    divide(inverses_, k);
    AddTileColumn(factor_, k, k + 1, tiles, solved, -1.0f, values);
  }
  for (size_t k = tiles; k-- > 0;) {
    divide(inverses_t_, k);
    AddTileColumn(factor_, k, 0, k, solved, -1.0f, values);
  }
}

}  // namespace spillway
