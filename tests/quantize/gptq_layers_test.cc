#include "quantize/gptq_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "host/executor.h"
#include "kvcache/kv_cache.h"
#include "quantize/transform.h"
#include "tests/quantize/tiny.h"

namespace spillway {
namespace {

WeightSchemes All(const WeightScheme& scheme) {
  return [scheme](const std::string& name) {
    return name == kHeadWeightName ? WeightScheme{} : scheme;
  };
}

QuantizedWeights Quantize(test::TinyDecoder& tiny, const TokenWindows& windows,
                          const WeightScheme& scheme, const FloatPrefix& prefix = {},
                          size_t threads = 2) {
  ThreadPool pool(threads);
  auto weights =
      QuantizeWeightsInOrder(*tiny.decoder, windows, prefix, All(scheme), &pool, nullptr);
  EXPECT_TRUE(weights.ok()) << weights.status().ToString();
  return std::move(weights).value();
}

// Logits of a window with float activations; `weights` null: float weights, too.
std::vector<float> Logits(test::TinyDecoder& tiny, const std::vector<uint32_t>& tokens,
                          const QuantizedWeights* weights) {
  ThreadPool pool(2);
  const auto length = static_cast<uint32_t>(tokens.size());
  Graph graph = *tiny.Build("logits", length, length);
  for (TensorId id = 0; weights != nullptr && id < graph.tensors().size(); ++id) {
    const auto found = weights->find(graph.tensor(id).name);
    if (found == weights->end()) continue;
    const Shape shape = graph.tensor(id).shape;
    graph.mutable_tensor(id).data = DequantizeMatrix(found->second, shape[0], shape[1], &pool);
  }
  auto executor = host::Executor::Create(std::make_shared<const Graph>(std::move(graph)), &pool);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  auto* hidden = reinterpret_cast<float*>((*executor)->input(0).data());
  const size_t width = tiny.model->config().hidden_dim;
  for (uint32_t i = 0; i < length; ++i) {
    tiny.decoder->EmbeddingData()->ReadRows(tokens[i], 1, hidden + i * width);
  }
  FillMask(DType::kF32, length, length, 0, length, (*executor)->input(1).data());
  FillPositions(length, 0, length, reinterpret_cast<int32_t*>((*executor)->input(2).data()));
  EXPECT_TRUE((*executor)->Run().ok());
  const auto bytes = (*executor)->output(0);
  const auto* values = reinterpret_cast<const float*>(bytes.data());
  return {values, values + bytes.size() / sizeof(float)};
}

double Error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

void ExpectEqual(const QuantizedWeights& a, const QuantizedWeights& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, matrix] : a) {
    const QuantizedMatrix& other = b.at(name);
    EXPECT_EQ(matrix.encoding, other.encoding) << name;
    EXPECT_EQ(std::memcmp(matrix.data->bytes().data(), other.data->bytes().data(),
                          matrix.data->bytes().size()),
              0)
        << name;
  }
}

TEST(WeightsInOrderTest, RoundToNearestIsWhatQuantizeMatrixGives) {
  ThreadPool pool(2);
  test::TinyDecoder tiny(test::TinyModelSpec{});
  const WeightScheme scheme{4, 32, WeightMethod::kRtn};
  const QuantizedWeights weights = Quantize(tiny, {}, scheme);
  EXPECT_EQ(weights.size(), 2u * 7 + 1);
  EXPECT_EQ(weights.at(kHeadWeightName).encoding.bits, 8);
  const auto graph = tiny.Build("g", 1, 1);
  for (const Op& op : graph->ops()) {
    if (op.type != OpType::kLinear || op.name == "head") continue;
    const Tensor& tensor = graph->tensor(op.inputs[1]);
    const QuantizedMatrix expected =
        QuantizeMatrix(*tensor.data, tensor.shape[0], tensor.shape[1], scheme, nullptr, &pool);
    EXPECT_EQ(weights.at(tensor.name).encoding, expected.encoding) << tensor.name;
  }
}

// Inputs of random weights depend on each other so little that GPTQ gains nothing; a mistake in
// the order of columns, rows or layers would cost a factor of hundreds.
TEST(WeightsInOrderTest, EveryMethodKeepsTheLogits) {
  double nearest = 0.0, best = 0.0, gptq = 0.0;
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    test::TinyModelSpec spec;
    spec.architecture = architecture;
    test::TinyDecoder tiny(spec);
    const TokenWindows windows = tiny.Windows({64, 64, 64, 64, 40, 64, 64, 64, 64, 64, 64, 64});
    const std::vector<uint32_t> held_out = tiny.Windows({64}, 1234)[0];
    const std::vector<float> exact = Logits(tiny, held_out, nullptr);
    // 8 bits: with 4, the logits of random weights are all noise.
    const auto error = [&](WeightMethod method) {
      const QuantizedWeights weights = Quantize(tiny, windows, {8, 0, method});
      return Error(Logits(tiny, held_out, &weights), exact) /
             Error(exact, std::vector<float>(exact.size(), 0.0f));
    };
    nearest += error(WeightMethod::kRtn);
    best += error(WeightMethod::kMse);
    gptq += error(WeightMethod::kGptq);
  }
  EXPECT_LT(gptq, 1.2 * nearest);
  EXPECT_LT(best, 1.2 * nearest);
  EXPECT_LT(nearest, 0.01);
}

TEST(WeightsInOrderTest, ThreadsMakeNoDifferenceAndPrefixesDo) {
  ThreadPool pool(2);
  test::TinyDecoder tiny(test::TinyModelSpec{});
  const TokenWindows windows = tiny.Windows({40, 40, 24});
  const WeightScheme scheme{4, 16, WeightMethod::kGptq};
  const QuantizedWeights one = Quantize(tiny, windows, scheme, {}, 1);
  ExpectEqual(one, Quantize(tiny, windows, scheme, {}, 2));
  const auto prefix = ComputePrefix(*tiny.decoder, {1}, &pool);
  ASSERT_TRUE(prefix.ok());
  const QuantizedWeights after = Quantize(tiny, windows, scheme, *prefix, 1);
  EXPECT_NE(after.at("layers.1.down.weight").encoding, one.at("layers.1.down.weight").encoding);
  // A window that starts with the prefix gives it up.
  TokenWindows with = windows;
  for (auto& window : with) window.insert(window.begin(), 1);
  ExpectEqual(after, Quantize(tiny, with, scheme, *prefix, 1));
}

TEST(WeightsInOrderTest, FloatWeightsAndKeyRotationsAreLeftOut) {
  ThreadPool pool(2);
  test::TinyDecoder tiny(test::TinyModelSpec{});
  Decoder decoder(tiny.model, *MakeTransform(*tiny.model, {.rotate_keys = true}));
  const auto weights = QuantizeWeightsInOrder(
      decoder, tiny.Windows({32}), {},
      [](const std::string& name) {
        return name.ends_with("down.weight")
                   ? WeightScheme{.bits = 16, .method = WeightMethod::kGptq}
                   : WeightScheme{4, 0, WeightMethod::kGptq};
      },
      &pool, nullptr);
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  EXPECT_EQ(weights->size(), 2u * 6 + 1);
  EXPECT_EQ(weights->count("layers.0.down.weight"), 0u);
  EXPECT_EQ(weights->count(kKeyRotationWeightName), 0u);
  EXPECT_EQ(weights->at(kHeadWeightName).encoding.bits, 4);
}

TEST(WeightsInOrderTest, DamagedWeightsAreNamed) {
  ThreadPool pool(2);
  test::TinyModel model = test::MakeTinyModel({});
  test::TinyDecoder tiny(model);
  const std::vector<uint32_t> window = tiny.Windows({16})[0];
  // A transform is the simplest way to damage a weight.
  class Damage : public WeightTransform {
   public:
    std::shared_ptr<const ConstantData> Matrix(const std::string& name,
                                               std::shared_ptr<const ConstantData> weights,
                                               uint32_t rows, uint32_t cols) const override {
      if (name != "layers.1.up.weight") return weights;
      std::vector<float> values(size_t{rows} * cols);
      weights->ReadRows(0, rows, values.data());
      values[5 * cols + 1] = std::numeric_limits<float>::infinity();
      return MakeConstantOf(values);
    }
    void Vector(const std::string&, std::vector<float>&) const override {}
    bool SplitsEmbedding() const override { return false; }
    std::shared_ptr<const ConstantData> KeyRotation() const override { return nullptr; }
  };
  Decoder decoder(tiny.model, std::make_shared<Damage>());
  const auto rounded =
      QuantizeWeightsInOrder(decoder, {}, {}, All({4, 0, WeightMethod::kRtn}), &pool, nullptr);
  EXPECT_THAT(rounded.status().ToString(), ::testing::HasSubstr("layers.1.up.weight, row 5"));
  const auto gptq = QuantizeWeightsInOrder(decoder, {window}, {}, All({4, 0, WeightMethod::kGptq}),
                                           &pool, nullptr);
  EXPECT_FALSE(gptq.ok());
  EXPECT_THAT(gptq.status().ToString(), ::testing::HasSubstr("not finite"));
}

}  // namespace
}  // namespace spillway
