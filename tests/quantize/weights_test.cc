#include "quantize/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/support/random.h"

namespace spillway {
namespace {

// Rows that can only be read one by one, as those of a model's file.
class RowsOnly : public ConstantData {
 public:
  RowsOnly(std::vector<float> values, uint32_t cols) : values_(std::move(values)), cols_(cols) {}
  std::span<const std::byte> bytes() const override { return {}; }
  void ReadRows(uint64_t row, uint64_t count, float* out) const override {
    std::memcpy(out, values_.data() + row * cols_, count * cols_ * sizeof(float));
  }

 private:
  std::vector<float> values_;
  uint32_t cols_;
};

std::vector<float> RandomMatrix(uint32_t rows, uint32_t cols, uint64_t seed) {
  test::Random random(seed);
  std::vector<float> values(size_t{rows} * cols);
  for (float& value : values) value = static_cast<float>(random.Gauss());
  return values;
}

int At(const QuantizedMatrix& matrix, uint32_t n, uint32_t k, uint32_t cols) {
  return static_cast<int>(static_cast<int8_t>(matrix.data->bytes()[PackedN16K4Index(n, k, cols)]));
}

QuantizedMatrix Quantize(const std::vector<float>& values, uint32_t rows, uint8_t bits = 8,
                         size_t threads = 1) {
  ThreadPool pool(threads);
  const auto cols = static_cast<uint32_t>(values.size() / rows);
  return QuantizeMatrix(*MakeConstantOf(values), rows, cols, bits, &pool);
}

TEST(QuantizeMatrixTest, EqualsTheNaiveFormula) {
  for (const uint8_t bits : {uint8_t{8}, uint8_t{4}}) {
    const int limit = bits == 8 ? 127 : 7;
    for (const auto& [rows, cols] : {std::pair{1u, 1u}, {16u, 4u}, {37u, 70u}, {64u, 33u}}) {
      const std::vector<float> values = RandomMatrix(rows, cols, rows + bits);
      const QuantizedMatrix matrix = Quantize(values, rows, bits);
      EXPECT_EQ(matrix.data->layout(), DataLayout::kPackedN16K4);
      ASSERT_EQ(matrix.data->bytes().size(), PackedN16K4Size(rows, cols));
      EXPECT_EQ(matrix.encoding.kind, Encoding::Kind::kPerChannel);
      EXPECT_EQ(matrix.encoding.axis, 0u);
      EXPECT_EQ(matrix.encoding.bits, bits);
      ASSERT_EQ(matrix.encoding.channel_scales.size(), rows);
      int64_t sum = 0;
      for (uint32_t n = 0; n < rows; ++n) {
        float largest = 0;
        for (uint32_t k = 0; k < cols; ++k) {
          largest = std::max(largest, std::abs(values[size_t{n} * cols + k]));
        }
        const float scale = matrix.encoding.channel_scales[n];
        EXPECT_FLOAT_EQ(scale, largest / static_cast<float>(limit));
        for (uint32_t k = 0; k < cols; ++k) {
          const int q = At(matrix, n, k, cols);
          EXPECT_LE(std::abs(q), limit) << "the smallest value of the type never appears";
          // Within half a step, but for the rounding of the float quotient.
          EXPECT_NEAR(q * double{scale}, values[size_t{n} * cols + k], 0.50001 * scale);
          sum += std::abs(q);
        }
      }
      // Padding is zeros.
      for (const std::byte byte : matrix.data->bytes()) {
        sum -= std::abs(static_cast<int>(static_cast<int8_t>(byte)));
      }
      EXPECT_EQ(sum, 0);
    }
  }
}

TEST(QuantizeMatrixTest, TiesGoToEvenAndTheRangeIsSymmetric) {
  // A scale of exactly one.
  const std::vector<float> values = {-127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f};
  const QuantizedMatrix matrix = Quantize(values, 1);
  EXPECT_EQ(matrix.encoding.channel_scales[0], 1.0f);
  const int expected[] = {-127, 0, 2, 2, 0, -2, -2, 126};
  for (uint32_t k = 0; k < 8; ++k) EXPECT_EQ(At(matrix, 0, k, 8), expected[k]) << values[k];
  EXPECT_EQ(matrix.min, -127.0f);
  EXPECT_EQ(matrix.max, 126.5f);

  const QuantizedMatrix four = Quantize({-7.0f, 0.5f, 1.5f, 6.5f}, 1, 4);
  const int expected_four[] = {-7, 0, 2, 6};
  for (uint32_t k = 0; k < 4; ++k) EXPECT_EQ(At(four, 0, k, 4), expected_four[k]);
}

TEST(QuantizeMatrixTest, RowsOfZerosAndOfAlmostNothing) {
  std::vector<float> values = {0, 0, 0, 0, 1, -2, 0, 0};
  values.insert(values.end(), {1e-42f, -1e-43f, 0.0f, 1e-38f});
  const QuantizedMatrix matrix = Quantize(values, 3);
  EXPECT_EQ(matrix.encoding.channel_scales[0], 1.0f);
  EXPECT_EQ(matrix.encoding.channel_scales[1], 2.0f / 127.0f);
  EXPECT_EQ(matrix.encoding.channel_scales[2], 1.0f);
  for (uint32_t k = 0; k < 4; ++k) {
    EXPECT_EQ(At(matrix, 0, k, 4), 0);
    EXPECT_EQ(At(matrix, 2, k, 4), 0);
  }
  EXPECT_EQ(At(matrix, 1, 1, 4), -127);
  EXPECT_EQ(matrix.bad_row, std::nullopt);
}

TEST(QuantizeMatrixTest, ValuesThatAreNotFinite) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values = RandomMatrix(40, 8, 3);
    values[33 * 8 + 5] = bad;
    values[20 * 8] = bad;
    const QuantizedMatrix matrix = Quantize(values, 40);
    EXPECT_EQ(matrix.bad_row, 20u);
    EXPECT_EQ(At(matrix, 20, 1, 8), 0);
    EXPECT_TRUE(std::isfinite(matrix.min) && std::isfinite(matrix.max));
  }
}

TEST(QuantizeMatrixTest, ThreadsAndSourcesMakeNoDifference) {
  const uint32_t rows = 150, cols = 30;
  const std::vector<float> values = RandomMatrix(rows, cols, 8);
  const QuantizedMatrix one = Quantize(values, rows, 8, 1);
  EXPECT_EQ(one.min, *std::min_element(values.begin(), values.end()));
  EXPECT_EQ(one.max, *std::max_element(values.begin(), values.end()));
  ThreadPool pool(3);
  for (const QuantizedMatrix& other :
       {Quantize(values, rows, 8, 2), Quantize(values, rows, 8, 3),
        QuantizeMatrix(RowsOnly(values, cols), rows, cols, 8, &pool)}) {
    EXPECT_EQ(other.encoding, one.encoding);
    EXPECT_EQ(other.min, one.min);
    EXPECT_EQ(other.max, one.max);
    ASSERT_EQ(other.data->bytes().size(), one.data->bytes().size());
    EXPECT_EQ(
        std::memcmp(other.data->bytes().data(), one.data->bytes().data(), one.data->bytes().size()),
        0);
  }
}

}  // namespace
}  // namespace spillway
