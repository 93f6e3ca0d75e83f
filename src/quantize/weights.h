// Weight quantisation: float matrices to packed integers with encodings.

#ifndef SPILLWAY_QUANTIZE_WEIGHTS_H_
#define SPILLWAY_QUANTIZE_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "base/thread_pool.h"
#include "graph/graph.h"

namespace spillway {

// How the integers of a weight are chosen.
enum class WeightMethod : uint8_t {
  kRtn,   // round to nearest
  kMse,   // the scale with the least squared error of the layer's output
  kGptq,  // rounding that compensates the error of the columns before
};

// The integers that a weight gets: symmetric, signed.
struct WeightScheme {
  uint8_t bits = 8;    // 4 or 8
  uint32_t block = 0;  // 0: per channel; 16, 32 or 64: LPBQ blocks of 4-bit values
  WeightMethod method = WeightMethod::kRtn;

  bool operator==(const WeightScheme&) const = default;
};

struct QuantizedMatrix {
  std::shared_ptr<const ConstantData> data;  // s8, kPackedN16K4
  Encoding encoding;                         // per channel, axis 0
  float min = 0.0f, max = 0.0f;              // of the float values
  // The first row with a value that is not finite, quantised as zeros.
  std::optional<uint32_t> bad_row;
};

// Quantises the rows of an f32 matrix [rows, cols] (read through ReadRows or
// bytes()) symmetrically, round to nearest, ties to even: scale_n = max|w_n| /
// (2^(bits-1) - 1), so -128 (or -8) never appears. A row of zeros, or of values so
// small that their scale is not a normal float, is zeros with scale 1.
QuantizedMatrix QuantizeMatrix(const ConstantData& matrix, uint32_t rows, uint32_t cols,
                               uint8_t bits, ThreadPool* pool);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_WEIGHTS_H_
