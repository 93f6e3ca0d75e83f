// SmolLM2-135M-Instruct against golden values of another implementation.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "eval/float_executor.h"
#include "eval/perplexity.h"
#include "graph/legalize.h"
#include "package/package.h"
#include "quantize/quantize_graph.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "runtime/sampler.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

constexpr uint32_t kContext = 128;
constexpr uint32_t kPrefillAr = 32;
constexpr uint32_t kGreedyTokens = 32;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class RealModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model_path = test::ModelPath();
    const auto data = test::SharedDataDir();
    if (!model_path) GTEST_SKIP() << "the model .deps/model/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!data) GTEST_SKIP() << "the golden values in ../shared/data";
    folder_ = *data + "/smollm2/";
    Result<std::shared_ptr<const Model>> model = Model::Open(*model_path);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
    const Json prompt = Json::parse(Contents(folder_ + "prompt.json"), nullptr, false);
    ASSERT_TRUE(prompt.is_object());
    prompt_ = prompt["prompt_ids"].get<std::vector<uint32_t>>();
    greedy_ = prompt["greedy_ids"].get<std::vector<uint32_t>>();
    ASSERT_GE(greedy_.size(), kGreedyTokens);
    greedy_.resize(kGreedyTokens);
    const std::string bytes = Contents(folder_ + "last_logits.f32");
    last_logits_.resize(bytes.size() / sizeof(float));
    std::memcpy(last_logits_.data(), bytes.data(), last_logits_.size() * sizeof(float));
    ASSERT_EQ(last_logits_.size(), model_->config().vocab_size);
    const Json text = Json::parse(Contents(folder_ + "wikitext_nll.json"), nullptr, false);
    ASSERT_TRUE(text.is_object());
    text_ = text["token_ids"].get<std::vector<uint32_t>>();
    text_nll_ = text["nll_c128"].get<std::vector<std::vector<double>>>();
  }

  // Of the golden model over the first `windows` windows.
  double GoldenMeanNll(uint32_t windows) const {
    double sum = 0;
    size_t count = 0;
    for (uint32_t w = 0; w < windows; ++w) {
      sum += std::accumulate(text_nll_[w].begin(), text_nll_[w].end(), 0.0);
      count += text_nll_[w].size();
    }
    EXPECT_EQ(count, size_t{63} * windows);
    return sum / static_cast<double>(count);
  }

  PerplexityResult Perplexity(ModelExecutor& executor, uint32_t windows) const {
    PerplexityOptions options;
    options.context_len = kContext;
    options.max_windows = windows;
    const Result<PerplexityResult> result = MeasurePerplexity(executor, text_, options, nullptr);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return result.ok() ? *result : PerplexityResult();
  }

  // The prompt, then tokens one by one, each the best after those before.
  static std::vector<uint32_t> Continue(Generator& generator, uint32_t count) {
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < count; ++i) {
      tokens.push_back(ArgMax(generator.logits()));
      if (i + 1 == count) break;
      const Status status = generator.Feed(std::span(tokens).last(1));
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
    return tokens;
  }

  std::string folder_;
  std::shared_ptr<const Model> model_;
  std::vector<uint32_t> prompt_, greedy_, text_;
  std::vector<float> last_logits_;
  std::vector<std::vector<double>> text_nll_;
};

std::vector<uint32_t> TopFive(std::span<const float> logits) {
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  std::partial_sort(order.begin(), order.begin() + 5, order.end(),
                    [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  order.resize(5);
  return order;
}

TEST_F(RealModelTest, FloatLogitsTokensAndPerplexity) {
  auto executor = FloatExecutor::Create(model_, {kPrefillAr, 1, kContext, {}, nullptr},
                                        std::make_shared<ThreadPool>());
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  const Json golden = Json::parse(Contents(folder_ + "logits.json"), nullptr, false);
  ASSERT_TRUE(golden.is_object());
  const auto top = golden["top5_ids"].get<std::vector<std::vector<uint32_t>>>();
  ASSERT_EQ(top.size(), prompt_.size());

  Generator generator(executor->get());
  const Status status = generator.Feed(prompt_, [&](uint32_t index, std::span<const float> logits) {
    EXPECT_EQ(TopFive(logits), top[index]) << "position " << index;
  });
  ASSERT_TRUE(status.ok()) << status.ToString();
  double largest = 0;
  for (size_t i = 0; i < last_logits_.size(); ++i) {
    largest = std::max(largest, std::abs(double{generator.logits()[i]} - last_logits_[i]));
  }
  EXPECT_LT(largest, 1e-2);
  EXPECT_EQ(Continue(generator, kGreedyTokens), greedy_);

  const PerplexityResult result = Perplexity(**executor, 3);
  EXPECT_EQ(result.scored_tokens, 3u * 63);
  EXPECT_NEAR(result.perplexity / std::exp(GoldenMeanNll(3)), 1.0, 1e-3);
}

// The step graphs in 16a8w, as a package has them.
std::unique_ptr<HostModelExecutor> Quantised(Decoder& decoder, const TensorRanges& ranges,
                                             const FloatPrefix& prefix, DType kv, ThreadPool* pool,
                                             bool reference_kernels = false) {
  const ModelConfig& config = decoder.model().config();
  Recipe recipe;
  recipe.kv = kv;
  GraphQuantizer quantizer(recipe, ranges, pool);
  const Tensor embedding = quantizer.QuantizeEmbedding(kHeadWeightName, decoder.EmbeddingData(),
                                                       config.vocab_size, config.hidden_dim);
  std::vector<std::shared_ptr<const Graph>> graphs;
  for (const auto& [name, ar] :
       {std::pair{kPrefillGraphName, kPrefillAr}, std::pair{kDecodeGraphName, 1u}}) {
    DecoderOptions options;
    options.name = name;
    options.ar_len = ar;
    options.context_len = kContext;
    const Result<Graph> built = decoder.Build(options);
    EXPECT_TRUE(built.ok()) << built.status().ToString();
    const Result<Graph> quantized = quantizer.Quantize(*built);
    EXPECT_TRUE(quantized.ok()) << quantized.status().ToString();
    Result<Graph> legal = Legalize(*quantized, {});
    EXPECT_TRUE(legal.ok()) << legal.status().ToString();
    graphs.push_back(std::make_shared<const Graph>(std::move(legal).value()));
  }
  HostModelOptions options;
  options.pool = pool;
  options.reference_kernels = reference_kernels;
  const Result<std::vector<Tensor>> constants =
      quantizer.QuantizePrefix(prefix, decoder.model().config());
  EXPECT_TRUE(constants.ok()) << constants.status().ToString();
  options.prefix.tokens = prefix.tokens;
  for (size_t i = 0; i < constants->size(); ++i) {
    (i < constants->size() / 2 ? options.prefix.k : options.prefix.v)
        .push_back((*constants)[i].data);
  }
  auto executor = HostModelExecutor::Create({graphs}, embedding, options);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return executor.ok() ? std::move(executor).value() : nullptr;
}

// A prompt and two tokens after it give the same bits.
void ExpectSameLogits(ModelExecutor& a, ModelExecutor& b, std::span<const uint32_t> prompt) {
  Generator first(&a), second(&b);
  const uint32_t kept = first.StartPrompt(prompt);
  ASSERT_EQ(second.StartPrompt(prompt), kept);
  prompt = prompt.subspan(kept);
  for (const size_t count : {prompt.size() - 2, size_t{1}, size_t{1}}) {
    ASSERT_TRUE(first.Feed(prompt.first(count)).ok());
    ASSERT_TRUE(second.Feed(prompt.first(count)).ok());
    prompt = prompt.subspan(count);
    const std::span<const float> x = first.logits(), y = second.logits();
    ASSERT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end()));
  }
}

TEST_F(RealModelTest, QuantisedLogitsTokensAndPerplexity) {
  ThreadPool pool;
  Decoder decoder(model_);
  const Result<TokenizerData> data = TokenizerData::FromGguf(*model_->file());
  ASSERT_TRUE(data.ok());
  const auto tokenizer = Tokenizer::Create(*data);
  const auto chat = ChatTemplate::Parse(data->chat_template);
  ASSERT_TRUE(tokenizer.ok() && chat.ok());
  const auto windows =
      MakeCalibrationWindows(**tokenizer, chat->get(), DefaultCalibrationText(), kContext, 1024);
  ASSERT_TRUE(windows.ok()) << windows.status().ToString();
  // As the compiler does for a model whose first token is massive.
  const Result<std::vector<double>> dominance = TokenDominance(decoder, (*windows)[0], &pool);
  ASSERT_TRUE(dominance.ok());
  EXPECT_EQ(MassivePrefix({(*windows)[0], (*windows)[2]}, *dominance),
            (std::vector<uint32_t>{(*windows)[0][0]}));
  const Result<FloatPrefix> prefix = ComputePrefix(decoder, {(*windows)[0][0]}, &pool);
  ASSERT_TRUE(prefix.ok()) << prefix.status().ToString();
  const Result<TensorRanges> ranges = Calibrate(decoder, *windows, *prefix, &pool, nullptr);
  ASSERT_TRUE(ranges.ok()) << ranges.status().ToString();

  constexpr uint32_t kWindows = 6;
  const double golden = std::exp(GoldenMeanNll(kWindows));
  for (const auto& [kv, sqnr_db] : {std::pair{DType::kU8, 24.0}, std::pair{DType::kU16, 30.0}}) {
    SCOPED_TRACE(std::string(DTypeName(kv)));
    const auto executor = Quantised(decoder, *ranges, *prefix, kv, &pool);
    ASSERT_NE(executor, nullptr);
    const auto reference = Quantised(decoder, *ranges, *prefix, kv, &pool, true);
    ASSERT_NE(reference, nullptr);
    ExpectSameLogits(*executor, *reference, std::span(prompt_).first(9));
    Generator generator(executor.get());
    const uint32_t kept = generator.StartPrompt(prompt_);
    EXPECT_EQ(kept, 1u) << "the prompt starts with the prefix's token";
    ASSERT_TRUE(generator.Feed(std::span(prompt_).subspan(kept)).ok());
    const double sqnr = Sqnr(last_logits_, generator.logits());
    EXPECT_GE(sqnr, sqnr_db);
    EXPECT_EQ(Continue(generator, kGreedyTokens), greedy_);
    const double ratio = Perplexity(*executor, kWindows).perplexity / golden;
    EXPECT_LE(ratio, 1.02);
    std::cout << DTypeName(kv) << ": " << sqnr << " dB, perplexity ratio " << ratio << "\n";
  }
}

}  // namespace
}  // namespace spillway
