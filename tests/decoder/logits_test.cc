// Float logits of the decoder's graphs against a transformer of plain loops.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "decoder/decoder.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "tests/support/paths.h"
#include "tests/support/random_tokens.h"
#include "tests/support/reference_decoder.h"
#include "tests/support/tiny_model.h"

namespace spillway {
namespace {

constexpr uint32_t kContext = 20;
constexpr uint32_t kTokens = 18;

struct LogitsCase {
  const char* name;
  test::TinyModelSpec spec;
};

std::ostream& operator<<(std::ostream& out, const LogitsCase& c) { return out << c.name; }

std::vector<LogitsCase> Cases() {
  std::vector<LogitsCase> cases;
  const auto add = [&](const char* name) -> test::TinyModelSpec& {
    cases.push_back({name, {}});
    return cases.back().spec;
  };
  add("llama");
  add("qwen2").architecture = "qwen2";
  add("qwen3").architecture = "qwen3";
  add("llama_untied").tied = false;
  {
    test::TinyModelSpec& spec = add("qwen2_untied");
    spec.architecture = "qwen2";
    spec.tied = false;
  }
  add("llama_bias").llama_bias = true;
  add("llama_rope_freqs").rope_freqs = true;
  add("llama_linear_scaling").rope_scaling = "linear";
  {
    test::TinyModelSpec& spec = add("qwen2_linear_scaling");
    spec.architecture = "qwen2";
    spec.rope_scaling = "linear";
    spec.rope_scaling_factor = 2.5f;
  }
  add("llama_partial_rope").rope_dim = 8;
  {
    test::TinyModelSpec& spec = add("qwen2_partial_rope");
    spec.architecture = "qwen2";
    spec.rope_dim = 12;
  }
  add("large_theta").rope_theta = 1e6f;
  add("no_groups").kv_heads = 4;
  add("groups_of_4").kv_heads = 1;
  {
    // Heads wider, and narrower, than hidden / heads.
    test::TinyModelSpec& spec = add("qwen3_wide_heads");
    spec.architecture = "qwen3";
    spec.head_dim = 32;
  }
  add("llama_narrow_heads").head_dim = 8;
  {
    test::TinyModelSpec& spec = add("three_odd_heads");
    spec.hidden = 48;
    spec.heads = 3;
    spec.kv_heads = 1;
    spec.head_dim = 10;
    spec.ffn = 70;
    spec.layers = 3;
  }
  add("large_epsilon").rms_eps = 1e-2f;
  {
    test::TinyModelSpec& spec = add("q4_1");
    spec.weight_type = test::TensorType::kQ4_1;
    spec.embedding_type = test::TensorType::kQ8_0;
  }
  return cases;
}

class DecoderLogitsTest : public ::testing::TestWithParam<LogitsCase> {
 protected:
  void SetUp() override {
    const test::TinyModelSpec& spec = GetParam().spec;
    Result<std::shared_ptr<const Model>> model =
        Model::Open(test::WriteTinyModel(folder_.File("tiny.gguf"), spec));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    decoder_ = std::make_unique<Decoder>(*model);
    tokens_ = test::RandomTokens(kTokens, spec.vocab, 11);
    expected_ = test::ReferenceLogits(test::MakeTinyModel(spec), tokens_);
  }

  // Graphs with these AR lengths; 0 leaves one out.
  std::unique_ptr<HostModelExecutor> Make(uint32_t prefill_ar, uint32_t decode_ar) {
    std::vector<std::shared_ptr<const Graph>> graphs;
    for (const auto& [name, ar] :
         {std::pair{kPrefillGraphName, prefill_ar}, std::pair{kDecodeGraphName, decode_ar}}) {
      if (ar == 0) continue;
      DecoderOptions options;
      options.name = name;
      options.ar_len = ar;
      options.context_len = kContext;
      Result<Graph> graph = decoder_->Build(options);
      EXPECT_TRUE(graph.ok()) << graph.status().ToString();
      graphs.push_back(std::make_shared<Graph>(std::move(graph).value()));
    }
    Tensor table;
    table.name = kEmbeddingWeightName;
    table.shape = {GetParam().spec.vocab, GetParam().spec.hidden};
    table.role = TensorRole::kConstant;
    table.data = decoder_->EmbeddingData();
    HostModelOptions options;
    options.pool = &pool_;
    Result<std::unique_ptr<HostModelExecutor>> executor =
        HostModelExecutor::Create({graphs}, table, options);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    return executor.ok() ? std::move(executor).value() : nullptr;
  }

  void ExpectReference(std::unique_ptr<HostModelExecutor> executor) {
    ASSERT_NE(executor, nullptr);
    Generator generator(executor.get());
    size_t rows = 0;
    double largest = 0;
    const Status status =
        generator.Feed(tokens_, [&](uint32_t index, std::span<const float> logits) {
          ++rows;
          ASSERT_EQ(logits.size(), expected_[index].size());
          for (size_t i = 0; i < logits.size(); ++i) {
            largest = std::max(largest, std::abs(double{logits[i]} - expected_[index][i]));
          }
        });
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(rows, kTokens);
    EXPECT_LT(largest, 1e-4);
  }

  test::TempFolder folder_;
  ThreadPool pool_{1};
  std::unique_ptr<Decoder> decoder_;
  std::vector<uint32_t> tokens_;
  std::vector<std::vector<double>> expected_;
};

TEST_P(DecoderLogitsTest, EqualThePlainLoops) {
  double size = 0;
  for (const double logit : expected_.back()) size = std::max(size, std::abs(logit));
  EXPECT_GT(size, 1.0) << "logits near zero would hide mistakes";
  for (const auto& [prefill_ar, decode_ar] :
       {std::pair{0u, 1u}, std::pair{4u, 0u}, std::pair{4u, 1u}, std::pair{kContext, 0u}}) {
    SCOPED_TRACE("AR " + std::to_string(prefill_ar) + " and " + std::to_string(decode_ar));
    ExpectReference(Make(prefill_ar, decode_ar));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DecoderLogitsTest, ::testing::ValuesIn(Cases()),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace spillway
