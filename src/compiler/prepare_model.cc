#include "compiler/prepare_model.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "quantize/recipe_names.h"
#include "quantize/sensitivity.h"
#include "quantize/smooth.h"
#include "quantize/transform.h"

namespace spillway {
namespace {

// Longer windows cost more time and memory and show nothing new: rotation by the
// position keeps magnitudes. So the encodings do not depend on the context.
constexpr uint32_t kMaxWindow = 128;

class Setup {
 public:
  Setup(std::shared_ptr<const Model> model, const TokenizerData& data,
        const CompileOptions& options, const CheckedOptions& checked, ThreadPool* pool,
        Progress* progress)
      : model_(std::move(model)),
        data_(data),
        options_(options),
        checked_(checked),
        recipe_(checked.recipe),
        pool_(pool),
        progress_(progress) {}

  Result<CalibrationSetup> Run() {
    ReportProgress(progress_, "read the calibration data", -1.0);
    const uint32_t window = std::min(options_.context_len, kMaxWindow);
    SPILLWAY_ASSIGN_OR_RETURN(calibration_,
                              ReadCalibrationWindows(data_, options_.calib_paths, window,
                                                     CalibrationTokens(options_, recipe_)));
    CalibrationSetup setup;
    setup.decoder = std::make_unique<Decoder>(model_);
    SPILLWAY_RETURN_IF_ERROR(WarnOfRules(*setup.decoder));
    SPILLWAY_RETURN_IF_ERROR(ChoosePrefix(*setup.decoder, setup.prefix));
    if (!recipe_.transforms.empty()) SPILLWAY_RETURN_IF_ERROR(Transform(setup));
    setup.windows = std::move(calibration_.windows);
    return setup;
  }

 private:
  Status WarnOfRules(Decoder& decoder) {
    SPILLWAY_ASSIGN_OR_RETURN(const std::vector<std::string> unmatched,
                              RulesWithoutMatch(decoder, recipe_));
    for (const std::string& rule : unmatched) {
      Log(LogLevel::kWarning, "recipe {}: {}", recipe_.name, rule);
    }
    return OkStatus();
  }

  Status ChoosePrefix(Decoder& decoder, FloatPrefix& prefix) {
    SPILLWAY_ASSIGN_OR_RETURN(std::vector<uint32_t> tokens,
                              ParsePrefixTokens(options_, model_->config()));
    const bool automatic = options_.prefix_tokens == "auto" && checked_.io == IoProfile::kSpillway;
    if (automatic) {
      SPILLWAY_ASSIGN_OR_RETURN(tokens, FindPrefixTokens(decoder, calibration_, pool_));
    }
    if (tokens.empty()) return OkStatus();
    SPILLWAY_ASSIGN_OR_RETURN(prefix, ComputePrefix(decoder, std::move(tokens), pool_));
    return OkStatus();
  }

  // Replaces the decoder by one with transformed weights, in which the prefix has other
  // keys and values.
  Status Transform(CalibrationSetup& setup) {
    ReportProgress(progress_, "transform the weights", -1.0);
    const TransformOptions transform = TransformsOf(recipe_);
    SmoothFactors factors;
    if (recipe_.HasTransform("smoothquant")) {
      SmoothOptions smooth;
      smooth.norms = !transform.rotate_residual;
      SPILLWAY_ASSIGN_OR_RETURN(factors, ComputeSmoothFactors(*setup.decoder, calibration_.windows,
                                                              setup.prefix, smooth, pool_));
    }
    SPILLWAY_ASSIGN_OR_RETURN(const auto weights,
                              MakeTransform(*model_, transform, std::move(factors)));
    setup.decoder = std::make_unique<Decoder>(model_, weights);
    if (setup.prefix.tokens.empty()) return OkStatus();
    SPILLWAY_ASSIGN_OR_RETURN(setup.prefix,
                              ComputePrefix(*setup.decoder, std::move(setup.prefix.tokens), pool_));
    return OkStatus();
  }

  const std::shared_ptr<const Model> model_;
  const TokenizerData& data_;
  const CompileOptions& options_;
  const CheckedOptions& checked_;
  const Recipe& recipe_;
  ThreadPool* pool_;
  Progress* progress_;
  CalibrationWindows calibration_;
};

WeightScheme SchemeOf(const Recipe& recipe, const std::string& weight) {
  constexpr std::string_view kEnding = ".weight";
  return recipe.WeightOf(
      weight.ends_with(kEnding) ? weight.substr(0, weight.size() - kEnding.size()) : weight);
}

// Puts the recipe found in the place of the one with a target.
Status FindMixed(CalibrationSetup& setup, PreparedModel& prepared, ThreadPool* pool,
                 Progress* progress) {
  SPILLWAY_ASSIGN_OR_RETURN(MixedResult found,
                            FindMixedRecipe(*setup.decoder, setup.windows, setup.prefix,
                                            prepared.recipe, {}, pool, progress));
  if (!found.target_met) {
    Log(LogLevel::kWarning,
        "recipe {}: the logits have {:.2f} dB with {:.3f} bits a weight, less than the target of "
        "{} dB; give more bits, or a base recipe with better weights",
        prepared.recipe.name, found.sqnr_db, found.bits, prepared.recipe.mixed->target_sqnr_db);
  }
  prepared.recipe = std::move(found.recipe);
  prepared.mixed = MixedReport{found.bits, found.sqnr_db, found.base_sqnr_db, found.target_met,
                               std::move(found.raised)};
  return OkStatus();
}

}  // namespace

Result<CalibrationSetup> SetUpCalibration(std::shared_ptr<const Model> model,
                                          const TokenizerData& data, const CompileOptions& options,
                                          const CheckedOptions& checked, ThreadPool* pool,
                                          Progress* progress) {
  return Setup(std::move(model), data, options, checked, pool, progress).Run();
}

Result<PreparedModel> PrepareModel(std::shared_ptr<const Model> model, const TokenizerData& data,
                                   const CompileOptions& options, const CheckedOptions& checked,
                                   ThreadPool* pool, Progress* progress) {
  SPILLWAY_ASSIGN_OR_RETURN(
      CalibrationSetup setup,
      SetUpCalibration(std::move(model), data, options, checked, pool, progress));
  PreparedModel prepared;
  prepared.recipe = checked.recipe;
  const Recipe& recipe = prepared.recipe;
  if (recipe.mixed) SPILLWAY_RETURN_IF_ERROR(FindMixed(setup, prepared, pool, progress));
  if (recipe.NeedsActivations()) {
    const auto schemes = [&](const std::string& weight) { return SchemeOf(recipe, weight); };
    SPILLWAY_ASSIGN_OR_RETURN(prepared.weights,
                              QuantizeWeightsInOrder(*setup.decoder, setup.windows, setup.prefix,
                                                     schemes, pool, progress));
  }
  if (!recipe.is_float()) {
    SPILLWAY_ASSIGN_OR_RETURN(prepared.ranges, Calibrate(*setup.decoder, setup.windows,
                                                         setup.prefix, recipe, pool, progress));
  }
  prepared.decoder = std::move(setup.decoder);
  prepared.prefix = std::move(setup.prefix);
  return prepared;
}

}  // namespace spillway
