// Conversation: turns that a Session answers one after the other.
//
//   spillway::Conversation chat;
//   chat.Add({"system", "Answer in one sentence."});
//   SPILLWAY_ASSIGN_OR_RETURN(auto first, chat.Ask(*session, "What is a cache?", {}));
//   SPILLWAY_ASSIGN_OR_RETURN(auto second, chat.Ask(*session, "And a cache line?", {}));

#ifndef SPILLWAY_CONVERSATION_H_
#define SPILLWAY_CONVERSATION_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/export.h"
#include "spillway/session.h"
#include "spillway/status.h"

namespace spillway {

// A value: copy it to go on in two ways. The whole conversation is given to the session
// each time, which runs only what its cache does not hold; so the answers do not depend
// on what else the session answered in between. Not thread-safe.
class SPILLWAY_EXPORT Conversation {
 public:
  // From {"messages": [{"role": "user", "content": "Hello"}, ...]} or the array alone;
  // other members are left out of account. `name` (a path) begins every error message;
  // kCorruptData: not such JSON.
  static Result<Conversation> FromJson(std::string_view json, const std::string& name);
  // The form with "messages". Ill-formed UTF-8 becomes U+FFFD.
  std::string ToJson() const;

  const std::vector<ChatTurn>& turns() const { return turns_; }
  void Add(ChatTurn turn) { turns_.push_back(std::move(turn)); }
  // Forgets everything but the system turns at the start.
  void Reset();

  // Adds a turn of the user and answers it. When that fails, or was stopped before the
  // first token, the conversation is what it was before.
  Result<Answer> Ask(Session& session, std::string_view text, const RunOptions& options,
                     const TextCallback& on_text = nullptr);
  // Answers the last turn, which must not be an answer (kFailedPrecondition), and adds
  // the answer. An answer that was stopped after its first token counts.
  Result<Answer> Continue(Session& session, const RunOptions& options,
                          const TextCallback& on_text = nullptr);

 private:
  std::vector<ChatTurn> turns_;
};

}  // namespace spillway

#endif  // SPILLWAY_CONVERSATION_H_
