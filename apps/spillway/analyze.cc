// spillway analyze: where a package loses quality, operation by operation.

#include "eval/analyze.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/file.h"
#include "checks.h"
#include "command.h"
#include "model/tokenizer.h"
#include "quantize/calibration_data.h"
#include "vendor_flags.h"

namespace spillway::cli {
namespace {

constexpr char kExamples[] =
    "Runs the package on the host and the GGUF file in float over the same tokens, and compares\n"
    "every tensor: signal to noise in dB, worst first. Noise adds up from operation to\n"
    "operation; \"input dB\" is what an operation was given, so a large step from there to\n"
    "\"SQNR dB\" is what it lost itself. With --simulator the operations of some layers also\n"
    "run alone in the vendor's library, with the host's inputs.\n\n"
    "Examples:\n"
    "  spillway analyze pkg/ --float model.gguf\n"
    "  spillway analyze pkg/ --float model.gguf --text test.txt --tokens 128 --top 0 --json\n"
    "  spillway analyze pkg/ --float model.gguf --simulator --simulator-layers 1\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

class AnalyzeCommand : public Command {
 public:
  explicit AnalyzeCommand(CLI::App& program);
  Status Run(Console& console) override;

 private:
  Status CheckArguments() const;
  Result<AnalysisReport> Analyze(Progress* progress);

  std::string package_, float_path_, text_path_;
  uint32_t tokens_ = 64, top_ = 20, threads_ = 0;
  bool simulator_ = false;
  OperationOptions operations_;
};

AnalyzeCommand::AnalyzeCommand(CLI::App& program) {
  CLI::App& app = *program.add_subcommand(
      "analyze", "Show where a package loses quality against the float model");
  app.fallthrough();
  app.add_option("PACKAGE", package_, "The package, a folder")->required();
  app.add_option("--float", float_path_, "The GGUF file that it was compiled from")->required();
  app.add_option("--text", text_path_, "A text, UTF-8; default: the one that calibration uses");
  app.add_option("--tokens", tokens_, "At most so many tokens of it")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--top", top_, "Operations to print; 0: all")->capture_default_str();
  app.add_flag("--simulator", simulator_,
               "Also compare single operations with the vendor's library");
  app.add_option("--simulator-layers", operations_.layers, "Those of so many layers")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--threads", threads_, "0: all processors")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  AddLibraryDirFlag(app, operations_.qnn_lib_dir);
  app.footer(kExamples);
}

Status AnalyzeCommand::CheckArguments() const {
  if (!FileExists(package_)) return NotFoundError(package_ + ": there is no such package");
  if (!FileExists(float_path_)) {
    return NotFoundError("--float " + float_path_ + ": there is no such file");
  }
  if (!text_path_.empty() && !FileExists(text_path_)) {
    return NotFoundError("--text " + text_path_ + ": no such file");
  }
  return simulator_ ? CheckVendorLibrary(operations_.qnn_lib_dir) : OkStatus();
}

Result<AnalysisReport> AnalyzeCommand::Analyze(Progress* progress) {
  ReportProgress(progress, "open " + package_, -1);
  SPILLWAY_ASSIGN_OR_RETURN(const auto package, Package::Open(package_));
  SPILLWAY_ASSIGN_OR_RETURN(auto model, Model::Open(float_path_));
  std::string text{DefaultCalibrationText()};
  if (!text_path_.empty()) {
    SPILLWAY_ASSIGN_OR_RETURN(text, ReadFile(text_path_));
  }
  SPILLWAY_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Create(package->tokenizer_data()));
  std::vector<uint32_t> tokens = tokenizer->Encode(text, /*parse_special=*/false);
  tokens.resize(std::min<size_t>(tokens.size(), tokens_));
  SPILLWAY_ASSIGN_OR_RETURN(AnalysisReport report,
                            AnalyzePackage(package, std::move(model), tokens, threads_, progress));
  if (!simulator_) return report;
  tokens.resize(report.tokens);
  SPILLWAY_ASSIGN_OR_RETURN(report.simulator,
                            CompareOperations(package, tokens, operations_, progress));
  std::stable_sort(report.simulator.begin(), report.simulator.end(),
                   [](const auto& a, const auto& b) { return a.sqnr_db < b.sqnr_db; });
  return report;
}

Status AnalyzeCommand::Run(Console& console) {
  SPILLWAY_RETURN_IF_ERROR(CheckArguments());
  std::unique_ptr<Progress> progress = console.MakeProgress();
  const auto report = Analyze(progress.get());
  progress.reset();
  if (!report.ok()) return report.status();
  return console.Print(console.json ? report->ToJson(top_) + "\n" : report->ToText(top_));
}

}  // namespace

std::unique_ptr<Command> AddAnalyzeCommand(CLI::App& program) {
  return std::make_unique<AnalyzeCommand>(program);
}

}  // namespace spillway::cli
