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

TokenTexts::TokenTexts(const Tokenizer& tokenizer) {
  ends_.reserve(tokenizer.vocab_size());
  for (uint32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string bytes = tokenizer.TokenBytes(id);
    longest_ = std::max(longest_, bytes.size());
    bytes_ += bytes;
    ends_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
}

std::string_view TokenTexts::Of(uint32_t id) const {
  if (id >= ends_.size()) return {};
  const size_t begin = id == 0 ? 0 : ends_[id - 1];
  return std::string_view(bytes_).substr(begin, ends_[id] - begin);
}

AnswerText::AnswerText(const TokenTexts& texts, size_t most_tokens) : texts_(texts) {
  text_.reserve(std::min(most_tokens * kBytesPerToken + texts.longest(), kMostReserved));
  pending_.reserve(texts.longest() + 4);
}

std::string_view AnswerText::Add(uint32_t token) {
  pending_ += texts_.Of(token);
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
