// Logging to standard error, with a level. Off below "warning" unless the user
// asks (--verbose, --log-level). Thread-safe. Standard output is never touched:
// it belongs to the answer.

#ifndef SPILLWAY_BASE_LOG_H_
#define SPILLWAY_BASE_LOG_H_

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

void SetLogLevel(LogLevel level);
LogLevel GetLogLevel();
// "trace", "debug", "info", "warning", "error", "off".
std::optional<LogLevel> ParseLogLevel(std::string_view name);
std::string_view LogLevelName(LogLevel level);
// Sends every message that passes the level to `sink` instead of standard
// error; an empty function restores standard error. For tests and embedders.
void SetLogSink(std::function<void(LogLevel, std::string_view)> sink);
void LogMessage(LogLevel level, std::string_view message);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (level >= GetLogLevel()) LogMessage(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace spillway

#endif  // SPILLWAY_BASE_LOG_H_
