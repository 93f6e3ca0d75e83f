// A context binary in a child process: the parent's side of context_protocol.h.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <utility>

#include "base/log.h"
#include "base/subprocess.h"
#include "base/worker_program.h"
#include "runtime/context_protocol.h"
#include "runtime/context_runner.h"

namespace spillway {
namespace {

constexpr size_t kLastLines = 12;
constexpr char kLoadTimeoutVariable[] = "SPILLWAY_LOAD_TIMEOUT";
constexpr char kExecuteTimeoutVariable[] = "SPILLWAY_EXECUTE_TIMEOUT";

// The environment variable when it is set, `seconds` otherwise.
Result<double> Timeout(const char* variable, double seconds) {
  const char* text = std::getenv(variable);
  if (text != nullptr) {
    char* end = nullptr;
    seconds = std::strtod(text, &end);
    if (end == text || *end != '\0') seconds = 0;
  }
  if (seconds > 0 && seconds < 1e9) return seconds;
  return InvalidArgumentError(fmt::format("the time limit {} is {}; expected a number of seconds",
                                          variable,
                                          text != nullptr ? text : fmt::format("{}", seconds)));
}

class WorkerContextRunner : public ContextRunner {
 public:
  Status Open(const ContextRunnerOptions& options) {
    context_path_ = options.context_path;
    SPILLWAY_ASSIGN_OR_RETURN(load_timeout_s_,
                              Timeout(kLoadTimeoutVariable, options.load_timeout_s));
    SPILLWAY_ASSIGN_OR_RETURN(execute_timeout_s_,
                              Timeout(kExecuteTimeoutVariable, options.execute_timeout_s));
    SPILLWAY_ASSIGN_OR_RETURN(const std::string program, FindWorkerProgram());
    SPILLWAY_ASSIGN_OR_RETURN(process_, Subprocess::Start(program, {}));
    const Call load = {"was loading " + context_path_, load_timeout_s_, kLoadTimeoutVariable};
    SPILLWAY_ASSIGN_OR_RETURN(ContextEvent event, Ask(load, RunRequestText(options), {}));
    if (event.kind != ContextEvent::Kind::kReady) {
      return InternalError("the worker answered a load without a description of the context");
    }
    info_ = std::move(event.info);
    return OkStatus();
  }

  Status Execute(size_t graph) override {
    if (graph >= info_.graphs.size()) {
      return InvalidArgumentError(
          fmt::format("graph {} of {} cannot run", graph, info_.graphs.size()));
    }
    const Call call = {
        fmt::format("was executing {} of {}", info_.graphs[graph].name, context_path_),
        execute_timeout_s_, kExecuteTimeoutVariable};
    return Ask(call, ExecuteRequestText(graph), {}).status();
  }

 protected:
  Status UseMemory(const IoLayout& layout) override {
    const Call call = {"was mapping the memory of " + context_path_, load_timeout_s_,
                       kLoadTimeoutVariable};
    const int fd = memory_.fd();
    return Ask(call, BindRequestText(layout), {&fd, 1}).status();
  }

 private:
  // For error messages: what the child did, for how long, and who says so.
  struct Call {
    std::string what;
    double timeout_s;
    const char* variable;
  };

  // Sends a request and waits for its answer; log events in between go to our log.
  Result<ContextEvent> Ask(const Call& call, const std::string& request, std::span<const int> fds) {
    if (dead_) {
      return FailedPreconditionError(fmt::format(
          "the vendor library's process for {} is gone after an earlier error", context_path_));
    }
    const auto start = std::chrono::steady_clock::now();
    const auto left = [&] {
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      return std::max(0.001, call.timeout_s - elapsed.count());
    };
    const Status sent = process_->channel().Send(request, fds, left());
    if (!sent.ok()) return Died(call, sent);
    while (true) {
      const Result<Message> message = process_->channel().Receive(left());
      if (!message.ok()) return Died(call, message.status());
      Result<ContextEvent> event = ParseContextEvent(message->text);
      if (!event.ok()) return Died(call, event.status());
      if (event->kind == ContextEvent::Kind::kError) return event->status;
      if (event->kind != ContextEvent::Kind::kLog) return event;
      last_lines_.push_back(event->line);
      if (last_lines_.size() > kLastLines) last_lines_.pop_front();
      Log(event->level, "{}", event->line);
    }
  }

  // Ends the child and says how it ended, with its last words.
  Status Died(const Call& call, const Status& reason) {
    dead_ = true;
    std::string what;
    const bool late = reason.code() == StatusCode::kTimeout;
    if (late) {
      process_->Kill();
      what = fmt::format(
          "did not finish within {:g} s and was stopped (the environment variable "
          "{} raises the limit)",
          call.timeout_s, call.variable);
    } else if (reason.code() == StatusCode::kVendorCrash) {
      const Result<ExitInfo> exit = process_->Wait(10.0);
      what = exit.ok() ? exit->ToString() : reason.message();
    } else {
      process_->Kill();
      what = "could not be talked to: " + reason.message();
    }
    std::string words = process_->Output();
    for (const std::string& line : last_lines_) {
      if (!words.empty() && words.back() != '\n') words += '\n';
      words += line;
    }
    std::string message =
        fmt::format("the vendor library's process {} while it {}. Its last words:\n{}", what,
                    call.what, words.empty() ? "(none)" : words);
    return late ? TimeoutError(std::move(message)) : VendorCrashError(std::move(message));
  }

  std::string context_path_;
  double load_timeout_s_ = 0, execute_timeout_s_ = 0;
  std::unique_ptr<Subprocess> process_;
  std::deque<std::string> last_lines_;
  bool dead_ = false;
};

}  // namespace

Result<std::unique_ptr<ContextRunner>> OpenContextInWorker(const ContextRunnerOptions& options) {
  auto runner = std::make_unique<WorkerContextRunner>();
  SPILLWAY_RETURN_IF_ERROR(runner->Open(options));
  return std::unique_ptr<ContextRunner>(std::move(runner));
}

}  // namespace spillway
