#include "quantize/hessian.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "host/dispatch.h"
#include "host/kernel_table.h"

namespace spillway {
namespace {

constexpr size_t kTile = TiledMatrix::kTile;
constexpr size_t kChunkRows = 256;

const host::VectorOps& Ops() { return *host::KernelsFor(host::SelectTarget()).vectors; }

void TransposeTile(const float* in, size_t in_stride, size_t rows, float* out, size_t out_stride) {
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < kTile; ++j) out[j * out_stride + i] = in[i * in_stride + j];
  }
}

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

// Replaces the lower tiles of a symmetric matrix by its Cholesky factor L,
// a = L L^T, one tile column after another. False when it is not positive
// definite.
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

}  // namespace

TiledMatrix::TiledMatrix(size_t dim)
    : tiles_((dim + kTile - 1) / kTile), buffer_(tiles_ * tiles_ * kTile * kTile * sizeof(float)) {
  std::memset(buffer_.data(), 0, buffer_.size());
}

InputHessian::InputHessian(uint32_t dim)
    : dim_(dim),
      matrix_(dim),
      chunk_(matrix_.padded_dim() * kChunkRows * sizeof(float)),
      transposed_(chunk_.size()) {
  std::memset(chunk_.data(), 0, chunk_.size());
}

void InputHessian::Add(const float* rows, size_t count, ThreadPool* pool) {
  auto* chunk = reinterpret_cast<float*>(chunk_.data());
  for (size_t r = 0; r < count; ++r) {
    const float* row = rows + r * dim_;
    for (size_t tile = 0; tile * kTile < dim_; ++tile) {
      std::memcpy(chunk + (tile * kChunkRows + waiting_) * kTile, row + tile * kTile,
                  std::min<size_t>(kTile, dim_ - tile * kTile) * sizeof(float));
    }
    if (++waiting_ == kChunkRows) Flush(pool);
  }
  rows_ += count;
}

// Adds the waiting rows' products to the tiles on and above the diagonal.
void InputHessian::Flush(ThreadPool* pool) {
  const host::VectorOps& ops = Ops();
  const size_t tiles = matrix_.tiles();
  const size_t count = waiting_;
  if (count == 0) return;
  const auto* chunk = reinterpret_cast<const float*>(chunk_.data());
  auto* transposed = reinterpret_cast<float*>(transposed_.data());
  pool->ParallelFor(tiles, 1, [&](size_t begin, size_t end, size_t) {
    for (size_t tile = begin; tile < end; ++tile) {
      TransposeTile(chunk + tile * kChunkRows * kTile, kTile, count,
                    transposed + tile * kChunkRows * kTile, count);
    }
  });
  // Tile columns c and tiles - 1 - c together have the same work for every c.
  pool->ParallelFor((tiles + 1) / 2, 1, [&](size_t begin, size_t end, size_t) {
    alignas(64) float product[kTile * kTile];
    const auto add_column = [&](size_t col) {
      for (size_t row = 0; row <= col; ++row) {
        ops.product_columns_f32(transposed + row * kChunkRows * kTile, kTile, count,
                                chunk + col * kChunkRows * kTile, kTile, kTile, product, kTile);
        float* out = matrix_.Tile(row, col);
        for (size_t n = 0; n < kTile * kTile; ++n) out[n] += product[n];
      }
    };
    for (size_t c = begin; c < end; ++c) {
      add_column(c);
      if (tiles - 1 - c != c) add_column(tiles - 1 - c);
    }
  });
  waiting_ = 0;
}

Status InputHessian::Finish(ThreadPool* pool, bool factorise, float damping) {
  Flush(pool);
  chunk_ = AlignedBuffer();
  transposed_ = AlignedBuffer();
  second_moments_.resize(dim_);
  double mean = 0.0;
  for (uint32_t k = 0; k < dim_; ++k) {
    const double moment = matrix_.At(k, k) / static_cast<double>(std::max<uint64_t>(rows_, 1));
    second_moments_[k] = static_cast<float>(moment);
    mean += moment / dim_;
  }
  if (!std::isfinite(mean)) {
    return CorruptDataError(fmt::format(
        "the inputs of a product with {} columns have values that are not finite", dim_));
  }
  if (!factorise) {
    matrix_ = TiledMatrix();
    return OkStatus();
  }
  SortColumns(pool);
  double added = std::max(mean * damping, 1e-30);
  while (!Factorise(added, pool)) {
    added *= 10.0;
    if (!std::isfinite(added)) {
      return CorruptDataError(fmt::format(
          "the second moments of a product with {} columns are too large to factorise", dim_));
    }
  }
  factorised_ = true;
  return OkStatus();
}

// Turns sums into the shrunk means and brings both halves into order().
void InputHessian::SortColumns(ThreadPool* pool) {
  order_.resize(matrix_.padded_dim());
  std::iota(order_.begin(), order_.end(), 0u);
  std::stable_sort(order_.begin(), order_.begin() + dim_,
                   [&](uint32_t a, uint32_t b) { return second_moments_[a] > second_moments_[b]; });
  TiledMatrix sorted(dim_);
  const auto rows = static_cast<float>(std::max<uint64_t>(rows_, 1));
  const float on_diagonal = 1.0f / rows;
  const float beside = 1.0f / (rows + static_cast<float>(dim_));
  const size_t padded = matrix_.padded_dim();
  pool->ParallelFor(padded, kTile, [&](size_t begin, size_t end, size_t) {
    for (size_t j = begin; j < end; ++j) {
      for (size_t i = 0; i < padded; ++i) {
        const auto [low, high] = std::minmax(order_[i], order_[j]);
        const float sum = matrix_.At(low, high);
        sorted.At(i, j) = i != j ? sum * beside : low >= dim_ ? 1.0f : sum * on_diagonal;
      }
    }
  });
  order_.resize(dim_);
  matrix_ = std::move(sorted);
}

// U is the Cholesky factor of the matrix with rows and columns from last to first,
// turned around again.
bool InputHessian::Factorise(double damping, ThreadPool* pool) {
  const size_t padded = matrix_.padded_dim();
  const size_t tiles = matrix_.tiles();
  TiledMatrix reversed(dim_);
  pool->ParallelFor(tiles, 1, [&](size_t begin, size_t end, size_t) {
    for (size_t col = begin; col < end; ++col) {
      for (size_t row = col; row < tiles; ++row) {
        const float* in = matrix_.Tile(tiles - 1 - row, tiles - 1 - col);
        std::reverse_copy(in, in + kTile * kTile, reversed.Tile(row, col));
      }
    }
  });
  for (size_t i = 0; i < padded; ++i) {
    reversed.At(i, i) = static_cast<float>(reversed.At(i, i) + damping);
  }
  if (!Cholesky(reversed, pool)) return false;
  factor_ = TiledMatrix(dim_);
  pool->ParallelFor(tiles, 1, [&](size_t begin, size_t end, size_t) {
    for (size_t j = begin * kTile; j < end * kTile; ++j) {
      const float inverse = 1.0f / reversed.At(padded - 1 - j, padded - 1 - j);
      for (size_t i = 0; i < j; ++i) {
        factor_.At(j, i) = reversed.At(padded - 1 - i, padded - 1 - j) * inverse;
      }
    }
  });
  return true;
}

}  // namespace spillway
