// Sampler: picks the next token from logits.

#ifndef SPILLWAY_RUNTIME_SAMPLER_H_
#define SPILLWAY_RUNTIME_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "spillway/status.h"

namespace spillway {

// Applied in this order: temperature, top-k, top-p.
struct SamplerOptions {
  // Logits are divided by it; 0 takes the best token always.
  double temperature = 0.8;
  // Only the k best tokens; 0 = all.
  uint32_t top_k = 40;
  // Only the smallest set of best tokens whose probability reaches p; 1 and more
  // = all, 0 and less = the best token.
  double top_p = 0.95;
  uint64_t seed = 0;
};

// The same options and logits give the same tokens, on every machine up to the
// rounding of exp(). Not thread-safe.
class Sampler {
 public:
  // kInvalidArgument names the option: a temperature that is negative or not
  // finite, a top_p that is not a number.
  static Result<Sampler> Create(const SamplerOptions& options, uint32_t vocab_size);

  // A token id < logits.size() == vocab_size. Of equal logits the lower id is
  // the better; NaN counts as the worst. Does not allocate.
  uint32_t Sample(std::span<const float> logits);

 private:
  struct Candidate {
    float logit;
    uint32_t id;
    double weight;  // exp((logit - best) / temperature)
  };

  explicit Sampler(const SamplerOptions& options) : options_(options), state_(options.seed) {}
  static bool Worse(const Candidate& a, const Candidate& b);
  uint64_t NextRandom();

  SamplerOptions options_;
  uint64_t state_;
  std::vector<Candidate> candidates_;  // [vocab]
};

// The best token: highest logit, lowest id of equals. Empty logits give 0.
uint32_t ArgMax(std::span<const float> logits);

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_SAMPLER_H_
