// Calibration: runs the float graph on text and records the range of every
// tensor.

#ifndef SPILLWAY_QUANTIZE_CALIBRATE_H_
#define SPILLWAY_QUANTIZE_CALIBRATE_H_

#include <cstdint>
#include <map>
#include <string>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "decoder/decoder.h"
#include "quantize/calibration_data.h"
#include "quantize/observer.h"
#include "quantize/prefix.h"
#include "quantize/recipe.h"
#include "spillway/status.h"

namespace spillway {

// By tensor name. Tensors that copy another's integers are not in it.
using TensorRanges = std::map<std::string, Range>;

// Away from zero to kRangeBits significant bits. Float sums differ in their last
// bits from processor to processor; ranges, and so packages, should not.
inline constexpr int kRangeBits = 9;
float RoundRangeUp(float limit);

// Runs every window through the float graph (AR = window length, empty cache) and
// gives each tensor the range that the recipe's observer for it chooses, rounded by
// RoundRangeUp. A value that is not finite is kCorruptData and names the tensor. The
// windows follow `prefix` (may be empty), whose K and V the caches' ranges hold, too;
// one that starts with the prefix's tokens gives them up. Memory: the activations of
// one window and at most 16 KB a tensor; weights are read a tile at a time.
Result<TensorRanges> Calibrate(Decoder& decoder, const TokenWindows& windows,
                               const FloatPrefix& prefix, const Recipe& recipe, ThreadPool* pool,
                               Progress* progress);
// With minimum and maximum for all.
Result<TensorRanges> Calibrate(Decoder& decoder, const TokenWindows& windows,
                               const FloatPrefix& prefix, ThreadPool* pool, Progress* progress);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_CALIBRATE_H_
