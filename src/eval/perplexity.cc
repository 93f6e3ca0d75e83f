#include "eval/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "decoder/decoder.h"
#include "package/package.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"

namespace spillway {
namespace {

// Rows of the model's own embedding, in float.
class ModelEmbedding : public EmbeddingTable {
 public:
  ModelEmbedding(std::shared_ptr<const ConstantData> rows, uint32_t vocab, uint32_t hidden)
      : rows_(std::move(rows)), vocab_(vocab), hidden_(hidden) {}
  uint32_t vocab_size() const override { return vocab_; }
  void Lookup(uint32_t token, std::byte* out) const override {
    rows_->ReadRows(token, 1, reinterpret_cast<float*>(out));
  }

 private:
  std::shared_ptr<const ConstantData> rows_;
  uint32_t vocab_, hidden_;
};

// -log softmax(logits)[token], summed in double.
double NegativeLogLikelihood(std::span<const float> logits, uint32_t token) {
  const float best = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - best));
  return std::log(sum) - static_cast<double>(logits[token] - best);
}

// The executor, the pool it uses, and the model's file, which must stay mapped.
class FloatExecutor : public ModelExecutor {
 public:
  FloatExecutor(std::unique_ptr<HostModelExecutor> inner, std::shared_ptr<ThreadPool> pool)
      : pool_(std::move(pool)), inner_(std::move(inner)) {}
  const ModelIo& io() const override { return inner_->io(); }
  const EmbeddingTable& embedding() const override { return inner_->embedding(); }
  StepBuffers& buffers(StepKind kind) override { return inner_->buffers(kind); }
  std::byte* k(uint32_t layer) override { return inner_->k(layer); }
  std::byte* v(uint32_t layer) override { return inner_->v(layer); }
  Status Run(StepKind kind, int logits_row) override { return inner_->Run(kind, logits_row); }
  std::string Describe() const override { return inner_->Describe(); }
  uint64_t weight_bytes() const override { return inner_->weight_bytes(); }

 private:
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<HostModelExecutor> inner_;
};

}  // namespace

Result<std::unique_ptr<ModelExecutor>> MakeFloatExecutor(std::shared_ptr<const Model> model,
                                                         uint32_t prefill_ar, uint32_t context_len,
                                                         std::shared_ptr<ThreadPool> pool) {
  Decoder decoder(model);
  std::vector<std::shared_ptr<const Graph>> graphs;
  for (const auto& [name, ar_len] :
       {std::pair{kPrefillGraphName, prefill_ar}, std::pair{kDecodeGraphName, 1u}}) {
    if (ar_len == 0 || (ar_len == 1 && name == kPrefillGraphName)) continue;
    DecoderOptions options;
    options.name = name;
    options.ar_len = ar_len;
    options.context_len = context_len;
    SPILLWAY_ASSIGN_OR_RETURN(Graph graph, decoder.Build(options));
    graphs.push_back(std::make_shared<const Graph>(std::move(graph)));
  }
  const ModelConfig& config = model->config();
  auto embedding = std::make_shared<ModelEmbedding>(decoder.EmbeddingData(), config.vocab_size,
                                                    config.hidden_dim);
  HostModelOptions options;
  options.pool = pool.get();
  options.recipe = "float";
  SPILLWAY_ASSIGN_OR_RETURN(auto inner,
                            HostModelExecutor::Create({graphs}, std::move(embedding), options));
  return std::unique_ptr<ModelExecutor>(
      std::make_unique<FloatExecutor>(std::move(inner), std::move(pool)));
}

Result<PerplexityResult> MeasurePerplexity(ModelExecutor& executor,
                                           std::span<const uint32_t> tokens,
                                           const PerplexityOptions& options, Progress* progress) {
  const uint32_t length = options.context_len;
  if (length < 4 || length > executor.io().kv.context_len) {
    return InvalidArgumentError(
        fmt::format("a window of {} tokens; expected 4 to {}, the model's compiled context length",
                    length, executor.io().kv.context_len));
  }
  uint32_t windows = static_cast<uint32_t>(tokens.size() / length);
  if (options.max_windows > 0) windows = std::min(windows, options.max_windows);
  if (windows == 0) {
    return InvalidArgumentError(fmt::format(
        "the text has {} tokens; expected at least one window of {}", tokens.size(), length));
  }
  Generator generator(&executor);
  PerplexityResult result;
  result.windows = windows;
  double sum = 0.0;
  for (uint32_t w = 0; w < windows; ++w) {
    ReportProgress(progress, "perplexity", static_cast<double>(w) / windows);
    const auto window = tokens.subspan(static_cast<size_t>(w) * length, length);
    generator.Reset();
    // The last token is only predicted, never fed.
    SPILLWAY_RETURN_IF_ERROR(generator.Feed(
        window.first(length - 1), [&](uint32_t index, std::span<const float> logits) {
          if (index < length / 2) return;
          const double nll = NegativeLogLikelihood(logits, window[index + 1]);
          sum += nll;
          result.nll.push_back(static_cast<float>(nll));
        }));
  }
  ReportProgress(progress, "perplexity", 1.0);
  result.scored_tokens = result.nll.size();
  result.mean_nll = sum / static_cast<double>(result.scored_tokens);
  result.perplexity = std::exp(result.mean_nll);
  return result;
}

double Sqnr(std::span<const float> reference, std::span<const float> values) {
  double signal = 0.0, noise = 0.0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double error = static_cast<double>(reference[i]) - values[i];
    signal += static_cast<double>(reference[i]) * reference[i];
    noise += error * error;
  }
  if (noise == 0.0) return std::numeric_limits<double>::infinity();
  return 10.0 * std::log10(signal / noise);
}

}  // namespace spillway
