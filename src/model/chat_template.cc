#include "model/chat_template.h"

#include <algorithm>
#include <utility>

#include "model/jinja_interpreter.h"
#include "model/jinja_parser.h"
#include "model/utf8.h"

namespace spillway {
namespace {

using jinja::Value;

// A role is a word that the program chooses, and templates put it between the
// parts of control tokens ('<|' + role + '|>'). Any other word is a caller's.
bool IsKnownRole(std::string_view role) {
  static constexpr std::string_view kRoles[] = {"system", "user",      "assistant", "tool",
                                                "model",  "developer", "function",  "ipython"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

Value MessageValue(const ChatMessage& message) {
  MarkedText role(RepairUtf8(message.role), !IsKnownRole(message.role));
  MarkedText content(RepairUtf8(message.content), true);
  return Value::Dict({{Value::String("role"), Value::String(std::move(role))},
                      {Value::String("content"), Value::String(std::move(content))}});
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::Parse(std::string_view source) {
  Result<jinja::Body> body = jinja::ParseTemplate(RepairUtf8(source));
  if (!body.ok()) return body.status().WithContext("chat template");
  auto impl = std::make_unique<Impl>(Impl{std::move(body).value()});
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(impl)));
}

Result<std::vector<PromptPiece>> ChatTemplate::Render(const std::vector<ChatMessage>& messages,
                                                      bool add_generation_prompt,
                                                      std::string_view bos_token,
                                                      std::string_view eos_token) const {
  jinja::ValueList list;
  for (const ChatMessage& message : messages) list.push_back(MessageValue(message));
  // tools and documents are what transformers passes when there are none.
  Result<MarkedText> text = jinja::RunTemplate(
      impl_->body, {{"messages", Value::List(std::move(list))},
                    {"add_generation_prompt", Value::Bool(add_generation_prompt)},
                    {"bos_token", Value::String(RepairUtf8(bos_token))},
                    {"eos_token", Value::String(RepairUtf8(eos_token))},
                    {"tools", Value::None()},
                    {"documents", Value::None()}});
  if (!text.ok()) return text.status().WithContext("chat template");
  std::vector<PromptPiece> pieces;
  size_t begin = 0;
  for (const MarkedText::Run& run : text->runs()) {
    pieces.push_back({text->text().substr(begin, run.end - begin), run.marked});
    begin = run.end;
  }
  return pieces;
}

std::string JoinPieces(const std::vector<PromptPiece>& pieces) {
  std::string text;
  for (const PromptPiece& piece : pieces) text += piece.text;
  return text;
}

std::vector<uint32_t> EncodePrompt(const Tokenizer& tokenizer,
                                   const std::vector<PromptPiece>& pieces) {
  const std::string text = JoinPieces(pieces);
  std::vector<uint32_t> ids;
  size_t done = 0;   // of the text, encoded
  size_t begin = 0;  // of the current stretch of template text
  size_t end = 0;
  const auto encode_to = [&](size_t stop) {
    const std::vector<uint32_t> plain =
        tokenizer.Encode(std::string_view(text).substr(done, stop - done), false);
    ids.insert(ids.end(), plain.begin(), plain.end());
    done = stop;
  };
  const auto finish_stretch = [&] {
    for (const SpecialMatch& match :
         tokenizer.FindSpecial(std::string_view(text).substr(begin, end - begin))) {
      encode_to(begin + match.begin);
      ids.push_back(match.id);
      done = begin + match.end;
    }
  };
  for (const PromptPiece& piece : pieces) {
    if (piece.from_message) {
      finish_stretch();
      end += piece.text.size();
      begin = end;
    } else {
      end += piece.text.size();
    }
  }
  finish_stretch();
  encode_to(text.size());
  return ids;
}

}  // namespace spillway
