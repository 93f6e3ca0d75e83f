// Lookahead decoding gives the same tokens as one by one, in fewer calls.

#include "runtime/lookahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/sampler.h"
#include "tests/runtime/fake_model_executor.h"
#include "tests/runtime/small_model.h"
#include "tests/support/paths.h"
#include "tests/support/random_tokens.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

TEST(NgramPoolTest, NewestFirstAndEachOnce) {
  NgramPool pool(3, 10, 100);
  std::vector<uint32_t> out(8);
  EXPECT_EQ(pool.Find(1, 4, out.data()), 0u);
  pool.Add(std::vector<uint32_t>{1, 2, 3});
  pool.Add(std::vector<uint32_t>{1, 4, 5});
  pool.Add(std::vector<uint32_t>{2, 9, 9});
  pool.Add(std::vector<uint32_t>{1, 6, 7});
  pool.Add(std::vector<uint32_t>{1, 2, 3});  // the newest again
  ASSERT_EQ(pool.Find(1, 4, out.data()), 3u);
  EXPECT_EQ(out[0], 2u);
  EXPECT_EQ(out[1], 3u);
  out.assign(8, 0);
  ASSERT_EQ(pool.Find(1, 2, out.data()), 2u);
  EXPECT_EQ(out[4], 0u) << "no more than asked for";
  ASSERT_EQ(pool.Find(2, 4, out.data()), 1u);
  EXPECT_EQ(pool.Find(99, 4, out.data()), 0u);
}

TEST(NgramPoolTest, ForgetsTheOldest) {
  NgramPool pool(2, 50, 4);
  for (uint32_t i = 0; i < 40; ++i) {
    pool.Add(std::vector<uint32_t>{i % 3, i});
    std::vector<uint32_t> all, out(10);
    for (uint32_t first = 0; first < 3; ++first) {
      const uint32_t found = pool.Find(first, 10, out.data());
      for (uint32_t f = 0; f < found; ++f) {
        EXPECT_EQ(out[f] % 3, first);
        all.push_back(out[f]);
      }
    }
    std::sort(all.begin(), all.end());
    std::vector<uint32_t> expected;
    for (uint32_t t = i < 4 ? 0 : i - 3; t <= i; ++t) expected.push_back(t);
    ASSERT_EQ(all, expected);
  }
}

// What a run picks: `count` tokens after a prompt, one by one or ahead.
struct Answered {
  std::vector<uint32_t> tokens;
  LookaheadStats stats;
  std::vector<float> logits;
  uint32_t n_past = 0;
};

using MakePick = std::function<std::function<uint32_t(std::span<const float>)>()>;

std::function<uint32_t(std::span<const float>)> Greedy() { return ArgMax; }

Answered OneByOne(Generator& generator, std::span<const uint32_t> prompt, uint32_t count,
                  const MakePick& make_pick) {
  const auto pick = make_pick();
  Answered run;
  EXPECT_TRUE(generator.Feed(prompt).ok());
  run.tokens.push_back(pick(generator.logits()));
  while (run.tokens.size() < count) {
    const Status status = generator.Feed(std::span(run.tokens).last(1));
    EXPECT_TRUE(status.ok()) << status.ToString();
    if (!status.ok()) break;
    run.tokens.push_back(pick(generator.logits()));
  }
  run.logits.assign(generator.logits().begin(), generator.logits().end());
  run.n_past = generator.n_past() + generator.evicted_tokens();
  return run;
}

Answered Ahead(Generator& generator, const LookaheadSizes& options,
               std::span<const uint32_t> prompt, uint32_t count, const MakePick& make_pick) {
  const auto pick = make_pick();
  Answered run;
  Result<LookaheadDecoder> decoder = LookaheadDecoder::Create(&generator, options);
  EXPECT_TRUE(decoder.ok()) << decoder.status().ToString();
  if (!decoder.ok()) return run;
  EXPECT_TRUE(generator.Feed(prompt).ok());
  decoder->StartAnswer(prompt);
  std::optional<uint32_t> token = pick(generator.logits());
  run.tokens.push_back(*token);
  const LookaheadDecoder::Pick on_logits =
      [&](std::span<const float> logits) -> std::optional<uint32_t> {
    const uint32_t next = pick(logits);
    run.tokens.push_back(next);
    if (run.tokens.size() == count) return std::nullopt;
    return next;
  };
  while (token.has_value() && run.tokens.size() < count) {
    const Result<std::optional<uint32_t>> next = decoder->Step(*token, on_logits);
    EXPECT_TRUE(next.ok()) << next.status().ToString();
    if (!next.ok()) break;
    token = *next;
  }
  run.stats = decoder->stats();
  run.logits.assign(generator.logits().begin(), generator.logits().end());
  run.n_past = generator.n_past() + generator.evicted_tokens();
  return run;
}

// The fake's logits depend on every byte that a row sees, so a wrong mask, position or
// cached row shows at once. Its picks are kept in few tokens, so that n-grams come back.
TEST(LookaheadTest, TheFakeModelSeesOnlyWhatWasPicked) {
  const MakePick make_pick = [] {
    return [](std::span<const float> logits) { return ArgMax(logits.first(3)); };
  };
  test::Random random(2);
  for (int round = 0; round < 40; ++round) {
    const LookaheadSizes options = {static_cast<uint32_t>(2 + random.Below(3)),
                                    static_cast<uint32_t>(1 + random.Below(3)),
                                    static_cast<uint32_t>(1 + random.Below(4))};
    const auto ar = static_cast<uint32_t>(options.ArLen() + random.Below(3));
    const auto context = static_cast<uint32_t>(ar + 8 + random.Below(60));
    const auto prompt = test::RandomTokens(1 + random.Below(6), 3, random.Next());
    const auto count = static_cast<uint32_t>(context - prompt.size());
    SCOPED_TRACE(testing::Message() << options.ngram << "," << options.window << "," << options.gcap
                                    << " AR " << ar << " of " << context);
    test::FakeModelExecutor one(0, 1, context), several(4, ar, context);
    Generator plain(&one), ahead(&several);
    const Answered expected = OneByOne(plain, prompt, count, make_pick);
    const Answered found = Ahead(ahead, options, prompt, count, make_pick);
    ASSERT_EQ(found.tokens, expected.tokens);
    EXPECT_EQ(found.logits, expected.logits);
    EXPECT_EQ(found.n_past, expected.n_past);
    EXPECT_LE(found.stats.steps, found.stats.tokens + 1);
    EXPECT_EQ(found.stats.tokens + 2, count) << "the first is not picked in a step, the last ends";
  }
}

// In float, with and without a sink, against one token at a time of the same model.
TEST(LookaheadTest, RandomFloatModelsAnswerTheSame) {
  test::Random random(31);
  uint64_t steps = 0, tokens = 0, evictions = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    test::FloatModel model(test::SmallSpec(seed));
    for (int round = 0; round < 12; ++round) {
      const LookaheadSizes options = {static_cast<uint32_t>(2 + random.Below(3)),
                                      static_cast<uint32_t>(1 + random.Below(4)),
                                      static_cast<uint32_t>(1 + random.Below(4))};
      const auto ar = static_cast<uint32_t>(options.ArLen());
      const auto context = static_cast<uint32_t>(ar + 10 + random.Below(30));
      const auto prompt =
          test::RandomTokens(1 + random.Below(9), model.tiny().spec.vocab, random.Next());
      const bool sink = random.Below(2) == 0;
      SCOPED_TRACE(testing::Message()
                   << "seed " << seed << ", " << options.ngram << "," << options.window << ","
                   << options.gcap << " of " << context << (sink ? " with a sink" : ""));
      // The plain run has the same limit: that of the graph with AR rows a call.
      const auto one = model.Make(0, sink ? ar : 1, context);
      const auto several = model.Make(6, ar, context);
      Generator plain(one.get()), ahead(several.get());
      const auto count = static_cast<uint32_t>(sink ? 70 : context - prompt.size());
      if (sink) {
        const AttentionSink sizes = {static_cast<uint32_t>(random.Below(4)),
                                     static_cast<uint32_t>(1 + random.Below(6))};
        ASSERT_TRUE(plain.SetAttentionSink(sizes, model.rope()).ok());
        ASSERT_TRUE(ahead.SetAttentionSink(sizes, model.rope()).ok());
      }
      const Answered expected = OneByOne(plain, prompt, count, Greedy);
      const Answered found = Ahead(ahead, options, prompt, count, Greedy);
      ASSERT_EQ(found.tokens, expected.tokens);
      EXPECT_EQ(found.n_past, expected.n_past);
      EXPECT_LT(test::LargestDifference(found.logits, expected.logits), 1e-4);
      steps += found.stats.steps;
      tokens += found.stats.tokens;
      evictions += ahead.evictions();
    }
  }
  EXPECT_GT(static_cast<double>(tokens) / static_cast<double>(steps), 1.05)
      << "small models soon repeat themselves";
  EXPECT_GT(evictions, 100u);
}

TEST(LookaheadTest, PackagesAnswerTheSameGreedyAndSampled) {
  test::TinyModelSpec spec = test::SmallSpec(7);
  const LookaheadSizes sizes = {3, 3, 2};
  test::TempFolder folder;
  CompileOptions options = test::TinyCompileOptions();
  options.mode = "lookahead";
  options.prefill_ar_len = 8;
  options.context_len = 40;
  options.lookahead = {sizes.ngram, sizes.window, sizes.gcap};
  const test::IntegerModel model = test::MakeIntegerModel(folder.path(), options, spec);
  ASSERT_NE(model.executor, nullptr);
  const RopeConfig& rope = model.package->manifest().config.rope;
  for (const bool sink : {false, true}) {
    for (const bool sampled : {false, true}) {
      const MakePick make_pick = [&]() -> std::function<uint32_t(std::span<const float>)> {
        if (!sampled) return ArgMax;
        SamplerOptions sampling;
        sampling.temperature = 0.7;
        sampling.top_k = 3;
        sampling.seed = 5;
        auto sampler = std::make_shared<Sampler>(*Sampler::Create(sampling, spec.vocab));
        return [sampler](std::span<const float> logits) { return sampler->Sample(logits); };
      };
      Generator plain(model.executor.get());
      const auto prompt = test::RandomTokens(13, spec.vocab, 8);
      if (sink) {
        ASSERT_TRUE(plain.SetAttentionSink({3, 9}, rope).ok());
      }
      const Answered expected = OneByOne(plain, prompt, sink ? 120 : 27, make_pick);
      Generator ahead(model.executor.get());
      if (sink) {
        ASSERT_TRUE(ahead.SetAttentionSink({3, 9}, rope).ok());
      }
      const Answered found = Ahead(ahead, sizes, prompt, sink ? 120 : 27, make_pick);
      EXPECT_EQ(found.tokens, expected.tokens);
      EXPECT_EQ(found.logits, expected.logits) << "bit-equal on the integer host";
      if (sink) {
        EXPECT_GT(ahead.evictions(), 5u);
      }
    }
  }
}

TEST(LookaheadTest, RepetitivePromptsRunAhead) {
  // A model that goes on as its prompt did: after t comes t + 1.
  test::FakeModelExecutor model(4, 12, 200);
  Generator generator(&model);
  uint32_t last = 0;
  const MakePick make_pick = [&] {
    last = 9;
    return [&](std::span<const float>) { return last = (last + 1) % 10; };
  };
  std::vector<uint32_t> prompt;
  for (uint32_t i = 0; i < 40; ++i) prompt.push_back(i % 10);
  const Answered found = Ahead(generator, {4, 2, 2}, prompt, 100, make_pick);
  for (size_t i = 0; i < found.tokens.size(); ++i) ASSERT_EQ(found.tokens[i], i % 10);
  EXPECT_GT(found.stats.TokensPerStep(), 3.8) << "4 are the most";
}

TEST(LookaheadTest, SizesThatDoNotFitAreErrors) {
  test::FakeModelExecutor model(4, 8, 64);
  Generator generator(&model);
  const auto message = [&](const LookaheadSizes& options) {
    return LookaheadDecoder::Create(&generator, options).status().message();
  };
  EXPECT_THAT(message({1, 4, 4}), HasSubstr("2 or more"));
  EXPECT_THAT(message({3, 0, 4}), HasSubstr("window"));
  EXPECT_THAT(message({3, 4, 0}), HasSubstr("cap of 1"));
  EXPECT_THAT(message({3, 4, 4}), HasSubstr("16 tokens a call"));
  EXPECT_THAT(message({3, 4, 4}), HasSubstr("takes 8"));
  EXPECT_THAT(message({~0u, ~0u, ~0u}), HasSubstr("takes 8"));
  EXPECT_TRUE(LookaheadDecoder::Create(&generator, {3, 2, 2}).ok());
}

}  // namespace
}  // namespace spillway
