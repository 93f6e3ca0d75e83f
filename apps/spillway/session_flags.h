// SessionOptions and RunOptions on the command line, for the commands that answer.

#ifndef SPILLWAY_APPS_SPILLWAY_SESSION_FLAGS_H_
#define SPILLWAY_APPS_SPILLWAY_SESSION_FLAGS_H_

#include <memory>

#include "console.h"
#include "spillway/session.h"
#include "spillway/status.h"

namespace CLI {
class App;
}

namespace spillway::cli {

// PACKAGE, --executor and what belongs to it. Parsing writes to `options`, which must
// outlive it, and whose values are the defaults; the same for the next.
void AddSessionFlags(CLI::App& app, SessionOptions& options);
// --temperature, --seed, ...: how an answer is made.
void AddAnswerFlags(CLI::App& app, RunOptions& options);

// Opens the package with progress on the console. Wrong arguments are told before
// anything is loaded.
Result<std::unique_ptr<Session>> OpenSession(SessionOptions options, const Console& console);

// Progress of a prompt, for terminals only: it is no concern of a log file.
std::unique_ptr<Progress> MakePromptProgress(const Console& console);

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_SESSION_FLAGS_H_
