// What the two sides of a WorkerContextRunner say to each other: JSON texts.
//
//   parent                                     child
//   {"job":"run","context_path":...,...}
//                                              {"event":"ready","graphs":[...],...}
//   {"op":"bind","bytes":...,"graphs":[...]}   (with the memory's descriptor)
//                                              {"event":"done"}
//   {"op":"execute","graph":0}
//                                              {"event":"done"}
//
// Before each answer the child may send {"event":"log","level":...,"line":...};
// instead of any answer {"event":"error","code":...,"message":...}.

#ifndef SPILLWAY_RUNTIME_CONTEXT_PROTOCOL_H_
#define SPILLWAY_RUNTIME_CONTEXT_PROTOCOL_H_

#include <string>
#include <string_view>

#include "base/log.h"
#include "runtime/context_runner.h"
#include "spillway/status.h"

namespace spillway {

// Parent to child.
std::string RunRequestText(const ContextRunnerOptions& options);
Result<ContextRunnerOptions> ParseRunRequest(std::string_view text);

struct ContextRequest {
  bool bind = false;  // otherwise execute
  IoLayout layout;
  size_t graph = 0;
};
std::string BindRequestText(const IoLayout& layout);
std::string ExecuteRequestText(size_t graph);
Result<ContextRequest> ParseContextRequest(std::string_view text);

// Child to parent.
struct ContextEvent {
  enum class Kind { kReady, kDone, kError, kLog };
  Kind kind = Kind::kDone;
  ContextInfo info;                   // kReady
  Status status;                      // kError
  LogLevel level = LogLevel::kTrace;  // kLog
  std::string line;                   // kLog
};
std::string ReadyEventText(const ContextInfo& info);
std::string DoneEventText();
std::string ErrorEventText(const Status& status);
std::string LogEventText(LogLevel level, std::string_view line);
// kInternal for what is none of these.
Result<ContextEvent> ParseContextEvent(std::string_view text);

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_CONTEXT_PROTOCOL_H_
