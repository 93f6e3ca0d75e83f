// spillway sensitivity: what each operation's quantisation does to the logits alone, and
// a recipe of mixed precision made from it.

#include "quantize/sensitivity.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/file.h"
#include "command.h"
#include "json_text.h"
#include "model/tokenizer.h"
#include "text.h"

namespace spillway::cli {
namespace {

constexpr char kExamples[] =
    "Ranks operations by the damage that quantising one of them does while all others stay\n"
    "float: signal to noise of the logits on calibration text, worst first. With a target it\n"
    "goes on: weights that do most damage for their bits are raised to 8 bits until the logits\n"
    "have --target-sqnr, or as long as the decoder's weights have at most --target-bits on\n"
    "average (block multipliers counted, the head apart). The recipe goes to --output or, when\n"
    "there is none, to standard output.\n\n"
    "Examples:\n"
    "  spillway sensitivity model.gguf --recipe 16a4w-block\n"
    "  spillway sensitivity model.gguf --recipe 8a8w --activations --top 30\n"
    "  spillway sensitivity model.gguf --target-bits 5 -o mixed.json\n"
    "  spillway compile model.gguf -o pkg/ --recipe mixed.json\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

constexpr uint32_t kWindow = 128;  // tokens

struct Found {
  std::vector<OperationDamage> damage;
  std::optional<MixedResult> mixed;
};

class SensitivityCommand : public Command {
 public:
  explicit SensitivityCommand(CLI::App& program);
  Status Run(Console& console) override;

 private:
  Status CheckArguments() const;
  Result<Found> Rank(Progress* progress);
  bool has_target() const { return options_.target_sqnr_db > 0 || options_.max_bits > 0; }
  std::string ToText(const Found& found) const;
  Json ToJson(const Found& found) const;

  std::string model_, recipe_ = "16a4w-block", output_;
  std::vector<std::string> texts_;
  uint32_t calib_tokens_ = 1024, top_ = 20, threads_ = 0;
  bool activations_ = false;
  MixedOptions options_;
};

SensitivityCommand::SensitivityCommand(CLI::App& program) {
  CLI::App& app = *program.add_subcommand(
      "sensitivity", "Rank operations by what quantising them costs; find a mixed recipe");
  app.fallthrough();
  app.add_option("MODEL", model_, "The model, a GGUF file")->required();
  app.add_option("--recipe", recipe_, "How operations are quantised: built in, or a JSON file")
      ->capture_default_str();
  CLI::Option* activations =
      app.add_flag("--activations", activations_, "Rank activations instead of weights");
  app.add_option("--target-sqnr", options_.target_sqnr_db,
                 "Find a recipe whose weights leave the logits this signal to noise, in dB")
      ->check(CLI::PositiveNumber)
      ->excludes(activations);
  app.add_option("--target-bits", options_.max_bits,
                 "Find the best recipe with at most so many bits a weight")
      ->check(CLI::PositiveNumber)
      ->excludes(activations);
  app.add_option("-o,--output", output_, "Write the recipe to this file");
  app.add_option("--calib,--calib-text", texts_, "Files to measure on; default: a built-in text")
      ->take_all();
  app.add_option("--calib-tokens", calib_tokens_, "Tokens of it for ranges and weights")
      ->check(CLI::Range(16, 1 << 24))
      ->capture_default_str();
  app.add_option("--tokens", options_.sensitivity.tokens, "Tokens that logits are measured on")
      ->check(CLI::Range(2, 1 << 16))
      ->capture_default_str();
  app.add_option("--top", top_, "Operations to print; 0: all")->capture_default_str();
  app.add_option("--threads", threads_, "0: all processors")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.footer(kExamples);
}

Status SensitivityCommand::CheckArguments() const {
  if (!FileExists(model_)) return NotFoundError(model_ + ": there is no such file");
  for (const std::string& path : texts_) {
    if (!FileExists(path)) return NotFoundError("--calib " + path + ": no such file");
  }
  if (output_.empty() || has_target()) return OkStatus();
  return InvalidArgumentError(
      "--output is for the recipe that --target-sqnr or --target-bits find");
}

Result<Found> SensitivityCommand::Rank(Progress* progress) {
  SPILLWAY_ASSIGN_OR_RETURN(const Recipe recipe, FindRecipe(recipe_));
  if (!recipe.transforms.empty()) {
    return UnsupportedError(
        fmt::format("recipe {} transforms the weights; give one without transforms", recipe.name));
  }
  ReportProgress(progress, "open " + model_, -1);
  SPILLWAY_ASSIGN_OR_RETURN(auto model, Model::Open(model_));
  SPILLWAY_ASSIGN_OR_RETURN(const TokenizerData tokens, TokenizerData::FromGguf(*model->file()));
  SPILLWAY_ASSIGN_OR_RETURN(const CalibrationWindows data,
                            ReadCalibrationWindows(tokens, texts_, kWindow, calib_tokens_));
  ThreadPool pool(threads_);
  Decoder decoder(std::move(model));
  FloatPrefix prefix;
  SPILLWAY_ASSIGN_OR_RETURN(std::vector<uint32_t> prefix_tokens,
                            FindPrefixTokens(decoder, data, &pool));
  if (!prefix_tokens.empty()) {
    SPILLWAY_ASSIGN_OR_RETURN(prefix, ComputePrefix(decoder, std::move(prefix_tokens), &pool));
  }
  Found found;
  if (activations_) {
    SPILLWAY_ASSIGN_OR_RETURN(const TensorRanges ranges,
                              Calibrate(decoder, data.windows, prefix, recipe, &pool, progress));
    SPILLWAY_ASSIGN_OR_RETURN(found.damage,
                              RankActivations(decoder, data.windows, prefix, recipe, ranges,
                                              options_.sensitivity, &pool, progress));
  } else if (has_target()) {
    options_.base = recipe;
    SPILLWAY_ASSIGN_OR_RETURN(
        found.mixed, FindMixedRecipe(decoder, data.windows, prefix, options_, &pool, progress));
    found.damage = found.mixed->damage;
  } else {
    SPILLWAY_ASSIGN_OR_RETURN(found.damage, RankWeights(decoder, data.windows, prefix, recipe,
                                                        options_.sensitivity, &pool, progress));
  }
  return found;
}

size_t Shown(size_t count, uint32_t top) { return top == 0 ? count : std::min<size_t>(count, top); }

std::string SensitivityCommand::ToText(const Found& found) const {
  TextTable table({"operation", "SQNR dB", "weights"});
  for (size_t i = 0; i < Shown(found.damage.size(), top_); ++i) {
    const OperationDamage& operation = found.damage[i];
    table.AddRow(
        {operation.operation,
         std::isfinite(operation.sqnr_db) ? fmt::format("{:.2f}", operation.sqnr_db) : "no noise",
         operation.weights == 0 ? "" : std::to_string(operation.weights)});
  }
  std::string text = fmt::format("{}: each operation's {} quantised alone, worst first\n", recipe_,
                                 activations_ ? "output" : "weight") +
                     table.ToString();
  if (!found.mixed.has_value()) return text;
  const MixedResult& mixed = *found.mixed;
  return text + fmt::format(
                    "raised {} operations: {:.3f} bits a weight, logits {:.2f} dB (before: {:.2f})"
                    "{}\n",
                    mixed.raised.size(), mixed.bits, mixed.sqnr_db, mixed.base_sqnr_db,
                    mixed.target_met ? "" : "; the target is not met");
}

Json SensitivityCommand::ToJson(const Found& found) const {
  const auto decibels = [](double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
  };
  Json json = {{"kind", "sensitivity"},
               {"recipe", recipe_},
               {"of", activations_ ? "activations" : "weights"},
               {"damage", Json::array()}};
  for (size_t i = 0; i < Shown(found.damage.size(), top_); ++i) {
    const OperationDamage& operation = found.damage[i];
    json["damage"].push_back({{"operation", operation.operation},
                              {"sqnr_db", decibels(operation.sqnr_db)},
                              {"weights", operation.weights}});
  }
  if (found.mixed.has_value()) {
    const MixedResult& mixed = *found.mixed;
    json["mixed"] = {{"bits", mixed.bits},
                     {"sqnr_db", decibels(mixed.sqnr_db)},
                     {"base_sqnr_db", decibels(mixed.base_sqnr_db)},
                     {"target_met", mixed.target_met},
                     {"raised", mixed.raised},
                     {"recipe", Json::parse(mixed.recipe.ToJson(), nullptr, false)}};
  }
  return json;
}

Status SensitivityCommand::Run(Console& console) {
  SPILLWAY_RETURN_IF_ERROR(CheckArguments());
  std::unique_ptr<Progress> progress = console.MakeProgress();
  const auto found = Rank(progress.get());
  progress.reset();
  if (!found.ok()) return found.status();
  if (found->mixed.has_value() && !output_.empty()) {
    SPILLWAY_RETURN_IF_ERROR(WriteFileAtomically(output_, found->mixed->recipe.ToJson()));
  }
  if (console.json) return console.Print(JsonText(ToJson(*found)));
  if (!found->mixed.has_value() || !output_.empty()) return console.Print(ToText(*found));
  // The recipe is the answer; what is said about it is a remark.
  std::string remark = ToText(*found);
  remark.pop_back();
  console.Note(remark);
  return console.Print(found->mixed->recipe.ToJson());
}

}  // namespace

std::unique_ptr<Command> AddSensitivityCommand(CLI::App& program) {
  return std::make_unique<SensitivityCommand>(program);
}

}  // namespace spillway::cli
