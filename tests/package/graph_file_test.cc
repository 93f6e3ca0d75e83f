#include "package/graph_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <set>

#include "base/file.h"
#include "tests/package/sample.h"
#include "tests/support/paths.h"

namespace spillway::test {
namespace {

using ::testing::HasSubstr;

bool SameBytes(const ConstantData& a, const ConstantData& b) {
  return a.layout() == b.layout() && a.bytes().size() == b.bytes().size() &&
         std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()) == 0;
}

void ExpectSameTensor(const Tensor& found, const Tensor& expected) {
  SCOPED_TRACE(expected.name);
  EXPECT_EQ(found.name, expected.name);
  EXPECT_EQ(found.dtype, expected.dtype);
  EXPECT_EQ(found.shape, expected.shape);
  EXPECT_EQ(found.encoding, expected.encoding);
  EXPECT_EQ(found.role, expected.role);
  EXPECT_EQ(found.encoding_of, expected.encoding_of);
  ASSERT_EQ(found.data == nullptr, expected.data == nullptr);
  if (expected.data == nullptr) return;
  EXPECT_TRUE(SameBytes(*found.data, *expected.data));
}

void ExpectSameGraph(const Graph& found, const Graph& expected) {
  SCOPED_TRACE(expected.name());
  EXPECT_EQ(found.name(), expected.name());
  EXPECT_EQ(found.inputs(), expected.inputs());
  EXPECT_EQ(found.outputs(), expected.outputs());
  ASSERT_EQ(found.tensors().size(), expected.tensors().size());
  for (TensorId id = 0; id < expected.tensors().size(); ++id) {
    ExpectSameTensor(found.tensor(id), expected.tensor(id));
  }
  ASSERT_EQ(found.ops().size(), expected.ops().size());
  for (size_t i = 0; i < expected.ops().size(); ++i) {
    EXPECT_EQ(found.ops()[i].type, expected.ops()[i].type);
    EXPECT_EQ(found.ops()[i].name, expected.ops()[i].name);
    EXPECT_EQ(found.ops()[i].inputs, expected.ops()[i].inputs);
    EXPECT_EQ(found.ops()[i].outputs, expected.ops()[i].outputs);
    EXPECT_EQ(found.ops()[i].attributes, expected.ops()[i].attributes);
  }
}

// The error of writing one graph that holds `constant` and nothing else.
std::string WriteError(const Tensor& constant) {
  const TempFolder folder;
  Graph graph("g");
  graph.AddTensor(constant);
  const Status status =
      WriteGraphFiles(folder.path(), {{std::make_shared<const Graph>(std::move(graph))}}, {});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
  return status.message();
}

TEST(GraphFile, SampleHasEveryOperationAndType) {
  std::set<OpType> ops;
  std::set<DType> types;
  std::set<Encoding::Kind> encodings;
  for (const auto& shard : SampleShards()) {
    for (const auto& graph : shard) {
      for (const Op& op : graph->ops()) ops.insert(op.type);
      for (const Tensor& tensor : graph->tensors()) {
        types.insert(tensor.dtype);
        encodings.insert(tensor.encoding.kind);
      }
    }
  }
  EXPECT_EQ(ops.size(), static_cast<size_t>(OpType::kConvert) + 1);
  EXPECT_EQ(types.size(), static_cast<size_t>(DType::kI32) + 1);
  EXPECT_EQ(encodings.size(), static_cast<size_t>(Encoding::Kind::kBlock) + 1);
}

TEST(GraphFile, RoundTrip) {
  const TempFolder folder;
  const SampleConstants constants;
  const Shards shards = SampleShards(constants);
  const Tensor extra = ConstantTensor("spare", DType::kF32, {2}, Pattern(8, 50));
  ASSERT_TRUE(WriteGraphFiles(folder.path(), shards, {extra}).ok());
  Result<StoredGraphs> stored = ReadGraphFiles(folder.path());
  ASSERT_TRUE(stored.ok()) << stored.status().ToString();
  ASSERT_EQ(stored->graphs.size(), shards.size());
  for (size_t s = 0; s < shards.size(); ++s) {
    ASSERT_EQ(stored->graphs[s].size(), shards[s].size());
    for (size_t g = 0; g < shards[s].size(); ++g) {
      ExpectSameGraph(*stored->graphs[s][g], *shards[s][g]);
    }
  }
  ASSERT_EQ(stored->constants.size(), 10u);
  ExpectSameTensor(stored->constants.back(), extra);
}

// Packed weights keep their values and get the sums of their rows; those of 4 bits are
// stored in halves of bytes.
TEST(GraphFile, PackedWeightsHaveSums) {
  constexpr uint32_t kRows = 19, kCols = 44, kBlock = 16;
  for (const bool four_bits : {false, true}) {
    SCOPED_TRACE(four_bits ? "4 bits" : "8 bits");
    std::vector<int8_t> values(PackedN16K4Size(kRows, kCols), 0);
    for (uint32_t n = 0; n < kRows; ++n) {
      for (uint32_t k = 0; k < kCols; ++k) {
        values[PackedN16K4Index(n, k, kCols)] =
            static_cast<int8_t>(static_cast<int>((n * 7 + k * 3) % 15) - 7);
      }
    }
    Encoding encoding = Encoding::PerChannel(four_bits ? 4 : 8, 0, std::vector<float>(kRows, 0.5f));
    if (four_bits) {
      encoding.kind = Encoding::Kind::kBlock;
      encoding.block_size = kBlock;
      for (uint32_t i = 0; i < kRows * 3; ++i) {
        encoding.block_scales.push_back(static_cast<uint8_t>(1 + i % 16));
      }
    }
    Graph graph("g");
    const TensorId id =
        graph.AddConstant("w", DType::kS8, {kRows, kCols},
                          MakeConstantOf(values, DataLayout::kPackedN16K4), encoding);
    const TempFolder folder;
    ASSERT_TRUE(WriteGraphFiles(folder.path(), {{std::make_shared<const Graph>(graph)}}, {}).ok());
    const Result<StoredGraphs> stored = ReadGraphFiles(folder.path());
    ASSERT_TRUE(stored.ok()) << stored.status().ToString();
    const Tensor& expected = graph.tensor(id);
    const Tensor& found = stored->constants[0];
    EXPECT_EQ(found.data->layout(),
              four_bits ? DataLayout::kPackedNibbles : DataLayout::kPackedN16K4);
    ASSERT_NE(found.sums, nullptr);
    ASSERT_EQ(found.sums->bytes().size(), kRows * sizeof(int32_t));
    const auto* sums = reinterpret_cast<const int32_t*>(found.sums->bytes().data());
    for (uint32_t n = 0; n < kRows; ++n) {
      int32_t sum = 0;
      for (uint32_t k = 0; k < kCols; ++k) {
        const int32_t value = static_cast<int>((n * 7 + k * 3) % 15) - 7;
        ASSERT_EQ(MatrixInt(found, n, k), value) << n << ", " << k;
        sum += four_bits ? value * expected.encoding.block_scales[n * 3 + k / kBlock] : value;
      }
      EXPECT_EQ(sums[n], sum) << n;
    }
  }
}

TEST(GraphFile, GraphsShareStoredConstants) {
  const TempFolder folder;
  ASSERT_TRUE(WriteGraphFiles(folder.path(), SampleShards(), {}).ok());
  Result<StoredGraphs> stored = ReadGraphFiles(folder.path());
  ASSERT_TRUE(stored.ok());
  const Graph& prefill = *stored->graphs[0][0];
  const Graph& decode = *stored->graphs[0][1];
  for (const char* name : {"wq", "wo", "head", "gamma", "cos"}) {
    EXPECT_EQ(prefill.tensor(*prefill.Find(name)).data, decode.tensor(*decode.Find(name)).data);
  }
  EXPECT_NE(prefill.tensor(*prefill.Find("cos")).data, prefill.tensor(*prefill.Find("sin")).data);
}

TEST(GraphFile, ConstantsOutliveTheReader) {
  std::shared_ptr<const ConstantData> data;
  {
    const TempFolder folder;
    ASSERT_TRUE(WriteGraphFiles(folder.path(), SampleShards(), {}).ok());
    Result<StoredGraphs> stored = ReadGraphFiles(folder.path());
    ASSERT_TRUE(stored.ok());
    data = stored->constants[0].data;
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data->bytes().data()) % kWeightAlignment, 0u);
  EXPECT_TRUE(SameBytes(*data, *SampleConstants().at("cos").data));
}

TEST(GraphFile, OneObjectUnderTwoNamesIsStoredOnce) {
  const TempFolder once;
  const TempFolder twice;
  const auto values = Pattern(1000, 1);
  Graph graph("g");
  graph.AddConstant("a", DType::kF32, {250}, values);
  ASSERT_TRUE(WriteGraphFiles(once.path(), {{std::make_shared<const Graph>(graph)}}, {}).ok());
  graph.AddConstant("b", DType::kF32, {10, 25}, values);
  ASSERT_TRUE(WriteGraphFiles(twice.path(), {{std::make_shared<const Graph>(graph)}}, {}).ok());
  EXPECT_EQ(*FileSize(once.File(kWeightsFile)), 1000u);
  EXPECT_EQ(*FileSize(twice.File(kWeightsFile)), 1000u);
  Result<StoredGraphs> stored = ReadGraphFiles(twice.path());
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->constants[0].data, stored->constants[1].data);
}

TEST(GraphFile, EqualValuesOfOneNameAreStoredOnce) {
  const TempFolder folder;
  const auto graph = [](const char* name, uint8_t seed) {
    Graph made(name);
    made.AddConstant("a", DType::kF32, {250}, Pattern(1000, seed));
    return std::make_shared<const Graph>(std::move(made));
  };
  ASSERT_TRUE(WriteGraphFiles(folder.path(), {{graph("g", 1), graph("h", 1)}}, {}).ok());
  EXPECT_EQ(*FileSize(folder.File(kWeightsFile)), 1000u);
  const Status status = WriteGraphFiles(folder.path(), {{graph("g", 1), graph("h", 2)}}, {});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("constant a differs"));
}

TEST(GraphFile, SameGraphsGiveSameBytes) {
  const TempFolder a;
  const TempFolder b;
  ASSERT_TRUE(WriteGraphFiles(a.path(), SampleShards(), {}).ok());
  ASSERT_TRUE(WriteGraphFiles(b.path(), SampleShards(), {}).ok());
  for (const char* name : {kGraphsFile, kWeightsFile}) {
    EXPECT_EQ(*ReadFile(a.File(name)), *ReadFile(b.File(name))) << name;
  }
}

TEST(GraphFile, RefusesWhatCannotBeStored) {
  const Encoding per_tensor = Encoding::PerTensor(DType::kS8, 0.1f, 0);
  const auto values = Pattern(12, 1);
  EXPECT_THAT(WriteError(ConstantTensor("w", DType::kS8, {3, 5}, values, per_tensor)),
              HasSubstr("tensor w: 12 bytes of values; expected 15"));
  EXPECT_THAT(WriteError(ConstantTensor("w", DType::kS8, {3, 4},
                                        Pattern(12, 1, DataLayout::kPackedN16K4), per_tensor)),
              HasSubstr("expected 64"));
  EXPECT_THAT(
      WriteError(ConstantTensor("w", DType::kF32, {3}, Pattern(12, 1, DataLayout::kPackedN16K4))),
      HasSubstr("packed layout"));
  EXPECT_THAT(WriteError(ConstantTensor("w", DType::kS8, {3, 4}, values,
                                        Encoding::PerChannel(8, 0, Scales(4, 0.1f)))),
              HasSubstr("4 channel scales; expected 3"));
  EXPECT_THAT(WriteError(ConstantTensor("w", DType::kS8, {3, 4}, values,
                                        Encoding::PerChannel(8, 2, Scales(3, 0.1f)))),
              HasSubstr("channel axis 2"));
  EXPECT_THAT(WriteError(ConstantTensor(
                  "w", DType::kS8, {12}, values,
                  Encoding::PerTensor(DType::kS8, std::numeric_limits<float>::infinity(), 0))),
              HasSubstr("scale inf"));
  EXPECT_THAT(WriteError(ConstantTensor("w", DType::kS8, {12}, values,
                                        Encoding::PerTensor(DType::kS8, 0.1f, -200))),
              HasSubstr("offset -200"));
  Encoding blocks = Encoding::PerChannel(4, 0, Scales(3, 0.1f));
  blocks.kind = Encoding::Kind::kBlock;
  blocks.block_size = 2;
  blocks.block_scales = {1, 2, 3, 4, 5};
  EXPECT_THAT(WriteError(ConstantTensor("w", DType::kS8, {3, 4}, values, blocks)),
              HasSubstr("5 block scales; expected 6"));
  blocks.block_scales = {1, 2, 3, 4, 5, 17};
  EXPECT_THAT(WriteError(ConstantTensor("w", DType::kS8, {3, 4}, values, blocks)),
              HasSubstr("block scale 17"));
}

TEST(GraphFile, RefusesValuesThatAreNotInMemory) {
  class RowReader : public ConstantData {
   public:
    std::span<const std::byte> bytes() const override { return {}; }
    void ReadRows(uint64_t, uint64_t, float*) const override {}
  };
  EXPECT_THAT(WriteError(ConstantTensor("w", DType::kF32, {4, 4}, std::make_shared<RowReader>())),
              HasSubstr("tensor w: values that can only be read row by row"));
}

TEST(GraphFile, RefusesEmptyPackages) {
  const TempFolder folder;
  EXPECT_EQ(WriteGraphFiles(folder.path(), {}, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteGraphFiles(folder.path(), {{}}, {}).code(), StatusCode::kInvalidArgument);
}

TEST(GraphFile, RefusesTwoGraphsOfOneName) {
  const TempFolder folder;
  const SampleConstants constants;
  const Status status = WriteGraphFiles(
      folder.path(), {{FloatGraph("twin", constants), FloatGraph("twin", constants)}}, {});
  EXPECT_THAT(status.message(), HasSubstr("two graphs have the name twin"));
}

TEST(GraphFile, OtherFilesAreNamed) {
  const TempFolder folder;
  EXPECT_EQ(ReadGraphFiles(folder.path()).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(WriteGraphFiles(folder.path(), SampleShards(), {}).ok());
  ASSERT_TRUE(WriteFileAtomically(folder.File(kGraphsFile), "something else altogether").ok());
  const Status status = ReadGraphFiles(folder.path()).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), HasSubstr("graphs.fb"));
  EXPECT_THAT(status.message(), HasSubstr("SPWG"));
}

TEST(GraphFile, WeightsCutShort) {
  const TempFolder folder;
  ASSERT_TRUE(WriteGraphFiles(folder.path(), SampleShards(), {}).ok());
  const std::string weights = *ReadFile(folder.File(kWeightsFile));
  for (const size_t size : {size_t{0}, size_t{64}, weights.size() - 1}) {
    ASSERT_TRUE(WriteFileAtomically(folder.File(kWeightsFile), weights.substr(0, size)).ok());
    const Status status = ReadGraphFiles(folder.path()).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData);
    EXPECT_THAT(status.message(), HasSubstr("weights.bin has"));
  }
}

}  // namespace
}  // namespace spillway::test
