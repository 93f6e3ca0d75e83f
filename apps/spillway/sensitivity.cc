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
#include "compiler/prepare_model.h"
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
    "there is none, to standard output. 'spillway compile' has the same targets and searches\n"
    "itself; a recipe like 'mixed' has its own.\n\n"
    "Examples:\n"
    "  spillway sensitivity model.gguf --recipe 16a4w-block\n"
    "  spillway sensitivity model.gguf --recipe 8a8w --activations --top 30\n"
    "  spillway sensitivity model.gguf --target-bits 5 -o mixed.json\n"
    "  spillway compile model.gguf -o pkg/ --recipe mixed.json\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

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
  Result<Recipe> ChooseRecipe() const;
  Result<Found> Rank(Progress* progress);
  bool has_target() const { return target_sqnr_db_ > 0 || target_bits_ > 0 || max_raised_mb_ > 0; }
  std::string ToText(const Found& found) const;
  Json ToJson(const Found& found) const;

  std::string recipe_ = "16a4w-block", output_;
  CompileOptions calibration_;  // its model, calibration data, prefix and threads
  uint32_t top_ = 20;
  bool activations_ = false;
  double target_sqnr_db_ = 0, target_bits_ = 0, max_raised_mb_ = 0;
  SensitivityOptions options_;
};

SensitivityCommand::SensitivityCommand(CLI::App& program) {
  CLI::App& app = *program.add_subcommand(
      "sensitivity", "Rank operations by what quantising them costs; find a mixed recipe");
  app.fallthrough();
  app.add_option("MODEL", calibration_.model_path, "The model, a GGUF file")->required();
  app.add_option("--recipe", recipe_, "How operations are quantised: built in, or a JSON file")
      ->capture_default_str();
  CLI::Option* activations =
      app.add_flag("--activations", activations_, "Rank activations instead of weights");
  app.add_option("--target-sqnr", target_sqnr_db_,
                 "Find a recipe whose weights leave the logits this signal to noise, in dB")
      ->check(CLI::PositiveNumber)
      ->excludes(activations);
  app.add_option("--target-bits", target_bits_,
                 "Find the best recipe with at most so many bits a weight")
      ->check(CLI::PositiveNumber)
      ->excludes(activations);
  app.add_option("--max-raised-mb", max_raised_mb_,
                 "Find the best recipe with at most so many megabytes of raised weights")
      ->check(CLI::PositiveNumber)
      ->excludes(activations);
  app.add_option("-o,--output", output_, "Write the recipe to this file");
  app.add_option("--calib,--calib-text", calibration_.calib_paths,
                 "Files to measure on, text or conversations; default: a built-in text")
      ->take_all();
  app.add_option("--calib-tokens", calibration_.calib_tokens,
                 "Tokens of it for ranges and weights; default: as 'compile' takes")
      ->check(CLI::Range(16, 1 << 24));
  app.add_option("--prefix-tokens", calibration_.prefix_tokens,
                 "Tokens that are kept in the cache: auto, none, or ids, as for 'compile'")
      ->capture_default_str();
  app.add_option("--tokens", options_.tokens, "Tokens that logits are measured on")
      ->check(CLI::Range(2, 1 << 16))
      ->capture_default_str();
  app.add_option("--top", top_, "Operations to print; 0: all")->capture_default_str();
  app.add_option("--threads", calibration_.threads, "0: all processors")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.footer(kExamples);
}

Status SensitivityCommand::CheckArguments() const {
  const std::string& model = calibration_.model_path;
  if (!FileExists(model)) return NotFoundError(model + ": there is no such file");
  for (const std::string& path : calibration_.calib_paths) {
    if (!FileExists(path)) return NotFoundError("--calib " + path + ": no such file");
  }
  return OkStatus();
}

Result<Recipe> SensitivityCommand::ChooseRecipe() const {
  SPILLWAY_ASSIGN_OR_RETURN(Recipe recipe, FindRecipe(recipe_));
  if (recipe.is_float()) {
    return InvalidArgumentError(
        fmt::format("recipe {} has no integers to rank; give a quantised one", recipe.name));
  }
  if (activations_) recipe.mixed.reset();
  if (!has_target()) return recipe;
  MixedTarget target = recipe.mixed.value_or(MixedTarget{});
  target.max_bits = target_bits_;
  target.target_sqnr_db = target_sqnr_db_;
  target.max_raised_bytes = static_cast<uint64_t>(max_raised_mb_ * 1e6);
  return WithMixedTarget(std::move(recipe), target);
}

Result<Found> SensitivityCommand::Rank(Progress* progress) {
  CheckedOptions checked;
  SPILLWAY_ASSIGN_OR_RETURN(checked.recipe, ChooseRecipe());
  const Recipe& recipe = checked.recipe;
  if (!output_.empty() && !recipe.mixed) {
    return InvalidArgumentError(
        "--output is for the recipe that --target-sqnr, --target-bits or --max-raised-mb find");
  }
  ReportProgress(progress, "open " + calibration_.model_path, -1);
  SPILLWAY_ASSIGN_OR_RETURN(auto model, Model::Open(calibration_.model_path));
  SPILLWAY_ASSIGN_OR_RETURN(const TokenizerData tokens, TokenizerData::FromGguf(*model->file()));
  ThreadPool pool(calibration_.threads);
  SPILLWAY_ASSIGN_OR_RETURN(
      const CalibrationSetup setup,
      SetUpCalibration(std::move(model), tokens, calibration_, checked, &pool, progress));
  Decoder& decoder = *setup.decoder;
  Found found;
  if (activations_) {
    SPILLWAY_ASSIGN_OR_RETURN(
        const TensorRanges ranges,
        Calibrate(decoder, setup.windows, setup.prefix, recipe, &pool, progress));
    SPILLWAY_ASSIGN_OR_RETURN(found.damage,
                              RankActivations(decoder, setup.windows, setup.prefix, recipe, ranges,
                                              options_, &pool, progress));
  } else if (recipe.mixed) {
    SPILLWAY_ASSIGN_OR_RETURN(found.mixed, FindMixedRecipe(decoder, setup.windows, setup.prefix,
                                                           recipe, options_, &pool, progress));
    found.damage = found.mixed->damage;
  } else {
    SPILLWAY_ASSIGN_OR_RETURN(found.damage, RankWeights(decoder, setup.windows, setup.prefix,
                                                        recipe, options_, &pool, progress));
  }
  return found;
}

size_t Shown(size_t count, uint32_t top) { return top == 0 ? count : std::min<size_t>(count, top); }

std::string SensitivityCommand::ToText(const Found& found) const {
  TextTable table({"operation", "SQNR dB", "KL", "weights"});
  for (size_t i = 0; i < Shown(found.damage.size(), top_); ++i) {
    const OperationDamage& operation = found.damage[i];
    table.AddRow(
        {operation.operation,
         std::isfinite(operation.sqnr_db) ? fmt::format("{:.2f}", operation.sqnr_db) : "no noise",
         fmt::format("{:.2e}", operation.kl),
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
                              {"kl_divergence", operation.kl},
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
