// spillway bench: how fast this machine runs a package, alone or next to llama.cpp.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/subprocess.h"
#include "base/thread_pool.h"
#include "bench_report.h"
#include "command.h"
#include "eval/llama_cpp.h"
#include "eval/speed.h"
#include "package/package.h"

namespace spillway::cli {
namespace {

constexpr char kExamples[] =
    "Measures what llama-bench measures: prompts of N tokens (ppN: only the last token gets\n"
    "logits) and N tokens one by one from an empty context (tgN), in rounds after a warm-up; and\n"
    "how long a new process takes to the first token. Multiply-adds are those of the weight\n"
    "products. 'of memory' is the share of the bandwidth at which as many threads sum up a buffer\n"
    "larger than the caches, 'of weights' that of a buffer as large as the weights, which a large\n"
    "cache may hold.\n\n"
    "Examples:\n"
    "  spillway bench pkg/\n"
    "  spillway bench pkg/ --threads 1,2 --json\n"
    "  spillway bench pkg/ --prompts 0 --decode 0 --depth 128,512,2048,8192\n"
    "  # In turns with llama.cpp, one round each; its figures and the ratio of every round.\n"
    "  spillway bench pkg/ --threads 1,2 --compare llama.cpp --llama-model model-Q8_0.gguf\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

constexpr double kStartTimeoutSeconds = 600;

struct Start {
  double load = 0, first_token = 0;
  uint64_t peak_rss_bytes = 0;
};

// Answers a prompt of ten tokens with one, in a process of its own.
Result<Start> MeasureStart(const std::string& package, size_t threads) {
  const std::vector<std::string> arguments = {"run",
                                              package,
                                              "--tokens",
                                              "11,12,13,14,15,16,17,18,19,20",
                                              "--threads",
                                              std::to_string(threads),
                                              "--max-new-tokens",
                                              "1",
                                              "-t",
                                              "0",
                                              "--ignore-eos",
                                              "--json",
                                              "--quiet"};
  SPILLWAY_ASSIGN_OR_RETURN(const auto process, Subprocess::Start("/proc/self/exe", arguments));
  SPILLWAY_ASSIGN_OR_RETURN(const ExitInfo exit, process->Wait(kStartTimeoutSeconds));
  const std::string output = process->Output();
  const Json json = Json::parse(output, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("stats")) {
    return InternalError(
        fmt::format("'spillway run' of a short prompt {}: {}", exit.ToString(), output));
  }
  const Json& stats = json["stats"];
  return Start{stats.value("load_s", 0.0), stats.value("time_to_first_token_s", 0.0),
               stats.value("peak_rss_bytes", uint64_t{0})};
}

class BenchCommand : public Command {
 public:
  explicit BenchCommand(CLI::App& program);
  Status Run(Console& console) override;

 private:
  void AddPeerOptions(CLI::App& app);
  Status CheckArguments();
  Status MeasureStarts(BenchReport& report, Progress* progress) const;
  Result<BenchReport> Measure(Progress* progress);

  std::string package_, peer_, llama_bench_, llama_model_;
  SpeedOptions options_;
  std::optional<double> bandwidth_mb_;
  std::optional<LlamaCpp> llama_;
};

BenchCommand::BenchCommand(CLI::App& program) {
  CLI::App& app = *program.add_subcommand("bench", "Measure how fast this machine runs a package");
  app.fallthrough();
  app.add_option("PACKAGE", package_, "The package, a folder")->required();
  app.add_option("--threads", options_.threads,
                 "Threads of the host executor, like 1,2: one run for each; 0: all processors")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("-r,--repetitions", options_.repetitions, "Rounds of each test")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--prompts", options_.prompts, "Lengths of prompts, in tokens; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app.add_option("--decode", options_.decode, "Tokens one by one from an empty context; 0: none")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app.add_option("--depth,--contexts", options_.depths,
                 "Also --depth-tokens one by one when so many are in the context, like 128,2048")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--depth-tokens", options_.depth_tokens, "How many of them")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--bandwidth-mb", bandwidth_mb_,
                 "Buffer for the read bandwidth of memory, in MB; default: twice the last cache;\n"
                 "0: not measured")
      ->check(CLI::Range(0.0, 1e6));
  AddPeerOptions(app);
  app.footer(kExamples);
}

void BenchCommand::AddPeerOptions(CLI::App& app) {
  const std::string group = "Comparison";
  CLI::Option* compare =
      app.add_option("--compare", peer_, "Run the same tests with this, in turns with ours")
          ->check(CLI::IsMember({"llama.cpp"}))
          ->group(group);
  app.add_option("--llama-model", llama_model_, "Its model, a GGUF file, say in Q8_0")
      ->type_name("FILE")
      ->needs(compare)
      ->group(group);
  app.add_option("--llama-bench", llama_bench_,
                 "Its program; default: $LLAMA_BENCH, then llama-bench in PATH, then the Python\n"
                 "package llama-cpp-python")
      ->type_name("FILE")
      ->needs(compare)
      ->group(group);
}

Status BenchCommand::CheckArguments() {
  if (!FileExists(package_)) return NotFoundError(package_ + ": there is no such package");
  if (!peer_.empty()) {
    SPILLWAY_ASSIGN_OR_RETURN(llama_, LlamaCpp::Find(llama_bench_, llama_model_));
    options_.peer = &*llama_;
  }
  std::erase(options_.prompts, 0u);
  for (uint32_t& threads : options_.threads) {
    if (threads == 0) threads = static_cast<uint32_t>(AvailableProcessors());
  }
  if (options_.prompts.empty() && options_.decode == 0 && options_.depths.empty()) {
    return InvalidArgumentError("nothing to measure: give --prompts, --decode or --depth");
  }
  if (bandwidth_mb_.has_value()) {
    options_.bandwidth_bytes = static_cast<uint64_t>(*bandwidth_mb_ * 1e6);
  }
  return OkStatus();
}

// The first start of all fills the page cache and does not count.
Status BenchCommand::MeasureStarts(BenchReport& report, Progress* progress) const {
  for (const uint32_t threads : options_.threads) {
    std::vector<double> load, first_token, both;
    StartFigures figures;
    figures.threads = threads;
    for (uint32_t round = 0; round <= options_.repetitions; ++round) {
      ReportProgress(progress, "start new processes",
                     static_cast<double>(round) / (options_.repetitions + 1));
      SPILLWAY_ASSIGN_OR_RETURN(const Start start, MeasureStart(package_, threads));
      if (round == 0) continue;
      load.push_back(start.load);
      first_token.push_back(start.first_token);
      both.push_back(start.load + start.first_token);
      figures.peak_rss_bytes = std::max(figures.peak_rss_bytes, start.peak_rss_bytes);
    }
    figures.load = Spread::Of(load);
    figures.first_token = Spread::Of(first_token);
    figures.both = Spread::Of(both);
    report.starts.push_back(figures);
  }
  return OkStatus();
}

Result<BenchReport> BenchCommand::Measure(Progress* progress) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto package, Package::Open(package_));
  const PackageManifest& manifest = package->manifest();
  BenchReport report;
  report.package = package_;
  report.recipe = manifest.recipe;
  report.context_len = manifest.context_len;
  report.prefill_ar = manifest.prefill_ar_len;
  report.repetitions = options_.repetitions;
  SPILLWAY_RETURN_IF_ERROR(MeasureStarts(report, progress));
  SPILLWAY_ASSIGN_OR_RETURN(report.speed, MeasureSpeed(package, options_, progress));
  return report;
}

Status BenchCommand::Run(Console& console) {
  SPILLWAY_RETURN_IF_ERROR(CheckArguments());
  std::unique_ptr<Progress> progress = console.MakeProgress();
  const auto report = Measure(progress.get());
  progress.reset();
  if (!report.ok()) return report.status();
  return console.Print(console.json ? JsonText(BenchJson(*report)) : BenchText(*report));
}

}  // namespace

std::unique_ptr<Command> AddBenchCommand(CLI::App& program) {
  return std::make_unique<BenchCommand>(program);
}

}  // namespace spillway::cli
