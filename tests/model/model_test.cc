#include "model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/random.h"
#include "tests/support/tiny_model.h"

namespace spillway {
namespace {

using test::GgufWriter;
using test::MetaValue;
using test::TensorType;
using test::TinyModelSpec;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::FloatEq;
using testing::FloatNear;
using testing::HasSubstr;

class ModelTest : public testing::Test {
 protected:
  Result<std::shared_ptr<const Model>> Open(const GgufWriter& writer) {
    writer.Write(path_);
    return Model::Open(path_);
  }
  std::shared_ptr<const Model> OpenGood(const GgufWriter& writer) {
    auto model = Open(writer);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return model.ok() ? *model : nullptr;
  }

  test::TempFolder folder_;
  const std::string path_ = folder_.File("model.gguf");
};

TinyModelSpec SpecOf(const std::string& architecture) {
  TinyModelSpec spec;
  spec.architecture = architecture;
  return spec;
}

TEST_F(ModelTest, ReadsTheConfigurationOfEachArchitecture) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    SCOPED_TRACE(architecture);
    TinyModelSpec spec = SpecOf(architecture);
    spec.rope_theta = 50000.0f;
    spec.rms_eps = 1e-6f;
    const test::TinyModel tiny = test::MakeTinyModel(spec);
    const auto model = OpenGood(tiny.file);
    ASSERT_NE(model, nullptr);
    const ModelConfig& c = model->config();
    EXPECT_EQ(c.architecture, architecture);
    EXPECT_EQ(c.name, std::string("tiny ") + architecture);
    EXPECT_EQ(c.num_layers, 2u);
    EXPECT_EQ(c.hidden_dim, 64u);
    EXPECT_EQ(c.ffn_dim, 128u);
    EXPECT_EQ(c.num_heads, 4u);
    EXPECT_EQ(c.num_kv_heads, 2u);
    EXPECT_EQ(c.GroupSize(), 2u);
    EXPECT_EQ(c.head_dim, 16u);
    EXPECT_EQ(c.vocab_size, 300u);
    EXPECT_EQ(c.max_context, 512u);
    EXPECT_FLOAT_EQ(c.rms_norm_eps, 1e-6f);
    EXPECT_FLOAT_EQ(c.rope.theta, 50000.0f);
    EXPECT_EQ(c.rope.dim, 16u);
    EXPECT_TRUE(c.rope.factors.empty());
    EXPECT_EQ(c.rope.attention_factor, 1.0f);
    EXPECT_EQ(c.attention_bias, spec.architecture == "qwen2");
    EXPECT_EQ(c.qk_norm, spec.architecture == "qwen3");
    EXPECT_TRUE(c.tied_embeddings);
    EXPECT_EQ(c.activation, Activation::kSilu);
    uint64_t parameters = 0;
    for (const auto& [name, values] : tiny.weights) parameters += values.size();
    EXPECT_EQ(model->num_parameters(), parameters);
  }
}

TEST_F(ModelTest, DefaultsOfAbsentKeys) {
  TinyModelSpec spec;
  spec.kv_heads = 4;
  test::TinyModel tiny = test::MakeTinyModel(spec);
  for (const char* key :
       {"attention.head_count_kv", "rope.freq_base", "rope.dimension_count", "vocab_size"}) {
    tiny.file.Erase(std::string("llama.") + key);
  }
  const auto model = OpenGood(tiny.file);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->config().num_kv_heads, 4u);
  EXPECT_EQ(model->config().rope.theta, 10000.0f);
  EXPECT_EQ(model->config().rope.dim, 16u);
  EXPECT_EQ(model->config().vocab_size, 300u);
}

TEST_F(ModelTest, HeadLengthIndependentOfHiddenSize) {
  TinyModelSpec spec = SpecOf("qwen3");
  spec.head_dim = 24;
  const auto model = OpenGood(test::MakeTinyModel(spec).file);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->config().head_dim, 24u);
  EXPECT_EQ(model->layers()[0].wq.rows(), 96u);
  EXPECT_EQ(model->layers()[0].wo.cols(), 96u);
  EXPECT_EQ(model->layers()[0].q_norm.cols(), 24u);
}

TEST_F(ModelTest, TiedAndSeparateHead) {
  TinyModelSpec spec;
  const auto tied = OpenGood(test::MakeTinyModel(spec).file);
  ASSERT_NE(tied, nullptr);
  EXPECT_EQ(tied->head().name(), "token_embd.weight");
  spec.tied = false;
  const test::TinyModel tiny = test::MakeTinyModel(spec);
  const auto separate = OpenGood(tiny.file);
  ASSERT_NE(separate, nullptr);
  EXPECT_FALSE(separate->config().tied_embeddings);
  EXPECT_EQ(separate->head().name(), "output.weight");
  EXPECT_EQ(separate->head().ReadAll(), tiny.weights.at("output.weight"));
  EXPECT_EQ(separate->embedding().ReadAll(), tiny.weights.at("token_embd.weight"));
  EXPECT_EQ(separate->num_parameters(), tied->num_parameters() + 300 * 64);
}

TEST_F(ModelTest, WeightsOfEveryTypeAreTheStoredValues) {
  for (const TensorType type : test::AllTensorTypes()) {
    SCOPED_TRACE(test::TensorTypeName(type));
    TinyModelSpec spec = SpecOf("qwen3");
    spec.hidden = spec.ffn = 256;
    spec.layers = 1;
    spec.weight_type = type;
    spec.embedding_type = TensorType::kQ8_0;
    const test::TinyModel tiny = test::MakeTinyModel(spec);
    const auto model = OpenGood(tiny.file);
    ASSERT_NE(model, nullptr);
    const LayerWeights& layer = model->layers()[0];
    for (const WeightView* view :
         {&layer.attn_norm, &layer.wq, &layer.wk, &layer.wv, &layer.q_norm, &layer.k_norm,
          &layer.wo, &layer.ffn_norm, &layer.w_gate, &layer.w_up, &layer.w_down,
          &model->embedding(), &model->final_norm()}) {
      ASSERT_TRUE(static_cast<bool>(*view));
      EXPECT_EQ(view->ReadAll(), tiny.weights.at(view->name())) << view->name();
    }
    EXPECT_EQ(layer.w_down.stored_bytes(),
              256u * 256u / test::BlockElements(type) * test::BlockBytes(type));
    EXPECT_FALSE(static_cast<bool>(layer.bq));
  }
}

// Row i of a head in the half-split order is this row of the file.
uint32_t InterleavedRow(uint32_t i, uint32_t rope_dim) {
  if (i >= rope_dim) return i;
  return i < rope_dim / 2 ? 2 * i : 2 * (i - rope_dim / 2) + 1;
}

TEST_F(ModelTest, LlamaRowsComeInHalfSplitOrder) {
  for (const uint32_t rope_dim : {16u, 8u}) {
    SCOPED_TRACE(rope_dim);
    TinyModelSpec spec;
    spec.rope_dim = rope_dim;
    spec.llama_bias = true;
    spec.weight_type = TensorType::kQ4_1;
    const test::TinyModel tiny = test::MakeTinyModel(spec);
    const auto model = OpenGood(tiny.file);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->config().rope.dim, rope_dim);
    EXPECT_TRUE(model->config().attention_bias);
    const LayerWeights& layer = model->layers()[1];
    const std::pair<const WeightView*, const WeightView*> ordered[] = {{&layer.wq, &layer.bq},
                                                                       {&layer.wk, &layer.bk}};
    for (const auto& [matrix, bias] : ordered) {
      const std::vector<float>& stored = tiny.weights.at(matrix->name());
      const std::vector<float>& stored_bias = tiny.weights.at(bias->name());
      const std::vector<float> values = matrix->ReadAll(), bias_values = bias->ReadAll();
      for (uint32_t row = 0; row < matrix->rows(); ++row) {
        const uint32_t from = row / 16 * 16 + InterleavedRow(row % 16, rope_dim);
        ASSERT_TRUE(std::equal(values.begin() + row * 64, values.begin() + row * 64 + 64,
                               stored.begin() + from * 64));
        ASSERT_EQ(bias_values[row], stored_bias[from]);
      }
    }
    EXPECT_EQ(layer.wv.ReadAll(), tiny.weights.at(layer.wv.name()));
    EXPECT_EQ(layer.bv.ReadAll(), tiny.weights.at(layer.bv.name()));
    EXPECT_EQ(layer.wo.ReadAll(), tiny.weights.at(layer.wo.name()));
  }
}

// Rotates pairs (first(i), second(i)) of a head of 16 by position * theta^(-i/8).
template <typename First, typename Second>
void Rotate(float* head, int position, const First& first, const Second& second) {
  for (int i = 0; i < 8; ++i) {
    const double angle = position * std::pow(10000.0, -i / 8.0);
    const double x = head[first(i)], y = head[second(i)];
    head[first(i)] = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
    head[second(i)] = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
  }
}

// The point of the order: scores with half-split RoPE on the view's rows are
// those of interleaved RoPE on the file's rows.
TEST_F(ModelTest, BothRopeConventionsGiveTheSameScores) {
  const test::TinyModel tiny = test::MakeTinyModel(TinyModelSpec{});
  const auto model = OpenGood(tiny.file);
  ASSERT_NE(model, nullptr);
  test::Random random(5);
  std::vector<float> x(64);
  for (float& value : x) value = static_cast<float>(random.Gauss());
  const auto head = [&x](const std::vector<float>& matrix) {
    std::vector<float> y(16, 0.0f);
    for (size_t row = 0; row < 16; ++row) {
      for (size_t col = 0; col < 64; ++col) y[row] += matrix[row * 64 + col] * x[col];
    }
    return y;
  };
  const auto dot = [](const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
  };
  const LayerWeights& layer = model->layers()[0];
  std::vector<float> q = head(layer.wq.ReadAll()), k = head(layer.wk.ReadAll());
  std::vector<float> file_q = head(tiny.weights.at("blk.0.attn_q.weight"));
  std::vector<float> file_k = head(tiny.weights.at("blk.0.attn_k.weight"));
  const auto low = [](int i) { return i; };
  const auto high = [](int i) { return i + 8; };
  const auto even = [](int i) { return 2 * i; };
  const auto odd = [](int i) { return 2 * i + 1; };
  Rotate(q.data(), 9, low, high);
  Rotate(k.data(), 2, low, high);
  Rotate(file_q.data(), 9, even, odd);
  Rotate(file_k.data(), 2, even, odd);
  EXPECT_NEAR(dot(q, k), dot(file_q, file_k), 1e-4);
  EXPECT_GT(std::fabs(dot(q, k) - dot(file_q, k)), 1e-3);  // the order matters
}

TEST_F(ModelTest, QwenRowsStayInTheFilesOrder) {
  const test::TinyModel tiny = test::MakeTinyModel(SpecOf("qwen2"));
  const auto model = OpenGood(tiny.file);
  ASSERT_NE(model, nullptr);
  const LayerWeights& layer = model->layers()[1];
  for (const WeightView* view :
       {&layer.wq, &layer.wk, &layer.wv, &layer.bq, &layer.bk, &layer.bv}) {
    EXPECT_EQ(view->ReadAll(), tiny.weights.at(view->name())) << view->name();
  }
  EXPECT_EQ(layer.bq.rows(), 1u);
  EXPECT_EQ(layer.bq.cols(), 64u);
}

TEST_F(ModelTest, ReadsAnyRangeOfRows) {
  TinyModelSpec spec;
  spec.weight_type = TensorType::kQ5_0;
  const auto model = OpenGood(test::MakeTinyModel(spec).file);
  ASSERT_NE(model, nullptr);
  for (const WeightView* view : {&model->layers()[0].wq, &model->layers()[0].w_up}) {
    const std::vector<float> all = view->ReadAll();
    for (const uint64_t row : {0, 1, 31, 63}) {
      for (const uint64_t count : {0, 1, 20}) {
        if (row + count > view->rows()) continue;
        std::vector<float> some(count * view->cols() + 1, 77.0f);
        view->ReadRows(row, count, some.data());
        EXPECT_TRUE(std::equal(some.begin(), some.end() - 1,
                               all.begin() + static_cast<ptrdiff_t>(row * view->cols())));
        EXPECT_EQ(some.back(), 77.0f);
      }
    }
    view->ReleasePages();
    EXPECT_EQ(view->ReadAll(), all);
  }
}

TEST_F(ModelTest, ViewsOutliveTheModelAndThreadsShareThem) {
  const test::TinyModel tiny = test::MakeTinyModel(TinyModelSpec{});
  WeightView view;
  {
    const auto model = OpenGood(tiny.file);
    ASSERT_NE(model, nullptr);
    view = model->layers()[1].w_down;
  }
  const std::vector<float>& expected = tiny.weights.at("blk.1.ffn_down.weight");
  std::vector<float> seen[2];
  std::thread other([&] { seen[1] = view.ReadAll(); });
  seen[0] = view.ReadAll();
  other.join();
  EXPECT_EQ(seen[0], expected);
  EXPECT_EQ(seen[1], expected);
  EXPECT_EQ(WeightView().name(), "");
  EXPECT_EQ(WeightView().stored_bytes(), 0u);
  EXPECT_TRUE(WeightView().ReadAll().empty());
}

TEST_F(ModelTest, RopeFrequencyFactors) {
  TinyModelSpec spec;
  spec.rope_freqs = true;
  test::TinyModel tiny = test::MakeTinyModel(spec);
  auto model = OpenGood(tiny.file);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->config().rope.factors, tiny.weights.at("rope_freqs.weight"));

  spec.rope_scaling = "linear";
  tiny = test::MakeTinyModel(spec);
  model = OpenGood(tiny.file);
  ASSERT_NE(model, nullptr);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_FLOAT_EQ(model->config().rope.factors[i],
                    4.0f * tiny.weights.at("rope_freqs.weight")[i]);
  }
}

TEST_F(ModelTest, LinearRopeScaling) {
  TinyModelSpec spec;
  spec.rope_scaling = "linear";
  test::TinyModel tiny = test::MakeTinyModel(spec);
  const auto factors_of = [this](const GgufWriter& writer) {
    const auto model = OpenGood(writer);
    return model == nullptr ? std::vector<float>{-1} : model->config().rope.factors;
  };
  EXPECT_THAT(factors_of(tiny.file), AllOf(testing::SizeIs(8), Each(4.0f)));
  tiny.file.Erase("llama.rope.scaling.type");  // a factor alone means linear
  EXPECT_THAT(factors_of(tiny.file), AllOf(testing::SizeIs(8), Each(4.0f)));
  tiny.file.Erase("llama.rope.scaling.factor");
  EXPECT_TRUE(factors_of(tiny.file).empty());
  tiny.file.Set("llama.rope.scale_linear", MetaValue::F32(2.0f));
  EXPECT_THAT(factors_of(tiny.file), AllOf(testing::SizeIs(8), Each(2.0f)));
  tiny.file.Set("llama.rope.scaling.type", MetaValue::String("none"));
  EXPECT_TRUE(factors_of(tiny.file).empty());
}

// Expected values worked out from the paper's formulas: with base 10000, 16
// dimensions and 128 original positions, pair i turns 128 / (2 pi 10^(i/2))
// times, so the ramp goes from pair floor(-0.39) -> 0 to ceil(2.62) = 3.
TEST_F(ModelTest, YarnRopeScaling) {
  TinyModelSpec spec = SpecOf("qwen3");
  spec.rope_scaling = "yarn";
  const auto model = OpenGood(test::MakeTinyModel(spec).file);
  ASSERT_NE(model, nullptr);
  const RopeConfig& rope = model->config().rope;
  EXPECT_THAT(rope.factors,
              ElementsAre(FloatEq(1.0f), FloatEq(4.0f / 3.0f), FloatEq(2.0f), FloatEq(4.0f),
                          FloatEq(4.0f), FloatEq(4.0f), FloatEq(4.0f), FloatEq(4.0f)));
  EXPECT_THAT(rope.attention_factor, FloatNear(1.1386294f, 1e-6f));
}

// One thing wrong in an otherwise valid model.
struct BadCase {
  const char* architecture;
  const char* name;
  std::function<void(GgufWriter*)> change;
  StatusCode code;
  std::vector<std::string> message;  // parts of it
};

std::function<void(GgufWriter*)> Set(const std::string& key, const MetaValue& value) {
  return [=](GgufWriter* w) { w->Set(key, value); };
}

std::vector<BadCase> BadKeys() {
  const auto corrupt = StatusCode::kCorruptData;
  const auto unsupported = StatusCode::kUnsupported;
  const auto u32 = [](uint32_t v) { return MetaValue::U32(v); };
  return {
      {"llama",
       "architecture",
       Set("general.architecture", MetaValue::String("mamba")),
       unsupported,
       {"\"mamba\"", "llama, qwen2, qwen3"}},
      {"llama",
       "no architecture",
       [](GgufWriter* w) { w->Erase("general.architecture"); },
       StatusCode::kNotFound,
       {"general.architecture"}},
      {"llama",
       "adapter",
       Set("general.type", MetaValue::String("adapter")),
       unsupported,
       {"general.type", "\"adapter\""}},
      {"llama", "split", Set("split.count", MetaValue::U16(3)), unsupported, {"3 parts", "merge"}},
      {"llama",
       "no layers",
       [](GgufWriter* w) { w->Erase("llama.block_count"); },
       StatusCode::kNotFound,
       {"llama.block_count", "missing"}},
      {"llama", "zero layers", Set("llama.block_count", u32(0)), corrupt, {"1 to 1024"}},
      {"llama",
       "absurd layers",
       Set("llama.block_count", u32(4000000000u)),
       corrupt,
       {"llama.block_count", "4000000000"}},
      {"llama",
       "more layers than tensors",
       Set("llama.block_count", u32(3)),
       corrupt,
       {"\"blk.2.attn_norm.weight\"", "[64]", "missing"}},
      {"llama",
       "fewer layers than tensors",
       Set("llama.block_count", u32(1)),
       unsupported,
       {"9 tensors", "blk.1.attn_q.weight"}},
      {"llama",
       "absurd width",
       Set("llama.embedding_length", MetaValue::U64(~uint64_t{0})),
       corrupt,
       {"llama.embedding_length", "18446744073709551615"}},
      {"llama",
       "wrong width",
       Set("llama.embedding_length", u32(128)),
       corrupt,
       {"\"token_embd.weight\"", "[64, 300]", "[128, 300]"}},
      {"llama",
       "width as text",
       Set("llama.embedding_length", MetaValue::String("64")),
       corrupt,
       {"llama.embedding_length", "string"}},
      {"llama",
       "negative width",
       Set("llama.embedding_length", MetaValue::I32(-64)),
       corrupt,
       {"llama.embedding_length", "-64"}},
      {"llama",
       "wrong ffn",
       Set("llama.feed_forward_length", u32(96)),
       corrupt,
       {"\"blk.0.ffn_gate.weight\"", "[64, 128]", "[64, 96]"}},
      {"llama",
       "heads",
       Set("llama.attention.head_count", u32(5)),
       corrupt,
       {"llama.attention.head_count", "5", "multiple"}},
      {"llama", "no heads", Set("llama.attention.head_count", u32(0)), corrupt, {"head_count"}},
      {"llama",
       "kv heads",
       Set("llama.attention.head_count_kv", u32(3)),
       corrupt,
       {"multiple of attention.head_count_kv, 3"}},
      {"llama",
       "kv heads by layer",
       Set("llama.attention.head_count_kv", MetaValue::Array(4, {u32(2), u32(1)})),
       unsupported,
       {"llama.attention.head_count_kv", "array of 2", "layer"}},
      {"llama",
       "odd heads",
       [](GgufWriter* w) {
         w->Set("llama.attention.key_length", MetaValue::U32(15));
         w->Set("llama.attention.value_length", MetaValue::U32(15));
       },
       unsupported,
       {"15 elements", "even"}},
      {"llama",
       "value length",
       Set("llama.attention.value_length", u32(32)),
       unsupported,
       {"16", "32", "value_length"}},
      {"llama",
       "no epsilon",
       [](GgufWriter* w) { w->Erase("llama.attention.layer_norm_rms_epsilon"); },
       StatusCode::kNotFound,
       {"layer_norm_rms_epsilon"}},
      {"llama",
       "epsilon not a number",
       Set("llama.attention.layer_norm_rms_epsilon", MetaValue::F32(std::nanf(""))),
       corrupt,
       {"layer_norm_rms_epsilon", "nan"}},
      {"llama", "theta", Set("llama.rope.freq_base", MetaValue::F32(-1)), corrupt, {"freq_base"}},
      {"llama",
       "rope width",
       Set("llama.rope.dimension_count", u32(18)),
       corrupt,
       {"rope.dimension_count", "18", "2 to 16"}},
      {"llama", "odd rope width", Set("llama.rope.dimension_count", u32(7)), corrupt, {"even"}},
      {"llama",
       "scaling type",
       Set("llama.rope.scaling.type", MetaValue::String("longrope")),
       unsupported,
       {"llama.rope.scaling.type", "\"longrope\"", "yarn"}},
      {"llama",
       "scaling factor",
       Set("llama.rope.scaling.factor", MetaValue::F32(0)),
       corrupt,
       {"llama.rope.scaling.factor"}},
      {"qwen3",
       "yarn without original length",
       [](GgufWriter* w) {
         w->Set("qwen3.rope.scaling.type", MetaValue::String("yarn"));
         w->Set("qwen3.rope.scaling.factor", MetaValue::F32(4));
       },
       StatusCode::kNotFound,
       {"original_context_length"}},
      {"llama",
       "yarn that shrinks",
       [](GgufWriter* w) {
         w->Set("llama.rope.scaling.type", MetaValue::String("yarn"));
         w->Set("llama.rope.scaling.factor", MetaValue::F32(0.5f));
         w->Set("llama.rope.scaling.original_context_length", MetaValue::U32(128));
       },
       corrupt,
       {"rope.scaling.factor", "at least 1"}},
      {"llama",
       "attention factor",
       Set("llama.rope.scaling.attn_factor", MetaValue::F32(1.5f)),
       unsupported,
       {"attn_factor", "1.5"}},
      {"llama",
       "experts",
       Set("llama.expert_count", u32(8)),
       unsupported,
       {"\"llama.expert_count\" = 8"}},
      {"qwen2",
       "sliding window",
       Set("qwen2.attention.sliding_window", u32(4096)),
       unsupported,
       {"sliding_window", "4096"}},
      {"llama",
       "softcap",
       Set("llama.final_logit_softcapping", MetaValue::F32(30)),
       unsupported,
       {"final_logit_softcapping", "30"}},
      {"llama",
       "not causal",
       Set("llama.attention.causal", MetaValue::Bool(false)),
       unsupported,
       {"attention.causal", "false"}},
      {"llama",
       "unknown key",
       Set("llama.something.new", MetaValue::String("on\xff")),
       unsupported,
       {"llama.something.new", "\"on?\"", "not known"}},
      {"llama",
       "vocabulary size",
       Set("llama.vocab_size", u32(299)),
       corrupt,
       {"llama.vocab_size", "299", "300"}},
      {"llama",
       "token list",
       Set("tokenizer.ggml.tokens", MetaValue::Strings({"a", "b"})),
       corrupt,
       {"tokenizer.ggml.tokens", "2 entries", "300"}},
  };
}

std::vector<BadCase> BadTensors() {
  const auto corrupt = StatusCode::kCorruptData;
  const auto unsupported = StatusCode::kUnsupported;
  const auto erase = [](const char* name) {
    return [name](GgufWriter* w) { w->EraseTensor(name); };
  };
  const auto add = [](const char* name, uint64_t size, float value) {
    return [=](GgufWriter* w) {
      w->AddTensor(name, {size}, TensorType::kF32, std::vector<float>(size, value));
    };
  };
  return {
      {"llama", "no embedding", erase("token_embd.weight"), corrupt, {"\"token_embd.weight\""}},
      {"llama", "no final norm", erase("output_norm.weight"), corrupt, {"\"output_norm.weight\""}},
      {"llama",
       "no down",
       erase("blk.1.ffn_down.weight"),
       corrupt,
       {"\"blk.1.ffn_down.weight\"", "[128, 64]", "missing"}},
      {"qwen2", "no bias", erase("blk.0.attn_q.bias"), corrupt, {"\"blk.0.attn_q.bias\"", "[64]"}},
      {"qwen2",
       "one bias missing",
       erase("blk.1.attn_v.bias"),
       corrupt,
       {"\"blk.1.attn_v.bias\"", "[32]"}},
      {"qwen3",
       "no q norm",
       erase("blk.1.attn_q_norm.weight"),
       corrupt,
       {"\"blk.1.attn_q_norm.weight\"", "[16]"}},
      {"llama",
       "q norm",
       add("blk.0.attn_q_norm.weight", 16, 1),
       unsupported,
       {"1 tensors", "architecture llama", "blk.0.attn_q_norm.weight"}},
      {"llama",
       "bias of one layer only",
       add("blk.0.attn_q.bias", 64, 0),
       corrupt,
       {"\"blk.0.attn_k.bias\""}},
      {"llama",
       "bias of a later layer only",
       add("blk.1.attn_q.bias", 64, 0),
       unsupported,
       {"blk.1.attn_q.bias"}},
      {"qwen3", "bias", add("blk.0.attn_q.bias", 64, 0), unsupported, {"blk.0.attn_q.bias"}},
      {"qwen2",
       "frequency factors",
       add("rope_freqs.weight", 8, 1),
       unsupported,
       {"rope_freqs.weight"}},
      {"llama",
       "number of frequency factors",
       add("rope_freqs.weight", 4, 1),
       corrupt,
       {"\"rope_freqs.weight\"", "[4]", "[8]"}},
      {"llama",
       "zero frequency factor",
       add("rope_freqs.weight", 8, 0),
       corrupt,
       {"\"rope_freqs.weight\"", "above zero"}},
      {"llama",
       "infinite frequency factor",
       add("rope_freqs.weight", 8, INFINITY),
       corrupt,
       {"\"rope_freqs.weight\"", "inf"}},
      {"llama",
       "transposed",
       [](GgufWriter* w) {
         w->FindTensor("blk.0.ffn_up.weight")->dims = {128, 64};
       },
       corrupt,
       {"\"blk.0.ffn_up.weight\"", "[128, 64]", "[64, 128]"}},
      {"llama",
       "flat",
       [](GgufWriter* w) { w->FindTensor("blk.0.ffn_up.weight")->dims = {8192}; },
       corrupt,
       {"[8192]"}},
      {"llama",
       "many unused tensors",
       [](GgufWriter* w) {
         for (int i = 0; i < 30; ++i) {
           w->AddTensor("extra." + std::to_string(i), {1}, TensorType::kF32, std::vector<float>(1));
         }
       },
       unsupported,
       {"30 tensors", "extra.9, ..."}},
  };
}

TEST_F(ModelTest, RejectsWhatItCannotHonour) {
  std::vector<BadCase> cases = BadKeys();
  for (const BadCase& bad : BadTensors()) cases.push_back(bad);
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.name);
    test::TinyModel tiny = test::MakeTinyModel(SpecOf(bad.architecture));
    bad.change(&tiny.file);
    const auto model = Open(tiny.file);
    EXPECT_FALSE(model.ok());
    EXPECT_EQ(model.status().code(), bad.code) << model.status().ToString();
    EXPECT_THAT(model.status().message(), HasSubstr(path_));
    for (const std::string& part : bad.message) {
      EXPECT_THAT(model.status().message(), HasSubstr(part));
    }
  }
}

TEST_F(ModelTest, AcceptsKeysThatSayNotUsed) {
  test::TinyModel tiny = test::MakeTinyModel(TinyModelSpec{});
  tiny.file.Set("llama.expert_count", MetaValue::U32(0));
  tiny.file.Set("llama.expert_used_count", MetaValue::U32(0));
  tiny.file.Set("llama.attention.causal", MetaValue::Bool(true));
  tiny.file.Set("llama.rope.scaling.finetuned", MetaValue::Bool(false));
  tiny.file.Set("llama.attn_logit_softcapping", MetaValue::F32(0));
  tiny.file.Set("split.count", MetaValue::U16(1));
  tiny.file.Set("general.unheard_of", MetaValue::String("a note"));
  EXPECT_NE(OpenGood(tiny.file), nullptr);
}

TEST_F(ModelTest, TinyModelIsAFunctionOfItsSpec) {
  TinyModelSpec spec;
  const std::string first = test::MakeTinyModel(spec).file.Serialize();
  EXPECT_EQ(test::MakeTinyModel(spec).file.Serialize(), first);
  spec.seed = 2;
  EXPECT_NE(test::MakeTinyModel(spec).file.Serialize(), first);
  EXPECT_EQ(test::WriteTinyModel(path_, spec), path_);
  EXPECT_TRUE(Model::Open(path_).ok());
}

TEST_F(ModelTest, DamagedModelsNeverCrash) {
  TinyModelSpec spec;
  spec.hidden = 32;
  spec.head_dim = 8;
  spec.ffn = 32;
  spec.layers = 1;
  spec.vocab = 259;
  const test::TinyModel tiny = test::MakeTinyModel(spec);
  const std::string good = tiny.file.Serialize();
  uint64_t data_bytes = 0;
  for (const test::WriterTensor& tensor : tiny.file.tensors) data_bytes += tensor.data.size();
  ASSERT_LT(data_bytes, good.size());
  const uint64_t described = good.size() - data_bytes;  // about where the data starts
  test::Random random(99);
  int opened = 0, refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    for (uint64_t flip = 1 + random.Below(3); flip > 0; --flip) {
      char& byte = bytes[random.Below(described)];
      byte = static_cast<char>(byte ^ (1 << random.Below(8)));
    }
    test::WriteBytes(path_, bytes);
    const auto model = Model::Open(path_);
    ++(model.ok() ? opened : refused);
    if (model.ok()) (*model)->layers()[0].wq.ReadAll();
  }
  EXPECT_GT(opened, 20);
  EXPECT_GT(refused, 200);
}

TEST(RealModelTest, SmolLm2) {
  const auto path = test::ModelPath();
  if (!path.has_value()) GTEST_SKIP() << "needs .deps/model/SmolLM2-135M-Instruct.Q4_1.gguf";
  const auto opened = Model::Open(*path);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const Model& model = **opened;
  const ModelConfig& c = model.config();
  EXPECT_EQ(c.architecture, "llama");
  EXPECT_EQ(c.num_layers, 30u);
  EXPECT_EQ(c.hidden_dim, 576u);
  EXPECT_EQ(c.ffn_dim, 1536u);
  EXPECT_EQ(c.num_heads, 9u);
  EXPECT_EQ(c.num_kv_heads, 3u);
  EXPECT_EQ(c.head_dim, 64u);
  EXPECT_EQ(c.vocab_size, 49152u);
  EXPECT_EQ(c.max_context, 8192u);
  EXPECT_FLOAT_EQ(c.rope.theta, 100000.0f);
  EXPECT_FLOAT_EQ(c.rms_norm_eps, 1e-5f);
  EXPECT_TRUE(c.tied_embeddings);
  EXPECT_FALSE(c.attention_bias);
  EXPECT_EQ(model.num_parameters(), 134515008u);
  EXPECT_EQ(GgufTypeName(model.file()->FindTensor("token_embd.weight")->type), "Q8_0");
  EXPECT_EQ(GgufTypeName(model.file()->FindTensor("blk.0.attn_q.weight")->type), "Q4_1");
  for (const WeightView* view : {&model.embedding(), &model.layers()[29].w_down}) {
    for (const float value : view->ReadAll()) ASSERT_LT(std::fabs(value), 100.0f);
  }
}

}  // namespace
}  // namespace spillway
