// DType, Encoding and Shape: what a tensor's numbers are and mean.

#ifndef SPILLWAY_GRAPH_TYPES_H_
#define SPILLWAY_GRAPH_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

enum class DType : uint8_t {
  kF32,
  kF16,
  kU8,   // fixed point, with an encoding
  kU16,  // fixed point, with an encoding
  kS8,   // fixed point, with an encoding
  kS16,  // fixed point, with an encoding
  kS32,  // fixed point, with an encoding (biases)
  kI32,  // plain integers: token ids, positions, indices
};

size_t DTypeSize(DType dtype);            // bytes of one element
std::string_view DTypeName(DType dtype);  // "u16"
std::optional<DType> ParseDType(std::string_view name);
bool IsFixedPoint(DType dtype);
// Smallest and largest stored value of an integer type.
int64_t DTypeMin(DType dtype);
int64_t DTypeMax(DType dtype);

using Shape = std::vector<uint32_t>;  // outermost first, row-major

uint64_t NumElements(const Shape& shape);
std::string ShapeToString(const Shape& shape);  // "[1, 3, 32, 64]"

// How a fixed-point tensor's integers stand for real numbers, in the vendor's
// convention: real = scale * (q + offset), so offset = -zero_point.
struct Encoding {
  enum class Kind : uint8_t {
    kNone,        // not quantised
    kPerTensor,   // scale, offset
    kPerChannel,  // channel_scales along `axis`, offset 0
    kBlock,       // LPBQ: real = channel_scale * block_scale * q, 4-bit q
  };
  Kind kind = Kind::kNone;
  // Significant bits of the stored integer; 4-bit values are stored one a byte.
  uint8_t bits = 0;
  float scale = 0.0f;
  int32_t offset = 0;
  uint32_t axis = 0;
  std::vector<float> channel_scales;
  uint32_t block_size = 0;            // along the input dimension
  std::vector<uint8_t> block_scales;  // [channel][block], 1..16

  static Encoding PerTensor(DType dtype, float scale, int32_t offset);
  static Encoding PerChannel(uint8_t bits, uint32_t axis, std::vector<float> scales);

  bool operator==(const Encoding&) const = default;
  // "scale 0.00389105 offset -65535", "per-channel axis 0, 8 bit, 576 scales".
  std::string ToString() const;
};

// Affine encoding of [min, max], widened to hold 0, with the design's floor
// (0.0001 over the type's steps) for the scale. Zero is represented exactly.
// `dtype` is kU8 or kU16.
Encoding AffineEncoding(DType dtype, float min, float max);
// The same with the zero point in the middle (128, 32768).
Encoding SymmetricEncoding(DType dtype, float max_abs);

// One value. Quantise rounds half to even and saturates to the type.
int32_t QuantizeValue(float real, const Encoding& encoding, DType dtype);
float DequantizeValue(int32_t q, const Encoding& encoding);

}  // namespace spillway

#endif  // SPILLWAY_GRAPH_TYPES_H_
