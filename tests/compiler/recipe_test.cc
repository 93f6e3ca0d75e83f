// Packages of every recipe, and that a package follows from recipe and data alone.
#include "quantize/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/compiler/tiny_compile.h"

namespace spillway {
namespace {

class RecipePackageTest : public test::TinyCompileTest,
                          public ::testing::WithParamInterface<std::string> {
 protected:
  // Every file but those that may differ, by name.
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    const std::vector<std::string> names = ListFolder(options_.output_path).value();
    for (const std::string& name : names) {
      if (name == "report.json" || name.starts_with("context_")) continue;
      files[name] = ReadFile(JoinPath(options_.output_path, name)).value();
    }
    return files;
  }
};

TEST_P(RecipePackageTest, HoldsItsRecipe) {
  options_.recipe = GetParam();
  const auto package = CompileAndOpen();
  ASSERT_NE(package, nullptr);
  EXPECT_EQ(package->manifest().recipe, GetParam());
  const Result<Recipe> stored = Recipe::FromJson(package->manifest().recipe_json, "manifest");
  ASSERT_TRUE(stored.ok()) << stored.status().ToString();
  const Recipe built_in = *FindRecipe(GetParam());
  if (built_in.mixed) {
    EXPECT_FALSE(stored->mixed.has_value()) << "what was found is stored";
    EXPECT_FALSE(stored->weight_rules.empty());
  } else {
    EXPECT_EQ(*stored, built_in);
  }
  EXPECT_EQ(package->manifest().kv_dtype, stored->kv);
}

TEST_P(RecipePackageTest, TheSameBytesEveryTime) {
  options_.recipe = GetParam();
  ASSERT_NE(CompileAndOpen(), nullptr);
  const auto first = Files();
  EXPECT_THAT(first, ::testing::Contains(::testing::Key("manifest.json")));
  for (const uint32_t threads : {2u, 1u}) {
    options_.threads = threads;
    ASSERT_NE(CompileAndOpen(), nullptr);
    const auto again = Files();
    ASSERT_EQ(again.size(), first.size());
    for (const auto& [name, bytes] : first) {
      EXPECT_TRUE(again.at(name) == bytes) << name << " differs with " << threads << " threads";
    }
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : BuiltInRecipes()) names.push_back(recipe.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Recipes, RecipePackageTest, ::testing::ValuesIn(Names()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class RecipeFileTest : public test::TinyCompileTest {};

TEST_F(RecipeFileTest, MixedPrecisionIsSearchedWhileCompiling) {
  options_.recipe = "16a4w-block16";
  options_.target_bits = 5.5;
  options_.recipe_output = folder_.File("found.json");
  const auto package = CompileAndOpen();
  ASSERT_NE(package, nullptr);
  ASSERT_TRUE(report_.mixed.has_value());
  EXPECT_LE(report_.mixed->bits, 5.5);
  EXPECT_GT(report_.mixed->bits, 5.0);
  EXPECT_GT(report_.mixed->sqnr_db, report_.mixed->base_sqnr_db);
  EXPECT_TRUE(report_.mixed->target_met);
  EXPECT_THAT(report_.ToText(), ::testing::HasSubstr("bits a weight"));
  EXPECT_THAT(report_.ToJson(), ::testing::HasSubstr("\"raised\""));
  EXPECT_EQ(package->manifest().recipe, "mixed");
  const auto written = FindRecipe(options_.recipe_output);
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  const auto stored = Recipe::FromJson(package->manifest().recipe_json, "manifest");
  ASSERT_TRUE(stored.ok()) << stored.status().ToString();
  EXPECT_EQ(*written, *stored);
  // What was raised has 8 bits in the graphs, the rest 4.
  const auto graph = package->FindGraph(0, kDecodeGraphName).value();
  for (const Op& op : graph->ops()) {
    if (op.type != OpType::kLinear || op.name == "head") continue;
    const auto& raised = report_.mixed->raised;
    const bool is_raised = std::find(raised.begin(), raised.end(), op.name) != raised.end();
    EXPECT_EQ(graph->tensor(op.inputs[1]).encoding.bits, is_raised ? 8 : 4) << op.name;
  }
  // The recipe found, given as a file, is the same package without a search.
  const std::string weights = ReadFile(JoinPath(options_.output_path, "weights.bin")).value();
  options_.recipe = options_.recipe_output;
  options_.target_bits = 0;
  options_.recipe_output.clear();
  ASSERT_NE(CompileAndOpen(), nullptr);
  EXPECT_FALSE(report_.mixed.has_value());
  EXPECT_TRUE(ReadFile(JoinPath(options_.output_path, "weights.bin")).value() == weights);
}

TEST_F(RecipeFileTest, MixedPrecisionWithTransformsAndATargetInDecibels) {
  options_.recipe = folder_.File("mine.json");
  std::ofstream(options_.recipe)
      << R"({"name": "mine", "weights": {"bits": 4}, "transforms": ["rotate_r1", "rotate_r2"],
             "mixed": {"max_bits": 7, "target_sqnr_db": 1}})";
  ASSERT_NE(CompileAndOpen(), nullptr);
  ASSERT_TRUE(report_.mixed.has_value());
  EXPECT_TRUE(report_.mixed->raised.empty()) << "the base is good enough";
  options_.target_sqnr_db = 150;
  const auto package = CompileAndOpen();
  ASSERT_NE(package, nullptr);
  EXPECT_FALSE(report_.mixed->target_met);
  EXPECT_THAT(report_.ToText(), ::testing::HasSubstr("not met"));
  EXPECT_EQ(report_.mixed->bits, 8) << "the options' targets take the place of the recipe's";
  EXPECT_EQ(package->manifest().recipe, "mine");
}

TEST_F(RecipeFileTest, ARecipeOfTheUsers) {
  options_.recipe = folder_.File("mine.json");
  std::ofstream(options_.recipe)
      << R"({"name": "mine", "activations": {"observer": {"type": "mse"}},
             "head": {"bits": 4}, "weights": {"rules": [{"match": "*.down", "bits": 4}]}})";
  options_.calib_paths = {folder_.File("a.txt"), folder_.File("b.json")};
  std::ofstream(options_.calib_paths[0]) << std::string(400, 'a');
  std::ofstream(options_.calib_paths[1])
      << R"([{"role": "user", "content": "What is a lock?"}, {"role": "assistant", "content": "A chamber."}])";
  const auto package = CompileAndOpen();
  ASSERT_NE(package, nullptr);
  EXPECT_EQ(package->manifest().recipe, "mine");
  // Head and embedding differ, so the tied model stores both.
  EXPECT_EQ(package->manifest().embedding_tensor, "embedding.weight");
  EXPECT_EQ(package->embedding().encoding.bits, 8);
  std::ofstream(options_.recipe) << R"({"name": "mine", "wieghts": {}})";
  EXPECT_THAT(CompileError().message(),
              ::testing::AllOf(::testing::HasSubstr("mine.json"), ::testing::HasSubstr("wieghts")));
}

}  // namespace
}  // namespace spillway
