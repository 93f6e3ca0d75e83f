#include "console.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/terminal_line.h"
#include "exit_codes.h"

namespace spillway::cli {
namespace {

// Writes everything, or returns errno.
int WriteFully(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

Status Console::Print(std::string_view text) {
  if (text.empty()) return OkStatus();
  printed_ = true;
  const int error = WriteFully(STDOUT_FILENO, text);
  if (error == 0) return OkStatus();
  return IoError(std::string("standard output: ") + std::strerror(error));
}

void Console::Note(std::string_view text) const {
  if (quiet) return;
  ClearTerminalLine();
  (void)WriteFully(STDERR_FILENO, std::string(text) + "\n");
}

std::unique_ptr<Progress> Console::MakeProgress() const {
  return quiet ? nullptr : MakeTerminalProgress();
}

void Console::ReportError(const Status& status, std::string_view hint) {
  std::string text = "spillway: error: " + status.message() + "\n";
  if (!hint.empty()) text += "  hint: " + std::string(hint) + "\n";
  ClearTerminalLine();
  (void)WriteFully(STDERR_FILENO, text);
  if (!json || printed_) return;
  const nlohmann::ordered_json object = {{"error",
                                          {{"code", std::string(ErrorCodeName(status.code()))},
                                           {"exit_code", ExitCodeOf(status.code())},
                                           {"message", status.message()}}}};
  (void)Print(object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace spillway::cli
