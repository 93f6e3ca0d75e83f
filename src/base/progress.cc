#include "base/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <span>
#include <string>

#include "base/file_descriptor.h"
#include "base/terminal_line.h"

namespace spillway {
namespace {

struct TerminalLine {
  std::mutex mutex;
  bool shown = false;
};

// Never destroyed: messages may still come while the program ends.
TerminalLine& TheTerminalLine() {
  static TerminalLine* const line = new TerminalLine;
  return *line;
}

void WriteToStandardError(std::string_view text) {
  // A closed standard error is no reason to fail.
  (void)WriteAll(STDERR_FILENO, std::as_bytes(std::span(text)));
}

size_t TerminalColumns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 80;
  return size.ws_col;
}

class TerminalProgress : public Progress {
 public:
  TerminalProgress() : terminal_(isatty(STDERR_FILENO) == 1) {}

  ~TerminalProgress() override {
    if (terminal_) ClearTerminalLine();
  }

  void Update(std::string_view stage, double fraction) override {
    const std::lock_guard lock(mutex_);
    const bool new_stage = stage != stage_;
    if (new_stage) stage_ = stage;
    if (!terminal_) {
      if (new_stage) WriteToStandardError(stage_ + "\n");
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!new_stage && now - drawn_ < std::chrono::milliseconds(100)) return;
    drawn_ = now;
    ShowTerminalLine(Line(fraction));
  }

 private:
  // "stage  42%", cut so that it never wraps.
  std::string Line(double fraction) const {
    std::string percent;
    if (std::isfinite(fraction) && fraction >= 0) {
      percent = " " + std::to_string(static_cast<int>(std::min(fraction, 1.0) * 100)) + "%";
    }
    const size_t room = TerminalColumns() - 1 - percent.size();
    return stage_.substr(0, room) + percent;
  }

  const bool terminal_;
  std::mutex mutex_;
  std::string stage_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace

void ShowTerminalLine(std::string_view text) {
  TerminalLine& line = TheTerminalLine();
  const std::lock_guard lock(line.mutex);
  WriteToStandardError("\r\033[K" + std::string(text));
  line.shown = true;
}

void ClearTerminalLine() {
  TerminalLine& line = TheTerminalLine();
  const std::lock_guard lock(line.mutex);
  if (!line.shown) return;
  WriteToStandardError("\r\033[K");
  line.shown = false;
}

void ReportProgress(Progress* progress, std::string_view stage, double fraction) {
  if (progress != nullptr) progress->Update(stage, fraction);
}

std::unique_ptr<Progress> MakeTerminalProgress() { return std::make_unique<TerminalProgress>(); }

}  // namespace spillway
