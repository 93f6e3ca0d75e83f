// spillway eval: perplexity of a text on the host, in float and quantised.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>

#include "base/file.h"
#include "command.h"
#include "eval/perplexity.h"
#include "json_text.h"
#include "model/tokenizer.h"
#include "package/package.h"
#include "runtime/host_model_executor.h"
#include "text.h"

namespace spillway::cli {
namespace {

constexpr char kExamples[] =
    "The text is cut into windows of --context tokens; each starts with an empty cache, and the\n"
    "second half of it is scored. No BOS is added.\n\n"
    "Examples:\n"
    "  spillway eval model.gguf --text test.txt --context 128 --windows 20\n"
    "  spillway eval pkg/ --text test.txt --context 128 --windows 20 --float model.gguf\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

constexpr uint32_t kDefaultContext = 128;

struct Measurement {
  std::string path;
  std::string what;  // "float", "16a8w, KV u8"
  PerplexityResult result;
  double seconds = 0;
};

class EvalCommand : public Command {
 public:
  explicit EvalCommand(CLI::App& program);
  Status Run(Console& console) override;

 private:
  Result<Measurement> MeasureGguf(const std::string& path, Progress* progress);
  Result<Measurement> MeasurePackage(const std::string& path, Progress* progress);
  Result<Measurement> Measure(ModelExecutor& executor, TokenizerData tokenizer, Progress* progress);

  std::string path_, text_path_, float_path_;
  uint32_t context_ = 0, windows_ = 0, threads_ = 0;
};

EvalCommand::EvalCommand(CLI::App& program) {
  CLI::App& app = *program.add_subcommand("eval", "Measure the perplexity of a text on the host");
  app.fallthrough();
  app.add_option("MODEL", path_, "A GGUF file (in float) or a package (in its integers)")
      ->required();
  app.add_option("--text", text_path_, "The text, UTF-8")->required();
  app.add_option("--context", context_,
                 fmt::format("Tokens of a window; default: {}, or the package's context if smaller",
                             kDefaultContext))
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--windows", windows_, "At most so many windows; 0: all whole ones")
      ->capture_default_str();
  app.add_option("--float", float_path_, "Also measure this GGUF file in float, and compare");
  app.add_option("--threads", threads_, "0: all processors")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.footer(kExamples);
}

Result<Measurement> EvalCommand::Measure(ModelExecutor& executor, TokenizerData data,
                                         Progress* progress) {
  SPILLWAY_ASSIGN_OR_RETURN(const std::string text, ReadFile(text_path_));
  SPILLWAY_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Create(std::move(data)));
  ReportProgress(progress, "tokenise " + text_path_, -1);
  const std::vector<uint32_t> tokens = tokenizer->Encode(text, /*parse_special=*/false);
  Measurement measurement;
  const auto start = std::chrono::steady_clock::now();
  const auto result = MeasurePerplexity(
      executor, tokens, {.context_len = context_, .max_windows = windows_}, progress);
  if (!result.ok()) return result.status().WithContext(text_path_);
  measurement.result = *result;
  measurement.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return measurement;
}

Result<Measurement> EvalCommand::MeasureGguf(const std::string& path, Progress* progress) {
  ReportProgress(progress, "open " + path, -1);
  SPILLWAY_ASSIGN_OR_RETURN(const auto model, Model::Open(path));
  SPILLWAY_ASSIGN_OR_RETURN(TokenizerData tokenizer, TokenizerData::FromGguf(*model->file()));
  if (context_ == 0) context_ = kDefaultContext;
  SPILLWAY_ASSIGN_OR_RETURN(
      const auto executor,
      MakeFloatExecutor(model, context_, context_, std::make_shared<ThreadPool>(threads_)));
  SPILLWAY_ASSIGN_OR_RETURN(Measurement measurement,
                            Measure(*executor, std::move(tokenizer), progress));
  measurement.path = path;
  measurement.what = "float";
  return measurement;
}

Result<Measurement> EvalCommand::MeasurePackage(const std::string& path, Progress* progress) {
  ReportProgress(progress, "open " + path, -1);
  SPILLWAY_ASSIGN_OR_RETURN(const auto package, Package::Open(path));
  const PackageManifest& manifest = package->manifest();
  if (context_ == 0) context_ = std::min(kDefaultContext, manifest.context_len);
  if (context_ > manifest.context_len) {
    return InvalidArgumentError(
        fmt::format("--context {}: the package {} was compiled for {} tokens; choose at most that, "
                    "or compile with --context-len {}",
                    context_, path, manifest.context_len, context_));
  }
  SPILLWAY_ASSIGN_OR_RETURN(const auto executor,
                            HostModelExecutor::Open(package, {.threads = threads_}));
  SPILLWAY_ASSIGN_OR_RETURN(Measurement measurement,
                            Measure(*executor, package->tokenizer_data(), progress));
  measurement.path = path;
  measurement.what = fmt::format("{}, KV cache {}", manifest.recipe, DTypeName(manifest.kv_dtype));
  return measurement;
}

Json ToJson(const std::vector<Measurement>& measurements, uint32_t context) {
  Json json = {{"context", context}, {"results", Json::array()}};
  for (const Measurement& m : measurements) {
    json["results"].push_back({{"path", m.path},
                               {"what", m.what},
                               {"perplexity", m.result.perplexity},
                               {"mean_nll", m.result.mean_nll},
                               {"scored_tokens", m.result.scored_tokens},
                               {"windows", m.result.windows},
                               {"seconds", m.seconds}});
  }
  if (measurements.size() == 2) {
    json["ratio"] = measurements[0].result.perplexity / measurements[1].result.perplexity;
  }
  return json;
}

std::string ToText(const std::vector<Measurement>& measurements, uint32_t context) {
  TextTable table({"", "perplexity", "windows", "scored tokens", "seconds", ""});
  for (const Measurement& m : measurements) {
    table.AddRow({m.what, fmt::format("{:.4f}", m.result.perplexity),
                  std::to_string(m.result.windows), std::to_string(m.result.scored_tokens),
                  fmt::format("{:.1f}", m.seconds), m.path});
  }
  std::string text = fmt::format("windows of {} tokens\n", context) + table.ToString();
  if (measurements.size() == 2) {
    text += fmt::format("ratio of the first to float: {:.4f}\n",
                        measurements[0].result.perplexity / measurements[1].result.perplexity);
  }
  return text;
}

Status EvalCommand::Run(Console& console) {
  std::unique_ptr<Progress> progress = console.MakeProgress();
  if (!FileExists(path_)) return NotFoundError(path_ + ": there is no such file or folder");
  if (!FileExists(text_path_)) return NotFoundError("--text " + text_path_ + ": no such file");
  std::vector<Measurement> measurements;
  SPILLWAY_ASSIGN_OR_RETURN(Measurement first, IsDirectory(path_)
                                                   ? MeasurePackage(path_, progress.get())
                                                   : MeasureGguf(path_, progress.get()));
  measurements.push_back(std::move(first));
  if (!float_path_.empty()) {
    SPILLWAY_ASSIGN_OR_RETURN(Measurement second, MeasureGguf(float_path_, progress.get()));
    measurements.push_back(std::move(second));
  }
  progress.reset();
  return console.Print(console.json ? JsonText(ToJson(measurements, context_))
                                    : ToText(measurements, context_));
}

}  // namespace

std::unique_ptr<Command> AddEvalCommand(CLI::App& program) {
  return std::make_unique<EvalCommand>(program);
}

}  // namespace spillway::cli
