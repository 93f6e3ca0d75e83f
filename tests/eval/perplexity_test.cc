#include "eval/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/runtime/fake_model_executor.h"
#include "tests/support/paths.h"
#include "tests/support/random_tokens.h"
#include "tests/support/reference_decoder.h"
#include "tests/support/tiny_model.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

double Nll(std::span<const float> logits, uint32_t token) {
  long double best = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const float logit : logits) best = std::max<long double>(best, logit);
  for (const float logit : logits) sum += std::exp(logit - best);
  return static_cast<double>(std::log(sum) + best - logits[token]);
}

TEST(SqnrTest, ByHand) {
  const std::vector<float> reference = {3.0f, -4.0f, 0.0f};
  EXPECT_NEAR(Sqnr(reference, std::vector<float>{3.0f, -4.5f, 0.0f}), 20.0, 1e-9);
  EXPECT_NEAR(Sqnr(reference, std::vector<float>{0.0f, 0.0f, 0.0f}), 0.0, 1e-9);
  EXPECT_NEAR(Sqnr(reference, std::vector<float>{3.0f, -4.0f, 50.0f}), -20.0, 1e-9);
  EXPECT_EQ(Sqnr(reference, reference), std::numeric_limits<double>::infinity());
}

TEST(PerplexityTest, ScoresTheSecondHalfOfEachWindow) {
  constexpr uint32_t kWindow = 12;
  // The rest that fills no window is left out.
  const std::vector<uint32_t> tokens =
      test::RandomTokens(3 * kWindow + 5, test::FakeModelExecutor::kVocab, 4);
  std::vector<double> expected;
  for (uint32_t w = 0; w < 3; ++w) {
    const auto window = std::span(tokens).subspan(size_t{w} * kWindow, kWindow);
    for (uint32_t t = kWindow / 2 + 1; t < kWindow; ++t) {
      expected.push_back(Nll(test::FakeModelExecutor::Expected(window.first(t)), window[t]));
    }
  }
  ASSERT_EQ(expected.size(), 3u * 5);
  double sum = 0;
  for (const double nll : expected) sum += nll;

  // However the tokens are fed: chunks and single tokens, or single ones only.
  for (const auto& [prefill_ar, decode_ar] : {std::pair{4u, 1u}, {0u, 1u}, {5u, 0u}}) {
    test::FakeModelExecutor executor(prefill_ar, decode_ar, 20);
    PerplexityOptions options;
    options.context_len = kWindow;
    const Result<PerplexityResult> result = MeasurePerplexity(executor, tokens, options, nullptr);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(result->windows, 3u);
    EXPECT_EQ(result->scored_tokens, 15u);
    ASSERT_EQ(result->nll.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(result->nll[i], expected[i], 1e-2 + 1e-6 * expected[i]) << i;
    }
    EXPECT_NEAR(result->mean_nll, sum / 15, 1e-2);
    EXPECT_EQ(result->perplexity, std::exp(result->mean_nll));
  }
}

TEST(PerplexityTest, MaxWindows) {
  test::FakeModelExecutor executor(0, 1, 8);
  const std::vector<uint32_t> tokens = test::RandomTokens(40, 90, 4);
  PerplexityOptions options;
  options.context_len = 8;
  options.max_windows = 2;
  const Result<PerplexityResult> result = MeasurePerplexity(executor, tokens, options, nullptr);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->windows, 2u);
  EXPECT_EQ(result->scored_tokens, 6u);
  EXPECT_EQ(executor.runs, 14) << "the last token of a window is predicted, never fed";
}

TEST(PerplexityTest, WhatCannotBe) {
  test::FakeModelExecutor executor(0, 1, 8);
  const std::vector<uint32_t> tokens = test::RandomTokens(7, 90, 4);
  const auto error = [&](uint32_t window) {
    PerplexityOptions options;
    options.context_len = window;
    const auto result = MeasurePerplexity(executor, tokens, options, nullptr);
    EXPECT_FALSE(result.ok());
    if (result.ok()) return std::string();
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    return result.status().message();
  };
  EXPECT_THAT(error(8), AllOf(HasSubstr("7 tokens"), HasSubstr("one window of 8")));
  EXPECT_THAT(error(9), AllOf(HasSubstr("window of 9"), HasSubstr("4 to 8")));
  EXPECT_THAT(error(3), HasSubstr("window of 3"));
  EXPECT_EQ(executor.runs, 0);
}

TEST(PerplexityTest, PassesOnErrors) {
  test::FakeModelExecutor executor(0, 1, 8);
  executor.fail_at_run = 3;
  const auto result =
      MeasurePerplexity(executor, test::RandomTokens(8, 90, 4), {.context_len = 8}, nullptr);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kVendor);
}

TEST(FloatExecutorTest, PerplexityOfATinyModel) {
  test::TempFolder folder;
  test::TinyModelSpec spec;
  spec.tied = false;
  Result<std::shared_ptr<const Model>> model =
      Model::Open(test::WriteTinyModel(folder.File("tiny.gguf"), spec));
  ASSERT_TRUE(model.ok());
  constexpr uint32_t kWindow = 16;
  const std::vector<uint32_t> tokens = test::RandomTokens(2 * kWindow, spec.vocab, 31);
  const test::TinyModel tiny = test::MakeTinyModel(spec);
  double sum = 0;
  for (uint32_t w = 0; w < 2; ++w) {
    const auto window = std::span(tokens).subspan(size_t{w} * kWindow, kWindow);
    const auto logits = test::ReferenceLogits(tiny, window);
    for (uint32_t t = kWindow / 2; t + 1 < kWindow; ++t) {
      double total = 0;
      for (const double logit : logits[t]) total += std::exp(logit);
      sum += std::log(total) - logits[t][window[t + 1]];
    }
  }
  for (const uint32_t prefill_ar : {0u, 1u, 4u, kWindow}) {
    auto executor = MakeFloatExecutor(*model, prefill_ar, kWindow, std::make_shared<ThreadPool>(1));
    ASSERT_TRUE(executor.ok()) << executor.status().ToString();
    const auto result = MeasurePerplexity(**executor, tokens, {.context_len = kWindow}, nullptr);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_NEAR(result->mean_nll, sum / 14, 1e-5) << "AR " << prefill_ar;
  }
}

}  // namespace
}  // namespace spillway
