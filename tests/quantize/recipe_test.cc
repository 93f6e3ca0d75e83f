#include "quantize/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/paths.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(PatternTest, Matches) {
  const auto fits = [](std::string_view pattern, std::string_view name) {
    return MatchesPattern(pattern, name);
  };
  EXPECT_TRUE(fits("head", "head"));
  EXPECT_FALSE(fits("head", "heads"));
  EXPECT_FALSE(fits("heads", "head"));
  EXPECT_TRUE(fits("layers.*.down", "layers.17.down"));
  EXPECT_FALSE(fits("layers.*.down", "layers.17.down.x"));
  EXPECT_TRUE(fits("layers.[0-3].*", "layers.3.gate"));
  EXPECT_FALSE(fits("layers.[0-3].*", "layers.30.gate"));
  EXPECT_TRUE(fits("layers.[2-11].*", "layers.10.gate"));
  EXPECT_FALSE(fits("layers.[2-11].*", "layers.12.gate"));
  EXPECT_TRUE(fits("layers.[7].q", "layers.7.q"));
  EXPECT_FALSE(fits("*[7].q", "layers.17.q")) << "7 is not the whole number";
  EXPECT_TRUE(fits("*.?.*", "layers.1.q"));
  EXPECT_FALSE(fits("*.?.*", "layers.11.q"));
  EXPECT_TRUE(fits("*", ""));
  EXPECT_TRUE(fits("", ""));
  EXPECT_FALSE(fits("?", ""));
  EXPECT_TRUE(fits("a*b*c", "axxbyybzzc"));
  EXPECT_FALSE(fits("a*b*c", "axxbyybzz"));
  EXPECT_FALSE(fits("layers.[99999999999].*", "layers.1.q"));
  // Many stars take no exponential time.
  std::string stars;
  for (int i = 0; i < 60; ++i) stars += "*a";
  EXPECT_FALSE(fits(stars + "b", std::string(200, 'a')));
}

TEST(RecipeTest, BuiltIn) {
  std::vector<std::string> names;
  for (const Recipe& recipe : BuiltInRecipes()) {
    names.push_back(recipe.name);
    const Status valid = recipe.Validate();
    EXPECT_TRUE(valid.ok()) << recipe.name << ": " << valid.ToString();
    const Result<Recipe> found = FindRecipe(recipe.name);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, recipe);
    const Result<Recipe> read = Recipe::FromJson(recipe.ToJson(), "x.json");
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(*read, recipe);
    EXPECT_EQ(read->ToJson(), recipe.ToJson());
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"16a8w", "16a4w", "16a4w-block", "16a4w-block16",
                                              "mixed", "8a8w", "fp16"}));
}

TEST(RecipeTest, MixedHasATarget) {
  const Recipe mixed = *FindRecipe("mixed");
  ASSERT_TRUE(mixed.mixed.has_value());
  EXPECT_EQ(mixed.mixed->max_bits, 5);
  EXPECT_EQ(mixed.mixed->raised, (WeightScheme{8}));
  EXPECT_EQ(mixed.weights.bits, 4);
  EXPECT_TRUE(mixed.NeedsActivations());
  const Result<Recipe> read = Recipe::FromJson(
      R"({"weights": {"bits": 4}, "mixed": {"bits": 8, "method": "mse", "target_sqnr_db": 20.5}})",
      "x.json");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read->mixed, (MixedTarget{{8, 0, WeightMethod::kMse}, 0, 20.5}));
  EXPECT_TRUE(read->NeedsActivations()) << "what is raised is searched";
}

TEST(RecipeTest, WhatTheNamesMean) {
  const Recipe wide = *FindRecipe("16a8w");
  EXPECT_EQ(wide.activation, (ActivationScheme{DType::kU16, false}));
  EXPECT_EQ(wide.WeightOf("layers.0.q"), (WeightScheme{8, 0, WeightMethod::kRtn}));
  const Recipe block = *FindRecipe("16a4w-block");
  EXPECT_EQ(block.WeightOf("layers.0.q").bits, 4);
  EXPECT_EQ(block.WeightOf("layers.0.q").block, 32u);
  EXPECT_EQ(block.WeightOf("head").bits, 8);
  EXPECT_EQ(block.embedding.bits, 8);
  EXPECT_EQ(FindRecipe("16a4w")->WeightOf("layers.0.q").block, 0u);
  const Recipe narrow = *FindRecipe("8a8w");
  EXPECT_EQ(narrow.ActivationOf("layers.0.gate").dtype, DType::kU8);
  EXPECT_EQ(narrow.ActivationOf("layers.11.scores.masked").dtype, DType::kU16);
  EXPECT_EQ(narrow.ActivationOf("head").dtype, DType::kU16);
  EXPECT_TRUE(FindRecipe("fp16")->is_float());
}

TEST(RecipeTest, LaterRulesWin) {
  const Result<Recipe> recipe = Recipe::FromJson(R"({
    "name": "mine",
    "activations": {
      "dtype": "u16",
      "rules": [{"match": "layers.*", "dtype": "u8"}, {"match": "layers.[2-3].*", "symmetric": true}],
      "observer": {"type": "mse"},
      "observers": [{"match": "*.gated", "type": "percentile", "percentile": 99.5}]
    },
    "weights": {
      "bits": 4, "block": 32, "method": "gptq",
      "rules": [{"match": "layers.*.down", "bits": 8}, {"match": "layers.[0-1].*", "block": 16}]
    },
    "kv": "u16",
    "transforms": ["norm_folding", "rotate_r1"]
  })",
                                                 "mine.json");
  ASSERT_TRUE(recipe.ok()) << recipe.status().ToString();
  EXPECT_EQ(recipe->ActivationOf("final_norm"), (ActivationScheme{DType::kU16, false}));
  EXPECT_EQ(recipe->ActivationOf("layers.0.q"), (ActivationScheme{DType::kU8, false}));
  EXPECT_EQ(recipe->ActivationOf("layers.3.q"), (ActivationScheme{DType::kU16, true}));
  EXPECT_EQ(recipe->WeightOf("layers.0.q"), (WeightScheme{4, 16, WeightMethod::kGptq}));
  EXPECT_EQ(recipe->WeightOf("layers.5.q"), (WeightScheme{4, 32, WeightMethod::kGptq}));
  EXPECT_EQ(recipe->WeightOf("layers.5.down"), (WeightScheme{8, 0, WeightMethod::kGptq}));
  EXPECT_EQ(recipe->WeightOf("layers.1.down"), (WeightScheme{4, 16, WeightMethod::kGptq}));
  EXPECT_EQ(recipe->ObserverOf("layers.1.gated").kind, ObserverKind::kPercentile);
  EXPECT_FLOAT_EQ(recipe->ObserverOf("layers.1.gated").percentile, 99.5f);
  EXPECT_EQ(recipe->ObserverOf("layers.1.up").kind, ObserverKind::kMse);
  EXPECT_EQ(recipe->kv, DType::kU16);
  EXPECT_EQ(*Recipe::FromJson(recipe->ToJson(), "again"), *recipe);
}

TEST(RecipeTest, ErrorsNameFileFieldFoundAndExpected) {
  const auto error = [](std::string_view text) {
    const Result<Recipe> recipe = Recipe::FromJson(text, "bad.json");
    EXPECT_FALSE(recipe.ok()) << text;
    return recipe.ok() ? std::string() : recipe.status().message();
  };
  EXPECT_THAT(error("{"), HasSubstr("bad.json"));
  EXPECT_THAT(error("[]"), AllOf(HasSubstr("bad.json"), HasSubstr("expected an object")));
  EXPECT_THAT(error(R"({"nam": "x"})"),
              AllOf(HasSubstr("bad.json"), HasSubstr("unknown field nam"), HasSubstr("weights")));
  EXPECT_THAT(error(R"({"weights": {"rules": [{"match": "head", "bit": 8}]}})"),
              HasSubstr("unknown field weights.rules[0].bit"));
  EXPECT_THAT(error(R"({"weights": {"bits": 5}})"),
              AllOf(HasSubstr("weights.bits: found 5"), HasSubstr("expected 4 or 8")));
  EXPECT_THAT(error(R"({"weights": {"bits": "4"}})"), HasSubstr("weights.bits: found \"4\""));
  EXPECT_THAT(error(R"({"weights": {"bits": 8, "block": 32}})"),
              HasSubstr("weights.block: found 32 with 8 bits"));
  EXPECT_THAT(error(R"({"weights": {"rules": [{"bits": 4}]}})"),
              HasSubstr("weights.rules[0].match: a pattern of 0 characters"));
  EXPECT_THAT(error(R"({"weights": {"rules": [{"match": "layers.[a].q", "bits": 4}]}})"),
              HasSubstr("no range like [0-3]"));
  EXPECT_THAT(error(R"({"activations": {"dtype": "f16"}})"),
              HasSubstr("kv: found u8, expected f16"));
  EXPECT_THAT(error(R"({"activations": {"rules": [{"match": "*", "dtype": "f16"}]}})"),
              HasSubstr("activations.rules[0].dtype: found f16"));
  EXPECT_THAT(error(R"({"activations": {"observer": {"type": "percentile", "percentile": 12}}})"),
              HasSubstr("activations.observer.percentile: found 12"));
  EXPECT_THAT(error(R"({"embedding": {"bits": 4, "block": 32}})"), HasSubstr("embedding.block"));
  EXPECT_THAT(error(R"({"transforms": ["rotate"]})"),
              AllOf(HasSubstr("'rotate'"), HasSubstr("rotate_r1")));
  EXPECT_THAT(error(R"({"mixed": {"bits": 8}})"),
              AllOf(HasSubstr("max_bits"), HasSubstr("target_sqnr_db")));
  EXPECT_THAT(error(R"({"mixed": {"max_raised_bytes": 1.5}})"),
              HasSubstr("mixed.max_raised_bytes: found 1.5"));
  EXPECT_THAT(error(R"({"mixed": {"max_bits": 17}})"), HasSubstr("mixed.max_bits: found 17"));
  EXPECT_THAT(error(R"({"mixed": {"target_sqnr_db": -1}})"),
              HasSubstr("mixed.target_sqnr_db: found -1"));
  EXPECT_THAT(error(R"({"mixed": {"bits": 6, "max_bits": 5}})"), HasSubstr("mixed.bits: found 6"));
  EXPECT_THAT(error("{\"name\": " + std::string(100000, '[') + std::string(100000, ']') + "}"),
              HasSubstr("name: found a list, expected a string"));
}

TEST(RecipeTest, FromAFile) {
  test::TempFolder folder;
  const std::string path = folder.File("my.json");
  std::ofstream(path) << R"({"name": "my", "weights": {"bits": 4}})";
  const Result<Recipe> recipe = FindRecipe(path);
  ASSERT_TRUE(recipe.ok()) << recipe.status().ToString();
  EXPECT_EQ(recipe->name, "my");
  const Result<Recipe> unknown = FindRecipe("16a9w");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(unknown.status().message(), AllOf(HasSubstr("'16a9w'"), HasSubstr("16a4w-block")));
}

}  // namespace
}  // namespace spillway
