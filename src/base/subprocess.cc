// One thread for each child starts it, reads its output and waits for its end.
// It must be the same thread: the kernel kills the child when the thread that
// started it ends, not only when the process does.

#include "base/subprocess.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/errno_error.h"
#include "base/file_descriptor.h"
#include "base/memory.h"
#include "base/process_memory.h"

extern char** environ;

namespace spillway {
namespace {

constexpr size_t kOutputKept = 64 << 10;
// How often the peak of the child's memory is looked up while it runs.
constexpr int kSampleMilliseconds = 50;
constexpr uint64_t kRssTolerance = 16 << 20;
constexpr int kPollWithoutPidfdMilliseconds = 2;
// How long output may still come after the end, from processes that the child
// left behind.
constexpr std::chrono::milliseconds kOutputAfterEnd(100);
constexpr int kFirstSpareFd = 16;
constexpr int kExecErrorFd = Subprocess::kChannelFd + 1;

// What the child needs between vfork and exec, ready-made: there it shares its
// parent's memory and must not allocate or lock.
struct ChildPlan {
  const char* program = nullptr;
  char* const* arguments = nullptr;
  int null_fd = -1;
  int output_fd = -1;
  int channel_fd = -1;
  int exec_error_fd = -1;
  pid_t parent = 0;
};

void CloseFrom(unsigned int first) {
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  const long limit = sysconf(_SC_OPEN_MAX);
  for (long fd = first; fd < (limit > 0 ? std::min(limit, 65536L) : 1024L); ++fd) {
    close(static_cast<int>(fd));
  }
}

// Runs in the child; only system calls.
[[noreturn]] __attribute__((noinline)) void RunChild(const ChildPlan& plan) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(127);  // it ended before the line above
  // Ctrl-C on the terminal is for the parent, which may want to go on with this child.
  setpgid(0, 0);
  const bool placed = dup2(plan.null_fd, STDIN_FILENO) >= 0 &&
                      dup2(plan.output_fd, STDOUT_FILENO) >= 0 &&
                      dup2(plan.output_fd, STDERR_FILENO) >= 0 &&
                      dup2(plan.channel_fd, Subprocess::kChannelFd) >= 0 &&
                      dup3(plan.exec_error_fd, kExecErrorFd, O_CLOEXEC) >= 0;
  if (placed) {
    CloseFrom(kExecErrorFd + 1);
    // All signals are blocked here. Their handlers belong to the parent and
    // must not run in its memory once they are let in.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    for (int number = 1; number < NSIG; ++number) sigaction(number, &standard, nullptr);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(plan.program, plan.arguments, environ);
  }
  const int error = errno;
  const ssize_t written = write(placed ? kExecErrorFd : plan.exec_error_fd, &error, sizeof(error));
  _exit(written == sizeof(error) ? 127 : 126);
}

// vfork rather than fork: a process with gigabytes of memory would copy its
// page tables and lose large pages.
pid_t StartChild(const ChildPlan& plan) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = vfork();     // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (pid == 0) RunChild(plan);  // NOLINT(clang-analyzer-unix.Vfork)
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

// Moves a descriptor above those that the child overwrites.
Result<FileDescriptor> Lift(int fd, std::string_view what) {
  const FileDescriptor low(fd);
  if (!low.valid()) return ErrnoError("open " + std::string(what), errno);
  FileDescriptor high(fcntl(fd, F_DUPFD_CLOEXEC, kFirstSpareFd));
  if (!high.valid()) return ErrnoError("open " + std::string(what), errno);
  return high;
}

struct Pipe {
  FileDescriptor read_end, write_end;
};

Result<Pipe> MakePipe() {
  std::array<int, 2> fds{-1, -1};
  if (pipe2(fds.data(), O_CLOEXEC) != 0) return ErrnoError("create a pipe", errno);
  FileDescriptor second(fds[1]);
  Pipe made;
  SPILLWAY_ASSIGN_OR_RETURN(made.read_end, Lift(fds[0], "a pipe"));
  SPILLWAY_ASSIGN_OR_RETURN(made.write_end, Lift(second.Release(), "a pipe"));
  return made;
}

// 0 when the program runs, else why it does not.
int ReadExecError(const FileDescriptor& fd) {
  int error = 0;
  ssize_t got;
  do {
    got = read(fd.get(), &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  return got == sizeof(error) ? error : 0;
}

}  // namespace

std::string ExitInfo::ToString() const {
  if (signal != 0) {
    const char* const name = sigdescr_np(signal);
    return "was killed by signal " + std::to_string(signal) + " (" +
           (name != nullptr ? name : "unknown") + ")";
  }
  if (exit_code < 0) return "ended in an unknown way";
  return "exited with code " + std::to_string(exit_code);
}

struct Subprocess::Impl {
  Channel channel;
  std::thread thread;

  // Written by the thread before `started`, constant afterwards.
  Status start_status;
  pid_t pid = -1;
  FileDescriptor output, pidfd;

  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by `mutex`:
  bool started = false;
  bool ended = false;  // the process number may be somebody else's
  bool output_complete = false;
  ExitInfo exit;
  std::string kept;

  void Run(const std::string& program, const std::vector<std::string>& arguments);
  Status Launch(const std::string& program, const std::vector<std::string>& arguments);
  void Watch();
  bool ReadOutput();
  bool Reap();
  void SamplePeak();
};

void Subprocess::Impl::Run(const std::string& program, const std::vector<std::string>& arguments) {
  Status status = Launch(program, arguments);
  const bool running = status.ok();
  {
    const std::lock_guard lock(mutex);
    start_status = std::move(status);
    started = true;
    changed.notify_all();  // `program` and `arguments` end with this
  }
  if (running) Watch();
}

Status Subprocess::Impl::Launch(const std::string& program,
                                const std::vector<std::string>& arguments) {
  std::array<int, 2> sockets{-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    return ErrnoError("create a channel", errno);
  }
  channel = Channel(sockets[0]);
  SPILLWAY_ASSIGN_OR_RETURN(const FileDescriptor child_socket, Lift(sockets[1], "a channel"));
  SPILLWAY_ASSIGN_OR_RETURN(Pipe output_pipe, MakePipe());
  SPILLWAY_ASSIGN_OR_RETURN(Pipe exec_pipe, MakePipe());
  SPILLWAY_ASSIGN_OR_RETURN(const FileDescriptor null_fd,
                            Lift(open("/dev/null", O_RDONLY | O_CLOEXEC), "'/dev/null'"));

  std::vector<char*> argv;
  argv.push_back(const_cast<char*>(program.c_str()));
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const ChildPlan plan{.program = program.c_str(),
                       .arguments = argv.data(),
                       .null_fd = null_fd.get(),
                       .output_fd = output_pipe.write_end.get(),
                       .channel_fd = child_socket.get(),
                       .exec_error_fd = exec_pipe.write_end.get(),
                       .parent = getpid()};
  pid = StartChild(plan);
  if (pid < 0) return ErrnoError("start the program '" + program + "'", errno);
  exec_pipe.write_end.Close();
  const int error = ReadExecError(exec_pipe.read_end);
  if (error != 0) {
    waitpid(pid, nullptr, 0);
    return ErrnoError("start the program '" + program + "'", error);
  }
  fcntl(output_pipe.read_end.get(), F_SETFL, O_NONBLOCK);
  output = std::move(output_pipe.read_end);
  pidfd = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  return OkStatus();
}

void Subprocess::Impl::Watch() {
  std::chrono::steady_clock::time_point output_deadline;
  bool reading = true;
  bool running = true;
  while (reading || running) {
    {
      const std::lock_guard lock(mutex);
      SamplePeak();
    }
    std::array<pollfd, 2> entries = {
        pollfd{reading ? output.get() : -1, POLLIN, 0},
        pollfd{running && pidfd.valid() ? pidfd.get() : -1, POLLIN, 0}};
    const bool blind = !running || !pidfd.valid();
    poll(entries.data(), entries.size(),
         blind ? kPollWithoutPidfdMilliseconds : kSampleMilliseconds);
    if (running && Reap()) {
      running = false;
      output_deadline = std::chrono::steady_clock::now() + kOutputAfterEnd;
    }
    if (reading) reading = ReadOutput();
    if (!running && std::chrono::steady_clock::now() >= output_deadline) reading = false;
  }
  const std::lock_guard lock(mutex);
  output_complete = true;
  changed.notify_all();
}

// Returns false at the end of the output.
bool Subprocess::Impl::ReadOutput() {
  std::array<char, 16 << 10> block;
  // Bounded, so that a chatty child cannot keep its end from being seen.
  for (int i = 0; i < 64; ++i) {
    const ssize_t got = read(output.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    const std::lock_guard lock(mutex);
    kept.append(block.data(), static_cast<size_t>(got));
    if (kept.size() > kOutputKept) kept.erase(0, kept.size() - kOutputKept);
  }
  return true;
}

bool Subprocess::Impl::Reap() {
  // The lock keeps Kill() from signalling a number that is free again.
  const std::lock_guard lock(mutex);
  int status = 0;
  rusage usage{};
  const pid_t got = wait4(pid, &status, WNOHANG, &usage);
  if (got == 0 || (got < 0 && errno == EINTR)) return false;
  if (got == pid) {
    if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
    if (WIFEXITED(status)) exit.exit_code = WEXITSTATUS(status);
    // Linux counts the memory of the parent, which the child shared before it
    // became another program, into this figure. Only clearly above it is it the
    // child's; both are approximate, since each processor counts for itself.
    const uint64_t peak = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
    const uint64_t own = PeakRssBytes();
    if (peak > own + own / 8 + kRssTolerance) {
      exit.peak_rss_bytes = std::max(exit.peak_rss_bytes, peak);
    }
  }
  ended = true;
  changed.notify_all();
  return true;
}

// With `mutex` held.
void Subprocess::Impl::SamplePeak() {
  if (ended) return;
  const uint64_t peak = ProcessMemoryBytes(pid, "VmHWM").value_or(0);
  exit.peak_rss_bytes = std::max(exit.peak_rss_bytes, peak);
}

Subprocess::Subprocess(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Subprocess>> Subprocess::Start(const std::string& program,
                                                      const std::vector<std::string>& arguments) {
  auto impl = std::make_unique<Impl>();
  try {
    impl->thread = std::thread([&, raw = impl.get()] { raw->Run(program, arguments); });
  } catch (const std::system_error& error) {
    return ResourceExhaustedError("cannot start the program '" + program +
                                  "': no thread to watch it: " + error.what());
  }
  std::unique_lock lock(impl->mutex);
  impl->changed.wait(lock, [&] { return impl->started; });
  if (impl->start_status.ok()) {
    lock.unlock();
    return std::unique_ptr<Subprocess>(new Subprocess(std::move(impl)));
  }
  lock.unlock();
  impl->thread.join();
  return impl->start_status;
}

Subprocess::~Subprocess() {
  Kill();
  impl_->thread.join();
}

Channel& Subprocess::channel() { return impl_->channel; }

int Subprocess::pid() const { return impl_->pid; }

void Subprocess::Kill() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->ended) return;
  impl_->SamplePeak();
  kill(impl_->pid, SIGKILL);
}

Result<ExitInfo> Subprocess::Wait(std::optional<double> timeout_seconds) {
  std::unique_lock lock(impl_->mutex);
  const auto complete = [this] { return impl_->ended && impl_->output_complete; };
  constexpr double kFar = 1e9;
  if (!timeout_seconds.has_value() || !(*timeout_seconds < kFar)) {
    impl_->changed.wait(lock, complete);
    return impl_->exit;
  }
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                            std::chrono::duration<double>(std::max(*timeout_seconds, 0.0)));
  if (!impl_->changed.wait_until(lock, deadline, complete)) {
    return TimeoutError("the process " + std::to_string(impl_->pid) + " still runs after " +
                        std::to_string(*timeout_seconds) + " seconds");
  }
  return impl_->exit;
}

std::string Subprocess::Output() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->kept;
}

}  // namespace spillway
