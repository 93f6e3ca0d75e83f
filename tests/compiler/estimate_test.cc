#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/compiler/tiny_compile.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

class EstimateTest : public test::TinyCompileTest {
 protected:
  EstimateTest() { options_.htp_build = HtpBuild::kAuto; }
  CompileEstimate Estimate() {
    const Result<CompileEstimate> estimate = EstimateCompile(options_);
    EXPECT_TRUE(estimate.ok()) << estimate.status().ToString();
    return estimate.ok() ? *estimate : CompileEstimate();
  }
};

TEST_F(EstimateTest, SizesFollowFromTheShapes) {
  const test::TinyModelSpec spec;
  const CompileEstimate hybrid = Estimate();
  const uint64_t layer =
      uint64_t{spec.hidden} * spec.head_dim * (2 * spec.heads + 2 * spec.kv_heads) +
      uint64_t{3} * spec.hidden * spec.ffn;
  const uint64_t embedding = uint64_t{spec.vocab} * spec.hidden;
  EXPECT_EQ(hybrid.weight_bytes, embedding + spec.layers * layer);
  EXPECT_EQ(hybrid.kv_cache_bytes, uint64_t{2} * spec.layers * spec.kv_heads * spec.head_dim * 64);
  EXPECT_GE(hybrid.parameters, hybrid.weight_bytes);
  EXPECT_LT(hybrid.parameters, hybrid.weight_bytes * 11 / 10);
  EXPECT_GE(hybrid.context_bytes, hybrid.weight_bytes);
  EXPECT_EQ(hybrid.architecture, "llama");
  EXPECT_EQ(hybrid.soc, "SM8750");
  EXPECT_GT(hybrid.peak_rss_bytes, 100u << 20);
  EXPECT_GT(hybrid.wall_s, 0);

  options_.mode = "kv";
  const CompileEstimate kv = Estimate();
  EXPECT_EQ(kv.weight_bytes, hybrid.weight_bytes);
  EXPECT_LE(kv.peak_rss_bytes, hybrid.peak_rss_bytes);
  EXPECT_LT(kv.wall_s, hybrid.wall_s);
  options_.mode = "hybrid";

  options_.kv_bits = 16;
  EXPECT_EQ(Estimate().kv_cache_bytes, 2 * hybrid.kv_cache_bytes);
  options_.htp.weight_sharing = false;
  EXPECT_EQ(Estimate().context_bytes, 2 * hybrid.context_bytes);
  options_.htp.weight_sharing.reset();
  options_.with_simulator = true;
  EXPECT_EQ(Estimate().context_bytes, 3 * hybrid.context_bytes);
  options_.with_simulator = false;
  options_.io_profile = "executorch";
  EXPECT_GT(Estimate().context_bytes, hybrid.context_bytes);
  options_.htp_build = HtpBuild::kOff;
  EXPECT_EQ(Estimate().context_bytes, 0u);
  EXPECT_LT(Estimate().peak_rss_bytes, hybrid.peak_rss_bytes);
}

TEST_F(EstimateTest, AnUntiedEmbeddingIsStoredToo) {
  const CompileEstimate tied = Estimate();
  test::TinyModelSpec spec;
  spec.tied = false;
  test::WriteTinyModel(options_.model_path, spec);
  const CompileEstimate untied = Estimate();
  EXPECT_EQ(untied.weight_bytes, tied.weight_bytes);
  EXPECT_EQ(untied.package_bytes, tied.package_bytes + uint64_t{spec.vocab} * spec.hidden);
}

TEST_F(EstimateTest, ChecksLikeACompileAndWritesNothing) {
  const auto before = Contents();
  options_.output_path = "";  // not needed
  Estimate();
  EXPECT_EQ(Contents(), before);
  options_.htp.soc = "SM1";
  EXPECT_EQ(EstimateCompile(options_).status().code(), StatusCode::kNotFound);
  options_.htp.soc = "SM8750";
  options_.model_path = folder_.File("missing.gguf");
  EXPECT_EQ(EstimateCompile(options_).status().code(), StatusCode::kNotFound);
}

TEST_F(EstimateTest, TextAndJson) {
  CompileEstimate estimate = Estimate();
  const auto json = nlohmann::json::parse(estimate.ToJson());
  EXPECT_EQ(json["weight_bytes"], estimate.weight_bytes);
  EXPECT_EQ(json["peak_rss_bytes"], estimate.peak_rss_bytes);
  EXPECT_EQ(json["kv_cache_bytes"], estimate.kv_cache_bytes);
  EXPECT_THAT(estimate.ToText(), HasSubstr("SM8750"));
  estimate.model_name = "bad \xff name";
  EXPECT_THAT(estimate.ToJson(), HasSubstr("bad "));
}

}  // namespace
}  // namespace spillway
