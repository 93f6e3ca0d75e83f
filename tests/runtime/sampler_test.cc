#include "runtime/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace spillway {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Sampler Make(SamplerOptions options, size_t vocab) {
  Result<Sampler> sampler = Sampler::Create(options, static_cast<uint32_t>(vocab));
  EXPECT_TRUE(sampler.ok()) << sampler.status().ToString();
  return std::move(sampler).value();
}

// How often each token comes in `draws` draws.
std::vector<int> Count(SamplerOptions options, const std::vector<float>& logits, int draws) {
  Sampler sampler = Make(options, logits.size());
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) ++counts.at(sampler.Sample(logits));
  return counts;
}

TEST(ArgMaxTest, LowestIdWinsTiesAndNanLoses) {
  EXPECT_EQ(ArgMax(std::vector<float>{1, 3, 3, 2}), 1u);
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, -2, -1, kNan}), 2u);
  EXPECT_EQ(ArgMax(std::vector<float>{kNan, kNan}), 0u);
  EXPECT_EQ(ArgMax(std::vector<float>{-kInf, -kInf}), 0u);
  EXPECT_EQ(ArgMax(std::vector<float>{}), 0u);
}

TEST(SamplerTest, EdgeValuesThatMeanTheBestToken) {
  const std::vector<float> logits = {0.1f, 0.3f, 0.3f, 0.2f};
  for (const SamplerOptions& options :
       {SamplerOptions{.temperature = 0}, SamplerOptions{.temperature = 1, .top_k = 1},
        SamplerOptions{.temperature = 1, .top_k = 0, .top_p = 0},
        SamplerOptions{.temperature = 1, .top_k = 0, .top_p = -1},
        SamplerOptions{.temperature = 1, .top_k = 0, .top_p = 1e-300},
        SamplerOptions{.temperature = 1e-300, .top_k = 2, .top_p = 0.2}}) {
    EXPECT_EQ(Count(options, logits, 50)[1], 50);
  }
}

TEST(SamplerTest, RefusesWhatIsNoOption) {
  for (const double bad : {-0.1, double{kNan}, double{kInf}}) {
    const Result<Sampler> sampler = Sampler::Create({.temperature = bad}, 4);
    EXPECT_EQ(sampler.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(sampler.status().message(), HasSubstr("temperature"));
  }
  const Result<Sampler> sampler = Sampler::Create({.top_p = double{kNan}}, 4);
  EXPECT_EQ(sampler.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(sampler.status().message(), HasSubstr("top_p"));
}

TEST(SamplerTest, SameSeedSameTokens) {
  std::vector<float> logits(50);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
  const auto draw = [&](uint64_t seed) {
    Sampler sampler = Make({.temperature = 1, .top_k = 0, .top_p = 1, .seed = seed}, 50);
    std::vector<uint32_t> tokens;
    for (int i = 0; i < 40; ++i) tokens.push_back(sampler.Sample(logits));
    return tokens;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  EXPECT_NE(draw(0), draw(1));
}

// Chi-squared against the exact distribution.
double ChiSquared(const std::vector<int>& counts, const std::vector<double>& probability,
                  int draws) {
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (probability[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " is cut off";
      continue;
    }
    const double expected = probability[i] * draws;
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

TEST(SamplerTest, FollowsTheDistribution) {
  // Probabilities at temperature 1: 0.4, 0.3, 0.2, 0.06, 0.04.
  const std::vector<double> p = {0.06, 0.4, 0.04, 0.2, 0.3};
  std::vector<float> logits;
  for (const double x : p) logits.push_back(static_cast<float>(std::log(x)));
  constexpr int kDraws = 40000;
  // 18.5 is the 0.001 point of chi-squared with 4 degrees of freedom.
  SamplerOptions options = {.temperature = 1, .top_k = 0, .top_p = 1, .seed = 3};
  EXPECT_LT(ChiSquared(Count(options, logits, kDraws), p, kDraws), 18.5);

  options.temperature = 0.5;  // probabilities squared
  std::vector<double> sharp;
  double total = 0;
  for (const double x : p) total += x * x;
  for (const double x : p) sharp.push_back(x * x / total);
  EXPECT_LT(ChiSquared(Count(options, logits, kDraws), sharp, kDraws), 18.5);

  options.temperature = 1;
  options.top_k = 3;
  const std::vector<double> best3 = {0, 0.4 / 0.9, 0, 0.2 / 0.9, 0.3 / 0.9};
  EXPECT_LT(ChiSquared(Count(options, logits, kDraws), best3, kDraws), 18.5);

  options.top_p = 0.75;  // of the three: 0.44 + 0.33 reach it
  const std::vector<double> best2 = {0, 0.4 / 0.7, 0, 0, 0.3 / 0.7};
  EXPECT_LT(ChiSquared(Count(options, logits, kDraws), best2, kDraws), 18.5);

  options.top_k = 100;  // more than there are
  options.top_p = 0.92;
  const std::vector<double> best4 = {0.06 / 0.96, 0.4 / 0.96, 0, 0.2 / 0.96, 0.3 / 0.96};
  EXPECT_LT(ChiSquared(Count(options, logits, kDraws), best4, kDraws), 18.5);
}

TEST(SamplerTest, StrangeLogitsStayInRange) {
  for (const std::vector<float>& logits :
       {std::vector<float>{kNan, 1, kNan}, std::vector<float>{-kInf, 1, -kInf},
        std::vector<float>{0, kInf, 0}}) {
    EXPECT_EQ(Count({.temperature = 1, .top_k = 0, .top_p = 1}, logits, 50)[1], 50);
  }
  Count({.temperature = 1e300, .top_k = 0}, {3e38f, -3e38f, 0}, 50);
  Count({}, {kNan, kNan}, 10);
}

}  // namespace
}  // namespace spillway
