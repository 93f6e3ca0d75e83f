// Weight quantisation: float matrices to packed integers with encodings.

#ifndef SPILLWAY_QUANTIZE_WEIGHTS_H_
#define SPILLWAY_QUANTIZE_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "quantize/hessian.h"

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
  Encoding encoding;                         // per channel, axis 0, or blocks
  float min = 0.0f, max = 0.0f;              // of the float values
  // The first row with a value that is not finite, quantised as zeros.
  std::optional<uint32_t> bad_row;
};

// Quantises the rows of an f32 matrix [rows, cols] (read through ReadRows or
// bytes()) symmetrically, ties to even, to -127..127 or -7..7 (-128 and -8 never
// appear). Scales and block scales are those of lpbq.h: the widest for kRtn, the
// best for the other methods, where the error of a column counts in proportion to
// its input's second moment if `hessian` is given (finished, of `cols` inputs; may
// be null). kGptq rounds with the Hessian's factor (gptq.h); without a factorised
// Hessian it is the same as kMse. A row of zeros, or of values so small that their
// scale is not a normal float, is zeros with scale 1. The result does not depend
// on the number of threads; scratch memory is 64 rows a thread, and five times
// that for kGptq.
QuantizedMatrix QuantizeMatrix(const ConstantData& matrix, uint32_t rows, uint32_t cols,
                               const WeightScheme& scheme, const InputHessian* hessian,
                               ThreadPool* pool);

// The real values of a quantised matrix [rows, cols] as an f32 constant in memory.
std::shared_ptr<const ConstantData> DequantizeMatrix(const QuantizedMatrix& matrix, uint32_t rows,
                                                     uint32_t cols, ThreadPool* pool);
// The rows of `matrix` as an f32 constant in memory.
std::shared_ptr<const ConstantData> ReadMatrix(const ConstantData& matrix, uint32_t rows,
                                               uint32_t cols, ThreadPool* pool);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_WEIGHTS_H_
