// The child's side of context_protocol.h.

#include <unistd.h>

#include <mutex>
#include <span>
#include <utility>

#include "runtime/context_protocol.h"
#include "runtime/context_runner.h"

namespace spillway {
namespace {

// Sends every log message of this process to the parent, which filters them.
class LogForwarder {
 public:
  explicit LogForwarder(Channel& channel) : channel_(channel), old_level_(GetLogLevel()) {
    SetLogLevel(LogLevel::kTrace);
    SetLogSink([this](LogLevel level, std::string_view line) {
      (void)Send(LogEventText(level, line));  // a parent that is gone ends us soon
    });
  }
  ~LogForwarder() {
    SetLogSink(nullptr);
    SetLogLevel(old_level_);
  }
  LogForwarder(const LogForwarder&) = delete;
  LogForwarder& operator=(const LogForwarder&) = delete;

  // The vendor logs from its own threads while we answer.
  Status Send(const std::string& text, std::span<const int> fds = {}) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return channel_.Send(text, fds);
  }

 private:
  Channel& channel_;
  LogLevel old_level_;
  std::mutex mutex_;
};

void CloseAll(const std::vector<int>& fds) {
  for (const int fd : fds) close(fd);
}

Status BindMemory(ContextRunner& runner, const IoLayout& layout, const Message& message) {
  if (message.fds.size() != 1) {
    CloseAll(message.fds);
    return InternalError("the bind request did not bring one memory descriptor");
  }
  SPILLWAY_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Map(message.fds[0], layout.bytes));
  return runner.Bind(layout, std::move(memory));
}

Status Handle(ContextRunner& runner, const Message& message) {
  const Result<ContextRequest> request = ParseContextRequest(message.text);
  if (request.ok() && request->bind) return BindMemory(runner, request->layout, message);
  CloseAll(message.fds);
  if (!request.ok()) return request.status();
  return runner.Execute(request->context, request->graph);
}

}  // namespace

Status ServeContext(Channel& channel, const Message& request, const ContextOpener& open) {
  LogForwarder forwarder(channel);
  CloseAll(request.fds);
  Result<ContextRunnerOptions> options = ParseRunRequest(request.text);
  if (options.ok()) {
    options->progress = [&](std::string_view stage, double fraction) {
      (void)forwarder.Send(ProgressEventText(stage, fraction));
    };
  }
  const Result<std::unique_ptr<ContextRunner>> runner =
      options.ok() ? open(*options) : Result<std::unique_ptr<ContextRunner>>(options.status());
  if (!runner.ok()) {
    SPILLWAY_RETURN_IF_ERROR(forwarder.Send(ErrorEventText(runner.status())));
    return runner.status();
  }
  SPILLWAY_RETURN_IF_ERROR(forwarder.Send(ReadyEventText((*runner)->info())));
  while (true) {
    const Result<Message> message = channel.Receive();
    if (!message.ok()) return OkStatus();  // the parent is done with us
    const bool had_memory = !(*runner)->memory().empty();
    const Status status = Handle(**runner, *message);
    // The answer to a bind brings the memory that is used instead, if there is one.
    const int fd = had_memory ? -1 : (*runner)->replaced_fd();
    const std::span<const int> fds(&fd, fd >= 0 ? 1 : 0);
    SPILLWAY_RETURN_IF_ERROR(status.ok() ? forwarder.Send(DoneEventText((*runner)->profile()), fds)
                                         : forwarder.Send(ErrorEventText(status)));
  }
}

}  // namespace spillway
