#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/package/sample.h"

namespace spillway::test {
namespace {

using ::testing::HasSubstr;

// The sample's JSON with the first `from` replaced by `to`.
std::string Changed(const std::string& from, const std::string& to) {
  std::string json = SampleManifest().ToJson();
  const size_t place = json.find(from);
  EXPECT_NE(place, std::string::npos) << from << "\n" << json;
  if (place != std::string::npos) json.replace(place, from.size(), to);
  return json;
}

std::string ErrorOf(const std::string& json, StatusCode code = StatusCode::kCorruptData) {
  const Status status = PackageManifest::FromJson(json, "pkg/manifest.json").status();
  EXPECT_EQ(status.code(), code) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("pkg/manifest.json"));
  return status.message();
}

TEST(Manifest, RoundTripKeepsEveryField) {
  PackageManifest manifest = SampleManifest();
  ModelConfig& config = manifest.config;
  config.attention_bias = config.qk_norm = config.tied_embeddings = config.post_norms = true;
  config.activation = Activation::kGeluTanh;
  config.sliding_window = 512;
  config.layer_attention = {LayerAttention::kSlidingWindow, LayerAttention::kGlobal,
                            LayerAttention::kSlidingWindow};
  config.local_rope = {.theta = 12345.6f, .dim = 2, .factors = {0.3f}, .attention_factor = 0.9f};
  config.attention_logit_softcap = 50.5f;
  config.final_logit_softcap = 30.1f;
  config.embedding_scale = 0.1f;
  manifest.io_profile = "executorch";
  manifest.decode_ar_len = 3;
  manifest.kv_dtype = DType::kU16;
  manifest.weight_sharing = true;
  manifest.vendor_json = R"({"build":"v2.51","nested":{"a":[1,2.5,null]}})";
  manifest.shards[1].plain_file = "plain_1.bin";
  manifest.shards[1].context_bytes = 1ull << 40;
  manifest.shards[1].weight_bytes = 77;
  manifest.files = {{"weights.bin", 123, "0123456789abcdef0123456789abcdef"}};
  const std::string json = manifest.ToJson();
  Result<PackageManifest> read = PackageManifest::FromJson(json, "m");
  ASSERT_TRUE(read.ok()) << read.status().ToString() << json;
  EXPECT_EQ(read->config.name, config.name);
  EXPECT_EQ(read->config.rms_norm_eps, 1e-5f);
  EXPECT_EQ(read->config.rope.factors, config.rope.factors);
  EXPECT_EQ(read->config.rope.attention_factor, 1.1f);
  EXPECT_EQ(read->config.activation, Activation::kGeluTanh);
  EXPECT_EQ(read->config.layer_attention, config.layer_attention);
  EXPECT_EQ(read->config.local_rope.theta, 12345.6f);
  EXPECT_EQ(read->kv_dtype, DType::kU16);
  EXPECT_EQ(read->htp_options_json, manifest.htp_options_json);
  EXPECT_EQ(read->vendor_json, manifest.vendor_json);
  EXPECT_EQ(read->shards[1].context_bytes, 1ull << 40);
  // Every other field: what was read is written the same.
  EXPECT_EQ(read->ToJson(), json);
  EXPECT_THAT(json, HasSubstr("\"rms_norm_eps\": 1e-05"));
}

TEST(Manifest, TheSharedSpillFillBufferIsTheLargestOfTheShards) {
  PackageManifest manifest = SampleManifest();
  manifest.shards[0].spill_fill_bytes = 4096;
  manifest.shards[1].spill_fill_bytes = 8192;
  for (ShardInfo& shard : manifest.shards) shard.max_spill_fill_bytes = 10000;
  std::string json = manifest.ToJson();
  EXPECT_EQ(PackageManifest::FromJson(json, "m")->shards[0].max_spill_fill_bytes, 10000u);
  EXPECT_EQ(PackageManifest::FromJson(json, "m")->shards[1].max_spill_fill_bytes, 10000u);

  // One shard's differs, and none is said.
  const std::string field = "\"max_spill_fill_bytes\": 10000,";
  std::string differs = json;
  differs.replace(differs.find(field), field.size(), "\"max_spill_fill_bytes\": 20000,");
  EXPECT_THAT(ErrorOf(differs), HasSubstr("shards[1].max_spill_fill_bytes: found 10000"));
  for (size_t at = json.find(field); at != std::string::npos; at = json.find(field)) {
    json.erase(at, field.size());
  }
  const Result<PackageManifest> old = PackageManifest::FromJson(json, "m");
  ASSERT_TRUE(old.ok()) << old.status().ToString();
  EXPECT_EQ(old->shards[0].max_spill_fill_bytes, 8192u);
  EXPECT_EQ(old->shards[1].max_spill_fill_bytes, 8192u);

  for (ShardInfo& shard : manifest.shards) shard.max_spill_fill_bytes = 5000;
  EXPECT_THAT(ErrorOf(manifest.ToJson()), HasSubstr("at least spill_fill_bytes 8192"));
}

TEST(Manifest, NoVendorIsNull) {
  const std::string json = SampleManifest().ToJson();
  EXPECT_THAT(json, HasSubstr("\"vendor\": null"));
  EXPECT_EQ(PackageManifest::FromJson(json, "m")->vendor_json, "");
}

TEST(Manifest, WrongFieldsAreNamed) {
  EXPECT_THAT(ErrorOf(Changed("\"num_layers\": 3", "\"num_layers\": \"3\"")),
              HasSubstr("model.config.num_layers: found \"3\", expected a whole number from 1"));
  EXPECT_THAT(ErrorOf(Changed("\"num_layers\": 3", "\"num_layers\": -3")), HasSubstr("found -3"));
  EXPECT_THAT(ErrorOf(Changed("\"num_layers\": 3", "\"num_layers\": 3.5")), HasSubstr("3.5"));
  EXPECT_THAT(ErrorOf(Changed("\"num_layers\": 3", "\"layers\": 3")),
              HasSubstr("field model.config.num_layers is missing"));
  EXPECT_THAT(ErrorOf(Changed("\"activation\": \"silu\"", "\"activation\": \"relu\"")),
              HasSubstr("found relu, expected one of silu, gelu_tanh"));
  EXPECT_THAT(ErrorOf(Changed("\"kv_dtype\": \"u8\"", "\"kv_dtype\": \"s4\"")),
              HasSubstr("graphs.kv_dtype"));
  EXPECT_THAT(ErrorOf(Changed("\"slc_allocator\": true", "\"slc_allocator\": 1")),
              HasSubstr("target.slc_allocator: found 1, expected true or false"));
  EXPECT_THAT(ErrorOf(Changed("\"context_0.bin\"", "\"../context_0.bin\"")),
              HasSubstr("shards[0].context_file"));
  EXPECT_THAT(ErrorOf(Changed("\"theta\": 100000.0", "\"theta\": 0")),
              HasSubstr("model.config.rope.theta"));
  EXPECT_THAT(ErrorOf(Changed("\"mode\": \"hybrid\"", "\"mode\": \"both\"")),
              HasSubstr("kv, hybrid or lookahead"));
  EXPECT_THAT(ErrorOf(Changed("\"shards\": [", "\"shards\": 5, \"old\": [")),
              HasSubstr("field shards: found 5, expected a list"));
  EXPECT_THAT(ErrorOf(Changed("\"hash\": \"0123", "\"hash\": \"012x")), HasSubstr("model.hash"));
  EXPECT_THAT(ErrorOf(Changed("\"htp_options\": {", "\"htp_options\": 7, \"old\": {")),
              HasSubstr("target.htp_options"));
}

TEST(Manifest, FieldsMustFitEachOther) {
  EXPECT_THAT(ErrorOf(Changed("\"num_heads\": 4", "\"num_heads\": 5")),
              HasSubstr("a multiple of num_kv_heads 2"));
  EXPECT_THAT(ErrorOf(Changed("\"prefill_ar_len\": 4", "\"prefill_ar_len\": 16")),
              HasSubstr("graphs.prefill_ar_len: found 16, expected 1 to 15"));
  EXPECT_THAT(ErrorOf(Changed("\"prefill_ar_len\": 4", "\"prefill_ar_len\": 0")),
              HasSubstr("graphs.prefill_ar_len"));
  EXPECT_THAT(ErrorOf(Changed("\"decode_ar_len\": 1", "\"decode_ar_len\": 16")),
              HasSubstr("graphs.decode_ar_len"));
  EXPECT_THAT(ErrorOf(Changed("\"first_layer\": 2", "\"first_layer\": 1")),
              HasSubstr("shards[1].first_layer: found 1, expected 2"));
  EXPECT_THAT(ErrorOf(Changed("\"num_layers\": 3", "\"num_layers\": 4")),
              HasSubstr("field shards: found 3 layers, expected 4"));
  EXPECT_THAT(ErrorOf(Changed("\"dim\": 4", "\"dim\": 6")), HasSubstr("model.config.rope"));
}

TEST(Manifest, VersionComesFirst) {
  const std::string newer = R"({"format": "spillway-package", "version": 2, "all": "new"})";
  EXPECT_THAT(ErrorOf(newer, StatusCode::kUnsupported), HasSubstr("found 2, expected at most 1"));
  EXPECT_THAT(ErrorOf(R"({"version": 1})"), HasSubstr("not the manifest of a Spillway package"));
  EXPECT_THAT(ErrorOf("[1, 2]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("not a JSON object"));
}

TEST(Manifest, DeepOrLongJsonIsRefused) {
  const std::string deep(200'000, '[');
  EXPECT_THAT(ErrorOf(Changed("\"vtcm_mb\": 8", "\"vtcm_mb\": " + deep)), HasSubstr("nested"));
  EXPECT_THAT(ErrorOf(std::string(5 << 20, ' ')), HasSubstr("bytes of JSON"));
}

TEST(Manifest, DamageGivesAnErrorOrAManifest) {
  const std::string json = SampleManifest().ToJson();
  std::mt19937 random(7);
  size_t refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = json;
    const int flips = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < flips; ++i) {
      damaged[random() % damaged.size()] ^= static_cast<char>(1u << random() % 8);
    }
    Result<PackageManifest> manifest = PackageManifest::FromJson(damaged, "m");
    refused += manifest.ok() ? 0 : 1;
    EXPECT_TRUE(!manifest.ok() || manifest->config.num_kv_heads > 0);
  }
  EXPECT_GT(refused, 2500u);
  for (size_t size = 0; size + 2 < json.size(); size += 3) {
    EXPECT_FALSE(PackageManifest::FromJson(json.substr(0, size), "m").ok()) << size;
  }
}

}  // namespace
}  // namespace spillway::test
