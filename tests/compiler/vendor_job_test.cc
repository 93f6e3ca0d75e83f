// Jobs and results as JSON.
#include "compiler/vendor_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(VendorJobTest, RoundTrip) {
  VendorJob job;
  job.folder = "/a \"folder\"/\xc3\xa4";
  job.shard = 3;
  job.output_path = "/out/context_3.bin";
  job.qnn_lib_dir = "/lib";
  job.htp.soc = "SM8650";
  job.htp.weight_sharing = true;
  EXPECT_EQ(Json::parse(job.ToJson())["job"], "compile");
  const Result<VendorJob> back = VendorJob::FromJson(job.ToJson());
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back->folder, job.folder);
  EXPECT_EQ(back->shard, 3u);
  EXPECT_EQ(back->output_path, job.output_path);
  EXPECT_EQ(back->qnn_lib_dir, "/lib");
  EXPECT_EQ(back->htp.soc, "SM8650");
  EXPECT_EQ(back->htp.weight_sharing, true);
}

TEST(VendorJobTest, APathThatIsNotUtf8DoesNoHarm) {
  VendorJob job;
  job.folder = "/bad\xff";
  const Result<VendorJob> back = VendorJob::FromJson(job.ToJson());
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_THAT(back->folder, HasSubstr("/bad"));
}

TEST(VendorJobTest, DamageIsAnError) {
  for (const char* text : {"", "{", "[]", "{}", R"({"folder":3})"}) {
    EXPECT_EQ(VendorJob::FromJson(text).status().code(), StatusCode::kInternal) << text;
    EXPECT_EQ(VendorResult::FromJson(text).status().code(), StatusCode::kInternal) << text;
  }
}

TEST(VendorResultTest, RoundTrip) {
  VendorResult result;
  result.build_id = "v2.51";
  result.core_api = "2.40.0";
  result.backend_api = "5.51.0";
  result.soc_model = 69;
  result.finalize_s = 1.5;
  result.total_s = 2.5;
  result.shard.spill_fill_bytes = uint64_t{5} << 33;
  result.shard.context_bytes = 11;
  result.shard.weight_bytes = 12;
  GraphReport graph;
  graph.name = "kv_forward";
  graph.spill_bytes = 1;
  graph.fill_bytes = 2;
  graph.read_bytes = 3;
  graph.write_bytes = 4;
  graph.finalize_s = 0.5;
  graph.spill_fill_buffer_bytes = 6;
  graph.vtcm_bytes = 7;
  graph.nodes = 8;
  graph.estimate_us = 9.5;
  graph.slc = SlcOutcome::kMarked;
  graph.profile = {{0, 300, "", 12, "us"}, {1, 2006, "cycles of it", uint64_t{7} << 40, "cycles"}};
  result.shard.saver_files = {"/a/saver_output.c", "/a/params.bin"};
  result.shard.graphs = {graph, {}};
  const Result<VendorResult> back = VendorResult::FromJson(result.ToJson());
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back->ToJson(), result.ToJson());
  EXPECT_EQ(back->shard.spill_fill_bytes, uint64_t{5} << 33);
  EXPECT_EQ(back->soc_model, 69u);
  ASSERT_EQ(back->shard.graphs.size(), 2u);
  EXPECT_EQ(back->shard.graphs[0].name, "kv_forward");
  EXPECT_EQ(back->shard.graphs[0].slc, SlcOutcome::kMarked);
  EXPECT_EQ(back->shard.graphs[0].estimate_us, 9.5);
  EXPECT_EQ(back->shard.graphs[0].nodes, 8u);
  ASSERT_EQ(back->shard.graphs[0].profile.size(), 2u);
  EXPECT_EQ(back->shard.graphs[0].profile[1].depth, 1u);
  EXPECT_EQ(back->shard.graphs[0].profile[1].type, 2006u);
  EXPECT_EQ(back->shard.graphs[0].profile[1].name, "cycles of it");
  EXPECT_EQ(back->shard.graphs[0].profile[1].value, uint64_t{7} << 40);
  EXPECT_EQ(back->shard.graphs[0].profile[1].unit, "cycles");
  EXPECT_TRUE(back->shard.graphs[1].profile.empty());
  EXPECT_EQ(back->shard.saver_files, result.shard.saver_files);
}

}  // namespace
}  // namespace spillway
