// What the two sides of a WorkerContextRunner say to each other: JSON texts.
//
//   parent                                     child
//   {"job":"run","context_paths":[...],...}
//                                              {"event":"ready","contexts":[...],...}
//   {"op":"bind","bytes":...,"contexts":[...]} (with the memory's descriptor)
//                                              {"event":"done"} (with the descriptor of memory
//                                              that both use instead, if the DSP has such)
//   {"op":"execute","context":0,"graph":0}
//                                              {"event":"done","profile":{...}}
//
// Before each answer the child may send {"event":"log","level":...,"line":...} and
// {"event":"progress","stage":...,"fraction":...}; instead of any answer
// {"event":"error","code":...,"message":...}.

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
  size_t context = 0, graph = 0;
};
std::string BindRequestText(const IoLayout& layout);
std::string ExecuteRequestText(size_t context, size_t graph);
Result<ContextRequest> ParseContextRequest(std::string_view text);

// Child to parent.
struct ContextEvent {
  enum class Kind { kReady, kDone, kError, kLog, kProgress };
  Kind kind = Kind::kDone;
  RunnerInfo info;                    // kReady
  ExecuteProfile profile;             // kDone, after an execute
  Status status;                      // kError
  LogLevel level = LogLevel::kTrace;  // kLog
  std::string line;                   // kLog, and the stage of kProgress
  double fraction = -1;               // kProgress
};
std::string ReadyEventText(const RunnerInfo& info);
std::string DoneEventText(const ExecuteProfile& profile = {});
std::string ErrorEventText(const Status& status);
std::string LogEventText(LogLevel level, std::string_view line);
std::string ProgressEventText(std::string_view stage, double fraction);
// kInternal for what is none of these.
Result<ContextEvent> ParseContextEvent(std::string_view text);

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_CONTEXT_PROTOCOL_H_
