// Generator: feeds tokens to a model, call by call, and gives back logits. It
// knows chunks, masks, positions and the cache, and nothing of text.

#ifndef SPILLWAY_RUNTIME_GENERATOR_H_
#define SPILLWAY_RUNTIME_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/progress.h"
#include "kvcache/kv_cache.h"
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
  // Tokens in the context so far, and which: those of the prefix first.
  uint32_t n_past() const { return cache_.size(); }
  std::span<const uint32_t> tokens() const { return tokens_; }

  // Runs the model on `tokens` after those before. `every_row`, when set, gets
  // the logits of each token in order; otherwise only the last token's are
  // computed. Nothing is run when a token is outside the vocabulary
  // (kInvalidArgument) or the context has no room (kResourceExhausted, says both
  // numbers). When a call fails, n_past() counts the tokens before it. Does not
  // allocate.
  Status Feed(std::span<const uint32_t> tokens, const RowCallback& every_row = nullptr,
              Progress* progress = nullptr);

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
  // up; another one follows the prefix. `prompt` is not empty.
  uint32_t StartPrompt(std::span<const uint32_t> prompt);
  // Tokens of the context that a prompt cannot use: the prefix, when the prompt
  // does not start with it.
  uint32_t ExtraTokens(std::span<const uint32_t> prompt) const;

 private:
  uint32_t prefix_size() const { return static_cast<uint32_t>(io_.prefix.tokens.size()); }
  void LoadPrefix();
  Status CheckTokens(std::span<const uint32_t> tokens) const;
  Status RunStep(StepKind kind, std::span<const uint32_t> tokens, int logits_row);
  void ReadLogits(const StepBuffers& buffers, uint32_t row);

  ModelExecutor* executor_;
  const ModelIo& io_;
  StepSizes sizes_;
  KvCache cache_;
  std::vector<uint32_t> tokens_;  // [n_past], room for context_len
  std::vector<float> logits_;     // [vocab]
  const std::byte* raw_logits_ = nullptr;
  bool has_logits_ = false;
};

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_GENERATOR_H_
