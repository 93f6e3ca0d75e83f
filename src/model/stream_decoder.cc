#include "model/tokenizer.h"
#include "model/utf8.h"

namespace spillway {

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {}

std::string StreamDecoder::Add(uint32_t id) {
  pending_ += tokenizer_->TokenBytes(id);
  std::string text;
  size_t at = 0;
  while (at < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(at);
    const Utf8Part part = NextUtf8Part(rest);
    if (part.kind == Utf8Part::Kind::kIncomplete) break;
    text.append(part.kind == Utf8Part::Kind::kCharacter ? rest.substr(0, part.size)
                                                        : kReplacementCharacter);
    at += part.size;
  }
  pending_.erase(0, at);
  return text;
}

std::string StreamDecoder::Finish() {
  std::string text = RepairUtf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace spillway
