#include "tests/support/gguf_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ostream>

#include "base/float16.h"

namespace spillway::test {
namespace {

// How a type stores its elements and scales. A value is scale * (q - offset),
// minus the sub-block's minimum (K formats) or plus it (Q4_1, Q5_1).
struct Format {
  TensorType type;
  const char* name;
  uint32_t elements, bytes;
  uint32_t sub_block;  // elements that share a scale; 0 for the plain types
  int levels;          // the largest q
  int offset;          // what q is stored with
  int scale_levels;    // the largest scale of a sub-block (K formats)
  bool has_minimum;
  uint32_t d_at, minimum_at;  // where the halves are
};

const std::vector<Format>& Formats() {
  static const std::vector<Format> formats = {
      {TensorType::kF32, "F32", 1, 4, 0, 0, 0, 0, false, 0, 0},
      {TensorType::kF16, "F16", 1, 2, 0, 0, 0, 0, false, 0, 0},
      {TensorType::kBF16, "BF16", 1, 2, 0, 0, 0, 0, false, 0, 0},
      {TensorType::kQ4_0, "Q4_0", 32, 18, 32, 15, 8, 0, false, 0, 0},
      {TensorType::kQ4_1, "Q4_1", 32, 20, 32, 15, 0, 0, true, 0, 2},
      {TensorType::kQ5_0, "Q5_0", 32, 22, 32, 31, 16, 0, false, 0, 0},
      {TensorType::kQ5_1, "Q5_1", 32, 24, 32, 31, 0, 0, true, 0, 2},
      {TensorType::kQ8_0, "Q8_0", 32, 34, 32, 255, 0, 0, false, 0, 0},
      {TensorType::kQ2_K, "Q2_K", 256, 84, 16, 3, 0, 15, true, 80, 82},
      {TensorType::kQ3_K, "Q3_K", 256, 110, 16, 7, 4, 31, false, 108, 0},
      {TensorType::kQ4_K, "Q4_K", 256, 144, 32, 15, 0, 63, true, 0, 2},
      {TensorType::kQ5_K, "Q5_K", 256, 176, 32, 31, 0, 63, true, 0, 2},
      {TensorType::kQ6_K, "Q6_K", 256, 210, 16, 63, 32, 127, false, 208, 0},
  };
  return formats;
}

const Format& FormatOf(TensorType type) {
  for (const Format& format : Formats()) {
    if (format.type == type) return format;
  }
  std::abort();
}

// A run of bits inside one byte.
struct Field {
  uint32_t byte, shift, bits;
};

uint32_t Get(const uint8_t* block, Field field) {
  return (static_cast<uint32_t>(block[field.byte]) >> field.shift) & ((1u << field.bits) - 1);
}

void Put(uint8_t* block, Field field, uint32_t value) {
  const uint32_t mask = ((1u << field.bits) - 1) << field.shift;
  block[field.byte] =
      static_cast<uint8_t>((block[field.byte] & ~mask) | ((value << field.shift) & mask));
}

// The low and the high bits of one number; `high.bits` may be 0.
struct Split {
  Field low, high;
};

uint32_t Get(const uint8_t* block, const Split& at) {
  return Get(block, at.low) | (Get(block, at.high) << at.low.bits);
}

void Put(uint8_t* block, const Split& at, uint32_t value) {
  Put(block, at.low, value);
  if (at.high.bits != 0) Put(block, at.high, value >> at.low.bits);
}

// Where element e of a block has its q.
Split ElementAt(TensorType type, uint32_t e) {
  const uint32_t nibble = 4 * (e / 16 % 2);  // 32-element blocks
  const uint32_t half = e / 128, quarter = e / 32 % 4, in32 = e % 32;
  switch (type) {
    case TensorType::kQ4_0:
      return {{2 + e % 16, nibble, 4}, {0, 0, 0}};
    case TensorType::kQ4_1:
      return {{4 + e % 16, nibble, 4}, {0, 0, 0}};
    case TensorType::kQ5_0:
      return {{6 + e % 16, nibble, 4}, {2 + e / 8, e % 8, 1}};
    case TensorType::kQ5_1:
      return {{8 + e % 16, nibble, 4}, {4 + e / 8, e % 8, 1}};
    case TensorType::kQ8_0:
      return {{2 + e, 0, 8}, {0, 0, 0}};
    case TensorType::kQ2_K:
      return {{16 + 32 * half + in32, 2 * quarter, 2}, {0, 0, 0}};
    case TensorType::kQ3_K:
      return {{32 + 32 * half + in32, 2 * quarter, 2}, {in32, e / 32, 1}};
    case TensorType::kQ4_K:
      return {{16 + 32 * (e / 64) + in32, 4 * (e / 32 % 2), 4}, {0, 0, 0}};
    case TensorType::kQ5_K:
      return {{48 + 32 * (e / 64) + in32, 4 * (e / 32 % 2), 4}, {16 + in32, e / 32, 1}};
    case TensorType::kQ6_K:
      return {{64 * half + 32 * (quarter % 2) + in32, 4 * (quarter / 2), 4},
              {128 + 32 * half + in32, 2 * quarter, 2}};
    default:
      std::abort();
  }
}

// Where sub-block s of a K format has its scale, and its minimum.
Split ScaleAt(TensorType type, uint32_t s) {
  switch (type) {
    case TensorType::kQ2_K:
      return {{s, 0, 4}, {0, 0, 0}};
    case TensorType::kQ3_K:
      return {{96 + s % 8, 4 * (s / 8), 4}, {104 + s % 4, 2 * (s / 4), 2}};
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return s < 4 ? Split{{4 + s, 0, 6}, {0, 0, 0}} : Split{{8 + s, 0, 4}, {s, 6, 2}};
    case TensorType::kQ6_K:
      return {{192 + s, 0, 8}, {0, 0, 0}};
    default:
      std::abort();
  }
}

Split MinimumAt(TensorType type, uint32_t s) {
  if (type == TensorType::kQ2_K) return {{s, 4, 4}, {0, 0, 0}};
  return s < 4 ? Split{{8 + s, 0, 6}, {0, 0, 0}} : Split{{8 + s, 4, 4}, {4 + s, 6, 2}};
}

float GetHalf(const uint8_t* block, uint32_t at) {
  return HalfToFloat(static_cast<uint16_t>(block[at] | (block[at + 1] << 8)));
}

// Stores and returns what the half holds.
float PutHalf(uint8_t* block, uint32_t at, float value) {
  const uint16_t half = FloatToHalf(value);
  block[at] = static_cast<uint8_t>(half & 0xff);
  block[at + 1] = static_cast<uint8_t>(half >> 8);
  return HalfToFloat(half);
}

// The stored scale of a sub-block as a signed number.
int SignedScale(TensorType type, const uint8_t* block, uint32_t s) {
  const uint32_t raw = Get(block, ScaleAt(type, s));
  if (type == TensorType::kQ3_K) return static_cast<int>(raw) - 32;
  if (type == TensorType::kQ6_K) return static_cast<int8_t>(raw);
  return static_cast<int>(raw);
}

float ReferenceElement(const Format& format, const uint8_t* block, uint32_t e) {
  const float d = GetHalf(block, format.d_at);
  const uint32_t raw = Get(block, ElementAt(format.type, e));
  const float q = format.type == TensorType::kQ8_0
                      ? static_cast<float>(static_cast<int8_t>(raw))
                      : static_cast<float>(static_cast<int>(raw) - format.offset);
  if (format.elements == 32) {
    return format.has_minimum ? q * d + GetHalf(block, format.minimum_at) : q * d;
  }
  const uint32_t s = e / format.sub_block;
  const float scale = d * static_cast<float>(SignedScale(format.type, block, s));
  if (!format.has_minimum) return scale * q;
  const float minimum =
      GetHalf(block, format.minimum_at) * static_cast<float>(Get(block, MinimumAt(format.type, s)));
  return scale * q - minimum;
}

float AbsMax(std::span<const float> values) {
  float largest = 0;
  for (const float v : values) largest = std::max(largest, std::fabs(v));
  return largest;
}

int Nearest(float value, float step, int low, int high) {
  if (step == 0.0f) return std::clamp(0, low, high);
  return std::clamp(static_cast<int>(std::nearbyint(value / step)), low, high);
}

void PutElements(const Format& format, uint8_t* block, uint32_t first,
                 std::span<const float> values, float scale, float shift) {
  const bool is_signed = format.type == TensorType::kQ8_0;
  const int low = is_signed ? -127 : -format.offset;
  const int high = is_signed ? 127 : format.levels - format.offset;
  for (uint32_t i = 0; i < values.size(); ++i) {
    const int q = Nearest(values[i] - shift, scale, low, high);
    Put(block, ElementAt(format.type, first + i), static_cast<uint32_t>(q + format.offset));
  }
}

void QuantizeBlock32(const Format& format, std::span<const float> values, uint8_t* block) {
  float d = 0, shift = 0;
  if (format.has_minimum) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    shift = PutHalf(block, format.minimum_at, *low);
    d = (*high - *low) / static_cast<float>(format.levels);
  } else {
    // One more level below zero than above, so the larger side goes there.
    d = AbsMax(values) / (format.offset == 0 ? 127.0f : static_cast<float>(format.offset));
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    if (format.offset != 0 && *high > -*low) d = -d;
  }
  d = PutHalf(block, format.d_at, d);
  PutElements(format, block, 0, values, d, shift);
}

void QuantizeSuperBlock(const Format& format, std::span<const float> values, uint8_t* block) {
  const uint32_t count = format.elements / format.sub_block;
  std::vector<float> scales(count), minimums(count, 0.0f);
  for (uint32_t s = 0; s < count; ++s) {
    const auto part = values.subspan(size_t{s} * format.sub_block, format.sub_block);
    const auto [low, high] = std::minmax_element(part.begin(), part.end());
    if (format.has_minimum) {
      minimums[s] = std::max(0.0f, -*low);
      scales[s] = (std::max(*high, 0.0f) + minimums[s]) / static_cast<float>(format.levels);
    } else {
      scales[s] = AbsMax(part) / static_cast<float>(format.offset);
      if (*high > -*low) scales[s] = -scales[s];
    }
  }
  const auto levels = static_cast<float>(format.scale_levels);
  const float d = PutHalf(block, format.d_at, AbsMax(scales) / levels);
  const float dmin =
      format.has_minimum ? PutHalf(block, format.minimum_at, AbsMax(minimums) / levels) : 0.0f;
  for (uint32_t s = 0; s < count; ++s) {
    const int scale = Nearest(scales[s], d, -format.scale_levels, format.scale_levels);
    const int bias = format.type == TensorType::kQ3_K ? 32 : 0;
    Put(block, ScaleAt(format.type, s), static_cast<uint32_t>(scale + bias));
    float shift = 0;
    if (format.has_minimum) {
      const int minimum = Nearest(minimums[s], dmin, 0, format.scale_levels);
      Put(block, MinimumAt(format.type, s), static_cast<uint32_t>(minimum));
      shift = -dmin * static_cast<float>(minimum);
    }
    PutElements(format, block, s * format.sub_block,
                values.subspan(size_t{s} * format.sub_block, format.sub_block),
                d * static_cast<float>(scale), shift);
  }
}

uint16_t FloatToBfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

std::string StorePlain(TensorType type, std::span<const float> values) {
  std::string bytes;
  for (const float value : values) {
    if (type == TensorType::kF32) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    } else {
      const uint16_t half = type == TensorType::kF16 ? FloatToHalf(value) : FloatToBfloat16(value);
      bytes.append(reinterpret_cast<const char*>(&half), sizeof(half));
    }
  }
  return bytes;
}

}  // namespace

const std::vector<TensorType>& AllTensorTypes() {
  static const std::vector<TensorType> types = [] {
    std::vector<TensorType> all;
    for (const Format& format : Formats()) all.push_back(format.type);
    return all;
  }();
  return types;
}

const char* TensorTypeName(TensorType type) { return FormatOf(type).name; }
void PrintTo(TensorType type, std::ostream* out) { *out << TensorTypeName(type); }
uint32_t BlockElements(TensorType type) { return FormatOf(type).elements; }
uint32_t BlockBytes(TensorType type) { return FormatOf(type).bytes; }

std::string QuantizeValues(TensorType type, std::span<const float> values) {
  const Format& format = FormatOf(type);
  if (values.size() % format.elements != 0) std::abort();
  if (format.elements == 1) return StorePlain(type, values);
  std::string bytes(values.size() / format.elements * format.bytes, '\0');
  auto* block = reinterpret_cast<uint8_t*>(bytes.data());
  for (size_t i = 0; i < values.size(); i += format.elements, block += format.bytes) {
    const auto part = values.subspan(i, format.elements);
    if (format.elements == 32) {
      QuantizeBlock32(format, part, block);
    } else {
      QuantizeSuperBlock(format, part, block);
    }
  }
  return bytes;
}

std::vector<float> DequantizeReference(TensorType type, std::string_view bytes) {
  const Format& format = FormatOf(type);
  if (bytes.size() % format.bytes != 0) std::abort();
  std::vector<float> values;
  values.reserve(bytes.size() / format.bytes * format.elements);
  const auto* block = reinterpret_cast<const uint8_t*>(bytes.data());
  for (size_t i = 0; i < bytes.size() / format.bytes; ++i, block += format.bytes) {
    for (uint32_t e = 0; e < format.elements; ++e) {
      float value = 0;
      if (type == TensorType::kF32) {
        std::memcpy(&value, block, sizeof(value));
      } else if (type == TensorType::kF16) {
        value = GetHalf(block, 0);
      } else if (type == TensorType::kBF16) {
        value = Bfloat16ToFloat(static_cast<uint16_t>(block[0] | (block[1] << 8)));
      } else {
        value = ReferenceElement(format, block, e);
      }
      values.push_back(value);
    }
  }
  return values;
}

}  // namespace spillway::test
