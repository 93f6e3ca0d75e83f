#include "child.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>

namespace spillway::cli {
namespace {

void WriteAllBytes(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // the parent is gone
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// The answer: one byte of status code, then the value or the message.
[[noreturn]] void ServeChild(int descriptor, unsigned timeout_s,
                             const std::function<Result<std::string>()>& work) {
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDOUT_FILENO);
  std::signal(SIGALRM, SIG_DFL);
  alarm(timeout_s);
  std::string answer;
  try {
    const Result<std::string> result = work();
    answer = static_cast<char>(result.ok() ? StatusCode::kOk : result.status().code());
    answer += result.ok() ? *result : result.status().message();
  } catch (const std::exception& error) {
    answer = static_cast<char>(StatusCode::kInternal);
    answer += error.what();
  }
  WriteAllBytes(descriptor, answer);
  // No destructors: they belong to the parent.
  _exit(0);
}

std::string ReadAllBytes(int descriptor) {
  std::string bytes;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(descriptor, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace

Result<std::string> RunInChild(const std::string& what, unsigned timeout_s,
                               const std::function<Result<std::string>()>& work) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return IoError(what + ": pipe: " + std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) {
    const int error = errno;
    close(ends[0]);
    close(ends[1]);
    return ResourceExhaustedError(what + ": cannot start a process: " + std::strerror(error));
  }
  if (child == 0) ServeChild(ends[1], timeout_s, work);
  close(ends[1]);
  const std::string answer = ReadAllBytes(ends[0]);
  close(ends[0]);
  int state = 0;
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(state) && WTERMSIG(state) == SIGALRM) {
    return TimeoutError(what + ": no answer within " + std::to_string(timeout_s) + " s");
  }
  if (WIFSIGNALED(state)) {
    return VendorCrashError(what + ": the vendor's library crashed on it: signal " +
                            std::to_string(WTERMSIG(state)) + " (" + strsignal(WTERMSIG(state)) +
                            ")");
  }
  if (answer.empty()) return VendorCrashError(what + ": the vendor's library ended the process");
  const auto code = static_cast<StatusCode>(answer[0]);
  if (code != StatusCode::kOk) return Status(code, answer.substr(1));
  return answer.substr(1);
}

}  // namespace spillway::cli
