#include "quantize/sensitivity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "host/executor.h"
#include "kvcache/kv_cache.h"
#include "quantize/gptq_layers.h"
#include "quantize/layer_chain.h"
#include "quantize/window_runner.h"
#include "tests/quantize/tiny.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kLength = 24;

test::TinyModelSpec Spec() {
  test::TinyModelSpec spec;
  spec.layers = 3;
  return spec;
}

class SensitivityTest : public ::testing::Test {
 protected:
  SensitivityTest() : tiny_(Spec()), windows_(tiny_.Windows({kLength, kLength, 9})) {}

  // Logits of the first two windows with `matrix` in place of the weight of that name,
  // in one graph of all layers.
  std::vector<float> Logits(const std::string& weight, const QuantizedMatrix* matrix) {
    Graph graph = *tiny_.Build("whole", kLength, kLength);
    if (matrix != nullptr) {
      const TensorId id = *graph.Find(weight);
      Tensor& tensor = graph.mutable_tensor(id);
      tensor.data = DequantizeMatrix(*matrix, tensor.shape[0], tensor.shape[1], &pool_);
    }
    auto executor = host::Executor::Create(std::make_shared<const Graph>(std::move(graph)), &pool_);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    FillMask(DType::kF32, kLength, kLength, 0, kLength, (*executor)->input(1).data());
    FillPositions(kLength, 0, kLength, reinterpret_cast<int32_t*>((*executor)->input(2).data()));
    std::vector<float> logits;
    const uint32_t width = tiny_.model->config().hidden_dim;
    for (size_t w = 0; w < 2; ++w) {
      auto* hidden = reinterpret_cast<float*>((*executor)->input(0).data());
      for (size_t i = 0; i < kLength; ++i) {
        tiny_.decoder->EmbeddingData()->ReadRows(windows_[w][i], 1, hidden + i * width);
      }
      EXPECT_TRUE((*executor)->Run().ok());
      const auto* values = reinterpret_cast<const float*>((*executor)->output(0).data());
      logits.insert(logits.end(), values, values + size_t{kLength} * 300);
    }
    return logits;
  }

  std::vector<OperationDamage> Weights(const Recipe& recipe) {
    auto damage = RankWeights(*tiny_.decoder, windows_, {}, recipe, {2 * kLength}, &pool_, nullptr);
    EXPECT_TRUE(damage.ok()) << damage.status().ToString();
    return damage.ok() ? std::move(damage).value() : std::vector<OperationDamage>();
  }

  static Recipe BuiltIn(const std::string& name) {
    const Result<Recipe> recipe = FindRecipe(name);
    EXPECT_TRUE(recipe.ok());
    return *recipe;
  }

  ThreadPool pool_{2};
  test::TinyDecoder tiny_;
  TokenWindows windows_;
};

// Mean of the positions, straight from the definition.
double KlOf(const std::vector<float>& expected, const std::vector<float>& found) {
  const size_t vocab = 300, positions = expected.size() / vocab;
  double sum = 0;
  for (size_t i = 0; i < positions; ++i) {
    double p_sum = 0, q_sum = 0;
    for (size_t t = 0; t < vocab; ++t) {
      p_sum += std::exp(double{expected[i * vocab + t]});
      q_sum += std::exp(double{found[i * vocab + t]});
    }
    for (size_t t = 0; t < vocab; ++t) {
      const double p = std::exp(double{expected[i * vocab + t]}) / p_sum;
      sum += p * std::log(p / (std::exp(double{found[i * vocab + t]}) / q_sum));
    }
  }
  return sum / static_cast<double>(positions);
}

TEST_F(SensitivityTest, DamageOfOneWeightIsThatOfTheWholeModelWithIt) {
  const Recipe recipe = BuiltIn("16a4w");
  const std::vector<OperationDamage> damage = Weights(recipe);
  EXPECT_EQ(damage.size(), 3u * 7 + 1);
  EXPECT_TRUE(std::is_sorted(damage.begin(), damage.end(),
                             [](const auto& a, const auto& b) { return a.noise > b.noise; }));
  const auto weights = QuantizeWeightsInOrder(
      *tiny_.decoder, windows_, {},
      [&](const std::string& name) {
        // Not gptq: the layers before are float.
        return name == "head.weight" ? recipe.head : WeightScheme{4, 0, WeightMethod::kMse};
      },
      &pool_, nullptr);
  ASSERT_TRUE(weights.ok());
  const std::vector<float> reference = Logits("", nullptr);
  for (const OperationDamage& operation : damage) {
    const std::string name = operation.operation + ".weight";
    const std::vector<float> found = Logits(name, &weights->at(name));
    double signal = 0, noise = 0;
    for (size_t i = 0; i < reference.size(); ++i) {
      signal += double{reference[i]} * reference[i];
      noise += (double{reference[i]} - found[i]) * (double{reference[i]} - found[i]);
    }
    EXPECT_NEAR(operation.kl / KlOf(reference, found), 1.0, 1e-3) << operation.operation;
    EXPECT_NEAR(operation.noise / (noise / signal), 1.0, 1e-3) << operation.operation;
    EXPECT_NEAR(operation.sqnr_db, 10 * std::log10(signal / noise), 0.01);
    EXPECT_GT(operation.weights, 0u);
  }
}

TEST_F(SensitivityTest, MoreBitsDoLessDamage) {
  std::map<std::string, double> four, block, eight;
  for (const auto& [recipe, noise] : {std::pair{"16a4w", &four}, std::pair{"16a4w-block16", &block},
                                      std::pair{"16a8w", &eight}}) {
    for (const auto& operation : Weights(BuiltIn(recipe))) {
      (*noise)[operation.operation] = operation.noise;
    }
  }
  double sum_four = 0, sum_block = 0;
  for (const auto& [operation, noise] : eight) {
    if (operation == "head") continue;
    EXPECT_LT(noise, 0.1 * four[operation]) << operation;
    sum_four += four[operation];
    sum_block += block[operation];
  }
  EXPECT_LT(sum_block, sum_four);
}

TEST_F(SensitivityTest, Activations) {
  const Recipe wide = BuiltIn("16a8w");
  Recipe narrow = wide;
  narrow.activation.dtype = DType::kU8;
  const auto ranges = Calibrate(*tiny_.decoder, windows_, {}, wide, &pool_, nullptr);
  ASSERT_TRUE(ranges.ok());
  const auto rank = [&](const Recipe& recipe) {
    std::map<std::string, double> noise;
    const auto damage = RankActivations(*tiny_.decoder, windows_, {}, recipe, *ranges,
                                        {2 * kLength}, &pool_, nullptr);
    EXPECT_TRUE(damage.ok()) << damage.status().ToString();
    for (const auto& operation : *damage) noise[operation.operation] = operation.noise;
    return noise;
  };
  std::map<std::string, double> wide_noise = rank(wide), narrow_noise = rank(narrow);
  EXPECT_EQ(wide_noise.size(), narrow_noise.size());
  for (const char* name : {"layers.0.q", "layers.1.scores", "layers.2.attention", "layers.2.out",
                           "layers.0.k.cached", "final_norm", "head"}) {
    EXPECT_TRUE(narrow_noise.contains(name)) << name;
  }
  for (const auto& [operation, noise] : narrow_noise) {
    // Caches have 8 bits in both.
    if (operation.ends_with(".cached")) {
      EXPECT_EQ(noise, wide_noise[operation]) << operation;
    } else {
      EXPECT_LT(wide_noise[operation], 0.1 * noise) << operation;
    }
  }
  // The rounding of logits alone is what its encoding says: a uniform error of one step.
  const auto logits = ranges->at("head");
  const double step = (double{logits.max} - logits.min) / 255;
  const std::vector<float> reference = Logits("", nullptr);
  double signal = 0;
  for (const float logit : reference) signal += double{logit} * logit;
  EXPECT_NEAR(
      narrow_noise["head"] / (step * step / 12 * static_cast<double>(reference.size()) / signal),
      1.0, 0.1);
}

TEST_F(SensitivityTest, APrefixIsInFrontOfTheWindows) {
  const auto prefix = ComputePrefix(*tiny_.decoder, {1}, &pool_);
  ASSERT_TRUE(prefix.ok());
  TokenWindows with = windows_;
  for (auto& window : with) window.insert(window.begin(), 1);
  const auto after = LayerChain::Create(*tiny_.decoder, with, *prefix, kLength, &pool_);
  const auto bare = LayerChain::Create(*tiny_.decoder, windows_, *prefix, kLength, &pool_);
  ASSERT_TRUE(after.ok() && bare.ok());
  const auto round = [](std::span<float> values) {
    for (float& value : values) value *= 1.01f;
  };
  const auto a = (*after)->MeasureFrom(1, "layers.1.q", round);
  const auto b = (*bare)->MeasureFrom(1, "layers.1.q", round);
  const auto nothing = (*bare)->MeasureFrom(0);
  ASSERT_TRUE(a.ok() && b.ok() && nothing.ok());
  EXPECT_EQ(a->noise, b->noise) << "the prefix's own token is taken off a window";
  EXPECT_GT(a->noise, 0);
  EXPECT_GT(a->kl, 0);
  EXPECT_EQ(nothing->noise, 0);
  EXPECT_NEAR(nothing->kl, 0, 1e-9);
}

class MixedTest : public SensitivityTest {
 protected:
  Result<MixedResult> Find(double target, double bits) {
    const Recipe base = WithMixedTarget(BuiltIn("16a4w-block16"), {{8}, bits, target});
    return FindMixedRecipe(*tiny_.decoder, windows_, {}, base, {2 * kLength}, &pool_, nullptr);
  }
};

TEST_F(MixedTest, ABudgetIsUsedAndKept) {
  double last = 0;
  for (const double bits : {4.5, 5.5, 6.5, 8.0}) {
    const auto found = Find(0, bits);
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_LE(found->bits, bits + 1e-9);
    EXPECT_GT(found->bits, bits - 0.4);
    EXPECT_GT(found->sqnr_db, last);
    last = found->sqnr_db;
    EXPECT_TRUE(found->recipe.Validate().ok());
    EXPECT_EQ(found->recipe.name, "mixed");
    EXPECT_FALSE(found->recipe.mixed.has_value()) << "it is found";
    const auto average = AverageBits(*tiny_.decoder, found->recipe);
    ASSERT_TRUE(average.ok());
    EXPECT_NEAR(*average, found->bits, 1e-9);
    for (const std::string& operation : found->raised) {
      EXPECT_EQ(found->recipe.WeightOf(operation), (WeightScheme{8}));
      EXPECT_NE(operation, "head");
    }
    EXPECT_EQ(found->recipe.weight_rules.size(), found->raised.size());
    // The recipe survives its file.
    const auto read = Recipe::FromJson(found->recipe.ToJson(), "mixed.json");
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(*read, found->recipe);
  }
  EXPECT_EQ(Find(0, 8.0)->raised.size(), 21u);
}

TEST_F(MixedTest, ABudgetOfBytes) {
  const Recipe base = WithMixedTarget(BuiltIn("16a4w-block16"), {{8}, 0, 0, 20000});
  const auto found =
      FindMixedRecipe(*tiny_.decoder, windows_, {}, base, {2 * kLength}, &pool_, nullptr);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  const auto sites = LayerChain::SitesOf(*tiny_.decoder);
  ASSERT_TRUE(sites.ok());
  uint64_t bytes = 0, least = UINT64_MAX;
  for (const LayerChain::Site& site : *sites) {
    const bool raised = std::count(found->raised.begin(), found->raised.end(), site.operation) > 0;
    if (raised) bytes += site.weights();
    if (!raised && site.operation != "head") least = std::min(least, site.weights());
  }
  EXPECT_LE(bytes, 20000u);
  EXPECT_GT(bytes + least, 20000u) << "nothing more fits";
}

TEST_F(MixedTest, ATargetIsReachedWithLittle) {
  const auto base = Find(0, 4.25);
  const auto all = Find(0, 8.0);
  ASSERT_TRUE(base.ok() && all.ok());
  EXPECT_TRUE(base->raised.empty());
  EXPECT_EQ(base->sqnr_db, base->base_sqnr_db);
  const double target = (base->sqnr_db + all->sqnr_db) / 2;
  const auto found = Find(target, 0);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->target_met);
  EXPECT_GE(found->sqnr_db, target);
  EXPECT_LT(found->raised.size(), 21u);
  EXPECT_GT(found->raised.size(), 0u);
  // One less does not reach it.
  const auto less = Find(0, found->bits - 0.2);
  ASSERT_TRUE(less.ok());
  EXPECT_LT(less->sqnr_db, target);

  const auto limited = Find(target, 4.4);
  ASSERT_TRUE(limited.ok());
  EXPECT_FALSE(limited->target_met);
  EXPECT_LE(limited->bits, 4.4 + 1e-9);
  const auto beyond = Find(all->sqnr_db + 3, 0);
  ASSERT_TRUE(beyond.ok());
  EXPECT_FALSE(beyond->target_met);
  EXPECT_EQ(beyond->raised.size(), 21u);
}

TEST_F(MixedTest, WhatCannotBe) {
  EXPECT_THAT(Find(0, 0).status().message(), HasSubstr("target"));
  const auto plain =
      FindMixedRecipe(*tiny_.decoder, windows_, {}, BuiltIn("16a4w"), {}, &pool_, nullptr);
  EXPECT_THAT(plain.status().message(), HasSubstr("target"));
  EXPECT_THAT(Find(0, 4.2).status().message(), HasSubstr("4.250 bits"));
  const auto none = RankWeights(*tiny_.decoder, {}, {}, BuiltIn("16a4w"), {}, &pool_, nullptr);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
}

TEST(WithMixedTargetTest, ARecipeThatHasATargetKeepsItsName) {
  Recipe mine = WithMixedTarget(*FindRecipe("16a4w"), {{8}, 6, 0});
  EXPECT_EQ(mine.name, "mixed");
  mine.name = "mine";
  mine = WithMixedTarget(std::move(mine), {{8}, 5, 0});
  EXPECT_EQ(mine.name, "mine");
  EXPECT_EQ(mine.mixed->max_bits, 5);
}

TEST(BitsOfTest, CountsBlockMultipliers) {
  EXPECT_EQ(BitsOf({8}), 8);
  EXPECT_EQ(BitsOf({4}), 4);
  EXPECT_EQ(BitsOf({4, 32}), 4.125);
  EXPECT_EQ(BitsOf({4, 16}), 4.25);
}

}  // namespace
}  // namespace spillway
