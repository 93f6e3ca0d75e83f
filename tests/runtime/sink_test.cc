// Attention sink: contexts that never end, against a plain token-by-token reference.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "tests/runtime/fake_model_executor.h"
#include "tests/runtime/small_model.h"
#include "tests/support/paths.h"
#include "tests/support/random_tokens.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

std::vector<float> Last(const Generator& generator) {
  return {generator.logits().begin(), generator.logits().end()};
}

// Prompts and turns of random lengths over contexts, AR lengths, sinks and batches; a
// third of the models have a prefix.
TEST(SinkTest, RandomFeedsMatchThePlainReference) {
  test::Random random(17);
  int combinations = 0, evictions = 0, many = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    test::FloatModel model(test::SmallSpec(seed));
    const uint32_t vocab = model.tiny().spec.vocab;
    for (int round = 0; round < 30; ++round, ++combinations) {
      const auto context = static_cast<uint32_t>(6 + random.Below(20));
      const uint32_t prefill =
          random.Below(4) == 0 ? 0 : static_cast<uint32_t>(2 + random.Below(context - 1));
      const uint32_t decode =
          random.Below(3) != 0 ? 1 : static_cast<uint32_t>(2 + random.Below(context / 2));
      std::vector<uint32_t> tokens;  // all, from position 0
      if (random.Below(3) == 0) {
        const auto room = std::min<uint32_t>(3, context - decode - 1);
        tokens = test::RandomTokens(1 + random.Below(room), vocab, random.Next());
      }
      const auto executor = model.Make(prefill, decode, context, tokens);
      ASSERT_NE(executor, nullptr);
      Generator generator(executor.get());
      AttentionSink sink;
      sink.sink = static_cast<uint32_t>(random.Below(context - decode));
      const auto used = tokens.empty() ? sink.sink : static_cast<uint32_t>(tokens.size());
      sink.batch = static_cast<uint32_t>(1 + random.Below(context - decode - used));
      SCOPED_TRACE(testing::Message()
                   << "seed " << seed << " AR " << prefill << " and " << decode << " of " << context
                   << ", sink " << used << "," << sink.batch << ", prefix " << tokens.size());
      const Status set = generator.SetAttentionSink(sink, model.rope());
      ASSERT_TRUE(set.ok()) << set.ToString();
      std::vector<std::vector<float>> rows(tokens.size());
      for (int turn = 0; turn < 3; ++turn) {
        const auto fed = test::RandomTokens(1 + random.Below(2 * context), vocab, random.Next());
        tokens.insert(tokens.end(), fed.begin(), fed.end());
        for (auto& row : test::FeedAll(generator, fed)) rows.push_back(std::move(row));
        ASSERT_EQ(generator.n_past() + generator.evicted_tokens(), tokens.size());
      }
      const auto expected =
          test::ReferenceLogits(model.tiny(), tokens, {context - decode + 1, used, sink.batch});
      for (size_t t = 0; t < rows.size(); ++t) {
        if (rows[t].empty()) continue;  // the prefix
        ASSERT_LT(test::LargestDifference(rows[t], expected[t]), 1e-4) << "token " << t;
      }
      evictions += static_cast<int>(generator.evictions());
      many += generator.evictions() > 2 ? 1 : 0;
    }
  }
  EXPECT_EQ(combinations, 300);
  EXPECT_GT(evictions, 1000);
  EXPECT_GT(many, 150);
}

struct PackageCase {
  std::string name;
  std::string recipe = "16a8w";  // a name or the text of a file
  uint32_t kv_bits = 0;
  // Integers are bit-equal whatever the prefill AR and the shards; sums of floats are not.
  bool bit_equal = true;
};

constexpr AttentionSink kPackageSink = {2, 7};
constexpr uint32_t kPackageContext = 32;

std::vector<std::vector<float>> FeedPackage(const PackageCase& c, const std::string& mode,
                                            uint32_t prefill_ar, uint32_t shards,
                                            const test::TinyModelSpec& spec,
                                            std::span<const uint32_t> tokens) {
  test::TempFolder folder;
  CompileOptions options = test::TinyCompileOptions();
  options.mode = mode;
  options.prefill_ar_len = prefill_ar;
  options.context_len = kPackageContext;
  options.num_shards = shards;
  options.kv_bits = c.kv_bits;
  options.recipe = c.recipe;
  if (c.recipe[0] == '{') {
    options.recipe = folder.File("recipe.json");
    std::ofstream(options.recipe) << c.recipe;
  }
  const test::IntegerModel model = test::MakeIntegerModel(folder.path(), options, spec);
  if (model.executor == nullptr) return {};
  Generator generator(model.executor.get());
  const Status set =
      generator.SetAttentionSink(kPackageSink, model.package->manifest().config.rope);
  EXPECT_TRUE(set.ok()) << set.ToString();
  auto rows = test::FeedAll(generator, tokens);
  EXPECT_GT(generator.evictions(), 10u);
  return rows;
}

// Signal over noise of rows [begin, end), in dB.
double SqnrOf(const std::vector<std::vector<float>>& rows,
              const std::vector<std::vector<double>>& expected, size_t begin, size_t end) {
  double signal = 0, noise = 0;
  for (size_t t = begin; t < end; ++t) {
    for (size_t i = 0; i < rows[t].size(); ++i) {
      const double difference = double{rows[t][i]} - expected[t][i];
      signal += expected[t][i] * expected[t][i];
      noise += difference * difference;
    }
  }
  return 10 * std::log10(signal / noise);
}

// As near to the float model with the same sink after evictions as before the first.
TEST(SinkTest, PackagesAgreeAcrossModesAndStayNearFloat) {
  const test::TinyModelSpec spec = test::SmallSpec(5);
  const auto tokens = test::RandomTokens(150, spec.vocab, 4);
  const auto expected = test::ReferenceLogits(
      test::MakeTinyModel(spec), tokens, {kPackageContext, kPackageSink.sink, kPackageSink.batch});
  for (const PackageCase& c :
       std::vector<PackageCase>{{"8-bit cache", "16a8w", 8},
                                {"16-bit cache", "16a8w", 16},
                                {"rotated keys", R"({"name": "r3", "transforms": ["rotate_r3"]})"},
                                {"halves", "fp16", 0, false}}) {
    SCOPED_TRACE(c.name);
    const auto rows = FeedPackage(c, "kv", 0, 1, spec, tokens);
    ASSERT_EQ(rows.size(), tokens.size());
    if (c.bit_equal) {
      ASSERT_EQ(FeedPackage(c, "hybrid", 5, 1, spec, tokens), rows);
      ASSERT_EQ(FeedPackage(c, "hybrid", 8, 2, spec, tokens), rows);
    }
    const double before = SqnrOf(rows, expected, 0, kPackageContext);
    const double after = SqnrOf(rows, expected, kPackageContext, rows.size());
    RecordProperty(c.name, std::to_string(before) + " dB, then " + std::to_string(after));
    EXPECT_GT(before, 17);
    EXPECT_GT(after, before - 4) << "before: " << before;
  }
}

TEST(SinkTest, TheNextTurnKeepsWhatFeedingItWholeWouldHave) {
  test::Random random(23);
  test::FloatModel model(test::SmallSpec(3));
  const uint32_t vocab = model.tiny().spec.vocab;
  constexpr uint32_t kContext = 16;
  const auto executor = model.Make(6, 1, kContext);
  int reused = 0, restarted = 0;
  for (int round = 0; round < 60; ++round) {
    Generator generator(executor.get());
    const AttentionSink sink = {static_cast<uint32_t>(random.Below(4)),
                                static_cast<uint32_t>(1 + random.Below(8))};
    ASSERT_TRUE(generator.SetAttentionSink(sink, model.rope()).ok());
    std::vector<uint32_t> tokens;
    for (int turn = 0; turn < 3; ++turn) {
      // The next prompt begins with some of what is there.
      if (random.Below(2) == 0) tokens.resize(random.Below(tokens.size() + 1));
      const auto more = test::RandomTokens(1 + random.Below(20), vocab, random.Next());
      tokens.insert(tokens.end(), more.begin(), more.end());
      const uint32_t kept = generator.StartPrompt(tokens);
      ASSERT_LT(kept, tokens.size());
      if (generator.evicted_tokens() > 0 && kept > 0) ++reused;
      if (turn > 0 && kept <= sink.sink) ++restarted;
      ASSERT_TRUE(generator.Feed(std::span(tokens).subspan(kept)).ok());
      const auto expected =
          test::ReferenceLogits(model.tiny(), tokens, {kContext, sink.sink, sink.batch});
      ASSERT_LT(test::LargestDifference(Last(generator), expected.back()), 1e-4)
          << "sink " << sink.sink << "," << sink.batch << ", turn " << turn << ", kept " << kept
          << " of " << tokens.size();
    }
  }
  EXPECT_GT(reused, 10);
  EXPECT_GT(restarted, 10);
}

TEST(SinkTest, SizesThatLeaveNothingAreErrors) {
  test::FloatModel model(test::SmallSpec(1));
  const auto executor = model.Make(8, 1, 20);
  Generator generator(executor.get());
  EXPECT_THAT(generator.SetAttentionSink({4, 0}, model.rope()).message(), HasSubstr("batch of 0"));
  const Status status = generator.SetAttentionSink({4, 16}, model.rope());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("4,16"));
  EXPECT_THAT(status.message(), HasSubstr("20 tokens"));
  EXPECT_THAT(status.message(), HasSubstr("room for 19"));
  EXPECT_FALSE(generator.has_attention_sink());
  EXPECT_TRUE(generator.SetAttentionSink({4, 15}, model.rope()).ok());
  EXPECT_FALSE(generator.SetAttentionSink({~0u, ~0u}, model.rope()).ok()) << "no overflow";
}

TEST(SinkTest, AFailedCallKeepsTheConversationTogether) {
  test::FakeModelExecutor model(4, 1, 12);
  Generator generator(&model);
  // The fake's keys are u16 without an encoding.
  EXPECT_EQ(generator.SetAttentionSink({1, 4}, {}).code(), StatusCode::kUnsupported);
  test::FloatModel plain(test::SmallSpec(4));
  const auto executor = plain.Make(4, 1, 12);
  Generator other(executor.get());
  ASSERT_TRUE(other.SetAttentionSink({1, 4}, plain.rope()).ok());
  ASSERT_TRUE(other.Feed(test::RandomTokens(30, 200, 1)).ok());
  const uint32_t before = other.n_past() + other.evicted_tokens();
  EXPECT_FALSE(other.Feed(std::vector<uint32_t>{1, 100000}).ok());
  EXPECT_EQ(other.n_past() + other.evicted_tokens(), before);
  other.Reset();
  EXPECT_EQ(other.n_past(), 0u);
  EXPECT_EQ(other.evicted_tokens(), 0u);
}

}  // namespace
}  // namespace spillway
