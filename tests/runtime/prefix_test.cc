// Prefix KV: a constant start of the cache stands for the tokens that it was made
// from.

#include "quantize/prefix.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "tests/quantize/tiny.h"

namespace spillway {
namespace {

constexpr uint32_t kContext = 24;
constexpr uint32_t kPrefillAr = 4;

class PrefixTest : public testing::Test {
 protected:
  // An executor of the float graphs, with the K and V of `prefix` in its cache.
  std::unique_ptr<HostModelExecutor> Executor(const std::vector<uint32_t>& prefix) {
    HostModelOptions options;
    options.pool = &pool_;
    if (!prefix.empty()) {
      const Result<FloatPrefix> made = ComputePrefix(*tiny_.decoder, prefix, &pool_);
      EXPECT_TRUE(made.ok()) << made.status().ToString();
      options.prefix.tokens = made->tokens;
      for (const auto& values : made->k) options.prefix.k.push_back(MakeConstantOf(values));
      for (const auto& values : made->v) options.prefix.v.push_back(MakeConstantOf(values));
    }
    const ModelConfig& config = tiny_.model->config();
    Tensor table;
    table.name = "embedding";
    table.shape = {config.vocab_size, config.hidden_dim};
    table.role = TensorRole::kConstant;
    table.data = MakeConstantOf(tiny_.model->embedding().ReadAll());
    auto executor =
        HostModelExecutor::Create({{tiny_.Build(kPrefillGraphName, kPrefillAr, kContext),
                                    tiny_.Build(kDecodeGraphName, 1, kContext)}},
                                  table, options);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    return std::move(executor).value();
  }

  static void ExpectSameLogits(Generator& expected, Generator& found) {
    ASSERT_EQ(expected.logits().size(), found.logits().size());
    for (size_t i = 0; i < found.logits().size(); ++i) {
      ASSERT_NEAR(found.logits()[i], expected.logits()[i], 1e-4) << i;
    }
  }

  ThreadPool pool_{2};
  test::TinyDecoder tiny_{test::TinyModelSpec{}};
};

TEST_F(PrefixTest, APromptThatStartsWithItGivesItUp) {
  const std::vector<uint32_t> prompt = {1, 40, 90, 33, 12, 77, 5};
  const auto plain = Executor({});
  for (const std::vector<uint32_t>& prefix :
       {std::vector<uint32_t>{1}, std::vector<uint32_t>{1, 40, 90}}) {
    const auto with_prefix = Executor(prefix);
    Generator expected(plain.get());
    Generator found(with_prefix.get());
    EXPECT_EQ(found.n_past(), prefix.size());
    EXPECT_EQ(found.ExtraTokens(prompt), 0u);
    const uint32_t kept = found.StartPrompt(prompt);
    EXPECT_EQ(kept, prefix.size());
    ASSERT_TRUE(expected.Feed(prompt).ok());
    ASSERT_TRUE(found.Feed(std::span(prompt).subspan(kept)).ok());
    EXPECT_EQ(found.n_past(), prompt.size());
    ExpectSameLogits(expected, found);
  }
}

TEST_F(PrefixTest, AnotherPromptFollowsIt) {
  const std::vector<uint32_t> prompt = {40, 90, 33, 12, 77, 5};
  const auto plain = Executor({});
  const auto with_prefix = Executor({1});
  Generator expected(plain.get());
  Generator found(with_prefix.get());
  EXPECT_EQ(found.ExtraTokens(prompt), 1u);
  ASSERT_EQ(found.StartPrompt(prompt), 0u);
  ASSERT_TRUE(found.Feed(prompt).ok());
  std::vector<uint32_t> whole = {1};
  whole.insert(whole.end(), prompt.begin(), prompt.end());
  ASSERT_TRUE(expected.Feed(whole).ok());
  ExpectSameLogits(expected, found);
}

TEST_F(PrefixTest, ResetAndTheNextPromptKeepIt) {
  const std::vector<uint32_t> first = {1, 40, 90, 33, 12}, second = {1, 40, 91}, third = {7, 8};
  const auto plain = Executor({});
  const auto with_prefix = Executor({1});
  Generator found(with_prefix.get());
  ASSERT_TRUE(found.Feed(std::span(first).subspan(found.StartPrompt(first))).ok());
  EXPECT_EQ(found.StartPrompt(second), 2u) << "the prefix and one token of the last prompt";
  ASSERT_TRUE(found.Feed(std::span(second).subspan(2)).ok());
  Generator expected(plain.get());
  ASSERT_TRUE(expected.Feed(second).ok());
  ExpectSameLogits(expected, found);

  found.Reset();
  EXPECT_EQ(found.n_past(), 1u);
  EXPECT_EQ(found.StartPrompt(third), 0u);
  ASSERT_TRUE(found.Feed(third).ok());
  expected.Reset();
  const std::vector<uint32_t> whole = {1, 7, 8};
  ASSERT_TRUE(expected.Feed(whole).ok());
  ExpectSameLogits(expected, found);
}

TEST_F(PrefixTest, ItTakesRoomInTheContext) {
  const auto with_prefix = Executor({1, 2});
  Generator found(with_prefix.get());
  const std::vector<uint32_t> longest(kContext - 2, 9);
  ASSERT_TRUE(found.Feed(longest).ok());
  found.Reset();
  const std::vector<uint32_t> longer(kContext - 1, 9);
  EXPECT_EQ(found.Feed(longer).code(), StatusCode::kResourceExhausted);
}

TEST_F(PrefixTest, AnOrdinaryModelHasNoDominantFirstToken) {
  const auto window = tiny_.Windows({16})[0];
  const Result<std::vector<double>> dominance = TokenDominance(*tiny_.decoder, window, &pool_);
  ASSERT_TRUE(dominance.ok());
  ASSERT_EQ(dominance->size(), window.size());
  for (const double one : *dominance) {
    EXPECT_GT(one, 0.0);
    EXPECT_LT(one, kMassiveDominance);
  }
  EXPECT_TRUE(MassivePrefix({window}, *dominance).empty());
}

TEST(MassivePrefixTest, TakesTheCommonLeadingTokensThatAreMassive) {
  const std::vector<std::vector<uint32_t>> windows = {{7, 8, 9, 4, 5}, {7, 8, 1, 4, 5}};
  using Tokens = std::vector<uint32_t>;
  EXPECT_EQ(MassivePrefix(windows, {300, 2, 90, 1, 1}), (Tokens{7}));
  EXPECT_EQ(MassivePrefix(windows, {300, 90, 90, 1, 1}), (Tokens{7, 8}));  // then they part
  EXPECT_EQ(MassivePrefix({windows[0]}, {300, 90, 90, 1, 1}), (Tokens{7, 8, 9}));
  EXPECT_EQ(MassivePrefix(windows, {49, 300, 1, 1, 1}), Tokens());
  EXPECT_EQ(MassivePrefix({{7, 8}}, {300, 300}), (Tokens{7}));  // something must be left
  EXPECT_EQ(MassivePrefix({{1, 2, 3, 4, 5, 6}}, {99, 99, 99, 99, 99, 99}).size(),
            kMostPrefixTokens);
}

}  // namespace
}  // namespace spillway
