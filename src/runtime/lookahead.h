// Lookahead decoding: several tokens a call of the decode graph, and the same tokens as
// one by one. (Fu et al., 2024, "Break the Sequential Dependency of LLM Inference Using
// Lookahead Decoding".)
//
// A call has two kinds of rows beside the current token. The window guesses the next
// tokens at `window` places at once: ngram - 1 levels of guesses, each level what the
// model said one call before, so that every place has an n-gram at hand, which goes to a
// pool. The other rows check up to `gcap` n-grams of the pool that start with the current
// token: as long as the model picks what an n-gram says, its next row is the true next
// step. Only rows on the way that was picked enter the cache. The pool also gets the
// n-grams of the prompt and of the answer, so text that repeats itself runs ahead.

#ifndef SPILLWAY_RUNTIME_LOOKAHEAD_H_
#define SPILLWAY_RUNTIME_LOOKAHEAD_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/generator.h"
#include "runtime/ngram_pool.h"
#include "spillway/decoding.h"
#include "spillway/status.h"

namespace spillway {

struct LookaheadStats {
  uint64_t steps = 0;   // calls of Step
  uint64_t tokens = 0;  // picked in them
  double TokensPerStep() const {
    return steps == 0 ? 0 : static_cast<double>(tokens) / static_cast<double>(steps);
  }
};

// Not thread-safe; the generator outlives it.
class LookaheadDecoder {
 public:
  // Picks the next token from logits [vocab]; no value ends the answer. Called once for
  // each token, in the order of the text, as without lookahead.
  using Pick = std::function<std::optional<uint32_t>(std::span<const float> logits)>;

  // kInvalidArgument when ngram < 2, window or gcap is 0, or the rows are more than the
  // decode graph takes (says both numbers).
  static Result<LookaheadDecoder> Create(Generator* generator, const LookaheadSizes& sizes);

  // Before the first Step of an answer, with its whole prompt.
  void StartAnswer(std::span<const uint32_t> prompt);

  // Runs `token`, the last one picked, after the tokens of the context, and picks 1 to
  // ngram tokens. Returns the last of them, which is not in the context yet, or no value
  // when `pick` gave none; then all tokens picked are in the context but the last.
  // Without room for a whole call it does what Feed() and pick() do.
  Result<std::optional<uint32_t>> Step(uint32_t token, const Pick& pick);

  const LookaheadStats& stats() const { return stats_; }

 private:
  LookaheadDecoder(Generator* generator, const LookaheadSizes& sizes, uint32_t vocab_size);
  uint32_t levels() const { return sizes_.ngram - 1; }
  uint32_t WindowRow(uint32_t level, uint32_t place) const { return level * sizes_.window + place; }
  uint32_t CheckRow(uint32_t candidate, uint32_t depth) const {
    return levels() * (sizes_.window + candidate) + depth;
  }
  void MakeVisibility();
  void MakeRows(uint32_t token);
  // Picks along the candidates; the rows on the way are in kept_.
  std::optional<uint32_t> Verify(const Pick& pick);
  // The candidate whose tokens are those picked so far; no value when none is.
  std::optional<uint32_t> CandidateWith(std::span<const uint32_t> picked) const;
  void AdvanceWindow();
  // A token of the text, for the pool.
  void Remember(uint32_t token);
  std::optional<uint32_t> PickOne(const Pick& pick, std::span<const float> logits);

  Generator* generator_;
  LookaheadSizes sizes_;
  NgramPool pool_;
  LookaheadStats stats_;
  // [levels, window]; place 0 of level 0 is the current token.
  std::vector<uint32_t> window_;
  std::vector<uint32_t> candidates_;  // [candidates_found_, levels]
  uint32_t candidates_found_ = 0;
  bool starts_ = false;         // the next token to run is the answer's first
  std::vector<uint32_t> text_;  // the last ngram tokens of prompt and answer

  std::vector<uint32_t> tokens_, ahead_;  // a row each, for all candidates
  std::vector<uint8_t> all_sees_, sees_;  // for all candidates; for those there are
  std::vector<uint32_t> kept_, picked_, ngram_;
};

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_LOOKAHEAD_H_
