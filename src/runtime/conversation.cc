#include "spillway/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kAssistant[] = "assistant";

Result<std::string> TextMember(const Json& message, size_t index, const char* member) {
  const auto found = message.find(member);
  if (found == message.end()) {
    return CorruptDataError(fmt::format("messages[{}] has no \"{}\"", index, member));
  }
  if (!found->is_string()) {
    return CorruptDataError(fmt::format("messages[{}].{} is of type {}; expected a string", index,
                                        member, found->type_name()));
  }
  return found->get<std::string>();
}

Result<std::vector<ChatTurn>> TurnsOf(const Json& json) {
  const Json* messages = &json;
  if (json.is_object()) {
    const auto found = json.find("messages");
    if (found == json.end()) return CorruptDataError("the object has no \"messages\"");
    messages = &*found;
  }
  if (!messages->is_array()) {
    return CorruptDataError(
        fmt::format("found JSON of type {}; expected an array of messages, or an object with one "
                    "as \"messages\"",
                    messages->type_name()));
  }
  std::vector<ChatTurn> turns;
  for (const Json& message : *messages) {
    if (!message.is_object()) {
      return CorruptDataError(fmt::format(
          "messages[{}] is of type {}; expected an object with \"role\" and \"content\"",
          turns.size(), message.type_name()));
    }
    ChatTurn turn;
    SPILLWAY_ASSIGN_OR_RETURN(turn.role, TextMember(message, turns.size(), "role"));
    SPILLWAY_ASSIGN_OR_RETURN(turn.content, TextMember(message, turns.size(), "content"));
    turns.push_back(std::move(turn));
  }
  return turns;
}

}  // namespace

Result<Conversation> Conversation::FromJson(std::string_view json, const std::string& name) {
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return CorruptDataError(name + ": this is not JSON");
  Result<std::vector<ChatTurn>> turns = TurnsOf(parsed);
  if (!turns.ok()) return turns.status().WithContext(name);
  Conversation conversation;
  conversation.turns_ = std::move(turns).value();
  return conversation;
}

std::string Conversation::ToJson() const {
  Json messages = Json::array();
  for (const ChatTurn& turn : turns_) {
    messages.push_back({{"role", turn.role}, {"content", turn.content}});
  }
  return Json{{"messages", std::move(messages)}}.dump(2, ' ', false,
                                                      Json::error_handler_t::replace) +
         "\n";
}

void Conversation::Reset() {
  turns_.erase(std::find_if(turns_.begin(), turns_.end(),
                            [](const ChatTurn& turn) { return turn.role != "system"; }),
               turns_.end());
}

Result<Answer> Conversation::Ask(Session& session, std::string_view text, const RunOptions& options,
                                 const TextCallback& on_text) {
  turns_.push_back({"user", std::string(text)});
  const size_t asked = turns_.size();
  Result<Answer> answer = Continue(session, options, on_text);
  if (turns_.size() == asked) turns_.pop_back();  // no answer came
  return answer;
}

Result<Answer> Conversation::Continue(Session& session, const RunOptions& options,
                                      const TextCallback& on_text) {
  if (turns_.empty() || turns_.back().role == kAssistant) {
    return FailedPreconditionError(turns_.empty()
                                       ? "the conversation is empty; it needs a turn to answer"
                                       : "the conversation ends with an answer; add a turn of the "
                                         "user to be answered");
  }
  Result<Answer> answer = session.Generate(turns_, options, on_text);
  if (answer.ok() && !(answer->stop_reason == "cancelled" && answer->tokens.empty())) {
    turns_.push_back({kAssistant, answer->text});
  }
  return answer;
}

}  // namespace spillway
