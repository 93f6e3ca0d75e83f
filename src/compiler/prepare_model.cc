#include "compiler/prepare_model.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "model/chat_template.h"
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
    SPILLWAY_RETURN_IF_ERROR(MakeWindows());
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
                                QuantizeWeightsInOrder(*prepared.decoder, windows_, prepared.prefix,
                                                       schemes, pool_, progress_));
    }
    SPILLWAY_ASSIGN_OR_RETURN(
        prepared.ranges,
        Calibrate(*prepared.decoder, windows_, prepared.prefix, recipe_, pool_, progress_));
    return prepared;
  }

 private:
  Status MakeWindows() {
    SPILLWAY_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Create(data_));
    std::shared_ptr<const ChatTemplate> chat_template;
    if (!data_.chat_template.empty()) {
      Result<std::shared_ptr<const ChatTemplate>> parsed = ChatTemplate::Parse(data_.chat_template);
      if (parsed.ok()) {
        chat_template = std::move(parsed).value();
      } else {
        Log(LogLevel::kWarning, "the model's chat template is not used for calibration: {}",
            parsed.status().message());
      }
    }
    ReportProgress(progress_, "read the calibration data", -1.0);
    std::vector<CalibrationSource> sources;
    for (const std::string& path : options_.calib_paths) {
      SPILLWAY_ASSIGN_OR_RETURN(sources.emplace_back(), ReadCalibrationFile(path));
    }
    if (sources.empty()) sources.push_back({"", std::string(DefaultCalibrationText()), {}});
    const uint32_t window = std::min(options_.context_len, kMaxWindow);
    SPILLWAY_ASSIGN_OR_RETURN(
        windows_, MakeCalibrationWindows(*tokenizer, chat_template.get(), sources, window,
                                         CalibrationTokens(options_, recipe_)));
    chat_first_ = chat_template != nullptr;
    return OkStatus();
  }

  Status ChoosePrefix(Decoder& decoder, FloatPrefix& prefix) {
    SPILLWAY_ASSIGN_OR_RETURN(std::vector<uint32_t> tokens,
                              ParsePrefixTokens(options_, model_->config()));
    const bool automatic = options_.prefix_tokens == "auto" && checked_.io == IoProfile::kSpillway;
    if (automatic && (chat_first_ || data_.bos_id)) {
      SPILLWAY_ASSIGN_OR_RETURN(const std::vector<double> dominance,
                                TokenDominance(decoder, windows_[0], pool_));
      // Conversations and plain text take turns; plain text starts without BOS.
      TokenWindows same = {windows_[0]};
      if (chat_first_ && windows_.size() > 2) same.push_back(windows_[2]);
      tokens = MassivePrefix(same, dominance);
      if (!chat_first_ && !tokens.empty()) tokens = {*data_.bos_id};
    }
    if (tokens.empty()) return OkStatus();
    SPILLWAY_ASSIGN_OR_RETURN(prefix, ComputePrefix(decoder, std::move(tokens), pool_));
    return OkStatus();
  }

  bool Asks(std::string_view transform) const {
    return std::find(recipe_.transforms.begin(), recipe_.transforms.end(), transform) !=
           recipe_.transforms.end();
  }

  // Replaces the decoder by one with transformed weights, in which the prefix has other
  // keys and values.
  Status Transform(PreparedModel& prepared) {
    ReportProgress(progress_, "transform the weights", -1.0);
    TransformOptions transform;
    transform.fold_norms = Asks("norm_folding") || Asks("rotate_r1");
    transform.rotate_residual = Asks("rotate_r1");
    transform.rotate_values = Asks("rotate_r2");
    transform.rotate_keys = Asks("rotate_r3");
    SmoothFactors factors;
    if (Asks("smoothquant")) {
      SmoothOptions smooth;
      smooth.norms = !transform.rotate_residual;
      SPILLWAY_ASSIGN_OR_RETURN(factors, ComputeSmoothFactors(*prepared.decoder, windows_,
                                                              prepared.prefix, smooth, pool_));
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
  TokenWindows windows_;
  bool chat_first_ = false;
};

}  // namespace

Result<PreparedModel> PrepareModel(std::shared_ptr<const Model> model, const TokenizerData& data,
                                   const CompileOptions& options, const CheckedOptions& checked,
                                   ThreadPool* pool, Progress* progress) {
  return Preparation(std::move(model), data, options, checked, pool, progress).Run();
}

}  // namespace spillway
