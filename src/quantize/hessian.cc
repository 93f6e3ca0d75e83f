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

}  // namespace

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
