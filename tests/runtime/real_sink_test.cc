// A real text, three times as long as the context, with and without an attention sink.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "decoder/decoder.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "model/utf8.h"
#include "package/package.h"
#include "quantize/prefix.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "runtime/sampler.h"
#include "spillway/compile.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

constexpr uint32_t kContext = 128;
constexpr uint32_t kPrefillAr = 32;
constexpr size_t kTokens = 400;
constexpr size_t kGenerated = 600;

struct Perplexity {
  double before = 0, after = 0;  // the first eviction
};

Perplexity Measure(ModelExecutor& executor, const AttentionSink& sink, const RopeConfig& rope,
                   std::span<const uint32_t> tokens) {
  Generator generator(&executor);
  const Status set = generator.SetAttentionSink(sink, rope);
  EXPECT_TRUE(set.ok()) << set.ToString();
  double nll[2] = {};
  uint32_t count[2] = {};
  const Status fed = generator.Feed(
      tokens.first(tokens.size() - 1), [&](uint32_t index, std::span<const float> logits) {
        double sum = 0;
        for (const float logit : logits) sum += std::exp(double{logit});
        const int late = index < kContext ? 0 : 1;
        nll[late] += std::log(sum) - double{logits[tokens[index + 1]]};
        ++count[late];
      });
  EXPECT_TRUE(fed.ok()) << fed.ToString();
  EXPECT_GT(generator.evictions(), 5u);
  return {std::exp(nll[0] / count[0]), std::exp(nll[1] / count[1])};
}

// 600 tokens that the model draws itself, far past its context.
std::vector<uint32_t> Generate(ModelExecutor& executor, const AttentionSink& sink,
                               const RopeConfig& rope, std::span<const uint32_t> prompt) {
  Generator generator(&executor);
  const Status set = generator.SetAttentionSink(sink, rope);
  EXPECT_TRUE(set.ok()) << set.ToString();
  // At a low temperature a model of this size repeats itself, in float as well.
  Result<Sampler> sampler = Sampler::Create({.temperature = 1.0}, generator.token_count());
  EXPECT_TRUE(sampler.ok());
  std::vector<uint32_t> tokens(prompt.begin(), prompt.end());
  Status fed = generator.Feed(prompt);
  while (fed.ok() && tokens.size() < prompt.size() + kGenerated) {
    tokens.push_back(sampler->Sample(generator.logits()));
    fed = generator.Feed({&tokens.back(), 1});
  }
  EXPECT_TRUE(fed.ok()) << fed.ToString();
  EXPECT_GT(generator.evictions(), 10u);
  return tokens;
}

// The share of the n-grams of tokens that are different ones: near 0 for a text that repeats
// itself, and for noise 1.
double DistinctShare(std::span<const uint32_t> tokens, size_t n) {
  std::set<std::vector<uint32_t>> seen;
  for (size_t i = 0; i + n <= tokens.size(); ++i) {
    seen.insert({tokens.begin() + static_cast<std::ptrdiff_t>(i),
                 tokens.begin() + static_cast<std::ptrdiff_t>(i + n)});
  }
  return static_cast<double>(seen.size()) / static_cast<double>(tokens.size() + 1 - n);
}

class FloatModel {
 public:
  FloatModel(const std::shared_ptr<const Model>& model, const std::vector<uint32_t>& prefix)
      : decoder_(model) {
    std::vector<std::shared_ptr<const Graph>> graphs;
    for (const auto& [name, ar] :
         {std::pair{kPrefillGraphName, kPrefillAr}, std::pair{kDecodeGraphName, 1u}}) {
      DecoderOptions options;
      options.name = name;
      options.ar_len = ar;
      options.context_len = kContext;
      Result<Graph> graph = decoder_.Build(options);
      EXPECT_TRUE(graph.ok()) << graph.status().ToString();
      graphs.push_back(std::make_shared<Graph>(std::move(graph).value()));
    }
    HostModelOptions options;
    options.pool = &pool_;
    if (!prefix.empty()) {
      const Result<FloatPrefix> made = ComputePrefix(decoder_, prefix, &pool_);
      EXPECT_TRUE(made.ok()) << made.status().ToString();
      options.prefix.tokens = made->tokens;
      for (const auto& values : made->k) options.prefix.k.push_back(MakeConstantOf(values));
      for (const auto& values : made->v) options.prefix.v.push_back(MakeConstantOf(values));
    }
    Tensor table;
    table.name = kEmbeddingWeightName;
    table.shape = {model->config().vocab_size, model->config().hidden_dim};
    table.role = TensorRole::kConstant;
    table.data = decoder_.EmbeddingData();
    auto executor = HostModelExecutor::Create({graphs}, table, options);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    if (executor.ok()) executor_ = std::move(executor).value();
  }
  ModelExecutor& executor() { return *executor_; }

 private:
  ThreadPool pool_{2};
  Decoder decoder_;
  std::unique_ptr<HostModelExecutor> executor_;
};

TEST(RealSinkTest, PerplexityStaysThatOfTheFloatModelAndExplodesWithoutASink) {
  const auto model_path = test::ModelPath();
  const auto data = test::SharedDataDir();
  if (!model_path) GTEST_SKIP() << "the model .deps/model/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!data) GTEST_SKIP() << "the text in ../shared/data";
  test::TempFolder folder;
  CompileOptions compile;
  compile.model_path = *model_path;
  compile.output_path = folder.File("pkg");
  compile.context_len = kContext;
  compile.prefill_ar_len = kPrefillAr;
  compile.htp_build = HtpBuild::kOff;
  const Result<CompileReport> report = Compile(compile);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  const Result<std::shared_ptr<const Package>> package = Package::Open(compile.output_path);
  ASSERT_TRUE(package.ok()) << package.status().ToString();
  auto integers = HostModelExecutor::Open(*package);
  ASSERT_TRUE(integers.ok()) << integers.status().ToString();

  std::string text(8000, ' ');
  std::ifstream(*data + "/wikitext2_test.txt").read(text.data(), 8000);
  const auto tokenizer = Tokenizer::Create((*package)->tokenizer_data());
  ASSERT_TRUE(tokenizer.ok());
  std::vector<uint32_t> tokens = (*tokenizer)->Encode(text, false);
  ASSERT_GT(tokens.size(), kTokens);
  tokens.resize(kTokens);

  const RopeConfig& rope = (*package)->manifest().config.rope;
  const AttentionSink sink = {4, 32};
  const auto model = Model::Open(*model_path);
  ASSERT_TRUE(model.ok());
  FloatModel same(*model, (*package)->manifest().prefix_tokens);
  const Perplexity expected = Measure(same.executor(), sink, rope, tokens);
  const Perplexity found = Measure(**integers, sink, rope, tokens);
  EXPECT_LT(found.before, 1.03 * expected.before);
  // 1 to 2% over 1,000 tokens; a text as short as this has more chance in it.
  EXPECT_LT(found.after, 1.05 * expected.after);
  // What it writes itself stays text: whole characters, no loops, and no noise, which the float
  // model would find improbable.
  const std::vector<uint32_t> written =
      Generate(**integers, sink, rope, std::span(tokens).first(60));
  std::string bytes;
  for (const uint32_t token : std::span(written).subspan(60)) {
    bytes += (*tokenizer)->TokenBytes(token);
  }
  // The last character may be cut.
  while (!bytes.empty() && (static_cast<uint8_t>(bytes.back()) & 0x80) != 0) bytes.pop_back();
  EXPECT_TRUE(IsValidUtf8(bytes)) << bytes;
  const double distinct = DistinctShare(std::span(written).subspan(60), 4);
  EXPECT_GT(distinct, 0.5) << bytes;
  const Perplexity of_written = Measure(same.executor(), sink, rope, written);
  EXPECT_LT(of_written.after, 100) << bytes;
  RecordProperty("generated", std::to_string(distinct) +
                                  " of the 4-grams are different; perplexity " +
                                  std::to_string(of_written.after));
  // No first tokens that stay: what attention relied on is gone.
  FloatModel plain(*model, {});
  const Perplexity without = Measure(plain.executor(), {0, 32}, rope, tokens);
  EXPECT_GT(without.after, 1.5 * expected.after);
  const Perplexity with = Measure(plain.executor(), sink, rope, tokens);
  EXPECT_LT(with.after, 1.1 * expected.after);
  for (const auto& [name, p] : {std::pair{"float", expected}, std::pair{"integers", found},
                                std::pair{"float, no prefix, sink", with},
                                std::pair{"float, no prefix, no sink", without}}) {
    RecordProperty(name, std::to_string(p.before) + ", then " + std::to_string(p.after));
  }
}

}  // namespace
}  // namespace spillway
