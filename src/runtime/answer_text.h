// The text of an answer, token by token, without allocating for a token.

#ifndef SPILLWAY_RUNTIME_ANSWER_TEXT_H_
#define SPILLWAY_RUNTIME_ANSWER_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "model/tokenizer.h"

namespace spillway {

// Gathers tokens and gives whole UTF-8 characters: bytes that may still become one are
// held back, ill-formed ones become U+FFFD. Not thread-safe.
class AnswerText {
 public:
  // Has memory for `most_tokens` tokens of ordinary text beforehand (at most 1 MiB);
  // longer text makes it grow, ever more rarely. `tokenizer` must outlive this.
  AnswerText(const Tokenizer& tokenizer, size_t most_tokens);

  // The text that `token` completes (may be empty). Valid until the next call.
  std::string_view Add(uint32_t token);
  // What was held back. Valid until the next call.
  std::string_view Finish();
  // All that Add and Finish returned; nothing is left.
  std::string Take() { return std::move(text_); }

 private:
  std::string_view Move(bool at_end);

  const Tokenizer& tokenizer_;
  std::string text_;
  std::string pending_;  // at most 3 bytes between calls
};

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_ANSWER_TEXT_H_
