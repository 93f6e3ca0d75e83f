#include "quantize/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
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
  return QuantizeMatrix(*MakeConstantOf(values), rows, cols, WeightScheme{.bits = bits}, nullptr,
                        &pool);
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
        QuantizeMatrix(RowsOnly(values, cols), rows, cols, WeightScheme{}, nullptr, &pool)}) {
    EXPECT_EQ(other.encoding, one.encoding);
    EXPECT_EQ(other.min, one.min);
    EXPECT_EQ(other.max, one.max);
    ASSERT_EQ(other.data->bytes().size(), one.data->bytes().size());
    EXPECT_EQ(
        std::memcmp(other.data->bytes().data(), one.data->bytes().data(), one.data->bytes().size()),
        0);
  }
}

// Random values whose sizes differ from block to block.
std::vector<float> UnevenMatrix(uint32_t rows, uint32_t cols, uint64_t seed) {
  std::vector<float> values = RandomMatrix(rows, cols, seed);
  test::Random random(seed + 1);
  for (size_t i = 0; i < values.size(); i += 16) {
    const float size = std::exp(static_cast<float>(random.Gauss()));
    for (size_t k = i; k < std::min(values.size(), i + 16); ++k) values[k] *= size;
  }
  return values;
}

QuantizedMatrix Quantize(const std::vector<float>& values, uint32_t rows,
                         const WeightScheme& scheme, const InputHessian* hessian = nullptr,
                         size_t threads = 1) {
  ThreadPool pool(threads);
  const auto cols = static_cast<uint32_t>(values.size() / rows);
  return QuantizeMatrix(*MakeConstantOf(values), rows, cols, scheme, hessian, &pool);
}

std::vector<float> Dequantize(const QuantizedMatrix& matrix, uint32_t rows, uint32_t cols) {
  ThreadPool pool(2);
  const auto constant = DequantizeMatrix(matrix, rows, cols, &pool);
  const auto* values = reinterpret_cast<const float*>(constant->bytes().data());
  return {values, values + size_t{rows} * cols};
}

constexpr WeightMethod kMethods[] = {WeightMethod::kRtn, WeightMethod::kMse, WeightMethod::kGptq};

TEST(QuantizeMatrixTest, BlocksEqualTheNaiveFormula) {
  for (const uint32_t block : {16u, 32u, 64u}) {
    for (const auto& [rows, cols] : {std::pair{1u, 64u}, {70u, 128u}, {20u, 100u}}) {
      const std::vector<float> values = UnevenMatrix(rows, cols, block + rows);
      const QuantizedMatrix matrix = Quantize(values, rows, {.bits = 4, .block = block});
      const uint32_t blocks = (cols + block - 1) / block;
      const Encoding& encoding = matrix.encoding;
      EXPECT_EQ(encoding.kind, Encoding::Kind::kBlock);
      EXPECT_EQ(encoding.axis, 0u);
      EXPECT_EQ(encoding.bits, 4);
      EXPECT_EQ(encoding.block_size, block);
      ASSERT_EQ(encoding.channel_scales.size(), rows);
      ASSERT_EQ(encoding.block_scales.size(), size_t{rows} * blocks);
      const std::vector<float> real = Dequantize(matrix, rows, cols);
      for (uint32_t n = 0; n < rows; ++n) {
        float largest = 0;
        std::vector<float> maxima(blocks, 0.0f);
        for (uint32_t k = 0; k < cols; ++k) {
          const float magnitude = std::abs(values[size_t{n} * cols + k]);
          largest = std::max(largest, magnitude);
          maxima[k / block] = std::max(maxima[k / block], magnitude);
        }
        const float scale = encoding.channel_scales[n];
        EXPECT_FLOAT_EQ(scale, largest / 7.0f / 16.0f);
        for (uint32_t k = 0; k < cols; ++k) {
          const int multiplier = encoding.block_scales[n * blocks + k / block];
          EXPECT_EQ(
              multiplier,
              std::clamp(static_cast<int>(std::ceil(maxima[k / block] / (7.0f * scale) * 0.99999f)),
                         1, 16));
          const int q = At(matrix, n, k, cols);
          EXPECT_LE(std::abs(q), 7);
          const float step = scale * static_cast<float>(multiplier);
          EXPECT_EQ(real[size_t{n} * cols + k], step * static_cast<float>(q));
          // Within half a step, but for the rounding of the quotients.
          EXPECT_LE(std::abs(real[size_t{n} * cols + k] - values[size_t{n} * cols + k]),
                    0.50001f * step);
        }
      }
    }
  }
}

double SquaredError(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - b[i], 2);
  return sum;
}

TEST(QuantizeMatrixTest, SearchedScalesAreNotWorse) {
  const uint32_t rows = 70, cols = 96;
  const std::vector<float> values = UnevenMatrix(rows, cols, 77);
  for (const uint32_t block : {0u, 16u, 32u, 64u}) {
    const auto nearest = Quantize(values, rows, {.bits = 4, .block = block});
    const auto best =
        Quantize(values, rows, {.bits = 4, .block = block, .method = WeightMethod::kMse});
    for (uint32_t n = 0; n < rows; ++n) {
      const auto row = [&](const std::vector<float>& all) {
        return std::vector<float>(all.begin() + n * cols, all.begin() + (n + 1) * cols);
      };
      EXPECT_LE(SquaredError(row(Dequantize(best, rows, cols)), row(values)),
                1.00001 * SquaredError(row(Dequantize(nearest, rows, cols)), row(values)));
    }
  }
}

TEST(QuantizeMatrixTest, ZerosSurviveEveryMethod) {
  const uint32_t rows = 5, cols = 64;
  ThreadPool pool(1);
  InputHessian hessian(cols);
  const std::vector<float> inputs = RandomMatrix(100, cols, 5);
  hessian.Add(inputs.data(), 100, &pool);
  ASSERT_TRUE(hessian.Finish(&pool).ok());
  std::vector<float> values = RandomMatrix(rows, cols, 6);
  std::fill_n(values.begin() + cols, cols, 0.0f);        // a row
  std::fill_n(values.begin() + 2 * cols, 32, 0.0f);      // a block
  std::fill_n(values.begin() + 3 * cols, cols, 1e-42f);  // almost nothing
  for (const WeightMethod method : kMethods) {
    for (const auto& [bits, block] : {std::pair{8, 0}, {4, 0}, {4, 16}, {4, 32}, {4, 64}}) {
      const WeightScheme scheme{static_cast<uint8_t>(bits), static_cast<uint32_t>(block), method};
      const QuantizedMatrix matrix = Quantize(values, rows, scheme, &hessian);
      EXPECT_EQ(matrix.encoding.channel_scales[1], 1.0f);
      EXPECT_EQ(matrix.encoding.channel_scales[3], 1.0f);
      for (uint32_t k = 0; k < cols; ++k) {
        EXPECT_EQ(At(matrix, 1, k, cols), 0);
        EXPECT_EQ(At(matrix, 3, k, cols), 0);
        // GPTQ may give the errors of other blocks to zeros.
        if (method != WeightMethod::kGptq && k < 32) {
          EXPECT_EQ(At(matrix, 2, k, cols), 0);
        }
      }
      const int limit = bits == 8 ? 127 : 7;
      for (uint32_t n = 0; n < rows; ++n) {
        for (uint32_t k = 0; k < cols; ++k) EXPECT_LE(std::abs(At(matrix, n, k, cols)), limit);
      }
      for (const uint8_t multiplier : matrix.encoding.block_scales) {
        EXPECT_TRUE(multiplier >= 1 && multiplier <= 16);
      }
    }
  }
}

// What is quantised already comes back as it is. (The smallest block scales of rounded values
// can be smaller than those of the values, so this holds per channel only.)
TEST(QuantizeMatrixTest, Idempotent) {
  const uint32_t rows = 20, cols = 128;
  const std::vector<float> values = UnevenMatrix(rows, cols, 90);
  for (const uint8_t bits : {uint8_t{8}, uint8_t{4}}) {
    const WeightScheme scheme{.bits = bits};
    const std::vector<float> once = Dequantize(Quantize(values, rows, scheme), rows, cols);
    const std::vector<float> twice = Dequantize(Quantize(once, rows, scheme), rows, cols);
    for (size_t i = 0; i < once.size(); ++i) EXPECT_FLOAT_EQ(twice[i], once[i]);
  }
}

TEST(QuantizeMatrixTest, EveryMethodIsTheSameWithMoreThreads) {
  const uint32_t rows = 150, cols = 96;
  const std::vector<float> values = UnevenMatrix(rows, cols, 8);
  const std::vector<float> inputs = RandomMatrix(500, cols, 9);
  std::vector<std::unique_ptr<InputHessian>> hessians;
  for (const size_t threads : {1u, 2u}) {
    ThreadPool pool(threads);
    hessians.push_back(std::make_unique<InputHessian>(cols));
    hessians.back()->Add(inputs.data(), 500, &pool);
    ASSERT_TRUE(hessians.back()->Finish(&pool).ok());
  }
  for (const WeightMethod method : kMethods) {
    for (const uint32_t block : {0u, 32u}) {
      const WeightScheme scheme{4, block, method};
      const QuantizedMatrix one = Quantize(values, rows, scheme, hessians[0].get(), 1);
      const QuantizedMatrix two = Quantize(values, rows, scheme, hessians[1].get(), 2);
      EXPECT_EQ(one.encoding, two.encoding);
      EXPECT_EQ(
          std::memcmp(one.data->bytes().data(), two.data->bytes().data(), one.data->bytes().size()),
          0);
    }
  }
}

}  // namespace
}  // namespace spillway
