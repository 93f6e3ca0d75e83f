#include "compiler/prepare_model.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "quantize/calibration_data.h"
#include "quantize/smooth.h"
#include "quantize/transform.h"

namespace spillway {
namespace {

// Longer windows cost more time and memory and show nothing new: rotation by the
// position keeps magnitudes. So the encodings do not depend on the context.
constexpr uint32_t kMaxWindow = 128;

class Preparation {
 public:
  Preparation(std::shared_ptr<const Model> model, const TokenizerData& data,
              const CompileOptions& options, const CheckedOptions& checked, ThreadPool* pool,
              Progress* progress)
      : model_(std::move(model)),
        data_(data),
        options_(options),
        checked_(checked),
        recipe_(checked.recipe),
        pool_(pool),
        progress_(progress) {}

  Result<PreparedModel> Run() {
    ReportProgress(progress_, "read the calibration data", -1.0);
    const uint32_t window = std::min(options_.context_len, kMaxWindow);
    SPILLWAY_ASSIGN_OR_RETURN(calibration_,
                              ReadCalibrationWindows(data_, options_.calib_paths, window,
                                                     CalibrationTokens(options_, recipe_)));
    PreparedModel prepared;
    prepared.decoder = std::make_unique<Decoder>(model_);
    SPILLWAY_RETURN_IF_ERROR(ChoosePrefix(*prepared.decoder, prepared.prefix));
    if (!recipe_.transforms.empty()) SPILLWAY_RETURN_IF_ERROR(Transform(prepared));
    if (recipe_.is_float()) return prepared;
    if (recipe_.NeedsActivations()) {
      const auto schemes = [this](const std::string& weight) {
        constexpr std::string_view kEnding = ".weight";
        return recipe_.WeightOf(
            weight.ends_with(kEnding) ? weight.substr(0, weight.size() - kEnding.size()) : weight);
      };
      SPILLWAY_ASSIGN_OR_RETURN(prepared.weights,
                                QuantizeWeightsInOrder(*prepared.decoder, calibration_.windows,
                                                       prepared.prefix, schemes, pool_, progress_));
    }
    SPILLWAY_ASSIGN_OR_RETURN(prepared.ranges,
                              Calibrate(*prepared.decoder, calibration_.windows, prepared.prefix,
                                        recipe_, pool_, progress_));
    return prepared;
  }

 private:
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
  Status Transform(PreparedModel& prepared) {
    ReportProgress(progress_, "transform the weights", -1.0);
    const TransformOptions transform = TransformsOf(recipe_);
    SmoothFactors factors;
    if (recipe_.HasTransform("smoothquant")) {
      SmoothOptions smooth;
      smooth.norms = !transform.rotate_residual;
      SPILLWAY_ASSIGN_OR_RETURN(
          factors, ComputeSmoothFactors(*prepared.decoder, calibration_.windows, prepared.prefix,
                                        smooth, pool_));
    }
    SPILLWAY_ASSIGN_OR_RETURN(const auto weights,
                              MakeTransform(*model_, transform, std::move(factors)));
    prepared.decoder = std::make_unique<Decoder>(model_, weights);
    if (prepared.prefix.tokens.empty()) return OkStatus();
    SPILLWAY_ASSIGN_OR_RETURN(
        prepared.prefix,
        ComputePrefix(*prepared.decoder, std::move(prepared.prefix.tokens), pool_));
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

}  // namespace

Result<PreparedModel> PrepareModel(std::shared_ptr<const Model> model, const TokenizerData& data,
                                   const CompileOptions& options, const CheckedOptions& checked,
                                   ThreadPool* pool, Progress* progress) {
  return Preparation(std::move(model), data, options, checked, pool, progress).Run();
}

}  // namespace spillway
