#include "graph/types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/random.h"

namespace spillway {
namespace {

float RoundTrip(float real, const Encoding& encoding, DType dtype) {
  return DequantizeValue(QuantizeValue(real, encoding, dtype), encoding);
}

TEST(DTypeTest, SizesNamesAndLimits) {
  struct Case {
    DType dtype;
    const char* name;
    size_t size;
    bool fixed_point;
    int64_t min, max;
  };
  const Case cases[] = {
      {DType::kU8, "u8", 1, true, 0, 255},
      {DType::kS8, "s8", 1, true, -128, 127},
      {DType::kU16, "u16", 2, true, 0, 65535},
      {DType::kS16, "s16", 2, true, -32768, 32767},
      {DType::kS32, "s32", 4, true, -2147483648ll, 2147483647},
      {DType::kI32, "i32", 4, false, -2147483648ll, 2147483647},
      {DType::kF16, "f16", 2, false, 0, 0},
      {DType::kF32, "f32", 4, false, 0, 0},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(DTypeName(c.dtype), c.name);
    EXPECT_EQ(ParseDType(c.name), c.dtype);
    EXPECT_EQ(DTypeSize(c.dtype), c.size) << c.name;
    EXPECT_EQ(IsFixedPoint(c.dtype), c.fixed_point) << c.name;
    EXPECT_EQ(DTypeMin(c.dtype), c.min) << c.name;
    EXPECT_EQ(DTypeMax(c.dtype), c.max) << c.name;
  }
  EXPECT_EQ(ParseDType("u4"), std::nullopt);
  EXPECT_EQ(ParseDType(""), std::nullopt);
}

TEST(ShapeTest, ElementsAndText) {
  EXPECT_EQ(NumElements({}), 1u);
  EXPECT_EQ(NumElements({2, 3, 4}), 24u);
  EXPECT_EQ(NumElements({5, 0}), 0u);
  EXPECT_EQ(NumElements({65536, 65536, 4}), uint64_t{1} << 34) << "wider than 32 bits";
  EXPECT_EQ(ShapeToString({1, 3, 32, 64}), "[1, 3, 32, 64]");
  EXPECT_EQ(ShapeToString({}), "[]");
}

TEST(EncodingTest, OffsetIsMinusTheZeroPoint) {
  const Encoding encoding = AffineEncoding(DType::kU8, -1.0f, 3.0f);
  EXPECT_EQ(encoding.kind, Encoding::Kind::kPerTensor);
  EXPECT_EQ(encoding.bits, 8);
  EXPECT_FLOAT_EQ(encoding.scale, 4.0f / 255.0f);
  EXPECT_EQ(encoding.offset, -64);  // 63.75 to the nearest
  EXPECT_EQ(QuantizeValue(0.0f, encoding, DType::kU8), 64);
  EXPECT_FLOAT_EQ(DequantizeValue(0, encoding), -64.0f * encoding.scale);
}

TEST(EncodingTest, HoldsZeroExactlyAndTheRangeWithinAStep) {
  test::Random random(5);
  for (const DType dtype : {DType::kU8, DType::kU16}) {
    for (int i = 0; i < 500; ++i) {
      const double size = std::pow(10.0, 8.0 * random.Uniform() - 4.0);
      const float a = static_cast<float>(size * random.Gauss());
      const float b = static_cast<float>(size * random.Gauss());
      const float min = std::min(a, b), max = std::max(a, b);
      const Encoding encoding = AffineEncoding(dtype, min, max);
      EXPECT_EQ(RoundTrip(0.0f, encoding, dtype), 0.0f);
      EXPECT_LE(encoding.offset, 0);
      EXPECT_GE(encoding.offset, -DTypeMax(dtype));
      // The zero point's own rounding costs at most half a step at an end.
      for (const float value : {min, max}) {
        EXPECT_NEAR(RoundTrip(value, encoding, dtype), value, 1.001 * encoding.scale)
            << min << " to " << max;
      }
    }
  }
}

TEST(EncodingTest, WidensToZero) {
  EXPECT_EQ(AffineEncoding(DType::kU16, 2.0f, 6.0f), AffineEncoding(DType::kU16, 0.0f, 6.0f));
  EXPECT_EQ(AffineEncoding(DType::kU16, 2.0f, 6.0f).offset, 0);
  EXPECT_EQ(AffineEncoding(DType::kU16, -6.0f, -2.0f), AffineEncoding(DType::kU16, -6.0f, 0.0f));
  EXPECT_EQ(AffineEncoding(DType::kU16, -6.0f, -2.0f).offset, -65535);
}

TEST(EncodingTest, FloorOfTheScale) {
  EXPECT_FLOAT_EQ(AffineEncoding(DType::kU8, 0.0f, 0.0f).scale, 0.0001f / 255.0f);
  EXPECT_FLOAT_EQ(AffineEncoding(DType::kU16, 0.0f, 0.0f).scale, 0.0001f / 65535.0f);
  EXPECT_FLOAT_EQ(AffineEncoding(DType::kU16, -1e-9f, 1e-30f).scale, 0.0001f / 65535.0f);
  EXPECT_FLOAT_EQ(SymmetricEncoding(DType::kU8, 0.0f).scale, 0.0001f / 254.0f);
  // Just above, the range counts.
  EXPECT_FLOAT_EQ(AffineEncoding(DType::kU8, 0.0f, 0.0002f).scale, 0.0002f / 255.0f);
}

TEST(EncodingTest, ConstantTensorsComeBack) {
  for (const DType dtype : {DType::kU8, DType::kU16}) {
    EXPECT_EQ(RoundTrip(0.0f, AffineEncoding(dtype, 0.0f, 0.0f), dtype), 0.0f);
    EXPECT_EQ(RoundTrip(0.0f, SymmetricEncoding(dtype, 0.0f), dtype), 0.0f);
    for (const float value : {1.0f, -1.0f, 0.37f, -0.37f, 12345.678f, -12345.678f, 0.0002f}) {
      const Encoding encoding = AffineEncoding(dtype, value, value);
      // As close as the float scale allows.
      EXPECT_FLOAT_EQ(RoundTrip(value, encoding, dtype), value);
      EXPECT_FLOAT_EQ(RoundTrip(value, SymmetricEncoding(dtype, std::abs(value)), dtype), value);
    }
  }
}

TEST(EncodingTest, SymmetricHasItsZeroInTheMiddle) {
  const Encoding u8 = SymmetricEncoding(DType::kU8, 12.7f);
  EXPECT_EQ(u8.offset, -128);
  EXPECT_FLOAT_EQ(u8.scale, 0.1f);
  EXPECT_EQ(QuantizeValue(12.7f, u8, DType::kU8), 255);
  EXPECT_EQ(QuantizeValue(-12.7f, u8, DType::kU8), 1);
  EXPECT_EQ(QuantizeValue(0.0f, u8, DType::kU8), 128);
  const Encoding u16 = SymmetricEncoding(DType::kU16, 32767.0f);
  EXPECT_EQ(u16.offset, -32768);
  EXPECT_FLOAT_EQ(u16.scale, 1.0f);
  EXPECT_EQ(QuantizeValue(0.0f, u16, DType::kU16), 32768);
}

TEST(QuantizeValueTest, RoundsHalfToEven) {
  const Encoding encoding = Encoding::PerTensor(DType::kU8, 1.0f, -100);
  EXPECT_EQ(QuantizeValue(0.5f, encoding, DType::kU8), 100);
  EXPECT_EQ(QuantizeValue(1.5f, encoding, DType::kU8), 102);
  EXPECT_EQ(QuantizeValue(2.5f, encoding, DType::kU8), 102);
  EXPECT_EQ(QuantizeValue(-0.5f, encoding, DType::kU8), 100);
  EXPECT_EQ(QuantizeValue(-1.5f, encoding, DType::kU8), 98);
  EXPECT_EQ(QuantizeValue(-2.5f, encoding, DType::kU8), 98);
  EXPECT_EQ(QuantizeValue(2.51f, encoding, DType::kU8), 103);
  // The tie is of the real value in steps: an odd zero point does not shift it.
  const Encoding odd = Encoding::PerTensor(DType::kU8, 2.0f, -7);
  EXPECT_EQ(QuantizeValue(1.0f, odd, DType::kU8), 7);
  EXPECT_EQ(QuantizeValue(3.0f, odd, DType::kU8), 9);
}

TEST(QuantizeValueTest, Saturates) {
  constexpr float kHuge = std::numeric_limits<float>::max();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Encoding u16 = AffineEncoding(DType::kU16, -1.0f, 1.0f);
  for (const float value : {1.5f, kHuge, kInfinity}) {
    EXPECT_EQ(QuantizeValue(value, u16, DType::kU16), 65535);
    EXPECT_EQ(QuantizeValue(-value, u16, DType::kU16), 0);
  }
  const Encoding s8 = Encoding::PerTensor(DType::kS8, 0.5f, 0);
  EXPECT_EQ(QuantizeValue(1000.0f, s8, DType::kS8), 127);
  EXPECT_EQ(QuantizeValue(-1000.0f, s8, DType::kS8), -128);
  const Encoding s32 = Encoding::PerTensor(DType::kS32, 1e-3f, 0);
  EXPECT_EQ(QuantizeValue(kHuge, s32, DType::kS32), std::numeric_limits<int32_t>::max());
  EXPECT_EQ(QuantizeValue(-kHuge, s32, DType::kS32), std::numeric_limits<int32_t>::min());
}

TEST(EncodingTest, Text) {
  EXPECT_EQ(Encoding().ToString(), "none");
  EXPECT_EQ(Encoding::PerTensor(DType::kU16, 255.0f / 65535.0f, -65535).ToString(),
            "scale 0.00389105 offset -65535");
  EXPECT_EQ(Encoding::PerChannel(8, 0, std::vector<float>(576, 1.0f)).ToString(),
            "per-channel axis 0, 8 bit, 576 scales");
  Encoding block = Encoding::PerChannel(4, 0, {1.0f, 2.0f});
  block.kind = Encoding::Kind::kBlock;
  block.block_size = 64;
  EXPECT_EQ(block.ToString(), "block 64, axis 0, 4 bit, 2 channels");
}

}  // namespace
}  // namespace spillway
