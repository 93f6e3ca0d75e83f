// The program's exit codes: the one place that maps from StatusCode.

#ifndef SPILLWAY_APPS_SPILLWAY_EXIT_CODES_H_
#define SPILLWAY_APPS_SPILLWAY_EXIT_CODES_H_

#include <string>
#include <string_view>

#include "spillway/status.h"

namespace spillway::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitBug = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInput = 3;
inline constexpr int kExitVendor = 4;
inline constexpr int kExitSystem = 5;
inline constexpr int kExitTimeout = 6;
inline constexpr int kExitCheckFailed = 7;
inline constexpr int kExitInterrupted = 130;  // as shells report a process that SIGINT ended

int ExitCodeOf(StatusCode code);

// "invalid_argument": what scripts compare `error.code` with.
std::string_view ErrorCodeName(StatusCode code);

// The table for `--help`, one line a code.
std::string ExitCodeTable();

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_EXIT_CODES_H_
