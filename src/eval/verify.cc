#include "eval/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "eval/integer_difference.h"
#include "eval/perplexity.h"
#include "kvcache/kv_cache.h"
#include "package/package.h"
#include "runtime/generator.h"
#include "runtime/sampler.h"

namespace spillway {
namespace {

// Two executors fed in step with each other.
class Comparison {
 public:
  Comparison(ModelExecutor& reference, ModelExecutor& tested)
      : reference_(reference), tested_(tested), left_(&reference), right_(&tested) {}

  Result<VerifyReport> Run(const std::vector<uint32_t>& tokens, uint32_t max_new,
                           Progress* progress) {
    if (!HasRoomFor(tokens.size())) {
      return ResourceExhaustedError(
          fmt::format("the prompt has {} tokens, more than the graphs take in a context of {}",
                      tokens.size(), left_.context_len()));
    }
    const uint32_t kept = left_.StartPrompt(tokens);
    right_.StartPrompt(tokens);
    SPILLWAY_RETURN_IF_ERROR(Feed(std::span(tokens).subspan(kept), progress));
    for (uint32_t i = 0; i < max_new; ++i) {
      const uint32_t expected = ArgMax(left_.logits());
      const uint32_t found = ArgMax(right_.logits());
      report_.reference_tokens.push_back(expected);
      report_.tested_tokens.push_back(found);
      ++report_.generated_tokens;
      report_.equal_tokens += expected == found ? 1 : 0;
      if (i + 1 == max_new || !HasRoomFor(1)) break;
      SPILLWAY_RETURN_IF_ERROR(Feed({&expected, 1}, progress));
    }
    Finish();
    return std::move(report_);
  }

 private:
  // The calls for `tokens` more tokens; they cover fewer when the context is full.
  std::vector<StepPlan> Plan(size_t tokens) const {
    const uint32_t prefill_ar = reference_.buffers(StepKind::kPrefill).ar_len;
    const uint32_t decode_ar = reference_.buffers(StepKind::kDecode).ar_len;
    return PlanPrompt(static_cast<uint32_t>(tokens), left_.n_past(), prefill_ar, decode_ar,
                      reference_.io().kv.context_len);
  }

  bool HasRoomFor(size_t tokens) const {
    size_t covered = 0;
    for (const StepPlan& step : Plan(tokens)) covered += step.count;
    return covered == tokens;
  }

  Status Feed(std::span<const uint32_t> tokens, Progress* progress) {
    for (const StepPlan& step : Plan(tokens.size())) {
      ReportProgress(progress, fmt::format("compare call {}", report_.steps + 1), -1.0);
      const auto chunk = tokens.subspan(step.begin, step.count);
      SPILLWAY_RETURN_IF_ERROR(left_.Feed(chunk));
      SPILLWAY_RETURN_IF_ERROR(right_.Feed(chunk));
      Compare(step.prefill ? StepKind::kPrefill : StepKind::kDecode, step.count);
    }
    return OkStatus();
  }

  void Compare(StepKind kind, uint32_t count) {
    ++report_.steps;
    const std::span<const float> expected = left_.logits();
    const std::span<const float> found = right_.logits();
    expected_logits_.insert(expected_logits_.end(), expected.begin(), expected.end());
    found_logits_.insert(found_logits_.end(), found.begin(), found.end());
    agreed_ += ArgMax(expected) == ArgMax(found) ? 1 : 0;

    const std::string graph = kind == StepKind::kPrefill ? kPrefillGraphName : kDecodeGraphName;
    const ModelIo& io = reference_.io();
    differences_[{graph, "logits"}].Add(io.logits_dtype, left_.raw_logits(), right_.raw_logits(),
                                        io.vocab_size);
    const StepBuffers& a = reference_.buffers(kind);
    const StepBuffers& b = tested_.buffers(kind);
    const size_t size = DTypeSize(io.kv.dtype);
    for (uint32_t layer = 0; layer < io.kv.layers; ++layer) {
      IntegerDifference& k = differences_[{graph, fmt::format("k_new_{}", layer)}];
      IntegerDifference& v = differences_[{graph, fmt::format("v_new_{}", layer)}];
      // K is [kv_heads * head_dim, AR]: the real columns of each row.
      for (size_t row = 0; row < size_t{io.kv.kv_heads} * io.kv.head_dim; ++row) {
        const size_t at = row * a.ar_len * size;
        k.Add(io.kv.dtype, a.k_new[layer] + at, b.k_new[layer] + at, count);
      }
      // V is [kv_heads, AR, head_dim]: the real rows of each head.
      for (size_t head = 0; head < io.kv.kv_heads; ++head) {
        const size_t at = head * a.ar_len * io.kv.head_dim * size;
        v.Add(io.kv.dtype, a.v_new[layer] + at, b.v_new[layer] + at,
              size_t{count} * io.kv.head_dim);
      }
    }
  }

  void Finish() {
    for (const auto& [key, difference] : differences_) {
      report_.outputs.push_back(
          {key.first, key.second, difference.max, difference.mean(), difference.count});
    }
    std::stable_sort(report_.outputs.begin(), report_.outputs.end(),
                     [](const auto& a, const auto& b) { return a.max_lsb > b.max_lsb; });
    report_.logits_sqnr_db = Sqnr(expected_logits_, found_logits_);
    report_.top1_agreement = static_cast<double>(agreed_) / std::max(1u, report_.steps);
  }

  ModelExecutor& reference_;
  ModelExecutor& tested_;
  Generator left_, right_;
  VerifyReport report_;
  uint32_t agreed_ = 0;
  std::vector<float> expected_logits_, found_logits_;
  std::map<std::pair<std::string, std::string>, IntegerDifference> differences_;
};

}  // namespace

Result<VerifyReport> VerifyExecutors(ModelExecutor& reference, ModelExecutor& tested,
                                     const std::vector<uint32_t>& tokens,
                                     const VerifyOptions& options, Progress* progress) {
  if (tokens.empty()) return InvalidArgumentError("the prompt has no tokens to compare");
  return Comparison(reference, tested).Run(tokens, options.max_new_tokens, progress);
}

}  // namespace spillway
