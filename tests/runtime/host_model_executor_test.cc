#include "runtime/host_model_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "decoder/decoder.h"
#include "model/model.h"
#include "runtime/generator.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_model.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

using Shards = std::vector<std::vector<std::shared_ptr<const Graph>>>;

// A tiny random model and its float graphs.
class HostModelExecutorTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kContext = 40;

  void SetUp() override { Load({}); }

  void Load(const test::TinyModelSpec& spec) {
    Result<std::shared_ptr<const Model>> model =
        Model::Open(test::WriteTinyModel(folder_.File("tiny.gguf"), spec));
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
    decoder_ = std::make_unique<Decoder>(model_);
  }

  std::shared_ptr<const Graph> Build(const char* name, uint32_t ar, uint32_t first = 0,
                                     uint32_t count = 0, IoProfile io = IoProfile::kSpillway) {
    DecoderOptions options;
    options.name = name;
    options.ar_len = ar;
    options.context_len = kContext;
    options.first_layer = first;
    options.num_layers = count;
    options.io = io;
    Result<Graph> graph = decoder_->Build(options);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    return std::make_shared<Graph>(std::move(graph).value());
  }

  Tensor Embedding() {
    Tensor table;
    table.name = kEmbeddingWeightName;
    table.shape = {model_->config().vocab_size, model_->config().hidden_dim};
    table.role = TensorRole::kConstant;
    table.data = decoder_->EmbeddingData();
    return table;
  }

  std::unique_ptr<HostModelExecutor> Make(const Shards& shards) {
    HostModelOptions options;
    options.pool = &pool_;
    Result<std::unique_ptr<HostModelExecutor>> executor =
        HostModelExecutor::Create(shards, Embedding(), options);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    return executor.ok() ? std::move(executor).value() : nullptr;
  }

  std::vector<uint32_t> Tokens(size_t count) const {
    std::mt19937 random(17);
    std::vector<uint32_t> tokens;
    for (size_t i = 0; i < count; ++i) tokens.push_back(random() % model_->config().vocab_size);
    return tokens;
  }

  // Logits of every token, fed in pieces of `piece` tokens.
  static std::vector<std::vector<float>> AllLogits(ModelExecutor& executor,
                                                   std::span<const uint32_t> tokens, size_t piece) {
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

  static double LargestDifference(const std::vector<std::vector<float>>& a,
                                  const std::vector<std::vector<float>>& b) {
    EXPECT_EQ(a.size(), b.size());
    double largest = 0;
    for (size_t r = 0; r < std::min(a.size(), b.size()); ++r) {
      for (size_t i = 0; i < a[r].size(); ++i) {
        largest = std::max(largest, std::abs(double{a[r][i]} - b[r][i]));
      }
    }
    return largest;
  }

  test::TempFolder folder_;
  ThreadPool pool_{2};
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Decoder> decoder_;
};

TEST_F(HostModelExecutorTest, ChunksDecodeAndWholeWindowAgree) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    test::TinyModelSpec spec;
    spec.architecture = architecture;
    Load(spec);
    const std::vector<uint32_t> tokens = Tokens(kContext);
    auto window = Make({{Build(kPrefillGraphName, kContext)}});
    auto decode = Make({{Build(kDecodeGraphName, 1)}});
    auto hybrid = Make({{Build(kPrefillGraphName, 8), Build(kDecodeGraphName, 1)}});
    ASSERT_TRUE(window && decode && hybrid);
    const auto expected = AllLogits(*window, tokens, kContext);
    ASSERT_EQ(expected.size(), kContext);
    double size = 0;
    for (const float x : expected.back()) size = std::max(size, std::abs(double{x}));
    EXPECT_GT(size, 0.1) << "logits that are all zero prove nothing";
    EXPECT_LT(LargestDifference(AllLogits(*decode, tokens, 1), expected), 1e-4) << architecture;
    for (const size_t piece : {1, 3, 7, 8, 9, 40}) {
      EXPECT_LT(LargestDifference(AllLogits(*hybrid, tokens, piece), expected), 1e-4)
          << architecture << ", pieces of " << piece;
    }
  }
}

TEST_F(HostModelExecutorTest, ShardsGiveTheSameLogits) {
  const std::vector<uint32_t> tokens = Tokens(30);
  auto whole = Make({{Build(kPrefillGraphName, 8), Build(kDecodeGraphName, 1)}});
  auto shards = Make({{Build(kPrefillGraphName, 8, 0, 1), Build(kDecodeGraphName, 1, 0, 1)},
                      {Build(kPrefillGraphName, 8, 1, 1), Build(kDecodeGraphName, 1, 1, 1)}});
  ASSERT_TRUE(whole && shards);
  EXPECT_EQ(shards->io().kv.layers, 2u);
  EXPECT_EQ(LargestDifference(AllLogits(*whole, tokens, 30), AllLogits(*shards, tokens, 30)), 0.0);
  EXPECT_EQ(whole->weight_bytes(), shards->weight_bytes());
  EXPECT_GT(whole->weight_bytes(), uint64_t{model_->config().vocab_size} * 64 * 4);
}

TEST_F(HostModelExecutorTest, TokenIdProfile) {
  const std::vector<uint32_t> tokens = Tokens(20);
  auto rows = Make({{Build(kDecodeGraphName, 1)}});
  auto ids = Make({{Build(kDecodeGraphName, 1, 0, 0, IoProfile::kExecutorch)}});
  ASSERT_TRUE(rows && ids);
  EXPECT_EQ(ids->io().hidden_dtype, DType::kI32);
  EXPECT_EQ(LargestDifference(AllLogits(*rows, tokens, 20), AllLogits(*ids, tokens, 20)), 0.0);
}

TEST_F(HostModelExecutorTest, LastRowOnlyEqualsAllRows) {
  const std::vector<uint32_t> tokens = Tokens(14);
  auto executor = Make({{Build(kPrefillGraphName, 8), Build(kDecodeGraphName, 1)}});
  ASSERT_TRUE(executor);
  const auto all = AllLogits(*executor, tokens, 14);
  Generator generator(executor.get());
  ASSERT_TRUE(generator.Feed(tokens).ok());
  EXPECT_EQ(
      LargestDifference({{generator.logits().begin(), generator.logits().end()}}, {all.back()}),
      0.0);
}

TEST_F(HostModelExecutorTest, DescribesItself) {
  auto executor = Make({{Build(kDecodeGraphName, 1)}});
  ASSERT_TRUE(executor);
  EXPECT_EQ(executor->Describe(), "host, float, 2 threads");
  EXPECT_EQ(executor->buffers(StepKind::kPrefill).ar_len, 0u);
  EXPECT_EQ(executor->Run(StepKind::kPrefill, 0).code(), StatusCode::kFailedPrecondition);
}

TEST_F(HostModelExecutorTest, RefusesGraphsThatBreakTheContract) {
  const auto error = [&](const Shards& shards) {
    return HostModelExecutor::Create(shards, Embedding()).status().message();
  };
  EXPECT_THAT(error({{}}), HasSubstr("neither a graph prefill_forward nor kv_forward"));
  EXPECT_THAT(error({{Build("other", 1)}}), HasSubstr("neither"));
  EXPECT_THAT(error({{Build(kDecodeGraphName, 1, 0, 1)}, {Build(kPrefillGraphName, 1, 1, 1)}}),
              HasSubstr("1 of 2 shards"));
  EXPECT_THAT(error({{Build(kDecodeGraphName, 1, 0, 1)}, {Build(kDecodeGraphName, 2, 1, 1)}}),
              HasSubstr("takes 2 tokens of 40"));

  // A graph that lost an output, one whose mask is not a mask, one whose cache
  // holds another type than it makes.
  Graph three("kv_forward");
  const TensorId x = three.AddInput("x", DType::kF32, {1, 1, 1, 4});
  three.AddInput("mask", DType::kF32, {1, 1, 2, 1});
  three.AddInput("positions", DType::kI32, {1, 1});
  three.MarkOutput(three.AddOp(OpType::kSilu, "y", {x}));
  EXPECT_THAT(error({{std::make_shared<Graph>(three)}}),
              HasSubstr("mask \"mask\" is [1, 1, 2, 1]"));
  Graph two = three;
  two.MarkOutput(x);
  EXPECT_THAT(error({{std::make_shared<Graph>(two)}}), HasSubstr("2 outputs"));
  Graph cache = *Build(kDecodeGraphName, 1);
  cache.mutable_tensor(cache.inputs()[3]).dtype = DType::kU8;
  EXPECT_THAT(error({{std::make_shared<Graph>(cache)}}), HasSubstr("k_cache_0"));
  Graph positions = *Build(kDecodeGraphName, 1);
  positions.mutable_tensor(positions.inputs()[2]).dtype = DType::kF32;
  EXPECT_THAT(error({{std::make_shared<Graph>(positions)}}), HasSubstr("i32 [1, AR]"));
}

}  // namespace
}  // namespace spillway
