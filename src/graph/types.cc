#include "graph/types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>

namespace spillway {
namespace {

struct DTypeFacts {
  DType dtype;
  std::string_view name;
  size_t size;
  bool fixed_point;
  int64_t min, max;
};

constexpr std::array<DTypeFacts, 8> kDTypes = {{
    {DType::kF32, "f32", 4, false, 0, 0},
    {DType::kF16, "f16", 2, false, 0, 0},
    {DType::kU8, "u8", 1, true, 0, 255},
    {DType::kU16, "u16", 2, true, 0, 65535},
    {DType::kS8, "s8", 1, true, -128, 127},
    {DType::kS16, "s16", 2, true, -32768, 32767},
    {DType::kS32, "s32", 4, true, std::numeric_limits<int32_t>::min(),
     std::numeric_limits<int32_t>::max()},
    {DType::kI32, "i32", 4, false, std::numeric_limits<int32_t>::min(),
     std::numeric_limits<int32_t>::max()},
}};

const DTypeFacts& Facts(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

// The design's floor for a scale: a range of 0.0001 over the type's steps.
constexpr float kMinRange = 0.0001f;

}  // namespace

size_t DTypeSize(DType dtype) { return Facts(dtype).size; }
std::string_view DTypeName(DType dtype) { return Facts(dtype).name; }
bool IsFixedPoint(DType dtype) { return Facts(dtype).fixed_point; }
int64_t DTypeMin(DType dtype) { return Facts(dtype).min; }
int64_t DTypeMax(DType dtype) { return Facts(dtype).max; }

std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeFacts& facts : kDTypes) {
    if (facts.name == name) return facts.dtype;
  }
  return std::nullopt;
}

uint64_t NumElements(const Shape& shape) {
  uint64_t count = 1;
  for (const uint32_t dim : shape) count *= dim;
  return count;
}

std::string ShapeToString(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Encoding Encoding::PerTensor(DType dtype, float scale, int32_t offset) {
  Encoding encoding;
  encoding.kind = Kind::kPerTensor;
  encoding.bits = static_cast<uint8_t>(DTypeSize(dtype) * 8);
  encoding.scale = scale;
  encoding.offset = offset;
  return encoding;
}

Encoding Encoding::PerChannel(uint8_t bits, uint32_t axis, std::vector<float> scales) {
  Encoding encoding;
  encoding.kind = Kind::kPerChannel;
  encoding.bits = bits;
  encoding.axis = axis;
  encoding.channel_scales = std::move(scales);
  return encoding;
}

std::string Encoding::ToString() const {
  switch (kind) {
    case Kind::kNone:
      return "none";
    case Kind::kPerTensor:
      return fmt::format("scale {:.6g} offset {}", scale, offset);
    case Kind::kPerChannel:
      return fmt::format("per-channel axis {}, {} bit, {} scales", axis, bits,
                         channel_scales.size());
    case Kind::kBlock:
      return fmt::format("block {}, axis {}, {} bit, {} channels", block_size, axis, bits,
                         channel_scales.size());
  }
  return "unknown";
}

Encoding AffineEncoding(DType dtype, float min, float max) {
  assert(dtype == DType::kU8 || dtype == DType::kU16);
  min = std::min(min, 0.0f);
  max = std::max(max, 0.0f);
  const double steps = static_cast<double>(DTypeMax(dtype));
  const double range = std::max(static_cast<double>(max) - min, static_cast<double>(kMinRange));
  const float scale = static_cast<float>(range / steps);
  const double zero_point = std::nearbyint(-static_cast<double>(min) / scale);
  return Encoding::PerTensor(dtype, scale,
                             -static_cast<int32_t>(std::clamp(zero_point, 0.0, steps)));
}

Encoding SymmetricEncoding(DType dtype, float max_abs) {
  assert(dtype == DType::kU8 || dtype == DType::kU16);
  const int32_t middle = static_cast<int32_t>((DTypeMax(dtype) + 1) / 2);
  const double range = std::max(2.0 * max_abs, static_cast<double>(kMinRange));
  return Encoding::PerTensor(dtype, static_cast<float>(range / (2.0 * (middle - 1))), -middle);
}

int32_t QuantizeValue(float real, const Encoding& encoding, DType dtype) {
  const double q = std::nearbyint(static_cast<double>(real) / encoding.scale) - encoding.offset;
  return static_cast<int32_t>(
      std::clamp(q, static_cast<double>(DTypeMin(dtype)), static_cast<double>(DTypeMax(dtype))));
}

float DequantizeValue(int32_t q, const Encoding& encoding) {
  return encoding.scale * static_cast<float>(q + encoding.offset);
}

}  // namespace spillway
