#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace spillway {
namespace {

// The value of a half by its definition, not by its bits.
double HalfByDefinition(uint16_t half) {
  const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

// The nearest half by looking at all that are not negative; the even one of two
// that are equally near. 65504 + 16 = 65520 and above is infinity.
uint16_t NearestHalf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520.0) return sign | 0x7c00;
  int low = 0;
  int high = 0x7bff;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (HalfByDefinition(static_cast<uint16_t>(middle)) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - HalfByDefinition(static_cast<uint16_t>(low));
  const double above = HalfByDefinition(static_cast<uint16_t>(high)) - magnitude;
  const bool up = above < below || (above == below && (high & 1) == 0);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

TEST(Float16Test, EveryHalfHasItsDefinedValue) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<uint16_t>(i);
    const double expected = HalfByDefinition(half);
    const float actual = HalfToFloat(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << i;
    } else {
      ASSERT_EQ(actual, expected) << i;
      ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << i;
    }
  }
}

TEST(Float16Test, EveryHalfSurvivesTheWayThroughFloat) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<uint16_t>(i);
    const uint16_t back = FloatToHalf(HalfToFloat(half));
    if (std::isnan(HalfByDefinition(half))) {
      ASSERT_TRUE(std::isnan(HalfToFloat(back))) << i;
    } else {
      ASSERT_EQ(back, half);
    }
  }
}

TEST(Float16Test, RoundsTiesToEvenAndTheirNeighboursToTheNearest) {
  for (uint16_t half = 0; half < 0x7bff; ++half) {
    const auto tie = static_cast<float>(
        (HalfByDefinition(half) + HalfByDefinition(static_cast<uint16_t>(half + 1))) / 2);
    const uint16_t even = (half & 1) == 0 ? half : static_cast<uint16_t>(half + 1);
    ASSERT_EQ(FloatToHalf(tie), even) << half;
    ASSERT_EQ(FloatToHalf(std::nextafter(tie, 0.0f)), half);
    ASSERT_EQ(FloatToHalf(std::nextafter(tie, 1e9f)), half + 1);
    ASSERT_EQ(FloatToHalf(-tie), even | 0x8000) << half;
  }
}

TEST(Float16Test, RoundsAnyFloatToTheNearestHalf) {
  uint32_t bits = 1;
  for (int i = 0; i < 200000; ++i) {
    bits = bits * 1664525u + 1013904223u;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToHalf(value), NearestHalf(value)) << value;
  }
}

TEST(Float16Test, Limits) {
  EXPECT_EQ(FloatToHalf(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfc00);
  EXPECT_EQ(FloatToHalf(std::ldexp(1.0f, -24)), 1);
  EXPECT_EQ(FloatToHalf(std::ldexp(1.0f, -25)), 0);
  EXPECT_EQ(FloatToHalf(std::nextafter(std::ldexp(1.0f, -25), 1.0f)), 1);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(std::nanf("")))));
}

TEST(Float16Test, EveryBfloat16HasItsDefinedValue) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const double sign = (i & 0x8000) != 0 ? -1.0 : 1.0;
    const int exponent = static_cast<int>((i >> 7) & 255);
    const int mantissa = static_cast<int>(i & 127);
    const float actual = Bfloat16ToFloat(static_cast<uint16_t>(i));
    if (exponent == 255 && mantissa != 0) {
      ASSERT_TRUE(std::isnan(actual));
    } else if (exponent == 255) {
      ASSERT_EQ(actual, sign * std::numeric_limits<double>::infinity());
    } else {
      const double expected =
          exponent == 0 ? std::ldexp(mantissa, -133) : std::ldexp(128 + mantissa, exponent - 134);
      ASSERT_EQ(actual, sign * expected) << i;
    }
  }
}

}  // namespace
}  // namespace spillway
