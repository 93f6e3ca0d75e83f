#include "qnn/api/stdout_capture.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace spillway::qnn {
namespace {

std::mutex& Turns() {
  static std::mutex mutex;
  return mutex;
}

Status SystemSaid(const char* step) {
  return IoError(std::string("capturing the vendor library's standard output: ") + step + ": " +
                 std::strerror(errno));
}

}  // namespace

StdoutCapture::StdoutCapture() : turn_(Turns()) {}

Result<std::unique_ptr<StdoutCapture>> StdoutCapture::Start(
    std::function<void(std::string_view)> line) {
  std::unique_ptr<StdoutCapture> capture(new StdoutCapture());
  capture->line_ = std::move(line);
  SPILLWAY_RETURN_IF_ERROR(capture->Redirect());
  return capture;
}

Status StdoutCapture::Redirect() {
  std::fflush(stdout);  // what came before goes where it was meant to
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return SystemSaid("pipe2");
  read_end_ = ends[0];
  saved_ = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (saved_ < 0 || dup2(ends[1], STDOUT_FILENO) < 0) {
    const Status status = SystemSaid("dup");
    close(ends[1]);
    return status;
  }
  close(ends[1]);
  reader_ = std::thread([this] { ReadLines(); });
  return OkStatus();
}

void StdoutCapture::ReadLines() {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t count = read(read_end_, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t end = text.find_first_of("\r\n"); end != std::string::npos;
         end = text.find_first_of("\r\n", begin)) {
      if (end > begin) line_(std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
    text.erase(0, begin);
  }
  if (!text.empty()) line_(text);
}

StdoutCapture::~StdoutCapture() {
  std::fflush(stdout);  // the vendor's last words may still be in the buffer
  if (reader_.joinable()) {
    dup2(saved_, STDOUT_FILENO);  // closes the pipe's last end: the reader sees its end
    reader_.join();
  }
  if (saved_ >= 0) close(saved_);
  if (read_end_ >= 0) close(read_end_);
}

}  // namespace spillway::qnn
