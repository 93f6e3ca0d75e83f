#include "runtime/package_embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/float16.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

struct Table {
  std::vector<int8_t> values;  // [rows, cols]
  Tensor tensor;
};

Table MakeTable(uint32_t rows, uint32_t cols, DataLayout layout) {
  std::mt19937 random(rows * 31 + cols);
  Table table;
  std::vector<float> scales;
  for (uint32_t r = 0; r < rows; ++r) {
    scales.push_back(0.001f + static_cast<float>(random() % 1000) * 1e-5f);
  }
  for (uint32_t i = 0; i < rows * cols; ++i) {
    table.values.push_back(static_cast<int8_t>(random() % 255));
    if (table.values.back() == -128) table.values.back() = -127;
  }
  std::vector<int8_t> stored = table.values;
  if (layout == DataLayout::kPackedN16K4) {
    stored.assign(PackedN16K4Size(rows, cols), 0);
    for (uint32_t r = 0; r < rows; ++r) {
      for (uint32_t c = 0; c < cols; ++c) {
        stored[PackedN16K4Index(r, c, cols)] = table.values[r * cols + c];
      }
    }
  }
  table.tensor.name = "head.weight";
  table.tensor.dtype = DType::kS8;
  table.tensor.shape = {rows, cols};
  table.tensor.role = TensorRole::kConstant;
  table.tensor.encoding = Encoding::PerChannel(8, 0, scales);
  table.tensor.data = MakeConstantOf(stored, layout);
  return table;
}

TEST(PackageEmbeddingTest, BothLayoutsGiveTheExactFormula) {
  for (const DataLayout layout : {DataLayout::kRowMajor, DataLayout::kPackedN16K4}) {
    const Table table = MakeTable(37, 21, layout);
    // Narrow on purpose: large values saturate.
    const Encoding encoding = AffineEncoding(DType::kU16, -0.3f, 0.5f);
    Result<std::shared_ptr<const EmbeddingTable>> embedding =
        PackageEmbedding::Create(table.tensor, DType::kU16, encoding);
    ASSERT_TRUE(embedding.ok()) << embedding.status().ToString();
    EXPECT_EQ((*embedding)->vocab_size(), 37u);
    int saturated = 0;
    for (uint32_t row = 0; row < 37; ++row) {
      std::vector<uint16_t> out(21);
      (*embedding)->Lookup(row, reinterpret_cast<std::byte*>(out.data()));
      for (uint32_t c = 0; c < 21; ++c) {
        const float real = static_cast<float>(table.values[row * 21 + c]) *
                           table.tensor.encoding.channel_scales[row];
        const double q =
            std::nearbyint(static_cast<double>(real) / encoding.scale) - encoding.offset;
        saturated += q < 0 || q > 65535 ? 1 : 0;
        EXPECT_EQ(out[c], std::clamp(q, 0.0, 65535.0)) << row << ", " << c;
      }
    }
    EXPECT_GT(saturated, 0);
  }
}

TEST(PackageEmbeddingTest, HalvesRoundToEven) {
  Table table = MakeTable(1, 4, DataLayout::kRowMajor);
  table.tensor.encoding = Encoding::PerChannel(8, 0, {0.5f});
  table.tensor.data = MakeConstantOf(std::vector<int8_t>{1, 3, -1, -3});
  const auto embedding =
      PackageEmbedding::Create(table.tensor, DType::kU8, Encoding::PerTensor(DType::kU8, 1, -10));
  ASSERT_TRUE(embedding.ok());
  std::vector<uint8_t> out(4);
  (*embedding)->Lookup(0, reinterpret_cast<std::byte*>(out.data()));
  EXPECT_THAT(out, ::testing::ElementsAre(10, 12, 10, 8));
}

// Values that can only be read row by row.
class RowsOnly : public ConstantData {
 public:
  std::span<const std::byte> bytes() const override { return {}; }
  void ReadRows(uint64_t row, uint64_t count, float* out) const override {
    for (uint64_t i = 0; i < count * 3; ++i) out[i] = static_cast<float>(row * 3 + i);
  }
};

TEST(PackageEmbeddingTest, FloatTables) {
  Tensor table;
  table.name = "embedding.weight";
  table.shape = {2, 3};
  table.role = TensorRole::kConstant;
  for (const bool rows_only : {false, true}) {
    if (rows_only) {
      table.data = std::make_shared<RowsOnly>();
    } else {
      table.data = MakeConstantOf(std::vector<float>{0, 1, 2, 3, 4, 5});
    }
    const auto f32 = PackageEmbedding::Create(table, DType::kF32, {});
    ASSERT_TRUE(f32.ok());
    std::vector<float> row(3);
    (*f32)->Lookup(1, reinterpret_cast<std::byte*>(row.data()));
    EXPECT_THAT(row, ::testing::ElementsAre(3, 4, 5));
    const auto f16 = PackageEmbedding::Create(table, DType::kF16, {});
    ASSERT_TRUE(f16.ok());
    std::vector<uint16_t> half(3);
    (*f16)->Lookup(1, reinterpret_cast<std::byte*>(half.data()));
    EXPECT_EQ(HalfToFloat(half[2]), 5.0f);
  }
}

TEST(PackageEmbeddingTest, RefusesOtherTables) {
  const Encoding u16 = AffineEncoding(DType::kU16, -1, 1);
  Table table = MakeTable(5, 4, DataLayout::kRowMajor);
  EXPECT_EQ(PackageEmbedding::Create(table.tensor, DType::kU16, {}).status().code(),
            StatusCode::kUnsupported);
  EXPECT_EQ(PackageEmbedding::Create(table.tensor, DType::kS32, u16).status().code(),
            StatusCode::kUnsupported);
  Tensor other = table.tensor;
  other.encoding = u16;
  const Status status = PackageEmbedding::Create(other, DType::kU16, u16).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("head.weight"));
  other = table.tensor;
  other.data = MakeConstantOf(std::vector<int8_t>(19));
  EXPECT_EQ(PackageEmbedding::Create(other, DType::kU16, u16).status().code(),
            StatusCode::kCorruptData);
  other = table.tensor;
  other.encoding.channel_scales.pop_back();
  EXPECT_EQ(PackageEmbedding::Create(other, DType::kU16, u16).status().code(),
            StatusCode::kCorruptData);

  ModelIo io;
  io.hidden_dim = 8;
  io.hidden_encoding = u16;
  EXPECT_THAT(MakeEmbedding(table.tensor, io).status().message(), HasSubstr("width is 8"));
}

TEST(PackageEmbeddingTest, TokenIdsPassThrough) {
  ModelIo io;
  io.vocab_size = 9;
  io.hidden_dim = 1;
  io.hidden_dtype = DType::kI32;
  const auto table = MakeEmbedding({}, io);
  ASSERT_TRUE(table.ok());
  int32_t id = -1;
  (*table)->Lookup(7, reinterpret_cast<std::byte*>(&id));
  EXPECT_EQ(id, 7);
}

}  // namespace
}  // namespace spillway
