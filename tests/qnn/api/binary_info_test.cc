#include "qnn/api/binary_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/fake_qnn/fake_qnn.h"
#include "tests/qnn/api/tiny_graph.h"

namespace spillway::qnn {
namespace {

using ::testing::HasSubstr;

// Hand-made descriptions, without any vendor library.
class RawInfo : public ::testing::Test {
 protected:
  RawInfo() {
    tensor_.version = 1;
    tensor_.v1.id = 12;
    tensor_.v1.name = "x";
    tensor_.v1.data_type = DataType::kUfixed16;
    tensor_.v1.rank = 2;
    tensor_.v1.dims = dims_;
    tensor_.v1.quantize.definition = abi::kDefined;
    tensor_.v1.quantize.encoding = abi::kScaleOffset;
    tensor_.v1.quantize.scale_offset = {0.25F, -32768};
    for (int i = 0; i < 2; ++i) {
      graphs_[i].v3.name = i == 0 ? "prefill" : "decode";
      graphs_[i].v3.num_inputs = 1;
      graphs_[i].v3.inputs = &tensor_;
      graphs_[i].v3.num_outputs = 1;
      graphs_[i].v3.outputs = &tensor_;
    }
  }

  abi::BinaryInfo Old(uint32_t version) {
    for (abi::GraphInfo& graph : graphs_) graph.version = version;
    hw_blobs_[0] = {1, 0, 1000};
    hw_blobs_[1] = {1, 1, 3000};
    abi::BinaryInfo info = {};
    info.version = version;
    info.v1.backend_id = 6;
    info.v1.build_id = "v2.30";
    info.v1.core = {2, 20, 1};
    info.v1.backend = {5, 30, 2};
    info.v1.soc_version = "soc";
    info.v1.context_blob_version = {3, 1, 4};
    info.v1.context_blob_size = 777;
    info.v1.hw_blob_size = sizeof(hw_blobs_);
    info.v1.hw_blob = hw_blobs_;
    info.v1.num_graphs = 2;
    info.v1.graphs = graphs_;
    return info;
  }

  abi::BinaryInfo New() {
    blob_v1_ = {1, 50528256, 8388608, 3, 1, 4};
    blob_v2_ = {2, 256, 64, 0, 4194304, 561920, 25337856, 99, 417792};
    std::memcpy(blob_, &blob_v1_, sizeof(blob_v1_));
    std::memcpy(blob_ + sizeof(blob_v1_), &blob_v2_, sizeof(blob_v2_));
    for (abi::GraphInfo& graph : graphs_) graph.version = 3;
    graphs_[1].v3.blob = blob_;
    graphs_[1].v3.blob_size = sizeof(blob_);
    abi::BinaryInfo info = {};
    info.version = 3;
    info.v3.backend_id = 6;
    info.v3.build_id = "v2.51";
    info.v3.core = {2, 40, 0};
    info.v3.backend = {5, 51, 0};
    info.v3.soc_version = nullptr;
    info.v3.context_blob_version = {4, 0, 6};
    info.v3.num_graphs = 2;
    info.v3.graphs = graphs_;
    info.v3.metadata = &context_;
    info.v3.metadata_size = sizeof(context_);
    info.v3.soc_model = 69;
    return info;
  }

  uint32_t dims_[2] = {3, 5};
  abi::Tensor tensor_ = {};
  abi::GraphInfo graphs_[2] = {};
  abi::HwBlob hw_blobs_[2] = {};
  abi::GraphBlobV1 blob_v1_ = {};
  abi::GraphBlobV2 blob_v2_ = {};
  std::byte blob_[112];
  abi::ContextBlob context_ = {1, 79};
};

TEST_F(RawInfo, VersionsOneAndTwoKeepSpillFillInTheHardwareBlob) {
  for (const uint32_t version : {1U, 2U}) {
    const Result<BinaryInfo> info = ReadBinaryInfo(Old(version));
    ASSERT_TRUE(info.ok()) << info.status().ToString();
    EXPECT_EQ(info->version, version);
    EXPECT_EQ(info->build_id, "v2.30");
    EXPECT_EQ(VersionText(info->core_api), "2.20.1");
    EXPECT_EQ(VersionText(info->backend_api), "5.30.2");
    EXPECT_EQ(VersionText(info->context_blob_version), "3.1.4");
    EXPECT_EQ(info->context_blob_bytes, 777U);
    EXPECT_EQ(info->soc_version, "soc");
    EXPECT_EQ(info->soc_model, 0U);
    EXPECT_EQ(info->spill_fill_bytes, 3000U);
    ASSERT_EQ(info->graphs.size(), 2U);
    EXPECT_EQ(info->graphs[0].memory->spill_fill_bytes, 1000U);
    EXPECT_EQ(info->graphs[1].memory->spill_fill_bytes, 3000U);
  }
}

TEST_F(RawInfo, VersionThreeHasBothRecordsOfAGraph) {
  const Result<BinaryInfo> info = ReadBinaryInfo(New());
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->version, 3U);
  EXPECT_EQ(info->soc_model, 69U);
  EXPECT_EQ(info->dsp_arch, 79U);
  EXPECT_EQ(info->soc_version, "");
  EXPECT_EQ(info->spill_fill_bytes, 50528256U);
  EXPECT_EQ(info->FindGraph("nobody"), nullptr);
  EXPECT_FALSE(info->FindGraph("prefill")->memory.has_value());
  const BinaryGraph* graph = info->FindGraph("decode");
  ASSERT_NE(graph, nullptr);
  ASSERT_TRUE(graph->memory.has_value());
  EXPECT_EQ(graph->memory->spill_fill_bytes, 50528256U);
  EXPECT_EQ(graph->memory->vtcm_bytes, 8388608U);
  EXPECT_EQ(graph->memory->optimization_level, 3U);
  EXPECT_TRUE(graph->memory->dlbc);
  EXPECT_EQ(graph->memory->hvx_threads, 4U);
  EXPECT_EQ(graph->memory->native_k_channels, 256U);
  EXPECT_EQ(graph->memory->native_v_channels, 64U);
  EXPECT_FALSE(graph->memory->safe_to_share_io);
  EXPECT_EQ(graph->memory->io_tensor_bytes, 4194304U);
  EXPECT_EQ(graph->memory->op_data_bytes, 561920U);
  EXPECT_EQ(graph->memory->const_bytes, 25337856U);
  EXPECT_EQ(graph->memory->ddr_tensor_bytes, 99U);
  EXPECT_EQ(graph->memory->shared_weight_bytes, 417792U);
  ASSERT_EQ(graph->inputs.size(), 1U);
  EXPECT_EQ(graph->inputs[0].name, "x");
  EXPECT_EQ(graph->inputs[0].vendor_id, 12U);
  EXPECT_EQ(graph->inputs[0].dims, (std::vector<uint32_t>{3, 5}));
  EXPECT_EQ(graph->inputs[0].byte_size(), 30U);
  EXPECT_EQ(graph->inputs[0].encoding.scales, std::vector<float>{0.25F});
  EXPECT_EQ(graph->inputs[0].encoding.offsets, std::vector<int32_t>{-32768});
}

TEST_F(RawInfo, UnknownVersionsNameFoundAndKnown) {
  abi::BinaryInfo info = New();
  info.version = 4;
  Status status = ReadBinaryInfo(info).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("version 4, known are 1, 2 and 3"));
  info = New();
  graphs_[0].version = 9;
  status = ReadBinaryInfo(info).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("version 9, known are 1, 2 and 3"));
  info = New();
  const uint32_t record_version = 3;
  std::memcpy(blob_ + 40, &record_version, 4);
  status = ReadBinaryInfo(info).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("graph 'decode': HTP record of version 3 at byte 40"));
  info = Old(1);
  hw_blobs_[1].version = 5;
  EXPECT_THAT(ReadBinaryInfo(info).status().message(), HasSubstr("version 5, known is 1"));
}

// The graph's description has a version of its own.
TEST_F(RawInfo, GraphVersionsMixWithInfoVersions) {
  abi::BinaryInfo info = New();
  for (abi::GraphInfo& graph : graphs_) graph.version = 1;
  Result<BinaryInfo> read = ReadBinaryInfo(info);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_FALSE(read->graphs[1].memory.has_value());  // no blob before version 3
  EXPECT_EQ(read->spill_fill_bytes, 0U);
  EXPECT_EQ(read->graphs[1].outputs[0].name, "x");
  graphs_[0].version = 2;
  graphs_[0].v2.num_updateable = 1;
  graphs_[0].v2.updateable = &tensor_;
  graphs_[1].version = 3;
  read = ReadBinaryInfo(info);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->graphs[0].inputs.size(), 1U);
  EXPECT_EQ(read->spill_fill_bytes, 50528256U);
  // An old description of new graphs: both say the spill-fill size, the larger counts.
  info = Old(2);
  blob_v1_ = {1, 50528256, 8388608, 3, 0, 0};
  std::memcpy(blob_, &blob_v1_, sizeof(blob_v1_));
  graphs_[0].version = 3;
  graphs_[0].v3.blob = blob_;
  graphs_[0].v3.blob_size = sizeof(blob_v1_);
  read = ReadBinaryInfo(info);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->spill_fill_bytes, 50528256U);
  EXPECT_EQ(read->graphs[0].memory->vtcm_bytes, 8388608U);
}

TEST_F(RawInfo, LargestSpillFillOfManyGraphs) {
  abi::BinaryInfo info = Old(1);
  abi::HwBlob blobs[3] = {{1, 0, 5}, {1, 7, 9000}, {1, 1, 8}};  // 7: no such graph
  info.v1.hw_blob = blobs;
  info.v1.hw_blob_size = sizeof(blobs);
  const Result<BinaryInfo> read = ReadBinaryInfo(info);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->spill_fill_bytes, 9000U);
  EXPECT_EQ(read->graphs[0].memory->spill_fill_bytes, 5U);
  EXPECT_EQ(read->graphs[1].memory->spill_fill_bytes, 8U);
}

TEST_F(RawInfo, ContextRecord) {
  abi::BinaryInfo info = New();
  context_.version = 2;
  Status status = ReadBinaryInfo(info).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("version 2, known is 1"));
  context_.version = 1;
  info.v3.metadata_size = 7;
  EXPECT_EQ(ReadBinaryInfo(info).status().code(), StatusCode::kCorruptData);
  info.v3.metadata = nullptr;
  EXPECT_EQ(ReadBinaryInfo(info)->dsp_arch, 0U);  // not said
}

TEST_F(RawInfo, RecordsThatDoNotFitAreDamage) {
  for (const uint32_t size : {1U, 3U, 4U, 39U, 41U, 44U, 111U}) {
    const abi::BinaryInfo info = New();
    graphs_[1].v3.blob_size = size;
    const Status status = ReadBinaryInfo(info).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << size;
    EXPECT_THAT(status.message(), HasSubstr("graph 'decode'"));
  }
  abi::BinaryInfo old = Old(2);
  old.v1.hw_blob_size = 47;
  EXPECT_EQ(ReadBinaryInfo(old).status().code(), StatusCode::kCorruptData);
}

TEST_F(RawInfo, FirstRecordAloneIsEnough) {
  const abi::BinaryInfo info = New();
  graphs_[1].v3.blob_size = 40;
  const Result<BinaryInfo> read = ReadBinaryInfo(info);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->graphs[1].memory->vtcm_bytes, 8388608U);
  EXPECT_EQ(read->graphs[1].memory->const_bytes, 0U);
}

TEST_F(RawInfo, CountsWithoutDataAreDamage) {
  abi::BinaryInfo info = New();
  info.v3.graphs = nullptr;
  EXPECT_EQ(ReadBinaryInfo(info).status().code(), StatusCode::kCorruptData);
  info = New();
  info.v3.num_graphs = 0xffffffff;
  EXPECT_EQ(ReadBinaryInfo(info).status().code(), StatusCode::kCorruptData);
  info = New();
  graphs_[0].v3.inputs = nullptr;
  EXPECT_THAT(ReadBinaryInfo(info).status().message(), HasSubstr("graph 'prefill' inputs"));
  graphs_[0].v3.inputs = &tensor_;
  graphs_[0].v3.num_outputs = 1 << 30;
  EXPECT_THAT(ReadBinaryInfo(info).status().message(), HasSubstr("graph 'prefill' outputs"));
}

TEST(FakeSystemLibrary, RefusesAnythingElseThanABinary) {
  const auto library = SystemLibrary::Load(test::FakeQnnDir());
  ASSERT_TRUE(library.ok()) << library.status().ToString();
  const std::vector<std::byte> junk(100);
  const Status status = ReadBinaryInfo(**library, junk, "some.bin").status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), HasSubstr("some.bin"));
  EXPECT_THAT(status.message(), HasSubstr("30010"));
  EXPECT_THAT(ReadBinaryInfo(**library, {}, "empty.bin").status().message(),
              HasSubstr("empty.bin: the context binary is empty"));
  EXPECT_EQ(ReadBinaryInfoFile(**library, "/nowhere/x.bin").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace spillway::qnn
