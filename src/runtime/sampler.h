// Sampler: picks the next token from logits.

#ifndef SPILLWAY_RUNTIME_SAMPLER_H_
#define SPILLWAY_RUNTIME_SAMPLER_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "spillway/status.h"

namespace spillway {

// Applied in the order of the fields.
struct SamplerOptions {
  // Of tokens in the prompt or the answer: a positive logit is divided by it, another
  // one multiplied (Keskar et al., CTRL, 2019). 1 = off; below 1 asks for repetition.
  double repetition_penalty = 1.0;
  // Taken off the logits of tokens in the answer, once however often they came. 0 = off;
  // negative asks for them.
  double presence_penalty = 0.0;
  // Added to the logits of these tokens; minus infinity bans a token. Of several for
  // the same token the sum counts.
  std::vector<std::pair<uint32_t, float>> logit_bias;
  // Logits are divided by it; 0 takes the best token always, and what follows does
  // nothing.
  double temperature = 0.8;
  // Only the k best tokens; 0 = all, and so does a k of more than there are.
  uint32_t top_k = 40;
  // Only the smallest set of best tokens whose probability, among those left, reaches
  // p; 1 and more = all, 0 and less = the best token.
  double top_p = 0.95;
  // Only tokens whose probability is at least min_p times the best one's; 0 and less =
  // all, 1 and more = the best token and its equals.
  double min_p = 0.0;
  uint64_t seed = 0;
};

// The same options and logits give the same tokens, on every executor and machine up
// to the rounding of exp(): the n-th token is drawn with the n-th number of a generator
// that only the seed starts. Not thread-safe.
class Sampler {
 public:
  // kInvalidArgument names the option and its range: a temperature or repetition_penalty
  // that is negative (or for the latter 0) or not finite, a presence_penalty that is not
  // finite, a top_p or min_p that is not a number, a bias of a token outside the
  // vocabulary or that is not a number or plus infinity.
  static Result<Sampler> Create(const SamplerOptions& options, uint32_t vocab_size);

  // The tokens that repetition_penalty counts before the first Accept(). Tokens outside
  // the vocabulary are left out.
  void SetPrompt(std::span<const uint32_t> prompt);
  // `token` is part of the answer. Does not allocate.
  void Accept(uint32_t token);

  // A token id < logits.size() == vocab_size. Of equal logits the lower id is
  // the better; NaN counts as the worst. When all are banned: token 0. Does not
  // allocate.
  uint32_t Sample(std::span<const float> logits);

 private:
  struct Candidate {
    float logit;
    uint32_t id;
    double weight;  // exp((logit - best) / temperature)
  };
  struct Seen {
    bool anywhere = false, in_answer = false;
  };

  explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}
  static bool Worse(const Candidate& a, const Candidate& b);
  void MarkSeen(uint32_t token, bool in_answer);
  std::span<const float> Adjust(std::span<const float> logits);
  uint32_t Draw(std::span<const float> logits, uint32_t best);
  bool penalises() const {
    return options_.repetition_penalty != 1.0 || options_.presence_penalty != 0.0;
  }

  SamplerOptions options_;
  SplitMix64 random_;
  std::vector<Candidate> candidates_;  // [vocab]
  // Only with a penalty or a bias:
  std::vector<float> adjusted_;     // [vocab]
  std::vector<Seen> seen_;          // [vocab]
  std::vector<uint32_t> seen_ids_;  // those seen anywhere, room for vocab
};

// The best token: highest logit, lowest id of equals. Empty logits give 0.
uint32_t ArgMax(std::span<const float> logits);

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_SAMPLER_H_
