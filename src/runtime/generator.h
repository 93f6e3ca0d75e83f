// Generator: feeds tokens to a model, call by call, and gives back logits. It
// knows chunks, masks, positions, the cache and the attention sink, and nothing of text.

#ifndef SPILLWAY_RUNTIME_GENERATOR_H_
#define SPILLWAY_RUNTIME_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/progress.h"
#include "kvcache/kv_cache.h"
#include "runtime/evict.h"
#include "runtime/model_executor.h"
#include "spillway/status.h"

namespace spillway {

// Not thread-safe. The executor outlives it, and only one Generator uses an
// executor at a time.
class Generator {
 public:
  // Called with the index of a token in the fed span and the logits [vocab] that
  // follow it; they are valid during the call.
  using RowCallback = std::function<void(uint32_t index, std::span<const float> logits)>;

  explicit Generator(ModelExecutor* executor);

  uint32_t context_len() const { return io_.kv.context_len; }
  // Tokens in the context so far, and which: those of the prefix first. Evicted ones are
  // not among them.
  uint32_t n_past() const { return cache_.size(); }
  std::span<const uint32_t> tokens() const { return tokens_; }

  // From now on a full context makes room by itself: before a token runs with more than
  // CL - AR tokens there, AR that of the decode graph (of the only graph), `sink.batch`
  // tokens after the first sink.sink go. When this happens depends on the number of
  // tokens only, not on how they were fed, so logits do not depend on the prefill AR.
  // (A batch of at least the prefill AR keeps long prompts in prefill calls.) `rope` is
  // the model's. kInvalidArgument unless batch >= 1 and sink + batch <= CL - AR;
  // kUnsupported when the encodings of the keys are not known.
  Status SetAttentionSink(const AttentionSink& sink, const RopeConfig& rope);
  bool has_attention_sink() const { return sink_.has_value(); }
  // The sink in use: the prefix where there is one.
  const std::optional<AttentionSink>& attention_sink() const { return sink_; }
  // Whether the executor's evictor does it: made for this sink and batch.
  bool evicts_by_executor() const { return by_executor_; }
  // Of this conversation: how often tokens were evicted, and how many in all.
  uint32_t evictions() const { return evictions_; }
  uint32_t evicted_tokens() const { return static_cast<uint32_t>(evicted_.size()); }

  // Runs the model on `tokens` after those before. `every_row`, when set, gets
  // the logits of each token in order; otherwise only the last token's are
  // computed. Nothing is run when a token is outside the vocabulary
  // (kInvalidArgument) or the context has no room (kResourceExhausted, says both
  // numbers). When a call fails, n_past() counts the tokens that are there. Does not
  // allocate, evictions aside.
  //
  // A graph that takes several tokens a call has no room for its padding in the last
  // columns. Where no other graph has either, its last call runs some tokens again.
  Status Feed(std::span<const uint32_t> tokens, const RowCallback& every_row = nullptr,
              Progress* progress = nullptr);

  // One call of the decode graph whose rows follow several continuations: row r is
  // tokens[r] at position n_past() + ahead[r], and sees what is in the context and the
  // rows c with sees[r * rows + c] != 0. At most decode_ar() rows; needs CanBranch() and
  // positions below CL. Evicts first where Feed would. Nothing is added before KeepRows().
  Status RunBranches(std::span<const uint32_t> tokens, std::span<const uint32_t> ahead,
                     std::span<const uint8_t> sees);
  // Logits [vocab] of a row, until the next call of any kind.
  std::span<const float> BranchLogits(uint32_t row);
  // The tokens of these rows, which continue each other, become the next of the context;
  // at least one, at most room(). logits() are then those of the last.
  void KeepRows(std::span<const uint32_t> rows);
  uint32_t decode_ar() const { return sizes_.decode_ar; }
  // Token ids are below this.
  uint32_t token_count() const { return executor_->embedding().vocab_size(); }
  // The context has, or can make, room for a whole call of the decode graph.
  bool CanBranch() const;
  // Tokens that fit before the context is full or the next eviction.
  uint32_t room() const { return limit_ > n_past() ? limit_ - n_past() : 0; }

  // Logits [vocab] after the last token fed; empty after Truncate and Reset.
  // Valid until the next call.
  std::span<const float> logits() const {
    return {logits_.data(), has_logits_ ? logits_.size() : 0};
  }
  // The same as the graph gave them, in ModelIo::logits_dtype.
  const std::byte* raw_logits() const { return has_logits_ ? raw_logits_ : nullptr; }

  // Forgets all tokens from `size` on (size <= n_past()); the prefix stays.
  void Truncate(uint32_t size);
  void Reset() { Truncate(0); }

  // Makes the context ready for a prompt: keeps the longest beginning of it that
  // is there, but never its last token, whose logits must be computed, and
  // forgets the rest. Returns how many tokens of the prompt are there; the caller
  // feeds the others. A prompt that starts with the prefix's tokens gives them
  // up; another one follows the prefix. `prompt` is not empty. After evictions it keeps
  // what is there only where feeding the whole prompt would evict the same.
  uint32_t StartPrompt(std::span<const uint32_t> prompt);
  // Tokens of the context that a prompt cannot use: the prefix, when the prompt
  // does not start with it.
  uint32_t ExtraTokens(std::span<const uint32_t> prompt) const;

 private:
  uint32_t prefix_size() const { return static_cast<uint32_t>(io_.prefix.tokens.size()); }
  void LoadPrefix();
  // One call of a graph: the last `again` tokens of the context, then `count` new ones.
  struct Chunk {
    StepKind kind = StepKind::kDecode;
    uint32_t again = 0, count = 0;
  };

  Status CheckTokens(std::span<const uint32_t> tokens) const;
  std::optional<Chunk> NextChunk(uint32_t tokens) const;
  Status MakeRoom();
  Status RunChunk(const Chunk& chunk, std::span<const uint32_t> tokens, int logits_row);
  // Of the rows in step_tokens_; padded rows repeat the last.
  // Of the first `rows` rows; padding gets the last token's.
  void FillHidden(StepBuffers& buffers, uint32_t rows) const;
  void ReadLogits(const StepBuffers& buffers, uint32_t row);
  // The conversation with its evicted tokens.
  uint32_t history_size() const { return n_past() + evicted_tokens(); }
  uint32_t History(uint32_t index) const;

  ModelExecutor* executor_;
  const ModelIo& io_;
  StepSizes sizes_;
  KvCache cache_;
  std::vector<uint32_t> tokens_;       // [n_past], room for context_len
  std::vector<uint32_t> step_tokens_;  // of the last call; room for context_len
  std::vector<float> logits_;          // [vocab]
  const std::byte* raw_logits_ = nullptr;
  bool has_logits_ = false;

  std::optional<AttentionSink> sink_;
  KeyShift shift_;
  bool by_executor_ = false;
  uint32_t limit_ = 0;  // n_past() is at most this
  uint32_t evictions_ = 0;
  std::vector<uint32_t> evicted_;  // of this conversation: those after the sink
  uint32_t evicted_at_ = 0;        // history_size() at the last eviction
};

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_GENERATOR_H_
