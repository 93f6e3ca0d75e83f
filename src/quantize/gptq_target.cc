#include "quantize/gptq_target.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "host/dispatch.h"
#include "host/kernel_table.h"
#include "quantize/weights.h"

namespace spillway {
namespace {

constexpr size_t kTile = TiledMatrix::kTile;
constexpr size_t kChunk = 256;  // tokens at a time

// Columns [64 * tile, +64) of rows [count][width], zeros beyond the width.
void CopyColumns(const float* rows, size_t count, size_t width, size_t tile, float* out) {
  const size_t used = std::min(kTile, width - tile * kTile);
  for (size_t r = 0; r < count; ++r) {
    std::memcpy(out + r * kTile, rows + r * width + tile * kTile, used * sizeof(float));
    std::fill(out + r * kTile + used, out + (r + 1) * kTile, 0.0f);
  }
}

// X'^T X' + ridge / rows, in the Hessian's order: what lies beside its diagonal was shrunk,
// but the sums that are multiplied with the solution were not.
TiledMatrix RidgeMatrix(const InputHessian& hessian, float ridge) {
  const size_t dim = hessian.dim();
  const auto rows = static_cast<float>(std::max<uint64_t>(hessian.rows(), 1));
  const float beside = (rows + static_cast<float>(dim)) / rows;
  TiledMatrix matrix(dim);
  double mean = 0.0;
  for (size_t j = 0; j < dim; ++j) mean += hessian.matrix().At(j, j) / static_cast<double>(dim);
  const auto added = static_cast<float>(std::max(mean * ridge, 1e-30));
  for (size_t j = 0; j < matrix.padded_dim(); ++j) {
    for (size_t i = j; i < matrix.padded_dim(); ++i) {
      const float value = hessian.matrix().At(i, j);
      matrix.At(i, j) = i == j ? value + added : value * beside;
    }
  }
  return matrix;
}

}  // namespace

OutputErrors::OutputErrors(uint32_t rows, uint32_t cols)
    : rows_(rows),
      cols_(cols),
      row_tiles_((rows + kTile - 1) / kTile),
      col_tiles_((cols + kTile - 1) / kTile),
      sums_(row_tiles_ * col_tiles_ * kTile * kTile * sizeof(float)) {
  std::memset(sums_.data(), 0, sums_.size());
}

void OutputErrors::Add(const float* inputs, const float* errors, size_t count, ThreadPool* pool) {
  const host::VectorOps& ops = *host::KernelsFor(host::SelectTarget()).vectors;
  std::vector<float> left(col_tiles_ * kChunk * kTile), right(row_tiles_ * kChunk * kTile);
  auto* sums = reinterpret_cast<float*>(sums_.data());
  for (size_t begin = 0; begin < count; begin += kChunk) {
    const size_t tokens = std::min(kChunk, count - begin);
    pool->ParallelFor(col_tiles_, 1, [&](size_t first, size_t last, size_t) {
      std::vector<float> copy(kChunk * kTile);
      for (size_t tile = first; tile < last; ++tile) {
        CopyColumns(inputs + begin * cols_, tokens, cols_, tile, copy.data());
        TransposeTile(copy.data(), kTile, tokens, left.data() + tile * kChunk * kTile, tokens);
      }
    });
    for (size_t tile = 0; tile < row_tiles_; ++tile) {
      CopyColumns(errors + begin * rows_, tokens, rows_, tile,
                  right.data() + tile * kChunk * kTile);
    }
    pool->ParallelFor(row_tiles_ * col_tiles_, 4, [&](size_t first, size_t last, size_t) {
      alignas(64) float product[kTile * kTile];
      for (size_t block = first; block < last; ++block) {
        ops.product_columns_f32(left.data() + block % col_tiles_ * kChunk * kTile, kTile, tokens,
                                right.data() + block / col_tiles_ * kChunk * kTile, kTile, kTile,
                                product, kTile);
        float* out = sums + block * kTile * kTile;
        for (size_t n = 0; n < kTile * kTile; ++n) out[n] += product[n];
      }
    });
  }
}

std::shared_ptr<const ConstantData> OutputErrors::Correct(const ConstantData& weights,
                                                          const InputHessian& hessian,
                                                          ThreadPool* pool, float strength,
                                                          float ridge) const {
  const auto* floats = reinterpret_cast<const float*>(weights.bytes().data());
  std::vector<float> corrected(floats, floats + static_cast<size_t>(rows_) * cols_);
  TiledMatrix matrix = RidgeMatrix(hessian, ridge);
  if (Cholesky(matrix, pool)) {
    const SymmetricSolver solver(std::move(matrix));
    const auto& order = hessian.order();
    const auto* sums = reinterpret_cast<const float*>(sums_.data());
    const float factor = strength / static_cast<float>(std::max<uint64_t>(hessian.rows(), 1));
    pool->ParallelFor(row_tiles_, 1, [&](size_t first, size_t last, size_t) {
      std::vector<float> change(col_tiles_ * kTile * kTile);
      for (size_t tile = first; tile < last; ++tile) {
        std::fill(change.begin(), change.end(), 0.0f);
        const float* from = sums + tile * change.size();
        for (size_t j = 0; j < cols_; ++j) {
          std::memcpy(change.data() + j * kTile, from + order[j] * kTile, kTile * sizeof(float));
        }
        solver.Solve(change.data());
        for (size_t r = 0; r < std::min(kTile, rows_ - tile * kTile); ++r) {
          float* row = corrected.data() + (tile * kTile + r) * cols_;
          for (size_t j = 0; j < cols_; ++j) row[order[j]] += factor * change[j * kTile + r];
        }
      }
    });
  }
  const bool finite = std::all_of(corrected.begin(), corrected.end(),
                                  [](float value) { return std::isfinite(value); });
  return MakeConstant(finite ? std::as_bytes(std::span(corrected)) : weights.bytes());
}

}  // namespace spillway
