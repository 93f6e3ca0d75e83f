#include "quantize/transform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "quantize/rotation.h"
#include "quantize/smooth.h"
#include "quantize/window_runner.h"
#include "tests/quantize/tiny.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

TEST(RotationTest, IsOrthogonalAndSpreads) {
  for (const uint32_t dim : {1u, 2u, 7u, 10u, 48u, 64u, 576u}) {
    const Rotation rotation(dim, 5);
    const std::vector<float> q = rotation.Matrix();
    for (uint32_t i = 0; i < dim; ++i) {
      for (uint32_t j = 0; j < dim; ++j) {
        double dot = 0.0;
        for (uint32_t k = 0; k < dim; ++k) dot += double{q[i * dim + k]} * q[j * dim + k];
        ASSERT_NEAR(dot, i == j ? 1.0 : 0.0, 1e-5) << dim;
      }
    }
    // e_0 Q has no large element.
    if (dim >= 48) {
      EXPECT_LT(std::abs(*std::max_element(q.begin(), q.begin() + dim)), 0.3f);
    }
  }
}

TEST(RotationTest, ApplyIsTheProductWithTheMatrix) {
  const uint32_t dim = 24, width = 5;
  const Rotation rotation(dim, 9);
  const std::vector<float> q = rotation.Matrix();
  test::Random random(1);
  std::vector<float> x(dim * width);
  for (float& value : x) value = static_cast<float>(random.Gauss());
  std::vector<float> y = x;
  rotation.Apply(y.data(), width);
  for (uint32_t c = 0; c < width; ++c) {
    for (uint32_t j = 0; j < dim; ++j) {
      double sum = 0.0;
      for (uint32_t i = 0; i < dim; ++i) sum += double{x[i * width + c]} * q[i * dim + j];
      EXPECT_NEAR(y[j * width + c], sum, 1e-5);
    }
  }
  EXPECT_EQ(Rotation(dim, 9).Matrix(), q);
  EXPECT_NE(Rotation(dim, 10).Matrix(), q);
}

std::vector<float> Logits(Decoder& decoder, const std::vector<uint32_t>& tokens,
                          const FloatPrefix* prefix = nullptr) {
  ThreadPool pool(2);
  auto runner = WindowRunner::Create(decoder, static_cast<uint32_t>(tokens.size()), prefix, &pool);
  EXPECT_TRUE(runner.ok()) << runner.status().ToString();
  EXPECT_TRUE((*runner)->Run(tokens, nullptr).ok());
  const std::span<const float> logits = (*runner)->Output(0);
  return {logits.begin(), logits.end()};
}

float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0.0f;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

std::vector<TransformOptions> AllOptions() {
  std::vector<TransformOptions> all(6);
  all[0].fold_norms = true;
  all[1].fold_norms = all[1].rotate_residual = true;
  all[2].rotate_values = true;
  all[3].rotate_keys = true;
  all[4].fold_norms = all[4].rotate_residual = all[4].rotate_values = all[4].rotate_keys = true;
  return all;  // the last has nothing: smoothing alone
}

std::vector<test::TinyModelSpec> Models() {
  std::vector<test::TinyModelSpec> specs(5);
  specs[1].architecture = "qwen2";  // biases
  specs[2].architecture = "qwen3";  // q and k norms
  specs[2].tied = false;
  specs[3].weight_type = test::TensorType::kQ4_1;
  specs[3].embedding_type = test::TensorType::kQ8_0;
  test::TinyModelSpec& odd = specs[4];
  odd.llama_bias = true;
  odd.hidden = 48;
  odd.heads = 3;
  odd.kv_heads = 1;
  odd.head_dim = 10;
  odd.ffn = 70;
  return specs;
}

TEST(TransformTest, LogitsStay) {
  ThreadPool pool(2);
  for (const test::TinyModelSpec& spec : Models()) {
    test::TinyDecoder tiny(spec);
    const TokenWindows windows = tiny.Windows({24, 24});
    const std::vector<float> expected = Logits(*tiny.decoder, windows[0]);
    for (const TransformOptions& options : AllOptions()) {
      for (const bool smooth : {false, true}) {
        SmoothOptions smoothing;
        smoothing.norms = !options.rotate_residual;
        smoothing.mixed = true;
        Result<SmoothFactors> factors =
            smooth ? ComputeSmoothFactors(*tiny.decoder, windows, {}, smoothing, &pool)
                   : SmoothFactors();
        ASSERT_TRUE(factors.ok()) << factors.status().ToString();
        auto transform = MakeTransform(*tiny.model, options, *factors);
        ASSERT_TRUE(transform.ok()) << transform.status().ToString();
        Decoder decoder(tiny.model, *transform);
        EXPECT_EQ(decoder.TiesEmbedding(), spec.tied && !options.fold_norms);
        EXPECT_LT(LargestDifference(Logits(decoder, windows[0]), expected), 1e-3f)
            << spec.architecture << " " << options.fold_norms << options.rotate_residual
            << options.rotate_values << options.rotate_keys << smooth;
      }
    }
  }
}

// The caches hold other values, which fit each other.
TEST(TransformTest, PrefixStays) {
  ThreadPool pool(2);
  test::TinyDecoder tiny(test::TinyModelSpec{});
  const std::vector<uint32_t> tokens = tiny.Windows({16})[0];
  const auto before = ComputePrefix(*tiny.decoder, {1, 7}, &pool);
  ASSERT_TRUE(before.ok());
  Decoder decoder(tiny.model, *MakeTransform(*tiny.model, AllOptions()[4]));
  const auto after = ComputePrefix(decoder, {1, 7}, &pool);
  ASSERT_TRUE(after.ok());
  EXPECT_GT(LargestDifference(before->k[0], after->k[0]), 0.01f);
  EXPECT_LT(
      LargestDifference(Logits(decoder, tokens, &*after), Logits(*tiny.decoder, tokens, &*before)),
      1e-3f);
}

TEST(TransformTest, RowsDoNotDependOnHowTheyAreRead) {
  test::TinyDecoder tiny(test::TinyModelSpec{});
  Decoder decoder(tiny.model, *MakeTransform(*tiny.model, AllOptions()[4]));
  DecoderOptions options;
  options.context_len = 1;
  const Result<Graph> graph = decoder.Build(options);
  ASSERT_TRUE(graph.ok());
  for (const char* name : {"layers.1.o.weight", "layers.0.v.weight", "layers.0.down.weight"}) {
    const Tensor& weight = graph->tensor(*graph->Find(name));
    const uint32_t rows = weight.shape[0], cols = weight.shape[1];
    std::vector<float> whole(size_t{rows} * cols), parts(whole.size());
    weight.data->ReadRows(0, rows, whole.data());
    for (uint32_t row = rows; row-- > 0;) weight.data->ReadRows(row, 1, &parts[row * cols]);
    EXPECT_EQ(whole, parts) << name;
  }
}

TEST(TransformTest, SmoothingMakesActivationsEven) {
  ThreadPool pool(2);
  test::TinyDecoder tiny(test::TinyModelSpec{});
  const TokenWindows windows = tiny.Windows({32});
  const auto factors = ComputeSmoothFactors(*tiny.decoder, windows, {}, {.strength = 1.0f}, &pool);
  ASSERT_TRUE(factors.ok());
  Decoder decoder(tiny.model, *MakeTransform(*tiny.model, {}, *factors));
  // At full strength each channel of a smoothed tensor has the largest magnitude 1.
  auto runner = WindowRunner::Create(decoder, 32, nullptr, &pool);
  ASSERT_TRUE(runner.ok());
  int seen = 0;
  ASSERT_TRUE((*runner)
                  ->Run(windows[0],
                        [&](const Op&, const Tensor& tensor, std::span<const std::byte> bytes) {
                          if (tensor.name != "layers.1.gated" &&
                              tensor.name != "layers.0.attn_norm")
                            return;
                          const auto* values = reinterpret_cast<const float*>(bytes.data());
                          const size_t width = tensor.shape.back();
                          for (size_t k = 0; k < width; ++k) {
                            float largest = 0.0f;
                            for (size_t r = 0; r < 32; ++r) {
                              largest = std::max(largest, std::abs(values[r * width + k]));
                            }
                            EXPECT_NEAR(largest, 1.0f, 1e-3f) << tensor.name << " " << k;
                          }
                          ++seen;
                        })
                  .ok());
  EXPECT_EQ(seen, 2);
}

TEST(TransformTest, BadOptions) {
  ThreadPool pool(1);
  test::TinyDecoder tiny(test::TinyModelSpec{});
  const auto error = [&](const TransformOptions& options, SmoothFactors factors) {
    return MakeTransform(*tiny.model, options, std::move(factors)).status().ToString();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error({.rotate_residual = true}, {}), HasSubstr("needs the norms folded"));
  const std::vector<float> ones(64, 1.0f);
  EXPECT_THAT(error({.fold_norms = true, .rotate_residual = true}, {{"layers.0.ffn_norm", ones}}),
              HasSubstr("rotated residual stream"));
  EXPECT_THAT(error({}, {{"layers.0.gated", ones}}), HasSubstr("64; expected 128"));
  EXPECT_THAT(error({}, {{"layers.2.ffn_norm", ones}}), HasSubstr("layers.2.ffn_norm"));
  EXPECT_THAT(error({}, {{"layers.0.attn_norm", std::vector<float>(64, 0.0f)}}),
              HasSubstr("expected positive numbers"));
  EXPECT_FALSE(ComputeSmoothFactors(*tiny.decoder, {}, {}, {}, &pool).ok());
  EXPECT_FALSE(
      ComputeSmoothFactors(*tiny.decoder, tiny.Windows({8}), {}, {.strength = 1.5f}, &pool).ok());
}

TEST(TransformTest, SmolLm2LogitsStay) {
  const auto path = test::ModelPath();
  if (!path) GTEST_SKIP() << "the model is missing: .deps/model/SmolLM2-135M-Instruct.Q4_1.gguf";
  const auto model = Model::Open(*path);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const std::vector<uint32_t> tokens = test::RandomTokens(12, 40000, 3);
  Decoder plain(*model);
  const std::vector<float> expected = Logits(plain, tokens);
  ThreadPool pool(2);
  const auto factors = ComputeSmoothFactors(plain, {tokens}, {}, {}, &pool);
  ASSERT_TRUE(factors.ok()) << factors.status().ToString();
  for (const TransformOptions& options : AllOptions()) {
    const SmoothFactors smooth = options.any() ? SmoothFactors() : *factors;
    const auto transform = MakeTransform(**model, options, smooth);
    ASSERT_TRUE(transform.ok()) << transform.status().ToString();
    Decoder transformed(*model, *transform);
    const float difference = LargestDifference(Logits(transformed, tokens), expected);
    EXPECT_LT(difference, 1e-3f) << options.fold_norms << options.rotate_residual
                                 << options.rotate_values << options.rotate_keys;
    EXPECT_GT(difference, 0.0f) << "nothing was transformed";
  }
}

}  // namespace
}  // namespace spillway
