// spillway add-evictor: room in a full context, made on the chip, for a package that exists.

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "command.h"
#include "interrupt.h"
#include "sink_flag.h"
#include "spillway/compile.h"
#include "vendor_flags.h"

namespace spillway::cli {
namespace {

constexpr char kExamples[] =
    "What 'compile --attention-sink' does, later. The package is replaced as a whole, or stays\n"
    "as it was; an evictor that it has is replaced.\n\n"
    "Examples:\n"
    "  spillway add-evictor pkg/ --attention-sink 4,128\n"
    "  spillway run pkg/ --prompt \"Tell me a long story.\" --max-new-tokens 5000\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

class AddEvictorCommand : public Command {
 public:
  explicit AddEvictorCommand(CLI::App& program) {
    CLI::App& app = *program.add_subcommand(
        "add-evictor", "Give a package a graph that makes room in a full context");
    app.fallthrough();
    app.add_option("PACKAGE", options_.package_path, "The package, a folder")->required();
    AddSinkFlag(app, sink_,
                "Forget BATCH tokens after the first SINK (after the package's prefix, where it\n"
                "has one)")
        ->required();
    AddHtpBuildFlag(app, options_.htp_build, "Make a context binary");
    AddLibraryDirFlag(app, options_.qnn_lib_dir);
    app.add_option("--vendor-timeout", options_.vendor_timeout_s,
                   "Seconds that the vendor's compiler may take")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.footer(kExamples);
  }

  Status Run(Console& console) override {
    options_.sink = *sink_;
    const EndOnInterrupt end_on_interrupt(console);
    std::unique_ptr<Progress> progress = console.MakeProgress();
    auto report = AddEvictor(options_, [&](std::string_view stage, double fraction) {
      ReportProgress(progress.get(), stage, fraction);
    });
    progress.reset();
    if (!report.ok()) return report.status();
    return console.Print(console.json ? report->ToJson() + "\n" : report->ToText());
  }

 private:
  AddEvictorOptions options_;
  std::optional<AttentionSink> sink_;
};

}  // namespace

std::unique_ptr<Command> AddAddEvictorCommand(CLI::App& program) {
  return std::make_unique<AddEvictorCommand>(program);
}

}  // namespace spillway::cli
