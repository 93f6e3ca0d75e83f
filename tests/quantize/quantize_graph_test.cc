#include "quantize/quantize_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "graph/legalize.h"
#include "package/package.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "tests/quantize/tiny.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kContext = 40;
constexpr uint32_t kPrefillAr = 8;

// The quantised step graphs of a tiny model, and the float ones.
class Quantised {
 public:
  explicit Quantised(const test::TinyModelSpec& spec, DType kv = DType::kU8,
                     IoProfile io = IoProfile::kSpillway)
      : Quantised(spec, RecipeWith(kv), io) {}
  Quantised(const test::TinyModelSpec& spec, const Recipe& recipe,
            IoProfile io = IoProfile::kSpillway)
      : tiny_(spec) {
    Result<TensorRanges> ranges =
        Calibrate(*tiny_.decoder, tiny_.Windows({kContext, kContext, 30, 24}), {}, &pool_, nullptr);
    EXPECT_TRUE(ranges.ok()) << ranges.status().ToString();
    quantizer_ = std::make_unique<GraphQuantizer>(recipe, std::move(ranges).value(), &pool_);
    const ModelConfig& config = tiny_.model->config();
    embedding = quantizer_->QuantizeEmbedding(
        config.tied_embeddings ? kHeadWeightName : kEmbeddingWeightName,
        tiny_.decoder->EmbeddingData(), config.vocab_size, config.hidden_dim);
    for (const auto& [name, ar] :
         {std::pair{kPrefillGraphName, kPrefillAr}, std::pair{kDecodeGraphName, 1u}}) {
      floats.push_back(tiny_.Build(name, ar, kContext, io));
      Result<Graph> graph = quantizer_->Quantize(*floats.back());
      EXPECT_TRUE(graph.ok()) << graph.status().ToString();
      graphs.push_back(std::make_shared<Graph>(std::move(graph).value()));
    }
  }

  static Recipe RecipeWith(DType kv) {
    Recipe recipe;
    recipe.kv = kv;
    return recipe;
  }

  const Graph& prefill() const { return *graphs[0]; }
  const Graph& decode() const { return *graphs[1]; }
  const Model& model() const { return *tiny_.model; }
  GraphQuantizer& quantizer() { return *quantizer_; }
  std::vector<uint32_t> Tokens(size_t count) const {
    return test::RandomTokens(count, model().config().vocab_size, 77);
  }

  using Graphs = std::vector<std::shared_ptr<const Graph>>;
  std::unique_ptr<HostModelExecutor> Executor(const Graphs& shard, const Tensor& table) {
    HostModelOptions options;
    options.pool = &pool_;
    Result<std::unique_ptr<HostModelExecutor>> executor =
        HostModelExecutor::Create({shard}, table, options);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    return executor.ok() ? std::move(executor).value() : nullptr;
  }
  Tensor FloatTable() {
    Tensor table;
    table.name = kEmbeddingWeightName;
    table.shape = embedding.shape;
    table.role = TensorRole::kConstant;
    table.data = tiny_.decoder->EmbeddingData();
    return table;
  }

  Graphs floats, graphs;
  Tensor embedding;

 private:
  ThreadPool pool_{2};
  test::TinyDecoder tiny_;
  std::unique_ptr<GraphQuantizer> quantizer_;
};

std::vector<std::vector<float>> AllLogits(ModelExecutor& executor, std::span<const uint32_t> tokens,
                                          size_t piece) {
  Generator generator(&executor);
  std::vector<std::vector<float>> rows;
  for (size_t begin = 0; begin < tokens.size(); begin += piece) {
    const Status status = generator.Feed(
        tokens.subspan(begin, std::min(piece, tokens.size() - begin)),
        [&](uint32_t, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); });
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  return rows;
}

const Tensor& Named(const Graph& graph, const std::string& name) {
  const auto id = graph.Find(name);
  EXPECT_TRUE(id.has_value()) << name;
  return graph.tensor(id.value_or(0));
}

TEST(GraphQuantizerTest, PrefillAndDecodeAgree) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    test::TinyModelSpec spec;
    spec.architecture = architecture;
    Quantised q(spec);
    ASSERT_EQ(q.prefill().tensors().size(), q.decode().tensors().size());
    int constants = 0;
    for (const Tensor& tensor : q.prefill().tensors()) {
      const Tensor& twin = Named(q.decode(), tensor.name);
      EXPECT_EQ(tensor.dtype, twin.dtype) << tensor.name;
      EXPECT_EQ(tensor.encoding, twin.encoding) << tensor.name;
      EXPECT_NE(tensor.dtype, DType::kF32) << tensor.name;
      EXPECT_EQ(tensor.data, twin.data) << tensor.name << " is shared";
      constants += tensor.role == TensorRole::kConstant ? 1 : 0;
    }
    EXPECT_GT(constants, 20);
    ASSERT_EQ(q.prefill().ops().size(), q.floats[0]->ops().size()) << "no Convert is added";
    for (size_t i = 0; i < q.prefill().ops().size(); ++i) {
      EXPECT_EQ(q.prefill().ops()[i].name, q.floats[0]->ops()[i].name);
    }
  }
}

TEST(GraphQuantizerTest, CachesAreSymmetricAndTheStepsOwn) {
  for (const auto& [kv, middle] : {std::pair{DType::kU8, 128}, std::pair{DType::kU16, 32768}}) {
    Quantised q({}, kv);
    for (int layer = 0; layer < 2; ++layer) {
      const std::string n = std::to_string(layer);
      for (const std::string part : {"k", "v"}) {
        const Tensor& cache = Named(q.decode(), part + "_cache_" + n);
        const Tensor& fresh = Named(q.decode(), part + "_new_" + n);
        EXPECT_EQ(cache.dtype, kv);
        EXPECT_EQ(fresh.dtype, kv);
        EXPECT_EQ(cache.encoding.offset, -middle);
        EXPECT_EQ(cache.encoding, fresh.encoding);
        EXPECT_EQ(cache.encoding,
                  Named(q.decode(), "layers." + n + "." + part + ".cached").encoding);
        const Range& range = q.quantizer().ranges().at("layers." + n + "." + part + ".cached");
        EXPECT_FLOAT_EQ(cache.encoding.scale,
                        std::max(range.max, -range.min) / static_cast<float>(middle - 1));
      }
    }
  }
}

TEST(GraphQuantizerTest, FixedEncodings) {
  Quantised q({});
  const Tensor& mask = Named(q.decode(), kMaskInputName);
  EXPECT_EQ(mask.dtype, DType::kU16);
  EXPECT_EQ(mask.encoding, MaskEncoding());
  EXPECT_EQ(DequantizeValue(65535, mask.encoding), 0.0f);
  EXPECT_FLOAT_EQ(DequantizeValue(0, mask.encoding), -255.0f);
  const Tensor& attention = Named(q.decode(), "layers.0.attention");
  EXPECT_EQ(attention.dtype, DType::kU16);
  EXPECT_EQ(attention.encoding.offset, 0);
  EXPECT_FLOAT_EQ(DequantizeValue(65535, attention.encoding), 1.0f);
  // A hidden score is 20 below the smallest visible one, not 255.
  const Range& scores = q.quantizer().ranges().at("layers.0.scores");
  EXPECT_EQ(Named(q.decode(), "layers.0.scores.masked").encoding,
            AffineEncoding(DType::kU16, scores.min - 20.0f, scores.max));
  EXPECT_EQ(Named(q.decode(), kPositionsInputName).dtype, DType::kI32);
  // The rest follows calibration.
  const Range& gate = q.quantizer().ranges().at("layers.1.gate");
  EXPECT_EQ(Named(q.decode(), "layers.1.gate").encoding,
            AffineEncoding(DType::kU16, gate.min, gate.max));
}

TEST(GraphQuantizerTest, TheHiddenInputHoldsTheWholeEmbedding) {
  Quantised q({});
  const std::vector<float> rows = q.model().embedding().ReadAll();
  EXPECT_EQ(Named(q.decode(), kHiddenInputName).encoding,
            AffineEncoding(DType::kU16, *std::min_element(rows.begin(), rows.end()),
                           *std::max_element(rows.begin(), rows.end())));
}

TEST(GraphQuantizerTest, TiedAndUntiedEmbeddings) {
  Quantised tied({});
  EXPECT_EQ(tied.embedding.name, kHeadWeightName);
  EXPECT_EQ(tied.embedding.data, Named(tied.decode(), kHeadWeightName).data);
  test::TinyModelSpec spec;
  spec.tied = false;
  Quantised untied(spec);
  EXPECT_EQ(untied.embedding.name, kEmbeddingWeightName);
  EXPECT_NE(untied.embedding.data, Named(untied.decode(), kHeadWeightName).data);
  EXPECT_EQ(untied.embedding.dtype, DType::kS8);
  EXPECT_EQ(untied.embedding.role, TensorRole::kConstant);
  EXPECT_EQ(untied.embedding.shape, (Shape{300, 64}));
  EXPECT_EQ(untied.embedding.encoding.channel_scales.size(), 300u);
}

TEST(GraphQuantizerTest, BiasesAreInUnitsOfTheSum) {
  test::TinyModelSpec spec;
  spec.architecture = "qwen2";
  Quantised q(spec);
  int linears = 0;
  for (const Op& op : q.decode().ops()) {
    if (op.type != OpType::kLinear || op.inputs.size() < 3) continue;
    ++linears;
    const Tensor& x = q.decode().tensor(op.inputs[0]);
    const Tensor& weight = q.decode().tensor(op.inputs[1]);
    const Tensor& bias = q.decode().tensor(op.inputs[2]);
    EXPECT_EQ(bias.dtype, DType::kS32);
    EXPECT_EQ(bias.encoding.bits, 32);
    const Tensor& original = Named(*q.floats[1], bias.name);
    ASSERT_EQ(bias.encoding.channel_scales.size(), bias.shape[0]);
    for (uint32_t n = 0; n < bias.shape[0]; ++n) {
      const float scale = bias.encoding.channel_scales[n];
      EXPECT_EQ(scale, x.encoding.scale * weight.encoding.channel_scales[n]);
      int32_t integer;
      float real;
      std::memcpy(&integer, bias.data->bytes().data() + 4 * n, 4);
      std::memcpy(&real, original.data->bytes().data() + 4 * n, 4);
      EXPECT_NEAR(integer * double{scale}, real, 0.5001 * scale) << bias.name;
      EXPECT_GT(std::abs(integer), 10) << "the check above must mean something";
    }
  }
  EXPECT_EQ(linears, 6);
}

TEST(GraphQuantizerTest, ABiasThatDoesNotFitIsAnError) {
  test::TinyModelSpec spec;
  spec.architecture = "qwen2";
  test::TinyModel model = test::MakeTinyModel(spec);
  // The last row of a weight is so small that the unit of its sums is, too.
  test::WriterTensor* weight = model.file.FindTensor("blk.0.attn_k.weight");
  ASSERT_NE(weight, nullptr);
  const float small = 1e-15f;
  for (size_t i = 1; i <= spec.hidden; ++i) {
    std::memcpy(weight->data.data() + weight->data.size() - i * sizeof(small), &small,
                sizeof(small));
  }
  test::TinyDecoder tiny(model);
  ThreadPool pool(1);
  const auto ranges = Calibrate(*tiny.decoder, tiny.Windows({16}), {}, &pool, nullptr);
  ASSERT_TRUE(ranges.ok());
  GraphQuantizer quantizer(Recipe{}, *ranges, &pool);
  quantizer.QuantizeEmbedding(kHeadWeightName, tiny.decoder->EmbeddingData(), 300, spec.hidden);
  const Result<Graph> graph = quantizer.Quantize(*tiny.Build("g", 1, 8));
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(graph.status().message(),
              AllOf(HasSubstr("layers.0.k.bias[31]"), HasSubstr("does not fit 32 bits")));
}

TEST(GraphQuantizerTest, VectorsComeBackWithinHalfAStep) {
  Quantised q({});
  for (const std::string name :
       {"layers.0.attn_norm.gamma", "final_norm.gamma", "rope.cos.table"}) {
    const Tensor& tensor = Named(q.decode(), name);
    const Tensor& original = Named(*q.floats[1], name);
    EXPECT_EQ(tensor.dtype, DType::kU16);
    ASSERT_EQ(tensor.data->bytes().size(), tensor.Bytes());
    for (uint64_t i = 0; i < NumElements(tensor.shape); ++i) {
      uint16_t integer;
      float real;
      std::memcpy(&integer, tensor.data->bytes().data() + 2 * i, 2);
      std::memcpy(&real, original.data->bytes().data() + 4 * i, 4);
      // At an end of the range the zero point's rounding takes up to another half.
      EXPECT_NEAR(DequantizeValue(integer, tensor.encoding), real, 1.001 * tensor.encoding.scale);
    }
  }
}

TEST(GraphQuantizerTest, ATensorThatCalibrationDidNotSee) {
  test::TinyDecoder tiny{test::TinyModelSpec{}};
  ThreadPool pool(1);
  GraphQuantizer quantizer(Recipe{}, {}, &pool);
  const Result<Graph> graph = quantizer.Quantize(*tiny.Build("g", 1, 8));
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.status().code(), StatusCode::kInternal);
  EXPECT_THAT(graph.status().message(), HasSubstr("did not see the tensor hidden_in"));
}

TEST(GraphQuantizerTest, WeightsThatAreNotFiniteAreAnError) {
  for (const bool in_embedding : {true, false}) {
    test::TinyModelSpec spec;
    spec.tied = false;
    test::TinyModel model = test::MakeTinyModel(spec);
    // Row 299 of the embedding: calibration below never looks at it.
    const float bad = std::nanf("");
    test::WriterTensor* tensor =
        model.file.FindTensor(in_embedding ? "token_embd.weight" : "blk.0.ffn_up.weight");
    const TokenWindows windows = {std::vector<uint32_t>(16, 5)};
    test::TinyDecoder clean(model);
    ThreadPool pool(1);
    Result<TensorRanges> ranges = Calibrate(*clean.decoder, windows, {}, &pool, nullptr);
    ASSERT_TRUE(ranges.ok());
    std::memcpy(tensor->data.data() + tensor->data.size() - 8, &bad, sizeof(bad));
    test::TinyDecoder damaged(model);
    GraphQuantizer quantizer(Recipe{}, *ranges, &pool);
    quantizer.QuantizeEmbedding(kEmbeddingWeightName, damaged.decoder->EmbeddingData(), 300, 64);
    const Result<Graph> graph = quantizer.Quantize(*damaged.Build("g", 1, 8));
    ASSERT_FALSE(graph.ok());
    EXPECT_EQ(graph.status().code(), StatusCode::kCorruptData);
    EXPECT_THAT(graph.status().message(),
                AllOf(HasSubstr(in_embedding ? "weight embedding.weight, row 299"
                                             : "weight layers.0.up.weight, row 127"),
                      HasSubstr("not finite")));
  }
}

double SqnrDb(const std::vector<std::vector<float>>& expected,
              const std::vector<std::vector<float>>& found) {
  EXPECT_EQ(expected.size(), found.size());
  double signal = 0, noise = 0;
  for (size_t r = 0; r < std::min(expected.size(), found.size()); ++r) {
    for (size_t i = 0; i < expected[r].size(); ++i) {
      const double error = double{expected[r][i]} - found[r][i];
      signal += double{expected[r][i]} * expected[r][i];
      noise += error * error;
    }
  }
  return 10 * std::log10(signal / noise);
}

TEST(QuantizedLogitsTest, CloseToFloat) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    test::TinyModelSpec spec;
    spec.architecture = architecture;
    spec.tied = spec.architecture != "qwen3";
    Quantised q(spec, DType::kU16);
    const std::vector<uint32_t> tokens = q.Tokens(32);
    auto floats = q.Executor(q.floats, q.FloatTable());
    auto integers = q.Executor(q.graphs, q.embedding);
    ASSERT_TRUE(floats && integers);
    const double db = SqnrDb(AllLogits(*floats, tokens, 32), AllLogits(*integers, tokens, 32));
    EXPECT_GE(db, 25.0) << architecture;
    RecordProperty(architecture, std::to_string(db));
  }
}

TEST(QuantizedLogitsTest, ChunksAndSingleTokensAreBitEqual) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    for (const DType kv : {DType::kU8, DType::kU16}) {
      test::TinyModelSpec spec;
      spec.architecture = architecture;
      spec.kv_heads = kv == DType::kU8 ? 2 : 1;
      Quantised q(spec, kv);
      Quantised::Graphs legal;
      for (const auto& graph : q.graphs) {
        Result<Graph> made = Legalize(*graph, {});
        ASSERT_TRUE(made.ok()) << made.status().ToString();
        legal.push_back(std::make_shared<Graph>(std::move(made).value()));
      }
      const std::vector<uint32_t> tokens = q.Tokens(kContext - 1);
      auto single = q.Executor({q.graphs[1]}, q.embedding);
      ASSERT_NE(single, nullptr);
      const auto expected = AllLogits(*single, tokens, 1);
      EXPECT_NE(expected[0], expected[1]);
      for (const Quantised::Graphs& graphs : {q.graphs, legal}) {
        auto hybrid = q.Executor(graphs, q.embedding);
        ASSERT_NE(hybrid, nullptr);
        for (const size_t piece : {5, 8, 39}) {
          EXPECT_EQ(AllLogits(*hybrid, tokens, piece), expected)
              << architecture << ", pieces of " << piece;
        }
      }
    }
  }
}

TEST(QuantizedLogitsTest, TokenIdProfile) {
  Quantised q({}, DType::kU8, IoProfile::kExecutorch);
  EXPECT_EQ(q.decode().tensor(q.decode().inputs()[0]).dtype, DType::kI32);
  EXPECT_EQ(Named(q.decode(), kEmbeddingWeightName).dtype, DType::kU16)
      << "a table that is looked up has the type of the activations";
  const std::vector<uint32_t> tokens = q.Tokens(20);
  auto floats = q.Executor(q.floats, q.FloatTable());
  auto integers = q.Executor(q.graphs, q.embedding);
  ASSERT_TRUE(floats && integers);
  EXPECT_GE(SqnrDb(AllLogits(*floats, tokens, 20), AllLogits(*integers, tokens, 20)), 20.0);
}

// ------------------------------------------------------------------ recipes

std::vector<std::string> RecipeNames() {
  std::vector<std::string> names;
  for (const Recipe& recipe : BuiltInRecipes()) names.push_back(recipe.name);
  return names;
}

class EveryRecipe : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryRecipe, OneTypeAndEncodingANameInBothGraphs) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    test::TinyModelSpec spec;
    spec.architecture = architecture;
    Quantised q(spec, *FindRecipe(GetParam()));
    ASSERT_EQ(q.prefill().tensors().size(), q.decode().tensors().size());
    for (const Tensor& tensor : q.prefill().tensors()) {
      const Tensor& twin = Named(q.decode(), tensor.name);
      EXPECT_EQ(tensor.dtype, twin.dtype) << tensor.name;
      EXPECT_EQ(tensor.encoding, twin.encoding) << tensor.name;
      EXPECT_EQ(tensor.data, twin.data) << tensor.name << " is shared";
      EXPECT_NE(tensor.dtype, DType::kF32) << tensor.name;
    }
    for (const auto& graph : q.graphs) {
      const Result<Graph> legal = Legalize(*graph, {});
      EXPECT_TRUE(legal.ok()) << legal.status().ToString();
    }
  }
}

// A chunk of a prompt and single tokens, whole layers and shards.
TEST_P(EveryRecipe, ChunksAndSingleTokensAgree) {
  test::TinyModelSpec spec;
  Quantised q(spec, *FindRecipe(GetParam()));
  Quantised::Graphs legal;
  for (const auto& graph : q.graphs) {
    Result<Graph> made = Legalize(*graph, {});
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    legal.push_back(std::make_shared<Graph>(std::move(made).value()));
  }
  const std::vector<uint32_t> tokens = q.Tokens(30);
  auto floats = q.Executor(q.floats, q.FloatTable());
  auto hybrid = q.Executor(legal, q.embedding);
  auto single = q.Executor({legal[1]}, q.embedding);
  ASSERT_TRUE(floats && hybrid && single);
  const auto expected = AllLogits(*floats, tokens, 30);
  const auto chunks = AllLogits(*hybrid, tokens, 30);
  const auto ones = AllLogits(*single, tokens, 1);
  // Floats are summed in another order when there are more rows.
  if (GetParam() == "fp16") {
    EXPECT_GE(SqnrDb(chunks, ones), 40.0);
  } else {
    EXPECT_EQ(chunks, ones);
  }
  const double db = SqnrDb(expected, chunks);
  std::printf("  %s: %.1f dB\n", GetParam().c_str(), db);
  const std::map<std::string, double> least = {
      {"16a8w", 20}, {"16a4w", 4}, {"16a4w-block", 6}, {"8a8w", 5}, {"fp16", 45}};
  const auto floor = least.find(GetParam());
  EXPECT_GE(db, floor == least.end() ? 5.0 : floor->second);
}

INSTANTIATE_TEST_SUITE_P(Recipes, EveryRecipe, ::testing::ValuesIn(RecipeNames()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(RecipeGraphTest, FourBitWeightsAndAnEightBitHead) {
  for (const std::string name : {"16a4w", "16a4w-block", "16a4w-block16"}) {
    test::TinyModelSpec spec;
    spec.tied = false;
    Quantised q(spec, *FindRecipe(name));
    int linears = 0;
    for (const Op& op : q.decode().ops()) {
      if (op.type != OpType::kLinear) continue;
      const Tensor& weight = q.decode().tensor(op.inputs[1]);
      EXPECT_EQ(weight.dtype, DType::kS8);
      if (op.name == "head") {
        EXPECT_EQ(weight.encoding.bits, 8);
        EXPECT_EQ(weight.encoding.kind, Encoding::Kind::kPerChannel);
        continue;
      }
      ++linears;
      EXPECT_EQ(weight.encoding.bits, 4) << op.name;
      const auto* values = reinterpret_cast<const int8_t*>(weight.data->bytes().data());
      for (size_t i = 0; i < weight.data->bytes().size(); ++i) {
        ASSERT_LE(std::abs(values[i]), 7) << op.name;
      }
      if (name == "16a4w") {
        EXPECT_EQ(weight.encoding.kind, Encoding::Kind::kPerChannel);
      } else {
        EXPECT_EQ(weight.encoding.kind, Encoding::Kind::kBlock);
        EXPECT_EQ(weight.encoding.block_size, name == "16a4w-block" ? 32u : 16u);
      }
    }
    EXPECT_EQ(linears, 14);
    EXPECT_EQ(q.embedding.encoding.bits, 8);
  }
}

// The letter of 8a8w.
TEST(RecipeGraphTest, EightBitActivations) {
  Quantised q({}, *FindRecipe("8a8w"));
  const std::vector<std::string> wide = {kMaskInputName,
                                         kLogitsName,
                                         "final_norm",
                                         "final_norm.gamma",
                                         "head",
                                         "layers.0.q.grouped.u16",
                                         "layers.0.scores",
                                         "layers.0.scores.masked",
                                         "layers.0.attention",
                                         "layers.0.mixed"};
  for (const std::string& name : wide) {
    EXPECT_EQ(Named(q.decode(), name).dtype, DType::kU16) << name;
  }
  for (const std::string name :
       {kHiddenInputName, "layers.0.attn_norm", "layers.0.q", "layers.0.q.rope", "layers.0.k.rope",
        "layers.0.o", "layers.0.attn_out", "layers.0.gate.active", "layers.0.gated", "layers.0.out",
        "layers.0.attn_norm.gamma", "rope.cos", "k_cache_0"}) {
    const Tensor& tensor = Named(q.decode(), name);
    EXPECT_EQ(tensor.dtype, DType::kU8) << name;
    EXPECT_EQ(tensor.encoding.kind, Encoding::Kind::kPerTensor) << name << " has no channel axis";
    EXPECT_GE(tensor.encoding.offset, -255);
    EXPECT_LE(tensor.encoding.offset, 0);
    EXPECT_GE(tensor.encoding.scale, 0.0001f / 255.0f);
  }
  // Keys and values are made in the caches' encoding.
  EXPECT_EQ(Named(q.decode(), "layers.0.k.rope").encoding, Named(q.decode(), "k_cache_0").encoding);
  for (const Tensor& tensor : q.decode().tensors()) {
    if (!tensor.name.ends_with(".weight")) continue;
    EXPECT_EQ(tensor.encoding.bits, 8) << tensor.name;
  }
}

int CountConverts(const Graph& graph) {
  const Result<Graph> legal = Legalize(graph, {});
  EXPECT_TRUE(legal.ok()) << legal.status().ToString();
  return static_cast<int>(std::count_if(legal->ops().begin(), legal->ops().end(),
                                        [](const Op& op) { return op.type == OpType::kConvert; }));
}

TEST(RecipeGraphTest, NoNeedlessConverts) {
  const test::TinyModelSpec spec;
  const int layers = static_cast<int>(spec.layers);
  // 8a8w: queries to 16 bits, what attention mixed back to 8; the last residual to 16.
  Quantised narrow(spec, *FindRecipe("8a8w"));
  std::vector<std::string> names;
  for (const Op& op : narrow.decode().ops()) {
    if (op.type == OpType::kConvert && !op.name.ends_with(".cached")) names.push_back(op.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"layers.0.q.grouped.u16", "layers.0.mixed.joined.u8",
                                             "layers.1.q.grouped.u16", "layers.1.mixed.joined.u8",
                                             "layers.1.out.u16"}));
  for (const auto& graph : narrow.graphs) EXPECT_EQ(CountConverts(*graph), 2 * layers + 1);
  // 16-bit activations: keys and values to the cache's 8 bits; none when it has 16, too.
  Quantised wide(spec, *FindRecipe("16a8w"));
  for (const auto& graph : wide.graphs) EXPECT_EQ(CountConverts(*graph), 2 * layers);
  for (const auto& graph : Quantised(spec, DType::kU16).graphs) EXPECT_EQ(CountConverts(*graph), 0);
  for (const auto& graph : Quantised(spec, *FindRecipe("fp16")).graphs) {
    EXPECT_EQ(CountConverts(*graph), 0);
  }
}

TEST(RecipeGraphTest, SymmetricActivations) {
  Recipe recipe = *FindRecipe("8a8w");
  recipe.activation.symmetric = true;
  Quantised q({}, recipe);
  for (const std::string name : {"layers.0.gate", "layers.1.out", "layers.0.attn_norm.gamma"}) {
    EXPECT_EQ(Named(q.decode(), name).encoding.offset, -128) << name;
  }
  const Range& gate = q.quantizer().ranges().at("layers.0.gate");
  EXPECT_EQ(Named(q.decode(), "layers.0.gate").encoding,
            SymmetricEncoding(DType::kU8, std::max(gate.max, -gate.min)));
  EXPECT_EQ(Named(q.decode(), "layers.0.attention").encoding.offset, 0) << "softmax has its own";
}

// A residual stream of 16 bits inside a graph of 8: converts where the types meet.
TEST(RecipeGraphTest, RulesOverTheBase) {
  Recipe recipe = *FindRecipe("8a8w");
  recipe.activation_rules.push_back({"layers.*.out", {DType::kU16, false}});
  recipe.activation_rules.push_back({"layers.*.attn_out", {DType::kU16, false}});
  recipe.weight_rules.push_back({"layers.[1].down", {4, 32, WeightMethod::kRtn}});
  Quantised q({}, recipe);
  EXPECT_EQ(Named(q.decode(), "layers.0.out").dtype, DType::kU16);
  EXPECT_EQ(Named(q.decode(), "layers.0.down.u16").dtype, DType::kU16);
  EXPECT_EQ(Named(q.decode(), "layers.0.out.u8").dtype, DType::kU8);
  EXPECT_EQ(q.decode().Find("layers.1.out.u16"), std::nullopt) << "it has 16 bits already";
  EXPECT_EQ(Named(q.decode(), "layers.1.down.weight").encoding.block_size, 32u);
  EXPECT_EQ(Named(q.decode(), "layers.0.down.weight").encoding.bits, 8);
  for (const auto& graph : q.graphs) {
    const Result<Graph> legal = Legalize(*graph, {});
    EXPECT_TRUE(legal.ok()) << legal.status().ToString();
  }
  const std::vector<uint32_t> tokens = q.Tokens(20);
  auto floats = q.Executor(q.floats, q.FloatTable());
  auto integers = q.Executor(q.graphs, q.embedding);
  EXPECT_GE(SqnrDb(AllLogits(*floats, tokens, 20), AllLogits(*integers, tokens, 20)), 8.0);
}

TEST(RecipeGraphTest, HeadAndEmbeddingOfDifferentSchemes) {
  Recipe recipe;
  recipe.head = {4, 32, WeightMethod::kRtn};
  Quantised q({}, recipe);
  EXPECT_EQ(q.embedding.encoding.bits, 8);
  EXPECT_EQ(Named(q.decode(), kHeadWeightName).encoding.block_size, 32u);
  EXPECT_NE(q.embedding.data, Named(q.decode(), kHeadWeightName).data);
}

TEST(RecipeGraphTest, Fp16NeedsNoCalibration) {
  test::TinyDecoder tiny{test::TinyModelSpec{}};
  ThreadPool pool(1);
  GraphQuantizer quantizer(*FindRecipe("fp16"), {}, &pool);
  const Tensor table =
      quantizer.QuantizeEmbedding(kHeadWeightName, tiny.decoder->EmbeddingData(), 300, 64);
  EXPECT_EQ(table.dtype, DType::kF16);
  const Result<Graph> graph = quantizer.Quantize(*tiny.Build("g", 1, 8));
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  for (const Tensor& tensor : graph->tensors()) {
    EXPECT_TRUE(tensor.dtype == DType::kF16 || tensor.dtype == DType::kI32) << tensor.name;
  }
  EXPECT_EQ(Named(*graph, kHeadWeightName).data, table.data);
}

TEST(RecipeGraphTest, MatricesThatAreGiven) {
  Quantised q({});
  const Tensor& own = Named(q.decode(), "layers.0.up.weight");
  QuantizedMatrix matrix;
  matrix.encoding = own.encoding;
  matrix.encoding.channel_scales[0] *= 2;
  matrix.data = own.data;
  q.quantizer().UseMatrices({{"layers.0.up.weight", matrix}});
  const Result<Graph> graph = q.quantizer().Quantize(*q.floats[1]);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  EXPECT_EQ(Named(*graph, "layers.0.up.weight").encoding, matrix.encoding);
  EXPECT_NE(own.encoding, matrix.encoding);
  q.quantizer().ReleaseMatrices();
  const Result<Graph> again = q.quantizer().Quantize(*q.floats[1]);
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.status().message(), HasSubstr("layers.0.up.weight was released"));
}

TEST(RecipeGraphTest, ReleasedMatricesComeBackTheSame) {
  Quantised q({});
  const auto before = Named(q.decode(), "layers.0.up.weight").data;
  const std::weak_ptr<const ConstantData> watched = before;
  q.quantizer().ReleaseMatrices();
  const Result<Graph> again = q.quantizer().Quantize(*q.floats[1]);
  ASSERT_TRUE(again.ok());
  const auto after = Named(*again, "layers.0.up.weight").data;
  EXPECT_NE(before, after);
  EXPECT_TRUE(std::equal(before->bytes().begin(), before->bytes().end(), after->bytes().begin(),
                         after->bytes().end()));
  EXPECT_EQ(Named(*again, kHeadWeightName).data, q.embedding.data) << "the head stays";
}

}  // namespace
}  // namespace spillway
