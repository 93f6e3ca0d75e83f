#include "runtime/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace spillway {

uint32_t ArgMax(std::span<const float> logits) {
  uint32_t best = 0;
  float best_logit = -std::numeric_limits<float>::infinity();
  for (uint32_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > best_logit) {  // false for NaN
      best = id;
      best_logit = logits[id];
    }
  }
  return best;
}

namespace {

Status CheckNumbers(const SamplerOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0.0) {
    return InvalidArgumentError(
        fmt::format("temperature is {}; expected 0 (always the best token) or a positive number",
                    options.temperature));
  }
  if (std::isnan(options.top_p)) {
    return InvalidArgumentError("top_p is not a number; expected a probability from 0 to 1");
  }
  if (std::isnan(options.min_p)) {
    return InvalidArgumentError("min_p is not a number; expected a share from 0 (off) to 1");
  }
  if (!std::isfinite(options.repetition_penalty) || options.repetition_penalty <= 0.0) {
    return InvalidArgumentError(
        fmt::format("repetition_penalty is {}; expected a positive number, 1 for none",
                    options.repetition_penalty));
  }
  if (!std::isfinite(options.presence_penalty)) {
    return InvalidArgumentError(fmt::format("presence_penalty is {}; expected a number, 0 for none",
                                            options.presence_penalty));
  }
  return OkStatus();
}

Status CheckBias(const SamplerOptions& options, uint32_t vocab_size) {
  for (const auto& [id, bias] : options.logit_bias) {
    if (id >= vocab_size) {
      return InvalidArgumentError(
          fmt::format("logit_bias names token {}; the vocabulary has {} tokens", id, vocab_size));
    }
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity()) {
      return InvalidArgumentError(fmt::format(
          "logit_bias of token {} is {}; expected a number, or -inf to ban the token", id, bias));
    }
  }
  return OkStatus();
}

}  // namespace

Result<Sampler> Sampler::Create(const SamplerOptions& options, uint32_t vocab_size) {
  SPILLWAY_RETURN_IF_ERROR(CheckNumbers(options));
  SPILLWAY_RETURN_IF_ERROR(CheckBias(options, vocab_size));
  Sampler sampler(options);
  if (options.temperature > 0.0) sampler.candidates_.resize(vocab_size);
  if (sampler.penalises() || !options.logit_bias.empty()) sampler.adjusted_.resize(vocab_size);
  if (sampler.penalises()) {
    sampler.seen_.resize(vocab_size);
    sampler.seen_ids_.reserve(vocab_size);
  }
  return sampler;
}

void Sampler::MarkSeen(uint32_t token, bool in_answer) {
  if (token >= seen_.size()) return;  // also without penalties
  Seen& seen = seen_[token];
  if (!seen.anywhere) seen_ids_.push_back(token);
  seen.anywhere = true;
  seen.in_answer = seen.in_answer || in_answer;
}

void Sampler::SetPrompt(std::span<const uint32_t> prompt) {
  for (const uint32_t token : prompt) MarkSeen(token, false);
}

void Sampler::Accept(uint32_t token) { MarkSeen(token, true); }

std::span<const float> Sampler::Adjust(std::span<const float> logits) {
  if (adjusted_.empty() || logits.size() > adjusted_.size()) return logits;
  std::copy(logits.begin(), logits.end(), adjusted_.begin());
  for (const uint32_t id : seen_ids_) {
    double logit = adjusted_[id];
    logit = logit > 0.0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
    if (seen_[id].in_answer) logit -= options_.presence_penalty;
    adjusted_[id] = static_cast<float>(logit);
  }
  for (const auto& [id, bias] : options_.logit_bias) adjusted_[id] += bias;
  return std::span<const float>(adjusted_).first(logits.size());
}

bool Sampler::Worse(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit < b.logit : a.id > b.id;
}

uint32_t Sampler::Sample(std::span<const float> raw_logits) {
  const std::span<const float> logits = Adjust(raw_logits);
  const uint32_t best = ArgMax(logits);
  if (options_.temperature == 0.0 || logits.empty()) return best;
  return Draw(logits, best);
}

uint32_t Sampler::Draw(std::span<const float> logits, uint32_t best) {
  // Always drawn, so that the n-th token has the n-th number.
  const double random = random_.Uniform();
  const float best_logit = logits[best];
  if (options_.top_k == 1 || options_.top_p <= 0.0 || !std::isfinite(best_logit)) return best;
  const size_t count = std::min(logits.size(), candidates_.size());
  for (size_t i = 0; i < count; ++i) {
    const float logit = std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
    candidates_[i] = {logit, static_cast<uint32_t>(i), 0.0};
  }
  auto begin = candidates_.begin(), end = begin + static_cast<std::ptrdiff_t>(count);
  const auto better = [](const Candidate& a, const Candidate& b) { return Worse(b, a); };
  if (options_.top_k != 0 && options_.top_k < count) {
    std::nth_element(begin, begin + options_.top_k, end, better);
    end = begin + options_.top_k;
  }
  double total = 0.0;
  for (auto it = begin; it != end; ++it) {
    it->weight = std::exp((static_cast<double>(it->logit) - best_logit) / options_.temperature);
    total += it->weight;
  }
  if (options_.top_p < 1.0) {
    // The best come off a heap until their sum is enough; they gather at the end.
    std::make_heap(begin, end, Worse);
    const double enough = options_.top_p * total;
    double sum = 0.0;
    auto rest = end;
    while (rest != begin && sum < enough) {
      std::pop_heap(begin, rest, Worse);
      --rest;
      sum += rest->weight;
    }
    begin = rest;
    total = sum;
  }
  if (options_.min_p > 0.0) {  // the best one's weight is 1
    const double least = std::min(options_.min_p, 1.0);
    end = std::partition(begin, end, [&](const Candidate& c) { return c.weight >= least; });
    total = 0.0;
    for (auto it = begin; it != end; ++it) total += it->weight;
  }
  const double target = random * total;
  double sum = 0.0;
  for (auto it = begin; it != end; ++it) {
    sum += it->weight;
    if (target < sum) return it->id;
  }
  return best;  // rounding left nothing
}

}  // namespace spillway
