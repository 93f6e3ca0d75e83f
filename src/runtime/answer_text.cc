#include "runtime/answer_text.h"

#include <algorithm>
#include <utility>

#include "model/utf8.h"

namespace spillway {
namespace {

// English is 4 to 5 bytes a token, code less.
constexpr size_t kBytesPerToken = 8;
constexpr size_t kMostReserved = size_t{1} << 20;

}  // namespace

AnswerText::AnswerText(const Tokenizer& tokenizer, size_t most_tokens) : tokenizer_(tokenizer) {
  const size_t longest = tokenizer.longest_token();
  text_.reserve(std::min(most_tokens * kBytesPerToken + longest, kMostReserved));
  pending_.reserve(longest + 4);
}

std::string_view AnswerText::Add(uint32_t token) {
  tokenizer_.AppendTokenBytes(token, /*show_special=*/false, &pending_);
  return Move(false);
}

std::string_view AnswerText::Finish() { return Move(true); }

std::string_view AnswerText::Move(bool at_end) {
  const size_t before = text_.size();
  size_t at = 0;
  while (at < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(at);
    const Utf8Part part = NextUtf8Part(rest);
    if (part.kind == Utf8Part::Kind::kIncomplete && !at_end) break;
    text_.append(part.kind == Utf8Part::Kind::kCharacter ? rest.substr(0, part.size)
                                                         : kReplacementCharacter);
    at += part.size;
  }
  pending_.erase(0, at);
  return std::string_view(text_).substr(before);
}

}  // namespace spillway
