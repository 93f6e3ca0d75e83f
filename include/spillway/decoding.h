// How a package is run beyond one token after the other: sizes that compile and run
// agree on.

#ifndef SPILLWAY_DECODING_H_
#define SPILLWAY_DECODING_H_

#include <cstdint>

namespace spillway {

// What happens when the context is full: its first `sink` tokens stay (those that
// attention gives what it needs nowhere else), the `batch` tokens after them are
// forgotten, and the rest moves up, so that a conversation need not end.
// A package's prefix is the sink, whatever `sink` says. A batch of at least the AR
// length of prefill_forward keeps long prompts fast.
struct AttentionSink {
  uint32_t sink = 4;
  uint32_t batch = 32;  // 0: no sink; a conversation ends when the context is full
  friend bool operator==(const AttentionSink&, const AttentionSink&) = default;
};

// Sizes of lookahead decoding: each call looks for n-grams in `window` places and
// checks up to `gcap` of those found before.
struct LookaheadSizes {
  uint32_t ngram = 0, window = 0, gcap = 0;
  // Tokens of one call of kv_forward.
  uint32_t ArLen() const { return (ngram - 1) * (window + gcap); }
};

}  // namespace spillway

#endif  // SPILLWAY_DECODING_H_
