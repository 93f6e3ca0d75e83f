// Encodings over random ranges and values: what every one of them must do.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "graph/types.h"

namespace spillway {
namespace {

class Draw {
 public:
  // Magnitudes from 1e-6 to 1e5, evenly over their logarithm.
  float Magnitude() {
    return std::pow(10.0F, std::uniform_real_distribution<float>(-6, 5)(engine_));
  }
  float Between(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(engine_);
  }
  bool Coin() { return std::uniform_int_distribution<int>(0, 1)(engine_) == 1; }

 private:
  std::mt19937 engine_{99};
};

struct Case {
  DType dtype;
  Encoding encoding;
  float low, high;  // what it stands for
};

Case Random(Draw& draw, DType dtype) {
  const float a = draw.Magnitude(), b = draw.Magnitude();
  if (draw.Coin()) return {dtype, SymmetricEncoding(dtype, a), -a, a};
  const float low = draw.Coin() ? -a : a * 0.1F;
  return {dtype, AffineEncoding(dtype, low, b), std::min(low, 0.0F), b};
}

float RoundTrip(float value, const Case& c) {
  return DequantizeValue(QuantizeValue(value, c.encoding, c.dtype), c.encoding);
}

constexpr int kRuns = 2000;

TEST(EncodingPropertyTest, RoundTripsWithinHalfAStep) {
  Draw draw;
  for (int run = 0; run < kRuns; ++run) {
    const Case c = Random(draw, draw.Coin() ? DType::kU8 : DType::kU16);
    const float value = draw.Between(c.low, c.high);
    const float scale = c.encoding.scale;
    // The zero point's own rounding takes up to half a step from one end.
    const float edge = std::min(value - c.low, c.high - value) < scale ? 1.01F : 0.501F;
    EXPECT_NEAR(RoundTrip(value, c), value, edge * scale + 1e-5F * std::abs(value))
        << c.encoding.ToString();
  }
}

TEST(EncodingPropertyTest, ZeroIsExactAndScalesHaveAFloor) {
  Draw draw;
  for (int run = 0; run < kRuns; ++run) {
    const Case c = Random(draw, draw.Coin() ? DType::kU8 : DType::kU16);
    EXPECT_EQ(RoundTrip(0.0F, c), 0.0F) << c.encoding.ToString();
    const auto steps = static_cast<float>(DTypeMax(c.dtype));
    EXPECT_GE(c.encoding.scale, 0.9999F * 0.0001F / steps);
    EXPECT_TRUE(std::isfinite(c.encoding.scale));
    EXPECT_LE(c.encoding.offset, 0);
    EXPECT_GE(c.encoding.offset, -DTypeMax(c.dtype));
  }
}

TEST(EncodingPropertyTest, MonotoneAndIdempotent) {
  Draw draw;
  for (int run = 0; run < kRuns; ++run) {
    const Case c = Random(draw, draw.Coin() ? DType::kU8 : DType::kU16);
    const float reach = 2 * std::max(c.high, -c.low);
    const float a = draw.Between(-reach, reach), b = draw.Between(-reach, reach);
    const int32_t qa = QuantizeValue(a, c.encoding, c.dtype);
    const int32_t qb = QuantizeValue(b, c.encoding, c.dtype);
    EXPECT_LE(a < b ? qa : qb, a < b ? qb : qa);
    EXPECT_EQ(QuantizeValue(DequantizeValue(qa, c.encoding), c.encoding, c.dtype), qa);
    EXPECT_GE(qa, DTypeMin(c.dtype));
    EXPECT_LE(qa, DTypeMax(c.dtype));
  }
}

TEST(EncodingPropertyTest, AgainstPlainFormulas) {
  Draw draw;
  for (int run = 0; run < kRuns; ++run) {
    const DType dtype = draw.Coin() ? DType::kU8 : DType::kU16;
    const double steps = dtype == DType::kU8 ? 255 : 65535;
    const float low = -draw.Magnitude(), high = draw.Magnitude();
    const Encoding affine = AffineEncoding(dtype, low, high);
    const double range = std::max(double{high} - low, 0.0001);
    EXPECT_NEAR(affine.scale, range / steps, 1e-6 * affine.scale);
    EXPECT_NEAR(-affine.offset, -low / (range / steps), 0.51);
    const float magnitude = draw.Magnitude();
    const Encoding symmetric = SymmetricEncoding(dtype, magnitude);
    EXPECT_EQ(symmetric.offset, dtype == DType::kU8 ? -128 : -32768);
    const double half = (steps - 1) / 2;  // 127 or 32767 steps on each side
    EXPECT_NEAR(symmetric.scale, std::max<double>(magnitude, 0.00005) / half,
                1e-6 * symmetric.scale);
    const float value = draw.Between(low, high);
    const double q = std::nearbyint(double{value} / affine.scale) - affine.offset;
    EXPECT_EQ(QuantizeValue(value, affine, dtype), std::min(std::max(q, 0.0), steps));
  }
}

}  // namespace
}  // namespace spillway
