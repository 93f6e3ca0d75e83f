// Contexts in a child process: the parent's side of context_protocol.h.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <utility>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/worker_program.h"
#include "runtime/context_protocol.h"
#include "runtime/context_runner.h"

namespace spillway {
namespace {

constexpr size_t kLastLines = 12;
constexpr char kLoadTimeoutVariable[] = "SPILLWAY_LOAD_TIMEOUT";
constexpr char kPrepareTimeoutVariable[] = "SPILLWAY_PREPARE_TIMEOUT";
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
    const bool prepare = !options.prepare_folder.empty();
    paths_ = options.context_paths;
    what_ = prepare ? "the graphs of " + options.prepare_folder
                    : fmt::format("{}", fmt::join(paths_, ", "));
    open_variable_ = prepare ? kPrepareTimeoutVariable : kLoadTimeoutVariable;
    SPILLWAY_ASSIGN_OR_RETURN(
        open_timeout_s_,
        Timeout(open_variable_, prepare ? options.prepare_timeout_s : options.load_timeout_s));
    SPILLWAY_ASSIGN_OR_RETURN(execute_timeout_s_,
                              Timeout(kExecuteTimeoutVariable, options.execute_timeout_s));
    SPILLWAY_ASSIGN_OR_RETURN(const std::string program, FindWorkerProgram());
    SPILLWAY_ASSIGN_OR_RETURN(process_, Subprocess::Start(program, {}));
    const Call open = {(prepare ? "was preparing " : "was loading ") + what_, open_timeout_s_,
                       open_variable_};
    progress_ = options.progress;
    Result<ContextEvent> event = Ask(open, RunRequestText(options), {});
    progress_ = nullptr;
    if (!event.ok()) return event.status();
    if (event->kind != ContextEvent::Kind::kReady) {
      return InternalError("the worker answered a load without a description of the contexts");
    }
    info_ = std::move(event->info);
    return OkStatus();
  }

  Status Execute(size_t context, size_t graph) override {
    SPILLWAY_RETURN_IF_ERROR(CheckGraph(context, graph));
    const Call call = {
        fmt::format("was executing {} of {}", info_.contexts[context].graphs[graph].name,
                    context < paths_.size() ? paths_[context] : what_),
        execute_timeout_s_, kExecuteTimeoutVariable};
    SPILLWAY_ASSIGN_OR_RETURN(ContextEvent event,
                              Ask(call, ExecuteRequestText(context, graph), {}));
    profile_ = std::move(event.profile);
    return OkStatus();
  }

 protected:
  Status UseMemory(const IoLayout& layout) override {
    const Call call = {"was mapping the memory of " + what_, open_timeout_s_, open_variable_};
    const int fd = memory_.fd();
    SPILLWAY_RETURN_IF_ERROR(Ask(call, BindRequestText(layout), {&fd, 1}).status());
    if (answer_fds_.empty()) return OkStatus();
    SPILLWAY_ASSIGN_OR_RETURN(SharedMemory shared,
                              SharedMemory::Map(answer_fds_[0].Release(), layout.bytes));
    answer_fds_.clear();
    memory_ = std::move(shared);
    replaced_ = true;
    return OkStatus();
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
      return FailedPreconditionError(
          fmt::format("the vendor library's process for {} is gone after an earlier error", what_));
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
      answer_fds_.clear();
      for (const int descriptor : message->fds) answer_fds_.emplace_back(descriptor);
      Result<ContextEvent> event = ParseContextEvent(message->text);
      if (!event.ok()) return Died(call, event.status());
      if (event->kind == ContextEvent::Kind::kError) return event->status;
      if (event->kind == ContextEvent::Kind::kProgress) {
        if (progress_) progress_(event->line, event->fraction);
        continue;
      }
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

  std::vector<std::string> paths_;
  std::string what_;  // all of it, for messages
  double open_timeout_s_ = 0, execute_timeout_s_ = 0;
  const char* open_variable_ = kLoadTimeoutVariable;
  std::function<void(std::string_view, double)> progress_;  // during Open
  std::unique_ptr<Subprocess> process_;
  std::deque<std::string> last_lines_;
  std::vector<FileDescriptor> answer_fds_;  // that came with the last message
  bool dead_ = false;
};

}  // namespace

Result<std::unique_ptr<ContextRunner>> OpenContextInWorker(const ContextRunnerOptions& options) {
  auto runner = std::make_unique<WorkerContextRunner>();
  SPILLWAY_RETURN_IF_ERROR(runner->Open(options));
  return std::unique_ptr<ContextRunner>(std::move(runner));
}

}  // namespace spillway
