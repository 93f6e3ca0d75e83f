#include "eval/stream_perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "runtime/generator.h"

namespace spillway {
namespace {

constexpr uint32_t kRunningPoints = 20;
constexpr size_t kChunk = 64;  // tokens between two reports of progress

double Nll(std::span<const float> logits, uint32_t token) {
  const float best = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - best));
  return std::log(sum) + static_cast<double>(best) - static_cast<double>(logits[token]);
}

// Of nll [begin, end); 0 of none.
double PerplexityOf(const std::vector<float>& nll, size_t begin, size_t end) {
  if (begin >= end) return 0;
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += static_cast<double>(nll[i]);
  return std::exp(sum / static_cast<double>(end - begin));
}

void Summarise(StreamPerplexity& result) {
  const size_t count = result.nll.size();
  result.scored_tokens = static_cast<uint32_t>(count);
  if (result.evictions == 0) result.before_tokens = result.scored_tokens;
  result.perplexity = PerplexityOf(result.nll, 0, count);
  result.before = PerplexityOf(result.nll, 0, result.before_tokens);
  result.after = PerplexityOf(result.nll, result.before_tokens, count);
  result.running_step = std::max(1U, result.scored_tokens / kRunningPoints);
  for (size_t end = result.running_step; end < count; end += result.running_step) {
    result.running.push_back(PerplexityOf(result.nll, 0, end));
  }
  result.running.push_back(result.perplexity);
}

}  // namespace

Result<StreamPerplexity> MeasureStreamPerplexity(ModelExecutor& executor, const RopeConfig& rope,
                                                 std::span<const uint32_t> tokens,
                                                 const AttentionSink& sink, Progress* progress) {
  if (tokens.size() < 2) {
    return InvalidArgumentError(
        fmt::format("the text has {} tokens; perplexity needs at least 2", tokens.size()));
  }
  Generator generator(&executor);
  SPILLWAY_RETURN_IF_ERROR(generator.SetAttentionSink(sink, rope));
  StreamPerplexity result;
  result.sink = *generator.attention_sink();
  result.by_evictor = generator.evicts_by_executor();
  result.nll.reserve(tokens.size() - 1);
  double scoring_s = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds_since = [](std::chrono::steady_clock::time_point from) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  };
  const std::span<const uint32_t> fed = tokens.first(tokens.size() - 1);
  for (size_t done = 0; done < fed.size();) {
    const size_t count = std::min(kChunk, fed.size() - done);
    SPILLWAY_RETURN_IF_ERROR(generator.Feed(
        fed.subspan(done, count), [&](uint32_t index, std::span<const float> logits) {
          const auto scoring = std::chrono::steady_clock::now();
          if (generator.evictions() == 0) ++result.before_tokens;
          result.nll.push_back(static_cast<float>(Nll(logits, tokens[done + index + 1])));
          scoring_s += seconds_since(scoring);
        }));
    done += count;
    ReportProgress(progress, "measure",
                   static_cast<double>(done) / static_cast<double>(fed.size()));
  }
  result.seconds = seconds_since(start) - scoring_s;
  result.evictions = generator.evictions();
  Summarise(result);
  return result;
}

}  // namespace spillway
