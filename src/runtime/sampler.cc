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

Result<Sampler> Sampler::Create(const SamplerOptions& options, uint32_t vocab_size) {
  if (!std::isfinite(options.temperature) || options.temperature < 0.0) {
    return InvalidArgumentError(
        fmt::format("temperature is {}; expected 0 (always the best token) or a positive number",
                    options.temperature));
  }
  if (std::isnan(options.top_p)) {
    return InvalidArgumentError("top_p is not a number; expected a probability from 0 to 1");
  }
  Sampler sampler(options);
  if (options.temperature > 0.0) sampler.candidates_.resize(vocab_size);
  return sampler;
}

bool Sampler::Worse(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit < b.logit : a.id > b.id;
}

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators, 2014): one addition and a mixing function, any seed is good.
uint64_t Sampler::NextRandom() {
  state_ += 0x9e3779b97f4a7c15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint32_t Sampler::Sample(std::span<const float> logits) {
  const uint32_t best = ArgMax(logits);
  const float best_logit = logits.empty() ? 0.0f : logits[best];
  if (options_.temperature == 0.0 || options_.top_k == 1 || options_.top_p <= 0.0 ||
      !std::isfinite(best_logit)) {
    return best;
  }
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
  // 53 random bits: a uniform number in [0, 1).
  const double target = static_cast<double>(NextRandom() >> 11) * 0x1.0p-53 * total;
  double sum = 0.0;
  for (auto it = begin; it != end; ++it) {
    sum += it->weight;
    if (target < sum) return it->id;
  }
  return best;  // rounding left nothing
}

}  // namespace spillway
