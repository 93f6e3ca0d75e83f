#include "compiler/shard_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/paths.h"
#include "tests/support/random.h"
#include "tests/support/tiny_model.h"

namespace spillway::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ContextSizes Sizes(std::vector<uint64_t> layers, uint64_t first = 0, uint64_t last = 0) {
  ContextSizes sizes;
  sizes.layers = std::move(layers);
  sizes.layer_values = sizes.layers;
  sizes.first = first;
  sizes.last = sizes.last_values = last;
  return sizes;
}

// The least sum of squares over all ways to split, by trying them.
double LeastSum(const ContextSizes& sizes, uint32_t begin, uint32_t shards) {
  const auto layers = static_cast<uint32_t>(sizes.layers.size());
  double least = 1e300;
  for (uint32_t count = 1; begin + count + shards - 1 <= layers; ++count) {
    if (shards == 1 && begin + count != layers) continue;
    const auto bytes = static_cast<double>(sizes.WeightBytes(begin, count));
    const double rest = shards == 1 ? 0.0 : LeastSum(sizes, begin + count, shards - 1);
    least = std::min(least, bytes * bytes + rest);
  }
  return least;
}

TEST(SplitLayers, EqualLayersGiveEqualShards) {
  EXPECT_THAT(SplitLayers(Sizes({5, 5, 5, 5, 5, 5}), 3),
              ElementsAre(LayerRange{0, 2}, LayerRange{2, 2}, LayerRange{4, 2}));
}

TEST(SplitLayers, AHeadCountsForTheLastShardAndATableForTheFirst) {
  EXPECT_THAT(SplitLayers(Sizes({10, 10, 10, 10}, 0, 20), 2),
              ElementsAre(LayerRange{0, 3}, LayerRange{3, 1}));
  EXPECT_THAT(SplitLayers(Sizes({10, 10, 10, 10}, 20, 0), 2),
              ElementsAre(LayerRange{0, 1}, LayerRange{1, 3}));
}

TEST(SplitLayers, IsTheMostEvenSplitOfRandomLayers) {
  Random random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> layers(2 + random.Below(7));
    for (uint64_t& bytes : layers) bytes = 1 + random.Below(100);
    const ContextSizes sizes = Sizes(layers, random.Below(100), random.Below(200));
    const auto shards = static_cast<uint32_t>(1 + random.Below(layers.size()));
    double sum = 0;
    uint32_t next = 0;
    for (const LayerRange& range : SplitLayers(sizes, shards)) {
      EXPECT_EQ(range.first_layer, next);
      EXPECT_GE(range.num_layers, 1U);
      next += range.num_layers;
      const auto bytes =
          static_cast<double>(sizes.WeightBytes(range.first_layer, range.num_layers));
      sum += bytes * bytes;
    }
    EXPECT_EQ(next, layers.size());
    EXPECT_EQ(sum, LeastSum(sizes, 0, shards));
  }
}

TEST(PlanShards, AutoIsTheSmallestNumberThatFits) {
  CompileOptions options;
  options.num_shards = 0;
  options.shard_limit_bytes = 30;
  EXPECT_EQ(PlanShards(Sizes({10, 10, 10}), options)->size(), 1U);
  EXPECT_EQ(PlanShards(Sizes({10, 10, 10, 10}), options)->size(), 2U);
  EXPECT_EQ(PlanShards(Sizes({10, 10, 10, 10, 10, 10}, 0, 15), options)->size(), 3U);
}

TEST(PlanShards, AShardOverTheLimitIsAnErrorWithTheNumberThatFits) {
  CompileOptions options;
  options.num_shards = 1;
  options.shard_limit_bytes = 2'500'000'000;
  const Status status =
      PlanShards(Sizes({1'000'000'000, 1'000'000'000, 1'000'000'000}), options).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("shard 0 of 1 (layers 0 to 2) needs 3.00 GB"));
  EXPECT_THAT(status.message(), HasSubstr("the limit is 2.50 GB; use --num-shards 2 or auto"));
  options.num_shards = 0;
  options.shard_limit_bytes = 10;
  EXPECT_THAT(PlanShards(Sizes({11}), options).status().message(),
              HasSubstr("no number of shards fits"));
}

TEST(PlanShards, TheVendorsMemoryCountsToo) {
  CompileOptions options;
  const uint64_t layer = 200'000'000;
  const ContextSizes sizes = Sizes({layer, layer, layer, layer});
  options.num_shards = 0;
  EXPECT_EQ(PlanShards(sizes, options)->size(), 1U);
  EXPECT_EQ(PlanShards(sizes, options, 5'000'000'000)->size(), 2U);
  options.num_shards = 1;
  const Status status = PlanShards(sizes, options, 5'000'000'000).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("this machine has 5.0 GB for it; use --num-shards 2"));
  options.num_shards = 0;
  EXPECT_THAT(PlanShards(sizes, options, 1'000'000'000).status().message(),
              HasSubstr("no number of shards fits"));
}

TEST(PlanShards, MoreShardsThanLayersIsAnError) {
  CompileOptions options;
  options.num_shards = 3;
  EXPECT_EQ(PlanShards(Sizes({1, 1}), options).status().code(), StatusCode::kInvalidArgument);
}

TEST(EstimateContextSizes, CountsWeightsHeadTableAndCaches) {
  const TempFolder folder;
  const auto model = Model::Open(WriteTinyModel(folder.File("tiny.gguf"), {}));
  ASSERT_TRUE(model.ok());
  CompileOptions options;
  options.context_len = 64;
  options.prefill_ar_len = 16;
  const Recipe recipe;
  const ContextSizes sizes = EstimateContextSizes(**model, options, recipe);
  ASSERT_EQ(sizes.layers.size(), 2U);
  // hidden 64, 4 heads and 2 KV heads of 16, ffn 128, vocabulary 300.
  const double layer = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 128;
  EXPECT_NEAR(static_cast<double>(sizes.layers[0]), 1.045 * layer, 8);
  EXPECT_NEAR(static_cast<double>(sizes.last), 1.045 * 300 * 64, 1);
  EXPECT_EQ(sizes.first, 0U);
  EXPECT_EQ(static_cast<double>(sizes.layer_values[1]), layer);
  EXPECT_EQ(sizes.last_values, 300U * 64);
  EXPECT_EQ(sizes.io_per_layer, 2U * 2 * 2 * 16 * 64);  // both graphs, K and V

  options.io_profile = "executorch";
  options.mode = "kv";
  const ContextSizes other = EstimateContextSizes(**model, options, recipe);
  EXPECT_EQ(other.first, 2U * 300 * 64);
  EXPECT_EQ(other.io_per_layer, sizes.io_per_layer / 2);
}

}  // namespace
}  // namespace spillway::test
