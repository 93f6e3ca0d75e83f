#include "eval/analyze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "eval/float_executor.h"
#include "eval/perplexity.h"
#include "quantize/recipe.h"
#include "runtime/generator.h"
#include "tests/runtime/tiny_package.h"
#include "tests/support/paths.h"
#include "tests/support/random_tokens.h"

namespace spillway {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AnalyzeTest : public ::testing::Test {
 protected:
  void Open(const CompileOptions& options) {
    const std::string path = test::MakeTinyPackage(folder_.File(""), options);
    Result<std::shared_ptr<const Package>> package = Package::Open(path);
    ASSERT_TRUE(package.ok()) << package.status().ToString();
    package_ = *package;
    Result<std::shared_ptr<const Model>> model = Model::Open(folder_.File("tiny.gguf"));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
  }

  AnalysisReport Analyze(const std::vector<uint32_t>& tokens) {
    Result<AnalysisReport> report = AnalyzePackage(package_, model_, tokens, 1, nullptr);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return report.ok() ? std::move(report).value() : AnalysisReport();
  }

  // The logits of every token, from empty caches: the package's and, after the
  // prefix's tokens, the model's.
  double LogitsSqnr(const std::vector<uint32_t>& tokens) {
    auto quantised = HostModelExecutor::Open(package_);
    auto floats =
        FloatExecutor::Create(model_, {0, 1, package_->manifest().context_len, {}, nullptr},
                              std::make_shared<ThreadPool>(1));
    EXPECT_TRUE(quantised.ok() && floats.ok());
    Generator expected(floats->get()), found(quantised->get());
    const std::vector<uint32_t>& prefix = package_->manifest().prefix_tokens;
    if (!prefix.empty()) {
      EXPECT_TRUE(expected.Feed(prefix).ok());
    }
    std::vector<float> reference, values;
    const auto keep = [](std::vector<float>& all) {
      return [&all](uint32_t, std::span<const float> logits) {
        all.insert(all.end(), logits.begin(), logits.end());
      };
    };
    EXPECT_TRUE(expected.Feed(tokens, keep(reference)).ok());
    EXPECT_TRUE(found.Feed(tokens, keep(values)).ok());
    return Sqnr(reference, values);
  }

  test::TempFolder folder_;
  std::shared_ptr<const Package> package_;
  std::shared_ptr<const Model> model_;
};

TEST_F(AnalyzeTest, EveryComputedTensorIsComparedWorstFirst) {
  Open(test::TinyCompileOptions());
  const std::vector<uint32_t> tokens = test::RandomTokens(20, 300, 3);
  const AnalysisReport report = Analyze(tokens);
  EXPECT_EQ(report.tokens, 20u);
  EXPECT_THAT(report.left_out, IsEmpty());
  std::set<std::string> names;
  for (const OperationQuality& operation : report.operations) names.insert(operation.operation);
  const auto graph = package_->FindGraph(0, kDecodeGraphName);
  ASSERT_TRUE(graph.ok());
  size_t computed = 0;
  for (const Op& op : (*graph)->ops()) {
    if (KeepsEncoding(op.type) && op.type != OpType::kGather) continue;
    ++computed;
    EXPECT_THAT(names, Contains(op.name));
  }
  EXPECT_EQ(report.operations.size(), computed);
  EXPECT_TRUE(std::is_sorted(report.operations.begin(), report.operations.end(),
                             [](const auto& a, const auto& b) { return a.sqnr_db < b.sqnr_db; }));
  for (const OperationQuality& operation : report.operations) {
    EXPECT_GT(operation.sqnr_db, 20) << operation.operation;
    EXPECT_GE(operation.clipped, 0);
    EXPECT_LE(operation.clipped, 1);
  }
  ASSERT_EQ(report.layers.size(), 2u);
  EXPECT_EQ(report.layers[1].layer, 1u);
  EXPECT_LE(report.layers[1].worst_sqnr_db, report.layers[1].sqnr_db);
  // The same as a run of the two models: more than one path to the number.
  EXPECT_NEAR(report.logits_sqnr_db, LogitsSqnr(tokens), 0.01);
}

TEST_F(AnalyzeTest, NoiseOfAnInputIsThatOfItsMaker) {
  Open(test::TinyCompileOptions());
  const AnalysisReport report = Analyze(test::RandomTokens(8, 300, 3));
  const auto find = [&](const std::string& name) {
    return *std::find_if(report.operations.begin(), report.operations.end(),
                         [&](const auto& operation) { return operation.operation == name; });
  };
  EXPECT_EQ(find("layers.0.gate").input_sqnr_db, find("layers.0.ffn_norm").sqnr_db);
  // Through reshapes and transposes.
  EXPECT_EQ(find("layers.1.o").input_sqnr_db, find("layers.1.mixed").sqnr_db);
  EXPECT_EQ(find("layers.1.out").input_sqnr_db,
            std::min(find("layers.1.attn_out").sqnr_db, find("layers.1.down").sqnr_db));
}

TEST_F(AnalyzeTest, FollowsThePrefixAndEightBitActivations) {
  CompileOptions options = test::TinyCompileOptions();
  options.prefix_tokens = "1";
  options.recipe = "8a8w";
  Open(options);
  const std::vector<uint32_t> tokens = test::RandomTokens(12, 300, 4);
  const AnalysisReport report = Analyze(tokens);
  EXPECT_THAT(report.left_out, IsEmpty());
  EXPECT_NEAR(report.logits_sqnr_db, LogitsSqnr(tokens), 0.01);
  // A text that starts with the prefix's tokens gives them up.
  std::vector<uint32_t> with_prefix = {1};
  with_prefix.insert(with_prefix.end(), tokens.begin(), tokens.end());
  EXPECT_EQ(Analyze(with_prefix).logits_sqnr_db, report.logits_sqnr_db);
}

TEST_F(AnalyzeTest, RotatedWeightsAreComparedWithRotatedOnes) {
  CompileOptions options = test::TinyCompileOptions();
  const std::string path = folder_.File("rotated.json");
  const Result<Recipe> base = FindRecipe("16a8w");
  ASSERT_TRUE(base.ok());
  Recipe recipe = *base;
  recipe.transforms = {"rotate_r1", "rotate_r2", "rotate_r3"};
  ASSERT_TRUE(WriteFileAtomically(path, recipe.ToJson()).ok());
  options.recipe = path;
  Open(options);
  const AnalysisReport report = Analyze(test::RandomTokens(12, 300, 5));
  EXPECT_THAT(report.left_out, IsEmpty());
  for (const OperationQuality& operation : report.operations) {
    EXPECT_GT(operation.sqnr_db, 20) << operation.operation;
  }
}

TEST_F(AnalyzeTest, Errors) {
  Open(test::TinyCompileOptions());
  EXPECT_EQ(AnalyzePackage(package_, model_, {}, 1, nullptr).status().code(),
            StatusCode::kInvalidArgument);
  test::TinyModelSpec other;
  other.layers = 3;
  const auto model = Model::Open(test::WriteTinyModel(folder_.File("other.gguf"), other));
  ASSERT_TRUE(model.ok());
  const auto report = AnalyzePackage(package_, *model, {5, 6, 7}, 1, nullptr);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(report.status().message(), HasSubstr("3 layers"));
  EXPECT_THAT(report.status().message(), HasSubstr("tiny.gguf"));
}

TEST(AnalysisReportTest, TextAndJsonHaveTheTopOperations) {
  AnalysisReport report;
  report.tokens = 7;
  report.logits_sqnr_db = 31.5;
  report.layers = {{0, 40.25, "layers.0.down", 12.5}};
  report.operations = {
      {"layers.0.down", "Linear", "u16 x s8 -> u16", 0, 12.5, INFINITY, 3.5f, 0.25},
      {"head", "Linear", "u16 x s8 -> u16", std::nullopt, 31.5, 40, 9.0f, 0}};
  report.simulator = {{"head", "Linear", "u16 x s8 -> u16", 3, 0.5, 1, 55.5}};
  const auto json = nlohmann::json::parse(report.ToJson(1), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["logits_sqnr_db"], 31.5);
  ASSERT_EQ(json["operations"].size(), 1u);
  EXPECT_EQ(json["operations"][0]["operation"], "layers.0.down");
  EXPECT_TRUE(json["operations"][0]["input_sqnr_db"].is_null());
  EXPECT_EQ(json["layers"][0]["worst"], "layers.0.down");
  EXPECT_EQ(json["simulator"][0]["max_lsb"], 3);
  EXPECT_EQ(json["simulator"][0]["sqnr_db"], 55.5);
  EXPECT_EQ(nlohmann::json::parse(report.ToJson(0), nullptr, false)["operations"].size(), 2u);
  const std::string text = report.ToText(1);
  EXPECT_THAT(text, HasSubstr("layers.0.down"));
  EXPECT_THAT(text, HasSubstr("25.000"));
  EXPECT_THAT(text, HasSubstr("and 1 operations"));
  EXPECT_THAT(text, HasSubstr("exact"));
}

}  // namespace
}  // namespace spillway
