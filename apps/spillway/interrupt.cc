#include "interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "base/file.h"
#include "exit_codes.h"

namespace spillway::cli {
namespace {

// What the handler touches: lock-free, and set before it is installed.
std::atomic<bool> interrupted{false};
int wake_ends[2] = {-1, -1};
struct sigaction before_watch;

void OnInterrupt(int) {
  const int error = errno;
  if (interrupted.exchange(true)) {
    std::signal(SIGINT, SIG_DFL);
    raise(SIGINT);  // takes effect when the handler returns
  }
  const char byte = 0;
  (void)!write(wake_ends[1], &byte, 1);
  errno = error;
}

}  // namespace

InterruptWatch::InterruptWatch() {
  // Without a pipe a waiting reader notices at the next line only.
  if (pipe2(wake_ends, O_CLOEXEC | O_NONBLOCK) != 0) wake_ends[0] = wake_ends[1] = -1;
  interrupted = false;
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &before_watch);
}

InterruptWatch::~InterruptWatch() {
  sigaction(SIGINT, &before_watch, nullptr);
  for (int& end : wake_ends) {
    if (end >= 0) close(end);
    end = -1;
  }
}

bool InterruptWatch::pending() const { return interrupted; }

bool InterruptWatch::Take() {
  char bytes[16];
  while (read(wake_ends[0], bytes, sizeof(bytes)) > 0) {
  }
  return interrupted.exchange(false);
}

int InterruptWatch::descriptor() const { return wake_ends[0]; }

EndOnInterrupt::EndOnInterrupt(Console& console) {
  struct sigaction before = {};
  if (sigaction(SIGINT, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) return;
  stop_ = eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) return;
  watch_ = std::make_unique<InterruptWatch>();
  thread_ = std::thread([this, &console] {
    pollfd ends[] = {{watch_->descriptor(), POLLIN, 0}, {stop_, POLLIN, 0}};
    while (!watch_->pending()) {
      poll(ends, 2, -1);
      if ((ends[1].revents & POLLIN) != 0) return;
    }
    RemoveTemporaryFolders();
    const Status status = CancelledError("interrupted");
    console.ReportError(status, "");
    _exit(ExitCodeOf(status.code()));
  });
}

EndOnInterrupt::~EndOnInterrupt() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(stop_, &one, sizeof(one));
  thread_.join();
  close(stop_);
}

}  // namespace spillway::cli
