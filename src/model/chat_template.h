// ChatTemplate: the model's own Jinja template, rendered without Python.
//
// The language is Jinja2's as Hugging Face sets it up: trim_blocks and
// lstrip_blocks on, break and continue, the tag generation (ignored), the filter
// tojson without HTML escapes, raise_exception and strftime_now. Not supported
// and refused when parsing: include, import, extends, block, recursive loops and
// the rarer filters.

#ifndef SPILLWAY_MODEL_CHAT_TEMPLATE_H_
#define SPILLWAY_MODEL_CHAT_TEMPLATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"
#include "spillway/status.h"

namespace spillway {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
};

// A rendered prompt in pieces. Text that came from a message is marked, so that
// the tokenizer can keep it from becoming control tokens.
struct PromptPiece {
  std::string text;
  bool from_message = false;
};

class ChatTemplate {
 public:
  // Parses Jinja source. Errors give line and construct: kInvalidArgument for a
  // mistake in the syntax, kUnsupported for a tag, filter or test that is not
  // known, kResourceExhausted for nesting that is too deep.
  static Result<std::shared_ptr<const ChatTemplate>> Parse(std::string_view source);
  ~ChatTemplate();

  // Renders the conversation. `bos_token` and `eos_token` are the texts that
  // templates refer to by these names. A template's raise_exception() is
  // kInvalidArgument with its text. Bounded: at most 10 million steps and
  // 64 MiB of output, else kResourceExhausted. Ill-formed UTF-8 in a message
  // becomes U+FFFD. Const and safe from several threads.
  Result<std::vector<PromptPiece>> Render(const std::vector<ChatMessage>& messages,
                                          bool add_generation_prompt, std::string_view bos_token,
                                          std::string_view eos_token) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The pieces as one string.
std::string JoinPieces(const std::vector<PromptPiece>& pieces);

// Ids of a rendered prompt: special tokens are recognised in the template's own
// text only. A message text next to template text is tokenised with it as one
// stretch of plain text, so that the ids equal those of the whole string when
// no message spells a control token.
std::vector<uint32_t> EncodePrompt(const Tokenizer& tokenizer,
                                   const std::vector<PromptPiece>& pieces);

}  // namespace spillway

#endif  // SPILLWAY_MODEL_CHAT_TEMPLATE_H_
