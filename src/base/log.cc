#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "base/terminal_line.h"

namespace spillway {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"trace",   "debug", "info",
                                                    "warning", "error", "off"};

std::atomic<LogLevel> current_level{LogLevel::kWarning};

// Never destroyed: messages may still come while the program ends.
struct Output {
  std::mutex mutex;
  std::function<void(LogLevel, std::string_view)> sink;
  spdlog::logger logger{"spillway", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()};

  Output() {
    logger.set_level(spdlog::level::trace);
    logger.set_pattern("%T.%e %^%l%$: %v");
    logger.flush_on(spdlog::level::trace);
  }
};

Output& TheOutput() {
  static Output* const output = new Output;
  return *output;
}

}  // namespace

void SetLogLevel(LogLevel level) { current_level.store(level, std::memory_order_relaxed); }

LogLevel GetLogLevel() { return current_level.load(std::memory_order_relaxed); }

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

std::string_view LogLevelName(LogLevel level) {
  const size_t index = static_cast<size_t>(level);
  return index < kNames.size() ? kNames[index] : "unknown";
}

void SetLogSink(std::function<void(LogLevel, std::string_view)> sink) {
  Output& output = TheOutput();
  const std::lock_guard lock(output.mutex);
  output.sink = std::move(sink);
}

void LogMessage(LogLevel level, std::string_view message) {
  if (level < GetLogLevel() || level >= LogLevel::kOff) return;
  Output& output = TheOutput();
  const std::lock_guard lock(output.mutex);
  if (output.sink) {
    output.sink(level, message);
    return;
  }
  ClearTerminalLine();
  // Our levels and those of spdlog have the same order.
  output.logger.log(static_cast<spdlog::level::level_enum>(level),
                    spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace spillway
