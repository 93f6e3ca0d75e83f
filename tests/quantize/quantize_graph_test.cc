#include "quantize/quantize_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

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
      : tiny_(spec) {
    Result<TensorRanges> ranges =
        Calibrate(*tiny_.decoder, tiny_.Windows({kContext, kContext, 30, 24}), {}, &pool_, nullptr);
    EXPECT_TRUE(ranges.ok()) << ranges.status().ToString();
    Recipe recipe;
    recipe.kv = kv;
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
    ASSERT_EQ(q.prefill().ops().size(), q.floats[0]->ops().size());
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

}  // namespace
}  // namespace spillway
