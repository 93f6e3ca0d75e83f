// GGUF's tensor types for tests: simple quantisers, and a dequantiser that goes
// element by element and bit by bit. Independent of src/model, so that the two
// check each other.

#ifndef SPILLWAY_TESTS_SUPPORT_GGUF_BLOCKS_H_
#define SPILLWAY_TESTS_SUPPORT_GGUF_BLOCKS_H_

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::test {

enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

const std::vector<TensorType>& AllTensorTypes();
const char* TensorTypeName(TensorType type);
void PrintTo(TensorType type, std::ostream* out);  // for GoogleTest
uint32_t BlockElements(TensorType type);
uint32_t BlockBytes(TensorType type);

// The stored bytes of `values`, a whole number of blocks. Round to nearest with
// plain min-max scales; valid, not clever.
std::string QuantizeValues(TensorType type, std::span<const float> values);
// The values of stored bytes, a whole number of blocks.
std::vector<float> DequantizeReference(TensorType type, std::string_view bytes);

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_SUPPORT_GGUF_BLOCKS_H_
