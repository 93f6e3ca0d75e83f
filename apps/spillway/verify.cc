// spillway verify: the same prompt on the host and through the vendor's library.

#include "eval/verify.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/file.h"
#include "checks.h"
#include "command.h"
#include "json_text.h"
#include "package/package.h"
#include "runtime/host_model_executor.h"
#include "runtime/htp_model_executor.h"
#include "spillway/session.h"
#include "vendor_flags.h"

namespace spillway::cli {
namespace {

constexpr char kExamples[] =
    "Both sides get the same tokens, the host's greedy answer included, so a difference in one\n"
    "step does not grow in the next. On x86-64 the vendor's library is its simulator, which\n"
    "takes seconds a call and wants a package compiled with --with-simulator. Then the\n"
    "operations of some layers are run alone, with the host's inputs; those that differ by more\n"
    "than is allowed are listed. Fails with exit code 7 when a limit is not met.\n\n"
    "Examples:\n"
    "  spillway verify pkg/ --prompt \"What is a cache?\"\n"
    "  spillway verify pkg/ --prompt Hello --max-new-tokens 1 --min-sqnr 40 --json\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

class VerifyCommand : public Command {
 public:
  explicit VerifyCommand(CLI::App& program);
  Status Run(Console& console) override;

 private:
  Result<std::vector<uint32_t>> PromptTokens() const;
  Result<VerifyReport> Compare(Progress* progress);
  Status CheckLimits(const VerifyReport& report) const;

  std::string package_, prompt_;
  bool raw_ = false;
  VerifyOptions options_;
  OperationOptions operations_;
  double min_sqnr_ = 30, min_top1_ = 0;
  uint32_t threads_ = 0;
  HtpModelOptions htp_;
};

VerifyCommand::VerifyCommand(CLI::App& program) {
  CLI::App& app =
      *program.add_subcommand("verify", "Compare host and vendor's library on a prompt");
  app.fallthrough();
  app.add_option("PACKAGE", package_, "The package, a folder")->required();
  app.add_option("-p,--prompt", prompt_, "The prompt")->required();
  app.add_flag("--raw", raw_, "The text itself: no chat template");
  app.add_option("-n,--max-new-tokens", options_.max_new_tokens, "Tokens of the answer to compare")
      ->capture_default_str();
  app.add_option("--min-sqnr", min_sqnr_, "Least signal to noise of the logits, in dB")
      ->capture_default_str();
  app.add_option("--min-top1", min_top1_, "Least share of steps whose best token is the same")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--operation-layers", operations_.layers,
                 "Compare the single operations of so many layers; 0: none")
      ->capture_default_str();
  app.add_option("--threads", threads_, "Threads of the host executor; 0: all processors")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  AddLibraryDirFlag(app, htp_.qnn_lib_dir);
  app.add_option("--execute-timeout", htp_.execute_timeout_s, "Seconds for one call of a graph")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.footer(kExamples);
}

Result<std::vector<uint32_t>> VerifyCommand::PromptTokens() const {
  SessionOptions options;
  options.package_path = package_;
  options.verify = false;  // Compare() has done it
  SPILLWAY_ASSIGN_OR_RETURN(const auto session, Session::Open(options));
  RunOptions run;
  run.raw_prompt = raw_;
  return session->PromptTokens(prompt_, run);
}

Result<VerifyReport> VerifyCommand::Compare(Progress* progress) {
  ReportProgress(progress, "load " + package_, -1);
  SPILLWAY_ASSIGN_OR_RETURN(const auto package, Package::Open(package_));
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<uint32_t> tokens, PromptTokens());
  HostModelOptions host_options;
  host_options.threads = threads_;
  SPILLWAY_ASSIGN_OR_RETURN(const auto host, HostModelExecutor::Open(package, host_options));
  ReportProgress(progress, "load the context into the vendor's library", -1);
  SPILLWAY_ASSIGN_OR_RETURN(const auto htp, HtpModelExecutor::Open(package, htp_));
  SPILLWAY_ASSIGN_OR_RETURN(VerifyReport report,
                            VerifyExecutors(*host, *htp, tokens, options_, progress));
  if (operations_.layers == 0) return report;
  operations_.qnn_lib_dir = htp_.qnn_lib_dir;
  SPILLWAY_ASSIGN_OR_RETURN(report.operations,
                            CompareOperations(package, tokens, operations_, progress));
  return report;
}

Status VerifyCommand::CheckLimits(const VerifyReport& report) const {
  if (!(report.logits_sqnr_db >= min_sqnr_)) {
    return CheckFailedError(fmt::format(
        "the logits of host and vendor's library differ: SQNR {:.1f} dB, at least {:.1f} dB wanted",
        report.logits_sqnr_db, min_sqnr_));
  }
  if (!(report.top1_agreement >= min_top1_)) {
    return CheckFailedError(
        fmt::format("the best token is the same in {:.1f}% of the steps, at least {:.1f}% wanted",
                    100 * report.top1_agreement, 100 * min_top1_));
  }
  return OkStatus();
}

Status VerifyCommand::Run(Console& console) {
  if (!FileExists(package_)) return NotFoundError(package_ + ": there is no such package");
  SPILLWAY_RETURN_IF_ERROR(CheckVendorLibrary(htp_.qnn_lib_dir));
  std::unique_ptr<Progress> progress = console.MakeProgress();
  const auto report = Compare(progress.get());
  progress.reset();
  if (!report.ok()) return report.status();
  const Status limits = CheckLimits(*report);
  std::string text = report->ToText();
  if (console.json) {
    Json json = Json::parse(report->ToJson(), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return InternalError("the report does not print as a JSON object");
    json["min_sqnr_db"] = min_sqnr_;
    json["min_top1"] = min_top1_;
    json["passed"] = limits.ok();
    text = JsonText(json);
  }
  SPILLWAY_RETURN_IF_ERROR(console.Print(text));
  return limits;
}

}  // namespace

std::unique_ptr<Command> AddVerifyCommand(CLI::App& program) {
  return std::make_unique<VerifyCommand>(program);
}

}  // namespace spillway::cli
