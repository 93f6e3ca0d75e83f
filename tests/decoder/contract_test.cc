// The graph contract: what the step graphs take and give, in which order.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>

#include "decoder/decoder.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_model.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kContext = 24;

class DecoderContractTest : public ::testing::Test {
 protected:
  void SetUp() override { Load({}); }

  void Load(const test::TinyModelSpec& spec) {
    Result<std::shared_ptr<const Model>> model =
        Model::Open(test::WriteTinyModel(folder_.File("tiny.gguf"), spec));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    decoder_ = std::make_unique<Decoder>(*model);
  }

  Result<Graph> TryBuild(uint32_t ar, IoProfile io = IoProfile::kSpillway, uint32_t first = 0,
                         uint32_t count = 0) {
    DecoderOptions options;
    options.name = "step";
    options.ar_len = ar;
    options.context_len = kContext;
    options.io = io;
    options.first_layer = first;
    options.num_layers = count;
    return decoder_->Build(options);
  }
  Graph Build(uint32_t ar, IoProfile io = IoProfile::kSpillway, uint32_t first = 0,
              uint32_t count = 0) {
    Result<Graph> graph = TryBuild(ar, io, first, count);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    return graph.ok() ? std::move(graph).value() : Graph();
  }

  // "name dtype[shape]" of each.
  static std::vector<std::string> Describe(const Graph& graph, const std::vector<TensorId>& ids) {
    std::vector<std::string> lines;
    for (const TensorId id : ids) {
      const Tensor& tensor = graph.tensor(id);
      lines.push_back(tensor.name + " " + std::string(DTypeName(tensor.dtype)) +
                      ShapeToString(tensor.shape));
    }
    return lines;
  }

  test::TempFolder folder_;
  std::unique_ptr<Decoder> decoder_;
};

TEST_F(DecoderContractTest, Prefill) {
  const Graph graph = Build(8);
  EXPECT_EQ(graph.name(), "step");
  EXPECT_THAT(Describe(graph, graph.inputs()),
              ElementsAre("hidden_in f32[1, 1, 8, 64]", "attention_mask f32[1, 1, 8, 24]",
                          "position_ids i32[1, 8]", "k_cache_0 f32[1, 2, 16, 16]",
                          "k_cache_1 f32[1, 2, 16, 16]", "v_cache_0 f32[1, 2, 16, 16]",
                          "v_cache_1 f32[1, 2, 16, 16]"));
  EXPECT_THAT(
      Describe(graph, graph.outputs()),
      ElementsAre("logits f32[1, 8, 300]", "k_new_0 f32[1, 2, 16, 8]", "k_new_1 f32[1, 2, 16, 8]",
                  "v_new_0 f32[1, 2, 8, 16]", "v_new_1 f32[1, 2, 8, 16]"));
}

TEST_F(DecoderContractTest, Decode) {
  test::TinyModelSpec spec;
  spec.architecture = "qwen3";
  spec.heads = 4;
  spec.kv_heads = 1;
  spec.head_dim = 8;
  Load(spec);
  const Graph graph = Build(1);
  EXPECT_THAT(Describe(graph, graph.inputs()),
              ElementsAre("hidden_in f32[1, 1, 1, 64]", "attention_mask f32[1, 1, 1, 24]",
                          "position_ids i32[1, 1]", "k_cache_0 f32[1, 1, 8, 23]",
                          "k_cache_1 f32[1, 1, 8, 23]", "v_cache_0 f32[1, 1, 23, 8]",
                          "v_cache_1 f32[1, 1, 23, 8]"));
  EXPECT_THAT(
      Describe(graph, graph.outputs()),
      ElementsAre("logits f32[1, 1, 300]", "k_new_0 f32[1, 1, 8, 1]", "k_new_1 f32[1, 1, 8, 1]",
                  "v_new_0 f32[1, 1, 1, 8]", "v_new_1 f32[1, 1, 1, 8]"));
}

TEST_F(DecoderContractTest, CachesHaveTheEncodingOfTheStepsOwn) {
  const Graph graph = Build(1);
  for (const auto& [cache, source, fresh] :
       {std::tuple{"k_cache_1", "layers.1.k.cached", "k_new_1"},
        std::tuple{"v_cache_0", "layers.0.v.cached", "v_new_0"}}) {
    ASSERT_TRUE(graph.Find(cache) && graph.Find(source) && graph.Find(fresh));
    EXPECT_EQ(graph.tensor(*graph.Find(cache)).encoding_of, source);
  }
}

TEST_F(DecoderContractTest, AWindowHasNoCaches) {
  const Graph graph = Build(kContext);
  EXPECT_THAT(Describe(graph, graph.inputs()),
              ElementsAre("hidden_in f32[1, 1, 24, 64]", "attention_mask f32[1, 1, 24, 24]",
                          "position_ids i32[1, 24]"));
  EXPECT_EQ(graph.outputs().size(), 5u) << "K and V still come out";
  for (const Op& op : graph.ops()) EXPECT_NE(op.type, OpType::kConcat) << op.name;
}

TEST_F(DecoderContractTest, Executorch) {
  const Graph graph = Build(8, IoProfile::kExecutorch);
  EXPECT_EQ(Describe(graph, graph.inputs())[0], "tokens i32[1, 8]");
  EXPECT_EQ(Describe(graph, graph.inputs())[1], "attention_mask f32[1, 1, 8, 24]");
  const auto table = graph.Find(kEmbeddingWeightName);
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(graph.tensor(*table).data, decoder_->EmbeddingData());
  EXPECT_EQ(graph.tensor(*graph.Find(kHeadWeightName)).data, decoder_->EmbeddingData()) << "tied";
}

TEST_F(DecoderContractTest, Shards) {
  test::TinyModelSpec spec;
  spec.layers = 3;
  Load(spec);
  const Graph first = Build(4, IoProfile::kSpillway, 0, 1);
  EXPECT_THAT(Describe(first, first.inputs()),
              ElementsAre("hidden_in f32[1, 1, 4, 64]", "attention_mask f32[1, 1, 4, 24]",
                          "position_ids i32[1, 4]", "k_cache_0 f32[1, 2, 16, 20]",
                          "v_cache_0 f32[1, 2, 20, 16]"));
  EXPECT_THAT(Describe(first, first.outputs()),
              ElementsAre("layers.0.out f32[1, 1, 4, 64]", "k_new_0 f32[1, 2, 16, 4]",
                          "v_new_0 f32[1, 2, 4, 16]"));
  EXPECT_FALSE(first.Find(kHeadWeightName).has_value());

  const Graph middle = Build(4, IoProfile::kSpillway, 1, 1);
  EXPECT_EQ(Describe(middle, middle.inputs())[0], "layers.0.out f32[1, 1, 4, 64]");
  EXPECT_EQ(Describe(middle, middle.inputs())[3], "k_cache_1 f32[1, 2, 16, 20]");
  EXPECT_EQ(Describe(middle, middle.outputs())[0], "layers.1.out f32[1, 1, 4, 64]");

  // No count: to the end. A later shard never takes ids.
  const Graph last = Build(4, IoProfile::kExecutorch, 1);
  EXPECT_THAT(Describe(last, last.inputs()),
              ElementsAre("layers.0.out f32[1, 1, 4, 64]", "attention_mask f32[1, 1, 4, 24]",
                          "position_ids i32[1, 4]", "k_cache_1 f32[1, 2, 16, 20]",
                          "k_cache_2 f32[1, 2, 16, 20]", "v_cache_1 f32[1, 2, 20, 16]",
                          "v_cache_2 f32[1, 2, 20, 16]"));
  EXPECT_EQ(Describe(last, last.outputs())[0], "logits f32[1, 4, 300]");
}

TEST_F(DecoderContractTest, GraphsShareConstants) {
  for (const bool tied : {true, false}) {
    test::TinyModelSpec spec;
    spec.tied = tied;
    spec.llama_bias = true;
    Load(spec);
    const Graph prefill = Build(8), decode = Build(1);
    std::set<const ConstantData*> different;
    for (const Tensor& tensor : prefill.tensors()) {
      if (tensor.role != TensorRole::kConstant) continue;
      const auto twin = decode.Find(tensor.name);
      ASSERT_TRUE(twin.has_value()) << tensor.name;
      EXPECT_EQ(decode.tensor(*twin).data, tensor.data) << tensor.name;
      different.insert(tensor.data.get());
    }
    // 7 matrices, 3 biases and 2 norms a layer; final norm, head, cos, sin.
    EXPECT_EQ(different.size(), 2u * 12 + 4);
    const auto head = prefill.tensor(*prefill.Find(kHeadWeightName)).data;
    EXPECT_EQ(head == decoder_->EmbeddingData(), tied);
  }
}

TEST_F(DecoderContractTest, EveryGraphNamesTensorsAlike) {
  const Graph prefill = Build(8), decode = Build(1);
  ASSERT_EQ(prefill.tensors().size(), decode.tensors().size());
  for (size_t i = 0; i < prefill.tensors().size(); ++i) {
    EXPECT_EQ(prefill.tensors()[i].name, decode.tensors()[i].name);
    EXPECT_EQ(prefill.tensors()[i].encoding_of, decode.tensors()[i].encoding_of);
  }
}

TEST_F(DecoderContractTest, OptionsThatCannotBe) {
  const auto error = [&](uint32_t ar, uint32_t first, uint32_t count) {
    const Result<Graph> graph = TryBuild(ar, IoProfile::kSpillway, first, count);
    EXPECT_FALSE(graph.ok());
    if (graph.ok()) return std::string();
    EXPECT_EQ(graph.status().code(), StatusCode::kInvalidArgument);
    return graph.status().message();
  };
  EXPECT_THAT(error(0, 0, 0), HasSubstr("context length 24 and AR length 0"));
  EXPECT_THAT(error(25, 0, 0), HasSubstr("context length 24 and AR length 25"));
  EXPECT_THAT(error(1, 2, 0), HasSubstr("layers 2 to 2 of a model with 2 layers"));
  EXPECT_THAT(error(1, 1, 2), HasSubstr("layers 1 to 3 of a model with 2 layers"));
  EXPECT_THAT(error(1, 5, 1), HasSubstr("layers 5 to 6"));
  EXPECT_THAT(error(1, 1, 0xffffffffu), HasSubstr("of a model with 2 layers"));
}

TEST(IoProfileTest, Names) {
  for (const IoProfile profile : {IoProfile::kSpillway, IoProfile::kExecutorch}) {
    EXPECT_EQ(ParseIoProfile(IoProfileName(profile)), profile);
  }
  EXPECT_EQ(IoProfileName(IoProfile::kExecutorch), "executorch");
  EXPECT_EQ(ParseIoProfile("other"), std::nullopt);
}

TEST(RopeTablesTest, AnglesFactorsAndAttentionFactor) {
  RopeConfig rope;
  rope.theta = 10000.0f;
  rope.dim = 4;
  RopeTables tables = MakeRopeTables(rope, 3);
  ASSERT_EQ(tables.cos.size(), 6u);
  EXPECT_FLOAT_EQ(tables.cos[0], 1.0f);
  EXPECT_FLOAT_EQ(tables.sin[1], 0.0f);
  EXPECT_FLOAT_EQ(tables.cos[2], std::cos(1.0f));
  EXPECT_FLOAT_EQ(tables.sin[3], std::sin(0.01f));
  EXPECT_FLOAT_EQ(tables.sin[4], std::sin(2.0f));
  rope.factors = {2.0f, 10.0f};
  rope.attention_factor = 1.5f;
  tables = MakeRopeTables(rope, 3);
  EXPECT_FLOAT_EQ(tables.sin[2], 1.5f * std::sin(0.5f));
  EXPECT_FLOAT_EQ(tables.cos[5], 1.5f * std::cos(0.002f));
}

}  // namespace
}  // namespace spillway
