// Scales of quantised weights: one float a channel and, with blocks (LPBQ), an
// integer 1..16 a block: real = channel scale * block scale * q.

#ifndef SPILLWAY_QUANTIZE_LPBQ_H_
#define SPILLWAY_QUANTIZE_LPBQ_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace spillway {

inline constexpr uint32_t kMaxBlockScale = 16;

// Of one row w of finite values; q in -limit..limit. `importance` weighs the
// squared error of each column (the second moment of its input); empty: all alike.
// A row of zeros, or of values so small that the scale is not a normal float, gets
// scale 1 and (with blocks) block scales 1.
struct RowView {
  std::span<const float> w;
  std::span<const float> importance;
  float limit = 127.0f;
};

// The smallest scale that clips nothing: max|w| / limit.
float WidestScale(const RowView& row);
// The scale with the least weighted squared error of rounding to nearest, among
// candidates from the widest down to a quarter of it; never worse than the widest.
float BestScale(const RowView& row);

// `block_scales` has ceil(w.size() / block) elements. The channel scale is the
// widest block's scale over 16, the block scales the smallest that clip nothing.
float WidestBlockScales(const RowView& row, uint32_t block, uint8_t* block_scales);
// Channel and block scales with the least weighted squared error among candidates;
// never worse than the widest.
float BestBlockScales(const RowView& row, uint32_t block, uint8_t* block_scales);

// sum of importance * (w - step * round(w / step))^2.
float RoundingError(const RowView& row, float step);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_LPBQ_H_
