#include "eval/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "eval/float_executor.h"
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
  EXPECT_THAT(error(3), HasSubstr("at least 4"));
  EXPECT_THAT(error(3), HasSubstr("window of 3"));
  // 9 tokens of which the last is not fed are the most.
  PerplexityOptions options;
  options.context_len = 10;
  const auto long_window =
      MeasurePerplexity(executor, test::RandomTokens(20, 90, 4), options, nullptr);
  ASSERT_FALSE(long_window.ok());
  EXPECT_EQ(long_window.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(long_window.status().message(), AllOf(HasSubstr("window of 10"), HasSubstr("to 9")));
  options.context_len = 8;
  options.stride = 9;
  EXPECT_THAT(PlanWindows(20, options).status().message(), HasSubstr("stride of 9"));
  options.stride = 4;
  EXPECT_THAT(PlanWindows(1, options).status().message(), HasSubstr("1 tokens"));
  EXPECT_EQ(executor.runs, 0);
}

TEST(PlanWindowsTest, SlidingWindowsScoreEveryTokenOnce) {
  for (const uint32_t length : {2u, 5u, 8u}) {
    for (uint32_t stride = 1; stride <= length; ++stride) {
      for (size_t tokens = 2; tokens < 30; ++tokens) {
        const auto windows = PlanWindows(tokens, {length, stride, 0});
        ASSERT_TRUE(windows.ok());
        std::vector<int> scored(tokens, 0);
        for (size_t w = 0; w < windows->size(); ++w) {
          const PerplexityWindow& window = (*windows)[w];
          EXPECT_LE(window.length, length);
          EXPECT_LE(window.begin + window.length, tokens);
          EXPECT_GE(window.first_scored, 1u);
          // All but the first window's have at least length - stride tokens before them.
          if (w > 0 && stride < length) {
            EXPECT_GE(window.first_scored, length - stride);
          }
          for (uint32_t i = window.first_scored; i < window.length; ++i) ++scored[window.begin + i];
        }
        for (size_t i = 1; i < tokens; ++i) {
          // Nothing predicts the first token of windows that do not overlap.
          const bool left_out = stride == length && i % stride == 0;
          EXPECT_EQ(scored[i], left_out ? 0 : 1) << length << " " << stride << " " << i;
        }
      }
    }
  }
}

TEST(PlanWindowsTest, LlamaCppsProtocol) {
  const auto windows = PlanWindows(29, {8, 0, 0});
  ASSERT_TRUE(windows.ok());
  ASSERT_EQ(windows->size(), 3u);
  EXPECT_EQ((*windows)[2].begin, 16u);
  EXPECT_EQ((*windows)[2].length, 8u);
  EXPECT_EQ((*windows)[2].first_scored, 5u);
  EXPECT_EQ(PlanWindows(29, {8, 0, 2})->size(), 2u);
}

TEST(PerplexityTest, SlidingWindows) {
  constexpr uint32_t kWindow = 8, kStride = 3;
  const std::vector<uint32_t> tokens = test::RandomTokens(19, test::FakeModelExecutor::kVocab, 5);
  test::FakeModelExecutor executor(4, 1, 8);
  const auto result = MeasurePerplexity(executor, tokens, {kWindow, kStride, 0}, nullptr);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  ASSERT_EQ(result->nll.size(), tokens.size() - 1);
  size_t begin = 0;
  for (size_t t = 1; t < tokens.size(); ++t) {
    while (t >= begin + kWindow) begin += kStride;
    const auto before = std::span(tokens).subspan(begin, t - begin);
    const double expected = Nll(test::FakeModelExecutor::Expected(before), tokens[t]);
    EXPECT_NEAR(result->nll[t - 1], expected, 1e-2 + 1e-6 * expected) << t;
  }
}

// Changes every logit by the same pattern.
class NoisyExecutor : public test::FakeModelExecutor {
 public:
  using FakeModelExecutor::FakeModelExecutor;
  static constexpr int kNoise[] = {3, -1, 0, 2};

  Status Run(StepKind kind, int logits_row) override {
    SPILLWAY_RETURN_IF_ERROR(FakeModelExecutor::Run(kind, logits_row));
    const StepBuffers& step = buffers(kind);
    auto* logits = reinterpret_cast<uint16_t*>(const_cast<std::byte*>(step.logits));
    for (size_t i = 0; i < size_t{step.ar_len} * kVocab; ++i) {
      const int noisy = logits[i] + kNoise[i % kVocab % 4];
      logits[i] = static_cast<uint16_t>(std::clamp(noisy, 0, 65535));
    }
    return OkStatus();
  }
};

TEST(ComparePerplexityTest, AgreementByHand) {
  const std::vector<uint32_t> tokens = test::RandomTokens(26, test::FakeModelExecutor::kVocab, 9);
  test::FakeModelExecutor reference(4, 1, 16), same(0, 1, 12);
  NoisyExecutor noisy(5, 1, 12);
  const ComparedModel models[] = {{&reference, -1}, {&same, 0}, {&noisy, 1}};
  const auto results = ComparePerplexity(models, tokens, {12, 0, 0}, nullptr);
  ASSERT_TRUE(results.ok()) << results.status().ToString();
  ASSERT_EQ(results->size(), 3u);
  EXPECT_FALSE((*results)[0].agreement.has_value());
  EXPECT_EQ((*results)[0].fed_tokens, 22u);

  ASSERT_TRUE((*results)[1].agreement.has_value());
  EXPECT_TRUE(std::isinf((*results)[1].agreement->sqnr_db));
  EXPECT_EQ((*results)[1].agreement->kl_divergence, 0);
  EXPECT_EQ((*results)[1].agreement->top1, 1);
  EXPECT_EQ((*results)[1].nll, (*results)[0].nll);

  double signal = 0, noise = 0, divergence = 0, agreed = 0, nll = 0;
  int rows = 0;
  for (uint32_t w = 0; w < 2; ++w) {
    const auto window = std::span(tokens).subspan(size_t{w} * 12, 12);
    for (uint32_t t = 7; t < 12; ++t, ++rows) {
      const std::vector<float> logits = test::FakeModelExecutor::Expected(window.first(t));
      std::vector<float> found = logits;
      for (size_t i = 0; i < found.size(); ++i) {
        const float changed = found[i] + 0.5f * static_cast<float>(NoisyExecutor::kNoise[i % 4]);
        found[i] = std::clamp(changed, -50.0f, 0.5f * 65435.0f);
      }
      for (size_t i = 0; i < found.size(); ++i) {
        signal += double{logits[i]} * logits[i];
        noise += (double{logits[i]} - found[i]) * (double{logits[i]} - found[i]);
        const double p = std::exp(-Nll(logits, static_cast<uint32_t>(i)));
        if (p > 0) {
          divergence +=
              p * (Nll(found, static_cast<uint32_t>(i)) - Nll(logits, static_cast<uint32_t>(i)));
        }
      }
      agreed += std::max_element(logits.begin(), logits.end()) - logits.begin() ==
                        std::max_element(found.begin(), found.end()) - found.begin()
                    ? 1
                    : 0;
      nll += Nll(found, window[t]);
    }
  }
  const LogitAgreement& agreement = *(*results)[2].agreement;
  EXPECT_NEAR(agreement.sqnr_db, 10 * std::log10(signal / noise), 1e-6);
  EXPECT_NEAR(agreement.kl_divergence, divergence / rows, 1e-5 + 1e-3 * divergence / rows);
  EXPECT_NEAR(agreement.top1, agreed / rows, 1e-12);
  EXPECT_NEAR((*results)[2].mean_nll, nll / rows, 1e-2 + 1e-6 * nll / rows);
}

TEST(ComparePerplexityTest, PassesOnErrors) {
  test::FakeModelExecutor reference(4, 1, 16), failing(4, 1, 16);
  failing.fail_at_run = 2;
  const ComparedModel models[] = {{&reference, -1}, {&failing, 0}};
  const auto results =
      ComparePerplexity(models, test::RandomTokens(12, 90, 1), {12, 0, 0}, nullptr);
  ASSERT_FALSE(results.ok());
  EXPECT_EQ(results.status().code(), StatusCode::kVendor);
}

TEST(GreedyTest, TakesTheBestUntilTheContextIsFull) {
  const std::vector<uint32_t> prompt = test::RandomTokens(5, test::FakeModelExecutor::kVocab, 8);
  std::vector<uint32_t> all = prompt;
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> logits = test::FakeModelExecutor::Expected(all);
    all.push_back(
        static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  for (const uint32_t wanted : {3u, 50u}) {
    test::FakeModelExecutor executor(4, 1, 8);
    const auto tokens = ContinueGreedily(executor, prompt, wanted, nullptr);
    ASSERT_TRUE(tokens.ok()) << tokens.status().ToString();
    // The context of 8 holds three of them; the fourth follows from those.
    ASSERT_EQ(tokens->size(), std::min(wanted, 4u));
    EXPECT_EQ(CommonStart(*tokens, std::span(all).subspan(5)), tokens->size());
  }
  EXPECT_EQ(CommonStart(std::vector<uint32_t>{1, 2, 3}, std::vector<uint32_t>{1, 5, 3}), 1u);
  test::FakeModelExecutor executor(4, 1, 8);
  EXPECT_FALSE(ContinueGreedily(executor, {}, 3, nullptr).ok());
}

TEST(PerplexityTest, PassesOnErrors) {
  test::FakeModelExecutor executor(0, 1, 8);
  executor.fail_at_run = 3;
  const auto result =
      MeasurePerplexity(executor, test::RandomTokens(8, 90, 4), {.context_len = 8}, nullptr);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kVendor);
}

TEST(FloatExecutorTest, APrefixStandsForItsTokens) {
  test::TempFolder folder;
  const test::TinyModelSpec spec;
  const auto model = Model::Open(test::WriteTinyModel(folder.File("tiny.gguf"), spec));
  ASSERT_TRUE(model.ok());
  const std::vector<uint32_t> prefix = {1, 17};
  std::vector<uint32_t> tokens = test::RandomTokens(12, spec.vocab, 31);
  const auto pool = std::make_shared<ThreadPool>(1);
  const auto with = FloatExecutor::Create(*model, {4, 1, 16, prefix, nullptr}, pool);
  ASSERT_TRUE(with.ok()) << with.status().ToString();
  const auto found = MeasurePerplexity(**with, tokens, {12, 12, 0}, nullptr);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  tokens.insert(tokens.begin(), prefix.begin(), prefix.end());
  const auto without = FloatExecutor::Create(*model, {4, 1, 16, {}, nullptr}, pool);
  ASSERT_TRUE(without.ok());
  const auto expected = MeasurePerplexity(**without, tokens, {14, 14, 0}, nullptr);
  ASSERT_TRUE(expected.ok());
  ASSERT_EQ(expected->nll.size(), found->nll.size() + 2);
  for (size_t i = 0; i < found->nll.size(); ++i) {
    EXPECT_NEAR(found->nll[i], expected->nll[i + 2], 1e-4) << i;
  }
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
    auto executor = FloatExecutor::Create(*model, {prefill_ar, 1, kWindow, {}, nullptr},
                                          std::make_shared<ThreadPool>(1));
    ASSERT_TRUE(executor.ok()) << executor.status().ToString();
    const auto result = MeasurePerplexity(**executor, tokens, {.context_len = kWindow}, nullptr);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_NEAR(result->mean_nll, sum / 14, 1e-5) << "AR " << prefill_ar;
  }
}

}  // namespace
}  // namespace spillway
