// The block formats, as laid out in the file (half = IEEE binary16):
//   Q4_0  half d; 16 bytes: low nibbles are elements 0..15, high 16..31
//         x = d * (q - 8)
//   Q4_1  half d, m; 16 bytes as above                    x = d * q + m
//   Q5_0  half d; u32 fifth bits; 16 bytes as above       x = d * (q - 16)
//   Q5_1  half d, m; u32 fifth bits; 16 bytes             x = d * q + m
//   Q8_0  half d; 32 x s8                                 x = d * q
// The K formats have 256 elements, in sub-blocks with scales of their own:
//   Q2_K  16 bytes: scale (low nibble) and minimum (high) of 16 elements each;
//         64 bytes of 2-bit values; half d, dmin
//   Q3_K  32 bytes of third bits; 64 bytes of low 2 bits; 12 bytes with 16
//         6-bit scales, offset by 32; half d
//   Q4_K  half d, dmin; 12 bytes with 8 6-bit scales and minima of 32 elements
//         each; 128 bytes of nibbles
//   Q5_K  like Q4_K with 32 bytes of fifth bits before the nibbles
//   Q6_K  128 bytes of low nibbles; 64 bytes of high 2 bits; 16 s8 scales; half d
// Loops are plain so that the compiler vectorises them.

#include <cassert>
#include <cstring>

#include "base/float16.h"
#include "model/gguf.h"

namespace spillway {
namespace {

constexpr uint64_t kBlock = 32;
constexpr uint64_t kSuperBlock = 256;

uint16_t LoadU16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

float LoadHalf(const uint8_t* bytes) { return HalfToFloat(LoadU16(bytes)); }

// HalfToFloat without branches, so that a loop of it vectorises.
float HalfToFloatSelect(uint16_t half) {
  constexpr uint32_t kRebias = 112u << 23;
  constexpr uint32_t kExponent = 0x1fu << 23;
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t shifted = static_cast<uint32_t>(half & 0x7fffu) << 13;
  const uint32_t exponent = shifted & kExponent;
  // Infinity and NaN go from exponent 31 to 255 = 31 + 2 * 112.
  const uint32_t normal = shifted + kRebias + (exponent == kExponent ? kRebias : 0u);
  // A subnormal half is (1 + mantissa) * 2^-14 minus 2^-14, both exact.
  const uint32_t lifted = shifted + kRebias + (1u << 23);
  float subnormal;
  std::memcpy(&subnormal, &lifted, sizeof(subnormal));
  subnormal -= 6.103515625e-05f;
  uint32_t subnormal_bits;
  std::memcpy(&subnormal_bits, &subnormal, sizeof(subnormal_bits));
  const uint32_t bits = (exponent == 0 ? subnormal_bits : normal) | sign;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

void DequantizeF16(const uint8_t* in, uint64_t elements, float* out) {
  for (uint64_t i = 0; i < elements; ++i) out[i] = HalfToFloatSelect(LoadU16(in + 2 * i));
}

void DequantizeBF16(const uint8_t* in, uint64_t elements, float* out) {
  for (uint64_t i = 0; i < elements; ++i) out[i] = Bfloat16ToFloat(LoadU16(in + 2 * i));
}

void DequantizeQ4_0(const uint8_t* in, uint64_t elements, float* out) {
  for (uint64_t i = 0; i < elements; i += kBlock, in += 18, out += kBlock) {
    const float d = LoadHalf(in);
    const uint8_t* q = in + 2;
    for (int j = 0; j < 16; ++j) out[j] = static_cast<float>((q[j] & 15) - 8) * d;
    for (int j = 0; j < 16; ++j) out[j + 16] = static_cast<float>((q[j] >> 4) - 8) * d;
  }
}

void DequantizeQ4_1(const uint8_t* in, uint64_t elements, float* out) {
  for (uint64_t i = 0; i < elements; i += kBlock, in += 20, out += kBlock) {
    const float d = LoadHalf(in);
    const float m = LoadHalf(in + 2);
    const uint8_t* q = in + 4;
    for (int j = 0; j < 16; ++j) out[j] = static_cast<float>(q[j] & 15) * d + m;
    for (int j = 0; j < 16; ++j) out[j + 16] = static_cast<float>(q[j] >> 4) * d + m;
  }
}

// The 32 five-bit values of a block: nibbles at `q`, fifth bits at `high`.
void UnpackFiveBits(const uint8_t* high, const uint8_t* q, int32_t* values) {
  uint32_t bits;
  std::memcpy(&bits, high, sizeof(bits));
  for (uint32_t j = 0; j < 16; ++j) {
    values[j] = static_cast<int32_t>((q[j] & 15u) | (((bits >> j) & 1u) << 4));
    values[j + 16] = static_cast<int32_t>((q[j] >> 4) | (((bits >> (j + 16)) & 1u) << 4));
  }
}

void DequantizeQ5_0(const uint8_t* in, uint64_t elements, float* out) {
  int32_t q[kBlock];
  for (uint64_t i = 0; i < elements; i += kBlock, in += 22, out += kBlock) {
    const float d = LoadHalf(in);
    UnpackFiveBits(in + 2, in + 6, q);
    for (uint64_t j = 0; j < kBlock; ++j) out[j] = static_cast<float>(q[j] - 16) * d;
  }
}

void DequantizeQ5_1(const uint8_t* in, uint64_t elements, float* out) {
  int32_t q[kBlock];
  for (uint64_t i = 0; i < elements; i += kBlock, in += 24, out += kBlock) {
    const float d = LoadHalf(in);
    const float m = LoadHalf(in + 2);
    UnpackFiveBits(in + 4, in + 8, q);
    for (uint64_t j = 0; j < kBlock; ++j) out[j] = static_cast<float>(q[j]) * d + m;
  }
}

void DequantizeQ8_0(const uint8_t* in, uint64_t elements, float* out) {
  for (uint64_t i = 0; i < elements; i += kBlock, in += 34, out += kBlock) {
    const float d = LoadHalf(in);
    const uint8_t* q = in + 2;
    for (uint64_t j = 0; j < kBlock; ++j) {
      out[j] = static_cast<float>(static_cast<int8_t>(q[j])) * d;
    }
  }
}

void DequantizeQ2_K(const uint8_t* in, uint64_t elements, float* out) {
  for (uint64_t i = 0; i < elements; i += kSuperBlock, in += 84) {
    const uint8_t* scales = in;
    const float d = LoadHalf(in + 80);
    const float dmin = LoadHalf(in + 82);
    // Bytes 32 h .. 32 h + 31 hold half h: four groups of 32, two bits each.
    for (int group = 0; group < 8; ++group) {
      const uint8_t* q = in + 16 + 32 * (group / 4);
      const int shift = 2 * (group % 4);
      for (int part = 0; part < 2; ++part, out += 16, q += 16) {
        const uint8_t packed = scales[2 * group + part];
        const float scale = d * static_cast<float>(packed & 15);
        const float minimum = dmin * static_cast<float>(packed >> 4);
        for (int j = 0; j < 16; ++j) {
          out[j] = scale * static_cast<float>((q[j] >> shift) & 3) - minimum;
        }
      }
    }
  }
}

// The 16 six-bit scales of Q3_K, minus 32: low nibbles in bytes 0..7 (scales
// 0..7 low, 8..15 high nibble), high two bits in bytes 8..11.
void UnpackScalesQ3_K(const uint8_t* packed, int32_t* scales) {
  for (int k = 0; k < 16; ++k) {
    const int low = k < 8 ? packed[k] & 15 : packed[k - 8] >> 4;
    const int high = (packed[8 + k % 4] >> (2 * (k / 4))) & 3;
    scales[k] = (low | (high << 4)) - 32;
  }
}

void DequantizeQ3_K(const uint8_t* in, uint64_t elements, float* out) {
  int32_t scales[16];
  for (uint64_t i = 0; i < elements; i += kSuperBlock, in += 110) {
    const float d = LoadHalf(in + 108);
    UnpackScalesQ3_K(in + 96, scales);
    for (int group = 0; group < 8; ++group) {
      const uint8_t* high = in;
      const uint8_t* q = in + 32 + 32 * (group / 4);
      const int shift = 2 * (group % 4);
      for (int part = 0; part < 2; ++part, out += 16, q += 16, high += 16) {
        const float scale = d * static_cast<float>(scales[2 * group + part]);
        for (int j = 0; j < 16; ++j) {
          // A clear third bit means minus 4.
          const int value = ((q[j] >> shift) & 3) + 4 * ((high[j] >> group) & 1) - 4;
          out[j] = scale * static_cast<float>(value);
        }
      }
    }
  }
}

// The 6-bit scale and minimum of sub-block k in the 12 bytes of Q4_K and Q5_K.
void UnpackScaleMin(const uint8_t* packed, int k, int* scale, int* minimum) {
  if (k < 4) {
    *scale = packed[k] & 63;
    *minimum = packed[k + 4] & 63;
  } else {
    *scale = (packed[k + 4] & 15) | ((packed[k - 4] >> 6) << 4);
    *minimum = (packed[k + 4] >> 4) | ((packed[k] >> 6) << 4);
  }
}

void DequantizeQ4_K(const uint8_t* in, uint64_t elements, float* out) {
  for (uint64_t i = 0; i < elements; i += kSuperBlock, in += 144) {
    const float d = LoadHalf(in);
    const float dmin = LoadHalf(in + 2);
    for (int group = 0; group < 8; ++group, out += 32) {
      int scale = 0, minimum = 0;
      UnpackScaleMin(in + 4, group, &scale, &minimum);
      const float d1 = d * static_cast<float>(scale);
      const float m1 = dmin * static_cast<float>(minimum);
      const uint8_t* q = in + 16 + 32 * (group / 2);
      const int shift = 4 * (group % 2);
      for (int j = 0; j < 32; ++j) out[j] = d1 * static_cast<float>((q[j] >> shift) & 15) - m1;
    }
  }
}

void DequantizeQ5_K(const uint8_t* in, uint64_t elements, float* out) {
  for (uint64_t i = 0; i < elements; i += kSuperBlock, in += 176) {
    const float d = LoadHalf(in);
    const float dmin = LoadHalf(in + 2);
    const uint8_t* high = in + 16;
    for (int group = 0; group < 8; ++group, out += 32) {
      int scale = 0, minimum = 0;
      UnpackScaleMin(in + 4, group, &scale, &minimum);
      const float d1 = d * static_cast<float>(scale);
      const float m1 = dmin * static_cast<float>(minimum);
      const uint8_t* q = in + 48 + 32 * (group / 2);
      const int shift = 4 * (group % 2);
      for (int j = 0; j < 32; ++j) {
        const int value = ((q[j] >> shift) & 15) | (((high[j] >> group) & 1) << 4);
        out[j] = d1 * static_cast<float>(value) - m1;
      }
    }
  }
}

void DequantizeQ6_K(const uint8_t* in, uint64_t elements, float* out) {
  for (uint64_t i = 0; i < elements; i += kSuperBlock, in += 210) {
    const uint8_t* scales = in + 192;
    const float d = LoadHalf(in + 208);
    // Each half of 128 has four groups of 32: low nibbles of 64 bytes, then
    // their high nibbles; the high two bits of all four are in one byte.
    for (int group = 0; group < 8; ++group) {
      const int half = group / 4;
      const int quarter = group % 4;
      const uint8_t* q = in + 64 * half + 32 * (quarter % 2);
      const uint8_t* high = in + 128 + 32 * half;
      const int nibble = 4 * (quarter / 2);
      const int pair = 2 * quarter;
      for (int part = 0; part < 2; ++part, out += 16, q += 16, high += 16) {
        const float scale = d * static_cast<float>(static_cast<int8_t>(scales[2 * group + part]));
        for (int j = 0; j < 16; ++j) {
          const int value = ((q[j] >> nibble) & 15) | (((high[j] >> pair) & 3) << 4);
          out[j] = scale * static_cast<float>(value - 32);
        }
      }
    }
  }
}

}  // namespace

void DequantizeBlocks(GgufType type, const std::byte* data, uint64_t elements, float* out) {
  const GgufBlock block = GgufBlockOf(type);
  assert(block.elements != 0 && elements % block.elements == 0);
  static_cast<void>(block);
  const auto* in = reinterpret_cast<const uint8_t*>(data);
  switch (type) {
    case GgufType::kF32:
      if (elements != 0) std::memcpy(out, in, elements * sizeof(float));
      return;
    case GgufType::kF16:
      return DequantizeF16(in, elements, out);
    case GgufType::kBF16:
      return DequantizeBF16(in, elements, out);
    case GgufType::kQ4_0:
      return DequantizeQ4_0(in, elements, out);
    case GgufType::kQ4_1:
      return DequantizeQ4_1(in, elements, out);
    case GgufType::kQ5_0:
      return DequantizeQ5_0(in, elements, out);
    case GgufType::kQ5_1:
      return DequantizeQ5_1(in, elements, out);
    case GgufType::kQ8_0:
      return DequantizeQ8_0(in, elements, out);
    case GgufType::kQ2_K:
      return DequantizeQ2_K(in, elements, out);
    case GgufType::kQ3_K:
      return DequantizeQ3_K(in, elements, out);
    case GgufType::kQ4_K:
      return DequantizeQ4_K(in, elements, out);
    case GgufType::kQ5_K:
      return DequantizeQ5_K(in, elements, out);
    case GgufType::kQ6_K:
      return DequantizeQ6_K(in, elements, out);
  }
}

}  // namespace spillway
