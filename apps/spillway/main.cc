// The program: global options, subcommands, and how failures are told.

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/log.h"
#include "command.h"
#include "console.h"
#include "exit_codes.h"

namespace spillway::cli {
namespace {

struct LogOptions {
  bool verbose = false;
  std::string level;
};

constexpr char kIntroduction[] =
    "Spillway compiles decoder-only language models (GGUF) for Qualcomm's Hexagon tensor\n"
    "processor (HTP), and runs them.";

constexpr char kExamples[] =
    "Examples:\n"
    "  spillway compile model.gguf --soc SM8750 --prefill-ar-len 32 --slc-allocator -o pkg/\n"
    "  spillway run pkg/ --temperature 0 --prompt \"What is a cache?\"\n"
    "  spillway inspect model.gguf\n"
    "'spillway COMMAND --help' explains a command, with examples.\n\n";

// Options that every command takes, before or after its name.
void AddGlobalOptions(CLI::App& program, Console& console, LogOptions& log) {
  program.add_flag("-v,--verbose", log.verbose, "Log what is done, to standard error");
  program
      .add_option("--log-level", log.level,
                  "Log from this level on: trace, debug, info, warning, error, off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}));
  program.add_flag("-q,--quiet", console.quiet, "No progress and no remarks on standard error");
  program.add_flag("--json", console.json, "Print one JSON object for scripts");
  program.set_version_flag("--version", "spillway " SPILLWAY_VERSION);
}

void ApplyLogOptions(const LogOptions& log) {
  if (log.verbose) SetLogLevel(LogLevel::kInfo);
  if (const auto level = ParseLogLevel(log.level)) SetLogLevel(*level);
}

// The command that the user seems to be using, for hints when parsing failed.
std::string HelpCommand(const CLI::App& program) {
  for (const CLI::App* command : program.get_subcommands()) {
    return "spillway " + command->get_name() + " --help";
  }
  return "spillway --help";
}

bool HasArgument(int argc, char** argv, std::string_view wanted) {
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == wanted) return true;
  }
  return false;
}

std::string HintFor(StatusCode code, const CLI::App& program) {
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
      return "see '" + HelpCommand(program) + "'";
    case StatusCode::kVendor:
    case StatusCode::kVendorCrash:
      return "--verbose shows the messages of the vendor's library";
    case StatusCode::kTimeout:
      return "--vendor-timeout of 'spillway compile' sets the deadline";
    case StatusCode::kInternal:
      return "this is a bug in spillway; please report it with the output of the same command "
             "with --verbose";
    default:
      return "";
  }
}

int Fail(Console& console, const Status& status, const CLI::App& program) {
  console.ReportError(status, HintFor(status.code(), program));
  return ExitCodeOf(status.code());
}

int ParseFailed(Console& console, const CLI::ParseError& error, const CLI::App& program, int argc,
                char** argv) {
  // Options after the one that is wrong were not read.
  console.json = console.json || HasArgument(argc, argv, "--json");
  std::string message = error.what();
  if (message.find("subcommand") != std::string::npos) {
    const std::vector<std::string> words = program.remaining();
    message = words.empty() ? "no command given" : "unknown command '" + words.front() + "'";
    message += "; there are";
    for (const CLI::App* command : program.get_subcommands({})) {
      message += " " + command->get_name();
    }
  }
  return Fail(console, InvalidArgumentError(message), program);
}

int Main(int argc, char** argv) {
  // A reader that goes away is an error of write(), not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  Console console;
  LogOptions log;
  CLI::App program(kIntroduction, "spillway");
  program.get_formatter()->column_width(34);
  program.require_subcommand(1);
  AddGlobalOptions(program, console, log);
  program.footer(kExamples + ExitCodeTable());

  std::map<std::string, std::unique_ptr<Command>> commands;
  commands["compile"] = AddCompileCommand(program);
  commands["add-evictor"] = AddAddEvictorCommand(program);
  commands["run"] = AddRunCommand(program);
  commands["chat"] = AddChatCommand(program);
  commands["bench"] = AddBenchCommand(program);
  commands["inspect"] = AddInspectCommand(program);
  commands["eval"] = AddEvalCommand(program);
  commands["analyze"] = AddAnalyzeCommand(program);
  commands["verify"] = AddVerifyCommand(program);
  commands["socs"] = AddSocsCommand(program);
  commands["recipes"] = AddRecipesCommand(program);
  commands["sensitivity"] = AddSensitivityCommand(program);
  commands["cache"] = AddCacheCommand(program);

  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return program.exit(success);
  } catch (const CLI::ParseError& error) {
    return ParseFailed(console, error, program, argc, argv);
  }
  ApplyLogOptions(log);
  const std::string name = program.get_subcommands().front()->get_name();
  const Status status = commands[name]->Run(console);
  return status.ok() ? kExitOk : Fail(console, status, program);
}

}  // namespace
}  // namespace spillway::cli

int main(int argc, char** argv) {
  // Nothing of ours throws; the standard library and CLI11 may.
  try {
    return spillway::cli::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("spillway: error: out of memory\n", stderr);
    return spillway::cli::kExitSystem;
  } catch (const std::system_error& error) {  // a thread that cannot be started
    std::fprintf(stderr, "spillway: error: the system refused: %s\n", error.what());
    return spillway::cli::kExitSystem;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spillway: error: unexpected: %s\n", error.what());
    return spillway::cli::kExitBug;
  }
}
