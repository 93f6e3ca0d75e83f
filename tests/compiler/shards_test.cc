// Compiles into several contexts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "package/compile_spec.h"
#include "tests/compiler/tiny_compile.h"

namespace spillway::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class ShardsTest : public TinyCompileTest {
 protected:
  ShardsTest() : record_("FAKE_QNN_RECORD", records_.File("record")) {
    TinyModelSpec spec;
    spec.layers = 4;
    WriteTinyModel(options_.model_path, spec);
    options_.htp_build = HtpBuild::kOn;
    options_.qnn_lib_dir = FakeQnnDir();
    options_.cache_dir = folder_.File("cache");
    options_.use_cache = false;
  }

  // How often the vendor was asked to prepare a graph since the last call.
  size_t Finalized() {
    const Result<std::string> record = ReadFile(records_.File("record"));
    std::remove(records_.File("record").c_str());
    if (!record.ok()) return 0;
    size_t count = 0;
    for (size_t at = 0; (at = record->find("call graphFinalize", at)) != std::string::npos; ++at) {
      ++count;
    }
    return count;
  }

  CompileSpec SpecOf(const Package& package, size_t shard) {
    const Result<std::string> bytes =
        ReadFile(package.PathOf("shard_" + std::to_string(shard) + ".spec"));
    EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
    const auto spec = DecodeCompileSpec(std::as_bytes(std::span(*bytes)));
    EXPECT_TRUE(spec.ok()) << spec.status().ToString();
    return spec.ok() ? *spec : CompileSpec();
  }

  // Every shard says the largest spill-fill of all.
  void ExpectSharedSpillFill(const Package& package) {
    uint64_t most = 0;
    for (const ShardInfo& shard : package.manifest().shards) {
      most = std::max(most, shard.spill_fill_bytes);
    }
    EXPECT_EQ(report_.max_spill_fill_bytes, most);
    for (size_t s = 0; s < package.manifest().shards.size(); ++s) {
      EXPECT_EQ(package.manifest().shards[s].max_spill_fill_bytes, most);
      const CompileSpec spec = SpecOf(package, s);
      EXPECT_EQ(spec.htp->max_sf_buf_size, most);
      EXPECT_EQ(spec.htp->use_multi_contexts, package.manifest().shards.size() > 1);
    }
  }

  TempFolder records_;
  ScopedEnv record_;
};

TEST_F(ShardsTest, EachIsAContextWithBothGraphs) {
  options_.num_shards = 3;
  options_.with_simulator = true;
  const auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  const std::vector<ShardInfo>& shards = package->manifest().shards;
  ASSERT_THAT(shards, SizeIs(3));
  uint32_t next = 0;
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(shards[s].first_layer, next);
    next += shards[s].num_layers;
    EXPECT_TRUE(package->HasFile("context_" + std::to_string(s) + ".bin"));
    EXPECT_TRUE(package->HasFile("plain_" + std::to_string(s) + ".bin"));
    ASSERT_THAT(report_.shards[s].graphs, SizeIs(2));
    EXPECT_EQ(report_.shards[s].first_layer, shards[s].first_layer);
  }
  EXPECT_EQ(next, 4U);
  EXPECT_EQ(Finalized(), 12U);
  ExpectSharedSpillFill(*package);
  const auto json = nlohmann::json::parse(report_.ToJson());
  EXPECT_EQ(json["shards"].size(), 3U);
  EXPECT_EQ(json["max_spill_fill_bytes"], report_.max_spill_fill_bytes);
}

TEST_F(ShardsTest, SeveralAtATimeGiveTheSame) {
  options_.num_shards = 4;
  options_.jobs = 3;
  const auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  const std::string parallel = *ReadFile(package->PathOf("context_2.bin"));
  options_.jobs = 1;
  const auto again = CompileAndOpen();
  ASSERT_TRUE(again);
  EXPECT_EQ(*ReadFile(again->PathOf("context_2.bin")), parallel);
}

TEST_F(ShardsTest, TheFirstFailureEndsAllAndLeavesNothing) {
  options_.num_shards = 4;
  options_.jobs = 2;
  const ScopedEnv crash("FAKE_QNN_CRASH", "graphFinalize:2");
  const Status status = CompileError();
  EXPECT_EQ(status.code(), StatusCode::kVendorCrash);
  EXPECT_THAT(status.message(), HasSubstr("while it compiled shard"));
}

TEST_F(ShardsTest, AnInterruptedCompileGoesOnWithTheShardThatWasNext) {
  options_.num_shards = 2;
  options_.use_cache = true;
  options_.jobs = 1;
  {
    // In one process, so that calls are counted over both shards: the third graph fails.
    FakeQnn().Reset();
    options_.in_process = true;
    const ScopedEnv fail("FAKE_QNN_FAIL", "graphFinalize:1002:3");
    EXPECT_EQ(Compile(options_).status().code(), StatusCode::kVendor);
    options_.in_process = false;
  }
  EXPECT_EQ(Finalized(), 3U);
  ASSERT_TRUE(CompileAndOpen());
  EXPECT_EQ(Finalized(), 2U);
  EXPECT_TRUE(report_.shards[0].from_cache);
  EXPECT_FALSE(report_.shards[1].from_cache);
  ASSERT_TRUE(CompileAndOpen());  // everything is there now
  EXPECT_EQ(Finalized(), 0U);
  EXPECT_TRUE(report_.shards[0].from_cache);
  EXPECT_EQ(report_.vendor_finalize_s, 0);
  EXPECT_EQ(report_.shards[1].graphs.size(), 2U);

  // One shard lost, one shard compiled.
  const auto package = Package::Open(options_.output_path);
  const std::string context = *ReadFile((*package)->PathOf("context_1.bin"));
  const Result<std::vector<std::string>> names = ListFolder(options_.cache_dir);
  for (const std::string& name : *names) {
    if (name.ends_with(".bin") && *ReadFile(JoinPath(options_.cache_dir, name)) == context) {
      std::remove(JoinPath(options_.cache_dir, name).c_str());
    }
  }
  ASSERT_TRUE(CompileAndOpen());
  EXPECT_EQ(Finalized(), 2U);
  EXPECT_TRUE(report_.shards[0].from_cache);
  EXPECT_FALSE(report_.shards[1].from_cache);
}

TEST_F(ShardsTest, OtherOptionsOrWeightsAreOtherContexts) {
  options_.use_cache = true;
  ASSERT_TRUE(CompileAndOpen());
  Finalized();
  options_.htp.optimization_level = 2;
  ASSERT_TRUE(CompileAndOpen());
  EXPECT_EQ(Finalized(), 2U);
  TinyModelSpec spec;
  spec.layers = 4;
  spec.seed = 9;
  WriteTinyModel(options_.model_path, spec);
  ASSERT_TRUE(CompileAndOpen());
  EXPECT_EQ(Finalized(), 2U);
}

class SlcAutoTest : public ShardsTest {
 protected:
  SlcAutoTest() { options_.htp.slc_allocator = SlcAllocator::kAuto; }
};

TEST_F(SlcAutoTest, StaysOnWhereTheSocProfitsAndAGraphHasTransfers) {
  options_.htp.soc = "SM8750";  // known to have a slice for the DSP
  const auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  EXPECT_TRUE(package->manifest().slc_allocator);
  EXPECT_TRUE(SpecOf(*package, 0).htp->use_slc_allocator);
  EXPECT_THAT(package->manifest().htp_options_json, HasSubstr("\"slc_allocator\":\"on\""));
  EXPECT_EQ(Finalized(), 2U);
  EXPECT_TRUE(report_.slc.used);
  EXPECT_THAT(report_.slc.marked_graphs, SizeIs(2));
  EXPECT_THAT(report_.ToText(),
              AllOf(HasSubstr("SLC allocator (auto): on"), HasSubstr("to measure")));
}

TEST_F(SlcAutoTest, IsOffWhereTheSocIsUnknownAndSaysWhatWasSeen) {
  options_.htp.soc = "SXR2330P";
  const auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  EXPECT_FALSE(package->manifest().slc_allocator);
  EXPECT_FALSE(SpecOf(*package, 0).htp->use_slc_allocator);
  EXPECT_EQ(Finalized(), 4U);  // with and without
  EXPECT_EQ(report_.slc.soc_support, "unknown");
  EXPECT_THAT(report_.slc.reason, AllOf(HasSubstr("unknown"), HasSubstr("shard 0, kv_forward")));
  EXPECT_THAT(report_.slc.marked_graphs, SizeIs(2));
  for (const GraphReport& graph : report_.shards[0].graphs) EXPECT_EQ(graph.slc, SlcOutcome::kOff);
}

TEST_F(SlcAutoTest, ALibraryThatRejectsItIsAFallbackForAutoAndAnErrorForOn) {
  const ScopedEnv reject("FAKE_QNN_REJECT_SLC", "1");
  const auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  EXPECT_FALSE(package->manifest().slc_allocator);
  EXPECT_THAT(report_.slc.reason, HasSubstr("off: the compile with it failed"));
  EXPECT_THAT(report_.ToText(), HasSubstr("SLC allocator (auto): off: the compile with it failed"));
  options_.output_path = folder_.File("other");
  options_.htp.slc_allocator = SlcAllocator::kOn;
  EXPECT_EQ(CompileError().code(), StatusCode::kVendor);
}

}  // namespace
}  // namespace spillway::test
