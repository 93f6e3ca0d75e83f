#include "quantize/observer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace spillway {
namespace {

constexpr ActivationScheme kNarrow = {DType::kU8, false};
constexpr ActivationScheme kWide = {DType::kU16, false};

Range RangeOf(const std::vector<float>& values) {
  Range range;
  for (const float value : values) range.Include(value, value);
  return range;
}

Range Choose(ObserverSpec spec, const ActivationScheme& scheme,
             const std::vector<std::vector<float>>& windows) {
  const std::unique_ptr<Observer> observer = MakeObserver(spec, scheme);
  for (const std::vector<float>& window : windows) observer->Add(window, RangeOf(window));
  return observer->Choose();
}

std::vector<float> Normal(size_t count, float deviation, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

double SquaredError(const std::vector<float>& values, const Encoding& encoding, DType dtype) {
  double sum = 0;
  for (const float value : values) {
    const double error =
        DequantizeValue(QuantizeValue(value, encoding, dtype), encoding) - double{value};
    sum += error * error;
  }
  return sum / static_cast<double>(values.size());
}

TEST(HistogramTest, CountsWhateverTheOrder) {
  std::vector<float> values = Normal(4000, 3, 1);
  values.insert(values.end(), 500, 0.0F);
  values.push_back(1000.0F);
  values.push_back(-0.001F);
  Histogram forward, backward, pieces;
  forward.Add(values);
  std::reverse(values.begin(), values.end());
  backward.Add(values);
  for (const float value : values) pieces.Add({&value, 1});
  EXPECT_EQ(forward.width(), 1.0) << "1000 fits below 1024 bins of 1";
  EXPECT_EQ(forward.zeros(), 500u);
  EXPECT_EQ(forward.total(), values.size());
  uint64_t counted = 0;
  for (int bin = 0; bin < 2 * Histogram::kSide; ++bin) {
    EXPECT_EQ(forward.count(bin), backward.count(bin));
    EXPECT_EQ(forward.count(bin), pieces.count(bin));
    const auto inside = std::count_if(values.begin(), values.end(), [&](float value) {
      return value != 0.0F && std::floor(value) == bin - Histogram::kSide;
    });
    EXPECT_EQ(forward.count(bin), static_cast<uint64_t>(inside)) << bin;
    counted += forward.count(bin);
  }
  EXPECT_EQ(counted + forward.zeros(), forward.total());
  EXPECT_EQ(pieces.width(), 1.0);
}

TEST(HistogramTest, ThePowerOfTwoItselfFits) {
  Histogram histogram;
  const std::vector<float> values = {-1024.0F, 1024.0F, 1.0F};
  histogram.Add(values);
  EXPECT_EQ(histogram.width(), 2.0);
  EXPECT_EQ(histogram.count(Histogram::kSide + 512), 1u);
  EXPECT_EQ(histogram.count(Histogram::kSide - 512), 1u);
}

struct ObserverCase {
  const char* name;
  ObserverKind kind;
};

std::ostream& operator<<(std::ostream& out, const ObserverCase& c) { return out << c.name; }

class EveryObserver : public ::testing::TestWithParam<ObserverCase> {};

TEST_P(EveryObserver, HoldsZeroAndStaysWithinWhatWasSeen) {
  std::mt19937 engine(7);
  for (const ActivationScheme& scheme :
       {kNarrow, kWide, ActivationScheme{DType::kU8, true}, ActivationScheme{DType::kU16, true}}) {
    for (int run = 0; run < 20; ++run) {
      std::uniform_real_distribution<float> shift(-4, 4), spread(0.01F, 100);
      std::vector<float> values = Normal(500, spread(engine), engine());
      const float by = shift(engine);
      for (float& value : values) value += by;
      const Range seen = RangeOf(values);
      const Range range = Choose({GetParam().kind}, scheme, {values});
      EXPECT_LE(range.min, 0.0F);
      EXPECT_GE(range.max, 0.0F);
      EXPECT_GE(range.min, seen.min);
      EXPECT_LE(range.max, seen.max);
      EXPECT_GT(range.max - range.min, 0.0F);
    }
  }
}

TEST_P(EveryObserver, ZerosAndConstantsSurvive) {
  for (const DType dtype : {DType::kU8, DType::kU16}) {
    for (const float constant : {0.0F, 3.25F, -0.75F, 1e-30F, 20000.0F}) {
      const Range range =
          Choose({GetParam().kind}, {dtype, false}, {std::vector<float>(100, constant)});
      const Encoding encoding = AffineEncoding(dtype, range.min, range.max);
      EXPECT_GT(encoding.scale, 0.0F);
      EXPECT_EQ(DequantizeValue(QuantizeValue(0.0F, encoding, dtype), encoding), 0.0F);
      // To a step, which is the floor's for the tiny one. Percentiles may cut a part
      // of the bin that holds everything.
      const float cut =
          GetParam().kind == ObserverKind::kPercentile ? std::abs(constant) / 512 : 0.0F;
      EXPECT_NEAR(DequantizeValue(QuantizeValue(constant, encoding, dtype), encoding), constant,
                  0.51F * encoding.scale + cut)
          << constant;
    }
  }
}

TEST_P(EveryObserver, TheSameForTheSameValues) {
  const std::vector<float> a = Normal(1000, 2, 3), b = Normal(1000, 5, 4);
  const Range once = Choose({GetParam().kind}, kNarrow, {a, b});
  const Range again = Choose({GetParam().kind}, kNarrow, {a, b});
  EXPECT_EQ(once.min, again.min);
  EXPECT_EQ(once.max, again.max);
  if (GetParam().kind == ObserverKind::kMovingAverage) return;  // newer ones weigh more
  const Range turned = Choose({GetParam().kind}, kNarrow, {b, a});
  EXPECT_EQ(once.min, turned.min);
  EXPECT_EQ(once.max, turned.max);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryObserver,
                         ::testing::Values(ObserverCase{"minmax", ObserverKind::kMinMax},
                                           ObserverCase{"moving_average",
                                                        ObserverKind::kMovingAverage},
                                           ObserverCase{"percentile", ObserverKind::kPercentile},
                                           ObserverCase{"mse", ObserverKind::kMse},
                                           ObserverCase{"entropy", ObserverKind::kEntropy}));

TEST(ObserverTest, MovingAverage) {
  ObserverSpec spec{ObserverKind::kMovingAverage};
  spec.momentum = 0.25F;
  const Range range = Choose(spec, kNarrow, {{-1, 4}, {-3, 8}, {-3, 0}});
  // 4, then 4 + (8 - 4) / 4 = 5, then 5 - 5 / 4.
  EXPECT_FLOAT_EQ(range.max, 3.75F);
  // -1, then -1.5, then -1.875.
  EXPECT_FLOAT_EQ(range.min, -1.875F);
}

TEST(ObserverTest, PercentileLeavesOutTheOutermost) {
  std::vector<float> values;
  for (int i = 1; i <= 1000; ++i) {
    values.push_back(static_cast<float>(i) / 1000);
    values.push_back(static_cast<float>(-2 * i) / 1000);
  }
  values.push_back(1.9F);
  ObserverSpec spec{ObserverKind::kPercentile};
  spec.percentile = 90.0F;  // a twentieth of all on each side, a tenth of that side
  const Range range = Choose(spec, kNarrow, {values});
  EXPECT_NEAR(range.max, 0.9F, 0.005F);
  EXPECT_NEAR(range.min, -1.8F, 0.005F);
  spec.percentile = 100.0F;
  const Range whole = Choose(spec, kNarrow, {values});
  EXPECT_NEAR(whole.max, 1.9F, 0.005F);
  EXPECT_EQ(whole.min, -2.0F);
}

// Against a search with real quantisation of every value.
TEST(ObserverTest, MseIsTheBestRange) {
  for (const bool symmetric : {false, true}) {
    std::vector<float> values = Normal(20000, 1, 11);
    for (float& value : values) value = symmetric ? value : value + std::abs(value);
    values.push_back(60.0F);
    values.push_back(-12.0F);
    const ActivationScheme scheme = {DType::kU8, symmetric};
    const auto error = [&](float low, float high) {
      const Encoding encoding = symmetric ? SymmetricEncoding(DType::kU8, std::max(high, -low))
                                          : AffineEncoding(DType::kU8, low, high);
      return SquaredError(values, encoding, DType::kU8);
    };
    double least = 1e30;
    for (int i = 1; i <= 120; ++i) {
      for (int j = 1; j <= (symmetric ? 1 : 24); ++j) {
        least = std::min(least, error(symmetric ? -0.5F * i : -0.5F * j, 0.5F * i));
      }
    }
    const Range range = Choose({ObserverKind::kMse}, scheme, {values});
    EXPECT_LE(error(range.min, range.max), 1.03 * least);
  }
  // Of many values one far out is clipped.
  std::vector<float> many = Normal(300000, 1, 12);
  many.push_back(20.0F);
  const Range clipped = Choose({ObserverKind::kMse}, {DType::kU8, true}, {many});
  EXPECT_LT(clipped.max, 12.0F);
  EXPECT_GT(clipped.max, 4.0F);
  EXPECT_LT(SquaredError(many, SymmetricEncoding(DType::kU8, clipped.max), DType::kU8),
            0.5 * SquaredError(many, SymmetricEncoding(DType::kU8, 20), DType::kU8));
  // With 65,536 steps a few outliers cost less than clipping them.
  std::vector<float> values = Normal(20000, 1, 11);
  values.push_back(60.0F);
  EXPECT_GT(Choose({ObserverKind::kMse}, kWide, {values}).max, 59.0F);
}

TEST(ObserverTest, EntropyClipsAnOutlier) {
  std::vector<float> values = Normal(200000, 1, 13);
  const Range whole = Choose({ObserverKind::kEntropy}, kNarrow, {values});
  EXPECT_GT(whole.max, 2.0F);
  values.push_back(40.0F);
  const Range clipped = Choose({ObserverKind::kEntropy}, kNarrow, {values});
  EXPECT_LT(clipped.max, 20.0F);
  EXPECT_GT(clipped.max, 2.0F);
  EXPECT_EQ(Choose({ObserverKind::kEntropy}, kWide, {values}).max, 40.0F) << "min-max";
}

}  // namespace
}  // namespace spillway
