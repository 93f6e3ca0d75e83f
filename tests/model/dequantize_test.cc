#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "model/gguf.h"
#include "tests/support/gguf_blocks.h"
#include "tests/support/random.h"

namespace spillway {
namespace {

using test::TensorType;

std::vector<float> Dequantize(TensorType type, const std::string& bytes) {
  const size_t blocks = bytes.size() / test::BlockBytes(type);
  std::vector<float> values(blocks * test::BlockElements(type));
  DequantizeBlocks(static_cast<GgufType>(type), reinterpret_cast<const std::byte*>(bytes.data()),
                   values.size(), values.data());
  return values;
}

std::string RandomBytes(size_t size, uint64_t seed) {
  test::Random random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.Next() & 0xff);
  return bytes;
}

// The same number, or both not a number.
bool Same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

class DequantizeTest : public testing::TestWithParam<TensorType> {};

TEST_P(DequantizeTest, TypeIsDescribedAlike) {
  const auto type = static_cast<GgufType>(GetParam());
  EXPECT_EQ(GgufTypeName(type), test::TensorTypeName(GetParam()));
  EXPECT_EQ(GgufBlockOf(type).elements, test::BlockElements(GetParam()));
  EXPECT_EQ(GgufBlockOf(type).bytes, test::BlockBytes(GetParam()));
}

TEST_P(DequantizeTest, AnyBytesGiveTheReferenceValues) {
  for (size_t blocks = 0; blocks <= 200; blocks += blocks < 6 ? 1 : 97) {
    const std::string bytes = RandomBytes(blocks * test::BlockBytes(GetParam()), 7 + blocks);
    const std::vector<float> expected = test::DequantizeReference(GetParam(), bytes);
    const std::vector<float> actual = Dequantize(GetParam(), bytes);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_TRUE(Same(actual[i], expected[i])) << blocks << " blocks, element " << i << ": "
                                                << actual[i] << ", expected " << expected[i];
    }
  }
}

TEST_P(DequantizeTest, ReadsUnalignedDataAndWritesNothingElse) {
  const uint32_t elements = 2 * test::BlockElements(GetParam());
  const std::string bytes = RandomBytes(1 + 2 * test::BlockBytes(GetParam()), 3);
  std::vector<float> values(elements + 2, 12345.0f);
  DequantizeBlocks(static_cast<GgufType>(GetParam()),
                   reinterpret_cast<const std::byte*>(bytes.data() + 1), elements,
                   values.data() + 1);
  const std::vector<float> expected = test::DequantizeReference(GetParam(), bytes.substr(1));
  EXPECT_EQ(values.front(), 12345.0f);
  EXPECT_EQ(values.back(), 12345.0f);
  for (uint32_t i = 0; i < elements; ++i) EXPECT_TRUE(Same(values[i + 1], expected[i])) << i;
}

// The largest error as a part of the largest value, and the least SQNR in dB,
// that the formats allow with plain min-max scales.
struct Bounds {
  double largest, sqnr;
};
Bounds BoundsOf(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return {0, 1000};
    case TensorType::kF16:
      return {0x1p-11, 70};
    case TensorType::kBF16:
      return {0x1p-8, 50};
    case TensorType::kQ8_0:
      return {0.0045, 40};
    case TensorType::kQ6_K:
      return {0.04, 30};
    case TensorType::kQ5_0:
      return {0.065, 24};
    case TensorType::kQ5_1:
      return {0.034, 26};
    case TensorType::kQ5_K:
      return {0.06, 26};
    case TensorType::kQ4_0:
      return {0.13, 18};
    case TensorType::kQ4_1:
      return {0.07, 20};
    case TensorType::kQ4_K:
      return {0.1, 20};
    case TensorType::kQ3_K:
      return {0.27, 12};
    case TensorType::kQ2_K:
      return {0.45, 7};
  }
  return {0, 0};
}

TEST_P(DequantizeTest, RoundTripIsWithinTheFormatsError) {
  test::Random random(11);
  std::vector<float> values(20 * 256);
  for (float& value : values) value = static_cast<float>(random.Gauss());
  const std::vector<float> restored =
      Dequantize(GetParam(), test::QuantizeValues(GetParam(), values));
  ASSERT_EQ(restored.size(), values.size());
  double signal = 0, noise = 0, largest_value = 0, largest_error = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double error = static_cast<double>(values[i]) - restored[i];
    signal += static_cast<double>(values[i]) * values[i];
    noise += error * error;
    largest_value = std::max<double>(largest_value, std::fabs(values[i]));
    largest_error = std::max(largest_error, std::fabs(error));
  }
  const Bounds bounds = BoundsOf(GetParam());
  EXPECT_LE(largest_error, bounds.largest * largest_value);
  const double sqnr =
      noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
  EXPECT_GE(sqnr, bounds.sqnr);
  RecordProperty("sqnr_db", std::to_string(sqnr));
}

TEST_P(DequantizeTest, ZerosStayZeros) {
  const std::vector<float> zeros(512, 0.0f);
  for (const float value : Dequantize(GetParam(), test::QuantizeValues(GetParam(), zeros))) {
    ASSERT_EQ(value, 0.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DequantizeTest, testing::ValuesIn(test::AllTensorTypes()),
                         [](const auto& param_info) {
                           return std::string(test::TensorTypeName(param_info.param));
                         });

TEST(DequantizeF16Test, EveryHalf) {
  std::string bytes;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    bytes += static_cast<char>(half & 0xff);
    bytes += static_cast<char>(half >> 8);
  }
  const std::vector<float> values = Dequantize(TensorType::kF16, bytes);
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float expected = HalfToFloat(static_cast<uint16_t>(half));
    ASSERT_EQ(std::bit_cast<uint32_t>(values[half]), std::bit_cast<uint32_t>(expected)) << half;
  }
}

// Values that the format's own Python package (gguf 0.19.0) gives for blocks of
// bytes drawn with the type's number as seed, halves made small and finite.
struct Golden {
  TensorType type;
  std::vector<size_t> halves;
  std::vector<std::pair<size_t, float>> values;
};

const std::vector<Golden>& Goldens() {
  static const std::vector<Golden> goldens = {
      {TensorType::kQ4_0,
       {0},
       {{0, 0.37213134765625f},
        {1, -0.212646484375f},
        {7, 0.212646484375f},
        {15, -0.212646484375f},
        {16, -0.3189697265625f},
        {17, -0.1063232421875f},
        {30, -0.37213134765625f},
        {31, 0.26580810546875f}}},
      {TensorType::kQ4_1,
       {0, 2},
       {{0, -0.332489013671875f},
        {1, -0.3787841796875f},
        {7, -0.7491455078125f},
        {15, -0.65655517578125f},
        {16, -0.47137451171875f},
        {17, -0.054718017578125f},
        {30, -0.517669677734375f},
        {31, -0.147308349609375f}}},
      {TensorType::kQ5_0,
       {0},
       {{0, 0.46875f},
        {1, -0.0f},
        {7, 0.2734375f},
        {15, -0.0f},
        {16, -0.3515625f},
        {17, -0.1953125f},
        {30, -0.15625f},
        {31, 0.546875f}}},
      {TensorType::kQ5_1,
       {0, 2},
       {{0, -0.016937255859375f},
        {1, 0.890533447265625f},
        {7, 0.85272216796875f},
        {15, 0.512420654296875f},
        {16, 0.172119140625f},
        {17, 0.777099609375f},
        {30, 0.890533447265625f},
        {31, 1.117401123046875f}}},
      {TensorType::kQ8_0,
       {0},
       {{0, 0.04071044921875f},
        {1, -3.093994140625f},
        {7, 4.396728515625f},
        {15, 3.46038818359375f},
        {16, -0.97705078125f},
        {17, 0.12213134765625f},
        {30, 3.05328369140625f},
        {31, -2.768310546875f}}},
      {TensorType::kQ2_K,
       {80, 82},
       {{0, -0.7239990234375f},
        {17, -1.33941650390625f},
        {33, -0.180999755859375f},
        {70, -1.7000732421875f},
        {100, -0.84466552734375f},
        {127, -1.767120361328125f},
        {130, -1.58477783203125f},
        {161, -0.482666015625f},
        {200, -1.33538818359375f},
        {229, -1.524444580078125f},
        {255, -0.97137451171875f}}},
      {TensorType::kQ3_K,
       {108},
       {{0, -0.6888427734375f},
        {17, -0.153076171875f},
        {33, -4.59228515625f},
        {70, -0.30615234375f},
        {100, 1.377685546875f},
        {127, -2.64056396484375f},
        {130, 0.65057373046875f},
        {161, -1.95172119140625f},
        {200, 3.32940673828125f},
        {229, -2.18133544921875f},
        {255, -1.989990234375f}}},
      {TensorType::kQ4_K,
       {0, 2},
       {{0, 18.47271728515625f},
        {17, 3.35369873046875f},
        {33, 3.3868408203125f},
        {70, 22.39990234375f},
        {100, 10.74481201171875f},
        {127, 14.14111328125f},
        {130, 13.542938232421875f},
        {161, 17.950286865234375f},
        {200, 0.70367431640625f},
        {229, 27.161285400390625f},
        {255, 5.9617919921875f}}},
      {TensorType::kQ5_K,
       {0, 2},
       {{0, 22.89300537109375f},
        {17, 16.33477783203125f},
        {33, 36.18896484375f},
        {70, 10.22711181640625f},
        {100, 15.1976318359375f},
        {127, 23.629638671875f},
        {130, 7.3985595703125f},
        {161, -0.32183837890625f},
        {200, 26.647705078125f},
        {229, 21.99041748046875f},
        {255, 13.4647216796875f}}},
      {TensorType::kQ6_K,
       {208},
       {{0, -55.430908203125f},
        {17, -47.51220703125f},
        {33, -140.709228515625f},
        {70, -11.2689208984375f},
        {100, 0.0f},
        {127, -150.455322265625f},
        {130, 60.18212890625f},
        {161, -57.9892578125f},
        {200, -134.0087890625f},
        {229, -35.81689453125f},
        {255, -63.59326171875f}}},
  };
  return goldens;
}

TEST(DequantizeGoldenTest, AgreesWithTheFormatsOwnPackage) {
  for (const Golden& golden : Goldens()) {
    SCOPED_TRACE(test::TensorTypeName(golden.type));
    std::string bytes =
        RandomBytes(test::BlockBytes(golden.type), static_cast<uint64_t>(golden.type));
    for (const size_t at : golden.halves) {
      bytes[at + 1] = static_cast<char>((bytes[at + 1] & 0x83) | 0x28);
    }
    const std::vector<float> values = Dequantize(golden.type, bytes);
    for (const auto& [index, expected] : golden.values) {
      EXPECT_FLOAT_EQ(values[index], expected) << "element " << index;
    }
  }
}

}  // namespace
}  // namespace spillway
