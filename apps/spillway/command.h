// One subcommand of the program: its options on the command line, and what it
// does. Each lives in a file of its own.

#ifndef SPILLWAY_APPS_SPILLWAY_COMMAND_H_
#define SPILLWAY_APPS_SPILLWAY_COMMAND_H_

#include <memory>

#include "console.h"
#include "spillway/status.h"

namespace CLI {
class App;
}

namespace spillway::cli {

class Command {
 public:
  virtual ~Command() = default;
  // Called once, after the options were parsed.
  virtual Status Run(Console& console) = 0;
};

// Each adds a subcommand with its name to `program` and returns the object that
// its options are written to; it must outlive the parse.
std::unique_ptr<Command> AddCompileCommand(CLI::App& program);
std::unique_ptr<Command> AddAddEvictorCommand(CLI::App& program);
std::unique_ptr<Command> AddRunCommand(CLI::App& program);
std::unique_ptr<Command> AddChatCommand(CLI::App& program);
std::unique_ptr<Command> AddInspectCommand(CLI::App& program);
std::unique_ptr<Command> AddEvalCommand(CLI::App& program);
std::unique_ptr<Command> AddAnalyzeCommand(CLI::App& program);
std::unique_ptr<Command> AddVerifyCommand(CLI::App& program);
std::unique_ptr<Command> AddSocsCommand(CLI::App& program);
std::unique_ptr<Command> AddRecipesCommand(CLI::App& program);
std::unique_ptr<Command> AddSensitivityCommand(CLI::App& program);
std::unique_ptr<Command> AddCacheCommand(CLI::App& program);
std::unique_ptr<Command> AddBenchCommand(CLI::App& program);

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_COMMAND_H_
