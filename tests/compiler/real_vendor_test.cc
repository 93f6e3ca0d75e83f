// Compile() with the vendor's own library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "compiler/vendor_job.h"
#include "qnn/api/binary_info.h"
#include "qnn/api/handle_counts.h"
#include "qnn/api/library.h"
#include "tests/compiler/tiny_compile.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class RealVendorTest : public test::TinyCompileTest {
 protected:
  void SetUp() override {
    if (!test::QnnLibDir()) {
      GTEST_SKIP() << "no vendor libraries in SPILLWAY_QNN_LIB_DIR or .deps/qnn/onnxruntime_qnn";
    }
    options_.qnn_lib_dir = *test::QnnLibDir();
  }

  // The vendor's lines about the SLC allocator while it compiles the graphs of
  // `folder` in this process.
  std::vector<std::string> SlcLines(const std::string& folder, const HtpOptions& htp,
                                    VendorResult* result = nullptr) {
    VendorJob job;
    job.folder = folder;
    job.output_path = folder_.File("job.bin");
    job.qnn_lib_dir = options_.qnn_lib_dir;
    job.htp = htp;
    std::mutex mutex;
    std::vector<std::string> lines;
    VendorEvents events;
    events.log = [&](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex);
      if (line.find("slc_allocate") != std::string_view::npos) lines.emplace_back(line);
    };
    const Result<VendorResult> done = RunVendorJob(job, events);
    EXPECT_TRUE(done.ok()) << done.status().ToString();
    if (done.ok() && result != nullptr) *result = *done;
    EXPECT_EQ(qnn::CountHandles().ToString(), "none");
    return lines;
  }
};

TEST_F(RealVendorTest, BothGraphsWithSharedWeightsAndSlc) {
  options_.htp_build = HtpBuild::kOn;
  options_.htp.slc_allocator = SlcAllocator::kOn;
  const auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  EXPECT_TRUE(package->manifest().weight_sharing);
  EXPECT_TRUE(package->manifest().slc_allocator);
  ASSERT_EQ(report_.shards.size(), 1u);
  ASSERT_EQ(report_.shards[0].graphs.size(), 2u);
  for (const GraphReport& graph : report_.shards[0].graphs) {
    EXPECT_NE(graph.slc, SlcOutcome::kOff);
    EXPECT_GT(graph.read_bytes, 50000u);
    EXPECT_EQ(graph.vtcm_bytes, 8u << 20);
    EXPECT_GT(graph.finalize_s, 0);
  }
  EXPECT_GT(report_.vendor_finalize_s, 0);
  EXPECT_GE(report_.vendor_s, report_.vendor_finalize_s);
  EXPECT_THAT(report_.vendor_build_id, HasSubstr("v2."));

  const auto system = qnn::SystemLibrary::Load(options_.qnn_lib_dir);
  ASSERT_TRUE(system.ok()) << system.status().ToString();
  const auto info = qnn::ReadBinaryInfoFile(**system, package->PathOf("context_0.bin"));
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->soc_model, 69u);
  ASSERT_THAT(info->graphs, SizeIs(2));
  for (const char* name : {kPrefillGraphName, kDecodeGraphName}) {
    const qnn::BinaryGraph* graph = info->FindGraph(name);
    ASSERT_NE(graph, nullptr) << name;
    const auto expected = package->FindGraph(0, name).value();
    ASSERT_EQ(graph->inputs.size(), expected->inputs().size());
    for (size_t i = 0; i < graph->inputs.size(); ++i) {
      EXPECT_EQ(graph->inputs[i].name, expected->tensor(expected->inputs()[i]).name);
    }
    ASSERT_EQ(graph->outputs.size(), expected->outputs().size());
    for (size_t i = 0; i < graph->outputs.size(); ++i) {
      EXPECT_EQ(graph->outputs[i].name, expected->tensor(expected->outputs()[i]).name);
    }
    ASSERT_TRUE(graph->memory);
    EXPECT_GT(graph->memory->shared_weight_bytes, 0u);
  }
}

TEST_F(RealVendorTest, SharedWeightsAreStoredOnce) {
  ASSERT_TRUE(CompileAndOpen());
  VendorResult shared, twice;
  HtpOptions htp;
  htp.weight_sharing = true;
  SlcLines(options_.output_path, htp, &shared);
  htp.weight_sharing = false;
  SlcLines(options_.output_path, htp, &twice);
  EXPECT_EQ(shared.shard.weight_bytes, twice.shard.weight_bytes);
  EXPECT_LT(shared.shard.context_bytes + shared.shard.weight_bytes / 2, twice.shard.context_bytes);
}

TEST_F(RealVendorTest, SlcOptionInTheVendorsLog) {
  ASSERT_TRUE(CompileAndOpen());
  HtpOptions htp;
  const auto proven = [&](const char* graph, int value) {
    return Contains(AllOf(HasSubstr(graph), HasSubstr("slc_allocate = " + std::to_string(value))));
  };
  for (const std::optional<bool> slc : {std::optional<bool>(), {true}, {false}}) {
    if (slc) htp.slc_allocator = *slc ? SlcAllocator::kOn : SlcAllocator::kOff;
    const std::vector<std::string> lines = SlcLines(options_.output_path, htp);
    const int expected = slc.value_or(false) ? 1 : 0;
    for (const char* graph : {kPrefillGraphName, kDecodeGraphName}) {
      EXPECT_THAT(lines, proven(graph, expected));
      EXPECT_THAT(lines, Not(proven(graph, 1 - expected)));
    }
  }
}

// Wide activations that 1 MB of VTCM has no room for.
Graph GraphThatSpills(uint32_t rows, uint32_t hidden, uint32_t ffn) {
  Graph graph("wide");
  const auto linear = [&](const std::string& name, TensorId x, uint32_t n, uint32_t k) {
    std::vector<int8_t> weights(PackedN16K4Size(n, k));
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = static_cast<int8_t>((i * 37 + i / 251) % 255 - 127);
    }
    const TensorId w = graph.AddConstant(name + ".w", DType::kS8, {n, k},
                                         MakeConstantOf(weights, DataLayout::kPackedN16K4),
                                         Encoding::PerChannel(8, 0, std::vector<float>(n, 0.001F)));
    const TensorId y = graph.AddOp(OpType::kLinear, name, {x, w});
    graph.mutable_tensor(y).encoding = AffineEncoding(DType::kU16, -8, 8);
    return y;
  };
  const TensorId x = graph.AddInput("x", DType::kU16, {1, 1, rows, hidden});
  graph.mutable_tensor(x).encoding = AffineEncoding(DType::kU16, -4, 4);
  const TensorId gate = linear("gate", x, ffn, hidden);
  const TensorId up = linear("up", x, ffn, hidden);
  const auto op = [&](OpType type, const std::string& name, std::vector<TensorId> inputs) {
    const TensorId y = graph.AddOp(type, name, std::move(inputs));
    graph.mutable_tensor(y).encoding = AffineEncoding(DType::kU16, -8, 8);
    return y;
  };
  const TensorId product = op(OpType::kMul, "product", {op(OpType::kSilu, "act", {gate}), up});
  graph.MarkOutput(op(OpType::kAdd, "y", {x, linear("down", product, hidden, ffn)}));
  return graph;
}

TEST_F(RealVendorTest, SpillFillOfAGraphThatSpills) {
  const Graph graph = GraphThatSpills(512, 512, 2048);
  ASSERT_TRUE(graph.Validate().ok()) << graph.Validate().ToString();
  auto writer = PackageWriter::Create(folder_.File("pkg"));
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->AddShard({std::make_shared<const Graph>(graph)}).ok());
  ASSERT_TRUE(writer->FinishGraphs({}).ok());
  HtpOptions htp;
  htp.vtcm_mb = 1;
  htp.slc_allocator = SlcAllocator::kOn;
  VendorResult result;
  EXPECT_THAT(SlcLines(writer->PathOf(""), htp, &result), Contains(HasSubstr("slc_allocate = 1")));
  ASSERT_THAT(result.shard.graphs, SizeIs(1));
  const GraphReport& wide = result.shard.graphs[0];
  EXPECT_GT(result.shard.spill_fill_bytes, 0u);
  EXPECT_EQ(wide.spill_fill_buffer_bytes, result.shard.spill_fill_bytes);
  EXPECT_GT(wide.spill_bytes, 0u);
  EXPECT_GE(wide.fill_bytes, wide.spill_bytes);
  EXPECT_EQ(wide.vtcm_bytes, 1u << 20);
  EXPECT_EQ(wide.slc, SlcOutcome::kMarked);
  std::printf("  spill-fill buffer %llu, spill %llu, fill %llu bytes, %.1f s\n",
              static_cast<unsigned long long>(result.shard.spill_fill_bytes),
              static_cast<unsigned long long>(wide.spill_bytes),
              static_cast<unsigned long long>(wide.fill_bytes), wide.finalize_s);
}

// Prompts of 256 tokens in 1 MB of on-chip memory do not fit, and less so in the shard
// with two layers than in that with one.
TEST_F(RealVendorTest, ShardsThatSpillUnequallyShareTheLargestBuffer) {
  test::TinyModelSpec spec;
  spec.layers = 3;
  spec.hidden = 256;
  spec.head_dim = 64;
  spec.ffn = 1024;
  test::WriteTinyModel(options_.model_path, spec);
  options_.htp_build = HtpBuild::kOn;
  options_.num_shards = 2;
  options_.prefill_ar_len = 256;
  options_.context_len = 320;
  options_.htp.vtcm_mb = 1;
  options_.htp.slc_allocator = SlcAllocator::kAuto;
  options_.use_cache = false;
  const auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  const std::vector<ShardInfo>& shards = package->manifest().shards;
  ASSERT_THAT(shards, SizeIs(2));
  EXPECT_GT(shards[1].spill_fill_bytes, 0U);
  EXPECT_GT(shards[0].spill_fill_bytes, shards[1].spill_fill_bytes);
  for (const ShardInfo& shard : shards) {
    EXPECT_EQ(shard.max_spill_fill_bytes, shards[0].spill_fill_bytes);
  }
  // What spills could stay in the system-level cache, which SM8750 is known to have.
  EXPECT_TRUE(package->manifest().slc_allocator);
  EXPECT_THAT(report_.slc.marked_graphs, Contains("shard 0, prefill_forward"));

  options_.mode = "kv";
  const auto kv = CompileAndOpen();
  ASSERT_TRUE(kv);
  uint64_t most = 0;
  for (const ShardInfo& shard : kv->manifest().shards) {
    most = std::max(most, shard.spill_fill_bytes);
  }
  for (const ShardInfo& shard : kv->manifest().shards) {
    EXPECT_EQ(shard.max_spill_fill_bytes, most);
  }
}

}  // namespace
}  // namespace spillway
