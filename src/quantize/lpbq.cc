#include "quantize/lpbq.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "quantize/weights_round.h"

namespace spillway {
namespace {

// A quotient that is a whole number but for its rounding counts as that number.
constexpr float kAlmostOne = 0.99999f;

float MaxAbs(std::span<const float> w) {
  float largest = 0.0f;
  for (const float value : w) largest = std::max(largest, std::abs(value));
  return largest;
}

bool IsNormal(float scale) { return scale >= std::numeric_limits<float>::min(); }

RowView Block(const RowView& row, size_t begin, uint32_t block) {
  const size_t count = std::min<size_t>(block, row.w.size() - begin);
  return {row.w.subspan(begin, count),
          row.importance.empty() ? row.importance : row.importance.subspan(begin, count),
          row.limit};
}

template <bool kWeighted>
float ErrorOf(const RowView& row, float step) {
  constexpr size_t kLanes = 8;
  float sums[kLanes] = {};
  const float inverse = 1.0f / step;
  const auto error = [&](size_t k) {
    const float rest = row.w[k] - step * RoundClamped(row.w[k] * inverse, row.limit);
    return kWeighted ? row.importance[k] * rest * rest : rest * rest;
  };
  size_t k = 0;
  for (; k + kLanes <= row.w.size(); k += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += error(k + lane);
  }
  float sum = 0.0f;
  for (const float lane : sums) sum += lane;
  for (; k < row.w.size(); ++k) sum += error(k);
  return sum;
}

// The channel scale that is best for integers rounded with `scale` and these block
// scales.
float Refit(const RowView& row, float scale, uint32_t block, const uint8_t* block_scales) {
  double along = 0.0, square = 0.0;
  for (size_t k = 0; k < row.w.size(); ++k) {
    const float multiplier = block_scales == nullptr ? 1.0f : block_scales[k / block];
    const double v = multiplier * RoundClamped(row.w[k] / (scale * multiplier), row.limit);
    const double weight = row.importance.empty() ? 1.0 : row.importance[k];
    along += weight * row.w[k] * v;
    square += weight * v * v;
  }
  const auto fitted = static_cast<float>(along / square);
  return square > 0.0 && IsNormal(fitted) ? fitted : scale;
}

float BlocksError(const RowView& row, float scale, uint32_t block, const uint8_t* block_scales) {
  float error = 0.0f;
  for (size_t b = 0; b * block < row.w.size(); ++b) {
    error += RoundingError(Block(row, b * block, block), scale * block_scales[b]);
  }
  return error;
}

// The best multiplier of `scale` for one block.
uint8_t BestMultiplier(const RowView& row, float scale, float largest, float& error) {
  const float whole = largest / (row.limit * scale);  // clips nothing from here on
  const auto last = static_cast<uint32_t>(
      std::clamp(std::ceil(kAlmostOne * whole), 1.0f, static_cast<float>(kMaxBlockScale)));
  const auto first =
      static_cast<uint32_t>(std::clamp(std::floor(0.6f * whole), 1.0f, static_cast<float>(last)));
  uint32_t best = last;
  error = std::numeric_limits<float>::max();
  for (uint32_t multiplier = last; multiplier >= first; --multiplier) {
    const float tried = RoundingError(row, scale * static_cast<float>(multiplier));
    if (tried < error) {
      error = tried;
      best = multiplier;
    } else if (tried > 2.0f * error) {
      break;  // clips too much already
    }
  }
  return static_cast<uint8_t>(best);
}

}  // namespace

float RoundingError(const RowView& row, float step) {
  return row.importance.empty() ? ErrorOf<false>(row, step) : ErrorOf<true>(row, step);
}

float WidestScale(const RowView& row) {
  const float scale = MaxAbs(row.w) / row.limit;
  return IsNormal(scale) ? scale : 1.0f;
}

float BestScale(const RowView& row) {
  const float widest = WidestScale(row);
  float best = widest;
  float least = RoundingError(row, widest);
  const auto take = [&](float scale) {
    const float error = IsNormal(scale) ? RoundingError(row, scale) : least;
    if (error >= least) return false;
    least = error;
    best = scale;
    return true;
  };
  constexpr int kCandidates = 38;
  for (int i = 1; i < kCandidates; ++i) {
    take(widest * (1.0f - 0.02f * static_cast<float>(i)));
  }
  for (int i = 0; i < 3 && take(Refit(row, best, 1, nullptr)); ++i) {
  }
  return best;
}

float WidestBlockScales(const RowView& row, uint32_t block, uint8_t* block_scales) {
  const size_t blocks = (row.w.size() + block - 1) / block;
  float scale = MaxAbs(row.w) / row.limit / static_cast<float>(kMaxBlockScale);
  if (!IsNormal(scale)) {
    std::fill(block_scales, block_scales + blocks, uint8_t{1});
    return 1.0f;
  }
  for (size_t b = 0; b < blocks; ++b) {
    const float whole = MaxAbs(Block(row, b * block, block).w) / (row.limit * scale);
    block_scales[b] = static_cast<uint8_t>(
        std::clamp(std::ceil(kAlmostOne * whole), 1.0f, static_cast<float>(kMaxBlockScale)));
  }
  return scale;
}

float BestBlockScales(const RowView& row, uint32_t block, uint8_t* block_scales) {
  const size_t blocks = (row.w.size() + block - 1) / block;
  const float widest = WidestBlockScales(row, block, block_scales);
  std::vector<float> largest(blocks);
  for (size_t b = 0; b < blocks; ++b) largest[b] = MaxAbs(Block(row, b * block, block).w);
  if (*std::max_element(largest.begin(), largest.end()) < std::numeric_limits<float>::min()) {
    return widest;
  }
  float best = widest;
  float least = BlocksError(row, widest, block, block_scales);
  std::vector<uint8_t> tried(blocks);
  constexpr int kCandidates = 22;
  for (int i = 0; i < kCandidates; ++i) {
    const float scale = widest * (1.0f - 0.03f * static_cast<float>(i));
    if (!IsNormal(scale)) break;
    float sum = 0.0f;
    for (size_t b = 0; b < blocks && sum < least; ++b) {
      float error;
      tried[b] = BestMultiplier(Block(row, b * block, block), scale, largest[b], error);
      sum += error;
    }
    if (sum < least) {
      least = sum;
      best = scale;
      std::copy(tried.begin(), tried.end(), block_scales);
    }
  }
  const float fitted = Refit(row, best, block, block_scales);
  return BlocksError(row, fitted, block, block_scales) < least ? fitted : best;
}

}  // namespace spillway
