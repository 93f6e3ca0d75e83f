// Whatever the mode and the AR lengths, the logits are those of one token at a time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/runtime/small_model.h"
#include "tests/support/paths.h"
#include "tests/support/random_tokens.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

// Prompts of 1, N-1, N, N+1, ... tokens, and up to one less than the context.
std::set<uint32_t> PromptLengths(uint32_t n, uint32_t context_len) {
  std::set<uint32_t> lengths;
  for (const int64_t length :
       {int64_t{1}, int64_t{n} - 1, int64_t{n}, int64_t{n} + 1, 2 * int64_t{n} - 1, 2 * int64_t{n},
        2 * int64_t{n} + 1, int64_t{context_len} - 2, int64_t{context_len} - 1}) {
    if (length >= 1 && length < context_len) lengths.insert(static_cast<uint32_t>(length));
  }
  return lengths;
}

TEST(ModesTest, FloatLogitsAreThoseOfThePlainReference) {
  test::Random random(3);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    test::FloatModel model(test::SmallSpec(seed));
    const uint32_t vocab = model.tiny().spec.vocab;
    for (int round = 0; round < 3; ++round) {
      const auto context = static_cast<uint32_t>(10 + random.Below(30));
      const auto n = static_cast<uint32_t>(2 + random.Below(context - 2));
      const auto d = static_cast<uint32_t>(2 + random.Below(context - 2));
      for (const auto& [prefill, decode] : std::vector<std::pair<uint32_t, uint32_t>>{
               {0, 1}, {n, 1}, {n, d}, {context, 1}, {n, 0}}) {
        const auto executor = model.Make(prefill, decode, context);
        ASSERT_NE(executor, nullptr);
        Generator generator(executor.get());
        for (const uint32_t length : PromptLengths(n, context)) {
          SCOPED_TRACE(testing::Message() << "seed " << seed << " AR " << prefill << " and "
                                          << decode << " of " << context << ", prompt " << length);
          generator.Reset();
          std::vector<uint32_t> tokens = test::RandomTokens(length, vocab, random.Next());
          auto rows = test::FeedAll(generator, tokens);
          // A second turn that starts anywhere.
          const auto past = static_cast<uint32_t>(random.Below(length + 1));
          generator.Truncate(past);
          tokens.resize(past);
          const auto more = static_cast<uint32_t>(1 + random.Below(context - past));
          const auto turn = test::RandomTokens(more, vocab, random.Next());
          tokens.insert(tokens.end(), turn.begin(), turn.end());
          rows.resize(past);
          for (auto& row : test::FeedAll(generator, turn)) rows.push_back(std::move(row));
          ASSERT_EQ(generator.n_past(), tokens.size());
          const auto expected = test::ReferenceLogits(model.tiny(), tokens);
          ASSERT_EQ(rows.size(), expected.size());
          for (size_t t = 0; t < rows.size(); ++t) {
            ASSERT_LT(test::LargestDifference(rows[t], expected[t]), 1e-4) << "token " << t;
          }
          EXPECT_EQ(std::vector<float>(generator.logits().begin(), generator.logits().end()),
                    rows.back());
        }
      }
    }
  }
}

CompileOptions ModeOptions(const std::string& mode, uint32_t prefill_ar, uint32_t context_len) {
  CompileOptions options = test::TinyCompileOptions();
  options.mode = mode;
  options.prefill_ar_len = prefill_ar;
  options.context_len = context_len;
  options.lookahead = {3, 3, 2};
  return options;
}

TEST(ModesTest, IntegerLogitsAreBitEqualInEveryMode) {
  constexpr uint32_t kContext = 37;
  test::Random random(9);
  for (const uint64_t seed : {11u, 12u}) {
    const test::TinyModelSpec spec = test::SmallSpec(seed);
    test::TempFolder plain_folder;
    CompileOptions plain = ModeOptions("kv", 0, kContext);
    plain.kv_bits = seed == 12 ? 16 : 8;
    const test::IntegerModel one = test::MakeIntegerModel(plain_folder.path(), plain, spec);
    ASSERT_NE(one.executor, nullptr);
    for (const auto& [mode, n] : std::vector<std::pair<std::string, uint32_t>>{
             {"hybrid", 8}, {"hybrid", 15}, {"lookahead", 8}, {"lookahead", 16}}) {
      test::TempFolder folder;
      CompileOptions options = ModeOptions(mode, n, kContext);
      options.kv_bits = plain.kv_bits;
      const test::IntegerModel model = test::MakeIntegerModel(folder.path(), options, spec);
      ASSERT_NE(model.executor, nullptr);
      Generator reference(one.executor.get());
      Generator generator(model.executor.get());
      for (const uint32_t length : PromptLengths(n, kContext)) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << " mode " << mode << " AR " << n
                                        << ", prompt " << length);
        generator.Reset();
        reference.Reset();
        const auto prompt = test::RandomTokens(length, spec.vocab, random.Next());
        ASSERT_EQ(test::FeedAll(generator, prompt), test::FeedOneByOne(reference, prompt));
        const auto past = static_cast<uint32_t>(random.Below(length + 1));
        generator.Truncate(past);
        reference.Truncate(past);
        const auto turn =
            test::RandomTokens(1 + random.Below(kContext - past), spec.vocab, random.Next());
        ASSERT_EQ(test::FeedAll(generator, turn), test::FeedOneByOne(reference, turn));
        // The same package, one token a call.
        Generator again(model.executor.get());
        const auto rows = test::FeedOneByOne(again, prompt);
        reference.Reset();
        ASSERT_EQ(rows, test::FeedOneByOne(reference, prompt));
      }
    }
  }
}

TEST(ModesTest, WhatDoesNotFitSaysBothNumbers) {
  test::FloatModel model(test::SmallSpec(1));
  for (const auto& [prefill, decode] :
       std::vector<std::pair<uint32_t, uint32_t>>{{0, 1}, {8, 1}, {8, 6}}) {
    const auto executor = model.Make(prefill, decode, 20);
    Generator generator(executor.get());
    ASSERT_TRUE(generator.Feed(std::vector<uint32_t>(20, 5)).ok());
    const Status status = generator.Feed(std::vector<uint32_t>(3, 5));
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("context of 23"));
    EXPECT_THAT(status.message(), HasSubstr("compiled for 20"));
    EXPECT_EQ(generator.n_past(), 20u);
  }
}

// A long prefix can leave no place for a whole call at the end: then some columns stay
// unused, and the error says so.
TEST(ModesTest, APrefixIsNeverRunAgain) {
  test::FloatModel model(test::SmallSpec(2));
  const auto executor = model.Make(0, 8, 20, std::vector<uint32_t>(13, 9));
  Generator generator(executor.get());
  EXPECT_THAT(generator.Feed(std::vector<uint32_t>(1, 5)).message(),
              HasSubstr("room for more than 13 tokens"));
  const auto fits = model.Make(0, 7, 20, std::vector<uint32_t>(13, 9));
  Generator other(fits.get());
  std::vector<uint32_t> tokens(13, 9);
  for (int i = 0; i < 7; ++i) {
    const auto token = static_cast<uint32_t>(20 + i);
    ASSERT_TRUE(other.Feed({&token, 1}).ok());
    tokens.push_back(token);
  }
  const auto expected = test::ReferenceLogits(model.tiny(), tokens);
  const std::vector<float> last(other.logits().begin(), other.logits().end());
  EXPECT_LT(test::LargestDifference(last, expected.back()), 1e-4);
}

}  // namespace
}  // namespace spillway
