#include "eval/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>

#include "runtime/generator.h"
#include "runtime/sampler.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// log of the sum of exp; differences to the largest are exact in float, sums in double.
double LogSumExp(std::span<const float> logits) {
  const float best = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - best));
  return std::log(sum) + static_cast<double>(best);
}

// One position's logits, and what is computed of them once.
struct ScoredRow {
  std::span<const float> logits;
  double log_sum = 0;
  uint32_t best = 0;
};

ScoredRow MakeRow(std::span<const float> logits) {
  return {logits, LogSumExp(logits), ArgMax(logits)};
}

// A reference's rows of one chunk.
class KeptRows {
 public:
  KeptRows(size_t rows, size_t vocab) : vocab_(vocab), logits_(rows * vocab), rows_(rows) {}

  void Keep(size_t index, const ScoredRow& row) {
    const auto to = logits_.begin() + static_cast<std::ptrdiff_t>(index * vocab_);
    std::copy(row.logits.begin(), row.logits.end(), to);
    rows_[index] = {{&*to, vocab_}, row.log_sum, row.best};
  }
  const ScoredRow& operator[](size_t index) const { return rows_[index]; }

 private:
  size_t vocab_;
  std::vector<float> logits_;  // [chunk, vocab]
  std::vector<ScoredRow> rows_;
};

class AgreementSums {
 public:
  void Add(const ScoredRow& reference, const ScoredRow& row) {
    const double shift = row.log_sum - reference.log_sum;
    double divergence = 0.0;
    for (size_t i = 0; i < row.logits.size(); ++i) {
      const double expected = reference.logits[i];
      const double error = expected - row.logits[i];
      signal_ += expected * expected;
      noise_ += error * error;
      const auto log_probability = static_cast<float>(expected - reference.log_sum);
      divergence += static_cast<double>(std::exp(log_probability)) * (error + shift);
    }
    divergence_ += divergence;
    agreed_ += row.best == reference.best ? 1 : 0;
    ++rows_;
  }

  LogitAgreement Finish() const {
    const double rows = static_cast<double>(std::max<uint64_t>(rows_, 1));
    // Rounding may leave a divergence of nothing below zero.
    return {SqnrOf(signal_, noise_), std::max(0.0, divergence_ / rows),
            static_cast<double>(agreed_) / rows};
  }

 private:
  double signal_ = 0, noise_ = 0, divergence_ = 0;
  uint64_t agreed_ = 0, rows_ = 0;
};

// One model on its way through the text.
struct Contestant {
  Contestant(ModelExecutor* model, const Contestant* compared_with)
      : generator(model), reference(compared_with) {}
  Generator generator;
  const Contestant* reference;     // null: none
  bool is_reference = false;       // of another
  std::unique_ptr<KeptRows> kept;  // when it is
  double nll_sum = 0;
  PerplexityResult result;
  AgreementSums agreement;
};

class PerplexityRun {
 public:
  PerplexityRun(std::span<const uint32_t> tokens, const PerplexityOptions& options)
      : tokens_(tokens), options_(options) {}

  void Add(const ComparedModel& compared) {
    ModelExecutor& model = *compared.model;
    Contestant* reference = nullptr;
    if (compared.reference >= 0) {
      reference = contestants_[static_cast<size_t>(compared.reference)].get();
      reference->is_reference = true;
    }
    contestants_.push_back(std::make_unique<Contestant>(&model, reference));
    const uint32_t ar =
        std::max(model.buffers(StepKind::kPrefill).ar_len, model.buffers(StepKind::kDecode).ar_len);
    chunk_ = std::max(chunk_, ar);
    vocab_ = model.io().vocab_size;
  }

  Result<std::vector<PerplexityResult>> Run(Progress* progress) {
    SPILLWAY_ASSIGN_OR_RETURN(const auto windows, PlanWindows(tokens_.size(), options_));
    for (const auto& contestant : contestants_) {
      SPILLWAY_RETURN_IF_ERROR(CheckFits(contestant->generator));
      if (contestant->is_reference) contestant->kept = std::make_unique<KeptRows>(chunk_, vocab_);
    }
    for (size_t w = 0; w < windows.size(); ++w) {
      done_ = static_cast<double>(w) / static_cast<double>(windows.size());
      SPILLWAY_RETURN_IF_ERROR(RunWindow(windows[w], windows.size(), progress));
    }
    ReportProgress(progress, "perplexity", 1.0);
    std::vector<PerplexityResult> results;
    for (const auto& contestant : contestants_) {
      PerplexityResult& result = contestant->result;
      result.windows = static_cast<uint32_t>(windows.size());
      result.scored_tokens = result.nll.size();
      result.mean_nll = contestant->nll_sum / static_cast<double>(result.scored_tokens);
      result.perplexity = std::exp(result.mean_nll);
      if (contestant->reference != nullptr) result.agreement = contestant->agreement.Finish();
      results.push_back(std::move(result));
    }
    return results;
  }

 private:
  // A window's last token is only predicted, never fed.
  Status CheckFits(const Generator& generator) const {
    const uint32_t prefix = generator.n_past();
    if (options_.context_len - 1 + prefix <= generator.context_len()) return OkStatus();
    return InvalidArgumentError(fmt::format(
        "a window of {} tokens; expected 2 to {}, for a context of {} with a prefix of {}",
        options_.context_len, generator.context_len() - prefix + 1, generator.context_len(),
        prefix));
  }

  Status RunWindow(const PerplexityWindow& window, size_t windows, Progress* progress) {
    const auto tokens = tokens_.subspan(window.begin, window.length);
    for (const auto& contestant : contestants_) contestant->generator.Reset();
    const uint32_t fed = window.length - 1;
    for (uint32_t begin = 0; begin < fed; begin += chunk_) {
      const double within = static_cast<double>(begin) / fed / static_cast<double>(windows);
      ReportProgress(progress, "perplexity", done_ + within);
      const uint32_t count = std::min(chunk_, fed - begin);
      for (const auto& contestant : contestants_) {
        SPILLWAY_RETURN_IF_ERROR(FeedChunk(*contestant, window, tokens, begin, count));
      }
    }
    return OkStatus();
  }

  Status FeedChunk(Contestant& contestant, const PerplexityWindow& window,
                   std::span<const uint32_t> tokens, uint32_t begin, uint32_t count) {
    double scoring = 0;
    const Generator::RowCallback score = [&](uint32_t index, std::span<const float> logits) {
      const uint32_t target = begin + index + 1;
      if (target < window.first_scored) return;
      const Clock::time_point start = Clock::now();
      Score(contestant, index, logits, tokens[target]);
      scoring += SecondsSince(start);
    };
    const Clock::time_point start = Clock::now();
    // Without a callback only the last row's logits are computed.
    const bool scored = begin + count >= window.first_scored;
    SPILLWAY_RETURN_IF_ERROR(
        contestant.generator.Feed(tokens.subspan(begin, count), scored ? score : nullptr));
    contestant.result.seconds += SecondsSince(start) - scoring;
    contestant.result.fed_tokens += count;
    return OkStatus();
  }

  void Score(Contestant& contestant, uint32_t index, std::span<const float> logits,
             uint32_t token) {
    const ScoredRow row = MakeRow(logits);
    const double nll = row.log_sum - static_cast<double>(logits[token]);
    contestant.nll_sum += nll;
    contestant.result.nll.push_back(static_cast<float>(nll));
    if (contestant.is_reference) contestant.kept->Keep(index, row);
    if (contestant.reference == nullptr) return;
    contestant.agreement.Add((*contestant.reference->kept)[index], row);
  }

  std::span<const uint32_t> tokens_;
  const PerplexityOptions& options_;
  std::vector<std::unique_ptr<Contestant>> contestants_;
  uint32_t chunk_ = 1;  // tokens fed to one model before the next has its turn
  uint32_t vocab_ = 0;
  double done_ = 0;
};

}  // namespace

Result<std::vector<PerplexityWindow>> PlanWindows(size_t tokens, const PerplexityOptions& options) {
  const uint32_t length = options.context_len, stride = options.stride;
  const uint32_t least = stride == 0 ? 4 : 2;
  if (length < least) {
    return InvalidArgumentError(
        fmt::format("a window of {} tokens; expected at least {}", length, least));
  }
  if (stride > length) {
    return InvalidArgumentError(fmt::format(
        "a stride of {} tokens would leave some out; expected 1 to {}, a window's length", stride,
        length));
  }
  if (tokens < (stride == 0 ? length : 2)) {
    return InvalidArgumentError(
        stride == 0 ? fmt::format("the text has {} tokens; expected at least one window of {}",
                                  tokens, length)
                    : fmt::format("the text has {} tokens; expected at least 2", tokens));
  }
  std::vector<PerplexityWindow> windows;
  const auto wanted = [&] {
    return options.max_windows == 0 || windows.size() < options.max_windows;
  };
  if (stride == 0) {
    for (size_t begin = 0; begin + length <= tokens && wanted(); begin += length) {
      windows.push_back({begin, length, length / 2 + 1});
    }
    return windows;
  }
  size_t scored = 0;  // tokens before this are scored
  for (size_t begin = 0; scored < tokens && wanted(); begin += stride) {
    const size_t end = std::min(begin + length, tokens);
    // Nothing predicts a window's first token.
    const size_t first = std::max(scored, begin + 1);
    if (first < end) {
      windows.push_back(
          {begin, static_cast<uint32_t>(end - begin), static_cast<uint32_t>(first - begin)});
    }
    scored = end;
  }
  return windows;
}

Result<PerplexityResult> MeasurePerplexity(ModelExecutor& executor,
                                           std::span<const uint32_t> tokens,
                                           const PerplexityOptions& options, Progress* progress) {
  PerplexityRun run(tokens, options);
  run.Add({&executor, -1});
  SPILLWAY_ASSIGN_OR_RETURN(std::vector<PerplexityResult> results, run.Run(progress));
  return std::move(results[0]);
}

Result<std::vector<PerplexityResult>> ComparePerplexity(std::span<const ComparedModel> models,
                                                        std::span<const uint32_t> tokens,
                                                        const PerplexityOptions& options,
                                                        Progress* progress) {
  PerplexityRun run(tokens, options);
  for (const ComparedModel& compared : models) {
    const uint32_t vocab = compared.model->io().vocab_size;
    const size_t reference = compared.reference < 0 ? 0 : static_cast<size_t>(compared.reference);
    const uint32_t expected = models[reference].model->io().vocab_size;
    if (compared.reference >= 0 && vocab != expected) {
      return InvalidArgumentError(fmt::format(
          "the vocabulary of {} has {} tokens, that of the float model {}; they are not "
          "the same model",
          compared.model->Describe(), vocab, expected));
    }
    run.Add(compared);
  }
  return run.Run(progress);
}

Result<std::vector<uint32_t>> ContinueGreedily(ModelExecutor& executor,
                                               std::span<const uint32_t> prompt, uint32_t count,
                                               Progress* progress) {
  if (prompt.empty()) return InvalidArgumentError("the prompt has no tokens");
  Generator generator(&executor);
  const uint32_t kept = generator.StartPrompt(prompt);
  SPILLWAY_RETURN_IF_ERROR(generator.Feed(prompt.subspan(kept)));
  std::vector<uint32_t> tokens;
  while (tokens.size() < count) {
    ReportProgress(progress, "greedy answer", static_cast<double>(tokens.size()) / count);
    tokens.push_back(ArgMax(generator.logits()));
    if (tokens.size() == count || generator.n_past() == generator.context_len()) break;
    const Status status = generator.Feed(std::span(tokens).last(1));
    // A graph of several tokens a call cannot use the context's very end.
    if (status.code() == StatusCode::kResourceExhausted) break;
    SPILLWAY_RETURN_IF_ERROR(status);
  }
  return tokens;
}

uint32_t CommonStart(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  return static_cast<uint32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                               a.begin());
}

double SqnrOf(double signal, double noise) {
  if (noise == 0.0) return std::numeric_limits<double>::infinity();
  return 10.0 * std::log10(signal / noise);
}

double Sqnr(std::span<const float> reference, std::span<const float> values) {
  double signal = 0.0, noise = 0.0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double error = static_cast<double>(reference[i]) - values[i];
    signal += static_cast<double>(reference[i]) * reference[i];
    noise += error * error;
  }
  return SqnrOf(signal, noise);
}

}  // namespace spillway
