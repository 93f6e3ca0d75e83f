#include "quantize/gptq.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quantize/weights_round.h"

namespace spillway {
namespace {

constexpr size_t kTile = TiledMatrix::kTile;
constexpr size_t kRows = kGptqRows;
static_assert(kRows == kTile);

// y[r] += a * x[r].
inline void AddScaled(float a, const float* __restrict x, float* __restrict y) {
  for (size_t r = 0; r < kRows; ++r) y[r] += a * x[r];
}

}  // namespace

GptqGroup::GptqGroup(const InputHessian* hessian) : hessian_(*hessian) {
  const size_t size = hessian_.matrix().padded_dim() * kRows;
  for (auto* values : {&weights, &steps, &integers, &target_, &residual_, &gradient_}) {
    values->assign(size, 0.0f);
  }
  std::fill(steps.begin(), steps.end(), 1.0f);
  block_.assign(kTile * kRows, 0.0f);
}

void GptqGroup::Round(float limit) {
  const TiledMatrix& factor = hessian_.factor();
  const size_t tiles = factor.tiles();
  target_ = weights;
  for (size_t tile = 0; tile < tiles; ++tile) {
    const float* within = factor.Tile(tile, tile);
    for (size_t j = 0; j < kTile; ++j) {
      const size_t at = (tile * kTile + j) * kRows;
      float* error = block_.data() + j * kRows;
      for (size_t r = 0; r < kRows; ++r) {
        const float step = steps[at + r];
        const float q = RoundClamped(target_[at + r] / step, limit);
        integers[at + r] = q;
        error[r] = weights[at + r] - q * step;
      }
      for (size_t k = j + 1; k < kTile; ++k) {
        AddScaled(within[k * kTile + j], error, target_.data() + at + (k - j) * kRows);
      }
    }
    AddTileColumn(factor, tile, tile + 1, tiles, block_.data(), 1.0f, target_.data());
  }
}

void GptqGroup::Product(const std::vector<float>& in, std::vector<float>& out) {
  const TiledMatrix& matrix = hessian_.matrix();
  std::fill(out.begin(), out.end(), 0.0f);
  for (size_t tile = 0; tile < matrix.tiles(); ++tile) {
    AddTileColumn(matrix, tile, 0, matrix.tiles(), in.data() + tile * kTile * kRows, 1.0f,
                  out.data());
  }
}

void GptqGroup::Gradient() {
  for (size_t i = 0; i < weights.size(); ++i) residual_[i] = weights[i] - steps[i] * integers[i];
  Product(residual_, gradient_);
}

void GptqGroup::Descend(float limit, int sweeps) {
  const TiledMatrix& matrix = hessian_.matrix();
  Gradient();
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    for (size_t tile = 0; tile < matrix.tiles(); ++tile) {
      const float* within = matrix.Tile(tile, tile);
      float* gradients = gradient_.data() + tile * kTile * kRows;
      for (size_t j = 0; j < kTile; ++j) {
        const float moment = within[j * kTile + j];
        float* moved = block_.data() + j * kRows;  // by how much the residual falls
        std::fill(moved, moved + kRows, 0.0f);
        if (!(moment > 0.0f)) continue;
        const size_t at = (tile * kTile + j) * kRows;
        const float inverse = 1.0f / moment;
        for (size_t r = 0; r < kRows; ++r) {
          const float step = steps[at + r];
          const float best = integers[at + r] + gradients[j * kRows + r] * inverse / step;
          const float q = RoundClamped(best, limit);
          moved[r] = (q - integers[at + r]) * step;
          integers[at + r] = q;
          residual_[at + r] -= moved[r];
        }
        for (size_t k = j + 1; k < kTile; ++k) {
          AddScaled(-within[k * kTile + j], moved, gradients + k * kRows);
        }
      }
      // The columns of this tile that came before each move, too.
      for (size_t j = 0; j < kTile; ++j) {
        for (size_t k = 0; k <= j; ++k) {
          AddScaled(-within[k * kTile + j], block_.data() + j * kRows, gradients + k * kRows);
        }
      }
      AddTileColumn(matrix, tile, 0, tile, block_.data(), -1.0f, gradient_.data());
      AddTileColumn(matrix, tile, tile + 1, matrix.tiles(), block_.data(), -1.0f, gradient_.data());
    }
  }
}

void GptqGroup::BestScales(float* factors) {
  // v H v = v (H w - gradient).
  Gradient();
  Product(weights, target_);
  double along[kRows] = {}, square[kRows] = {};
  for (size_t i = 0; i < weights.size(); ++i) {
    const double v = weights[i] - residual_[i];
    along[i % kRows] += v * target_[i];
    square[i % kRows] += v * (static_cast<double>(target_[i]) - gradient_[i]);
  }
  for (size_t r = 0; r < kRows; ++r) {
    const double factor = along[r] / square[r];
    factors[r] =
        square[r] > 0.0 && factor > 0.5 && factor < 2.0 ? static_cast<float>(factor) : 1.0f;
  }
}

void GptqGroup::Errors(double* errors) {
  Gradient();
  std::fill(errors, errors + kRows, 0.0);
  for (size_t i = 0; i < weights.size(); ++i) {
    errors[i % kRows] += static_cast<double>(residual_[i]) * gradient_[i];
  }
}

}  // namespace spillway
