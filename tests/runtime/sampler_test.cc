#include "runtime/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/runtime/allocation_counter.h"

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
  const std::vector<float> logits = {0.1f, 0.3f, 0.29f, 0.2f};
  for (const SamplerOptions& options :
       {SamplerOptions{.temperature = 0}, SamplerOptions{.temperature = 1, .top_k = 1},
        SamplerOptions{.temperature = 1, .top_k = 0, .top_p = 0},
        SamplerOptions{.temperature = 1, .top_k = 0, .top_p = -1},
        SamplerOptions{.temperature = 1, .top_k = 0, .top_p = 1e-8},
        SamplerOptions{.temperature = 1, .top_k = 0, .top_p = 1e-300},
        SamplerOptions{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 1},
        SamplerOptions{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = double{kInf}},
        SamplerOptions{.temperature = 1e-300, .top_k = 2, .top_p = 0.2}}) {
    EXPECT_EQ(Count(options, logits, 50)[1], 50);
  }
  // Of equal ones the lower id, but for min_p, which cannot tell them apart.
  const std::vector<float> equal = {0, 1, 1};
  EXPECT_EQ(Count({.temperature = 0}, equal, 50)[1], 50);
  EXPECT_EQ(Count({.temperature = 1, .top_k = 0, .top_p = 1e-8}, equal, 50)[1], 50);
  EXPECT_EQ(Count({.temperature = 1, .top_p = 1, .min_p = 1}, equal, 50)[0], 0);
  EXPECT_GT(Count({.temperature = 1, .top_p = 1, .min_p = 1}, equal, 50)[2], 0);
}

TEST(SamplerTest, EdgeValuesThatMeanAllTokens) {
  const std::vector<float> logits = {0, 0, 0, 0};
  for (const SamplerOptions& options :
       {SamplerOptions{.temperature = 1, .top_k = 0, .top_p = 1},
        SamplerOptions{.temperature = 1, .top_k = 4000000000u, .top_p = 2},
        SamplerOptions{.temperature = 1, .top_k = 4, .top_p = double{kInf}, .min_p = -1}}) {
    EXPECT_THAT(Count(options, logits, 400), ::testing::Each(::testing::Gt(50)));
  }
}

TEST(SamplerTest, RefusesWhatIsNoOption) {
  const auto refused = [](const SamplerOptions& options, const char* name) {
    const Result<Sampler> sampler = Sampler::Create(options, 4);
    EXPECT_EQ(sampler.status().code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(sampler.status().message(), HasSubstr(name));
  };
  for (const double bad : {-0.1, double{kNan}, double{kInf}}) {
    refused({.temperature = bad}, "temperature");
    refused({.repetition_penalty = bad}, "repetition_penalty");
  }
  refused({.repetition_penalty = 0}, "repetition_penalty");
  refused({.presence_penalty = double{kNan}}, "presence_penalty");
  refused({.presence_penalty = -double{kInf}}, "presence_penalty");
  refused({.top_p = double{kNan}}, "top_p");
  refused({.min_p = double{kNan}}, "min_p");
  refused({.logit_bias = {{4, 1.0f}}}, "token 4");
  refused({.logit_bias = {{3, kNan}}}, "token 3");
  refused({.logit_bias = {{3, kInf}}}, "token 3");
  EXPECT_TRUE(Sampler::Create({.logit_bias = {{3, -kInf}}}, 4).ok());
}

TEST(SamplerTest, PenaltiesAndBiasDecideAtTemperatureZero) {
  const std::vector<float> logits = {2.0f, 3.0f, -1.0f, 2.5f};
  Sampler repetition = Make({.repetition_penalty = 2, .temperature = 0}, 4);
  const std::vector<uint32_t> prompt = {1, 900, 1};  // 900 is not in the vocabulary
  repetition.SetPrompt(prompt);
  EXPECT_EQ(repetition.Sample(logits), 3u);  // 3 / 2 < 2.5
  repetition.Accept(3);
  repetition.Accept(3);                      // twice counts once
  EXPECT_EQ(repetition.Sample(logits), 0u);  // 2 > 1.5 > 1.25
  repetition.Accept(0);
  EXPECT_EQ(repetition.Sample(logits), 1u);  // 1.5 is the best again
  // A negative logit gets smaller.
  Sampler negative = Make({.repetition_penalty = 2, .temperature = 0}, 2);
  negative.Accept(0);
  EXPECT_EQ(negative.Sample(std::vector<float>{-1.0f, -1.5f}), 1u);

  Sampler presence = Make({.presence_penalty = 0.75, .temperature = 0}, 4);
  presence.SetPrompt(prompt);
  EXPECT_EQ(presence.Sample(logits), 1u);  // the prompt is none of its business
  presence.Accept(1);
  EXPECT_EQ(presence.Sample(logits), 3u);
  presence.Accept(1);
  presence.Accept(3);
  EXPECT_EQ(presence.Sample(logits), 1u);  // 2.25 > 2 > 1.75

  EXPECT_EQ(Make({.logit_bias = {{2, 2.0f}, {2, 2.5f}}, .temperature = 0}, 4).Sample(logits), 2u);
  EXPECT_EQ(Make({.logit_bias = {{1, -kInf}}, .temperature = 0}, 4).Sample(logits), 3u);
  const std::vector<std::pair<uint32_t, float>> all = {
      {0, -kInf}, {1, -kInf}, {2, -kInf}, {3, -kInf}};
  EXPECT_EQ(Make({.logit_bias = all, .temperature = 0}, 4).Sample(logits), 0u);
  EXPECT_EQ(Make({.logit_bias = all, .temperature = 1}, 4).Sample(logits), 0u);
  const std::vector<int> banned =
      Count({.logit_bias = {{1, -kInf}}, .temperature = 3, .top_k = 0, .top_p = 1}, logits, 200);
  EXPECT_EQ(banned[1], 0);
  EXPECT_GT(banned[0], 0);
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

  SamplerOptions least = {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0.4, .seed = 4};
  const std::vector<double> best3_again = {0, 0.4 / 0.9, 0, 0.2 / 0.9, 0.3 / 0.9};
  EXPECT_LT(ChiSquared(Count(least, logits, kDraws), best3_again, kDraws), 18.5);
  least.top_p = 0.69;  // 0.4 + 0.3
  EXPECT_LT(ChiSquared(Count(least, logits, kDraws), best2, kDraws), 18.5);

  options.top_k = 100;  // more than there are
  options.top_p = 0.92;
  const std::vector<double> best4 = {0.06 / 0.96, 0.4 / 0.96, 0, 0.2 / 0.96, 0.3 / 0.96};
  EXPECT_LT(ChiSquared(Count(options, logits, kDraws), best4, kDraws), 18.5);
}

// The n-th token has the n-th random number, whatever the ones before were drawn from.
TEST(SamplerTest, ACertainTokenTakesARandomNumberToo) {
  const std::vector<float> even = {0, 0, 0, 0, 0, 0, 0, 0}, certain = {kInf, 0, 0, 0, 0, 0, 0, 0};
  const SamplerOptions options = {.temperature = 1, .top_k = 0, .top_p = 1, .seed = 5};
  Sampler a = Make(options, 8), b = Make(options, 8);
  for (int i = 0; i < 20; ++i) {
    const uint32_t drawn = a.Sample(even);
    EXPECT_EQ(b.Sample(i % 2 == 0 ? certain : even), i % 2 == 0 ? 0 : drawn);
  }
}

TEST(SamplerTest, DoesNotAllocate) {
  Sampler sampler = Make({.repetition_penalty = 1.1,
                          .presence_penalty = 0.1,
                          .logit_bias = {{1, 0.5f}},
                          .temperature = 1,
                          .top_k = 20,
                          .top_p = 0.9,
                          .min_p = 0.01},
                         64);
  std::vector<float> logits(64, 0.5f);
  test::allocations = 0;
  test::counting = true;
  for (int i = 0; i < 64; ++i) sampler.Accept(sampler.Sample(logits));
  test::counting = false;
  EXPECT_EQ(test::allocations, 0);
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
