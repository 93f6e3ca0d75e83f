#include "compiler/check_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/log.h"
#include "compiler/evictor.h"
#include "quantize/recipe.h"
#include "quantize/sensitivity.h"

namespace spillway {
namespace {

// Columns of a mask; past this the tables and masks alone are gigabytes.
constexpr uint32_t kMaxContext = 131072;

Status CheckLookahead(const CompileOptions& options) {
  const auto [ngram, window, gcap] = options.lookahead;
  constexpr uint32_t kMost = 1024;
  if (ngram < 2 || window < 1 || ngram > kMost || window > kMost || gcap > kMost) {
    return InvalidArgumentError(fmt::format(
        "lookahead {},{},{}: expected an n-gram of 2 or more tokens, a window of 1 or more and a "
        "cap of 0 or more, each at most {}",
        ngram, window, gcap, kMost));
  }
  if (options.lookahead.ArLen() >= options.context_len) {
    return InvalidArgumentError(fmt::format(
        "lookahead {},{},{} runs {} tokens a call, and the context length is {}: expected fewer",
        ngram, window, gcap, options.lookahead.ArLen(), options.context_len));
  }
  return OkStatus();
}

Status CheckLengths(const CompileOptions& options) {
  if (options.mode != "hybrid" && options.mode != "kv" && options.mode != "lookahead") {
    return InvalidArgumentError(
        fmt::format("mode '{}': expected 'hybrid', 'kv' or 'lookahead'", options.mode));
  }
  if (options.context_len < 2 || options.context_len > kMaxContext) {
    return InvalidArgumentError(
        fmt::format("context length {}: expected 2 to {}", options.context_len, kMaxContext));
  }
  if (options.mode != "kv" &&
      (options.prefill_ar_len < 2 || options.prefill_ar_len >= options.context_len)) {
    return InvalidArgumentError(fmt::format(
        "prefill AR length {} with context length {}: expected at least 2 and less than the "
        "context length; raise --context-len or lower --prefill-ar-len",
        options.prefill_ar_len, options.context_len));
  }
  if (options.mode == "lookahead") SPILLWAY_RETURN_IF_ERROR(CheckLookahead(options));
  if (options.attention_sink) {
    SPILLWAY_RETURN_IF_ERROR(
        CheckAttentionSink(*options.attention_sink, options.context_len,
                           options.mode == "lookahead" ? options.lookahead.ArLen() : 1));
  }
  if (options.kv_bits != 0 && options.kv_bits != 8 && options.kv_bits != 16) {
    return InvalidArgumentError(fmt::format(
        "KV cache of {} bits: expected 8 or 16, or 0 for what the recipe says", options.kv_bits));
  }
  if (options.calib_tokens > 0 && options.calib_tokens < 16) {
    return InvalidArgumentError(fmt::format(
        "{} calibration tokens: expected at least 16, or 0 for the default", options.calib_tokens));
  }
  return OkStatus();
}

// Without a context binary there is nothing for some of the other options to do.
Status CheckOutcome(const CompileOptions& options) {
  const bool records = !options.htp.saver_dir.empty();
  if (!records && !options.htp.online_prepare) return OkStatus();
  const std::string_view what = records ? "saver_dir" : "online_prepare";
  if (options.htp_build == HtpBuild::kOff) {
    return InvalidArgumentError(fmt::format(
        "HTP option {} needs the vendor's libraries, but they are switched off (--htp off)", what));
  }
  if (options.with_simulator) {
    return InvalidArgumentError(fmt::format(
        "HTP option {} makes no context binary, so --with-simulator cannot make one either; leave "
        "one of them away",
        what));
  }
  if (records && options.in_process) {
    return InvalidArgumentError(
        "HTP option saver_dir needs a process for each record; leave --in-process away");
  }
  return OkStatus();
}

// The options' targets go before the recipe's own; one alone takes the place of all.
Result<Recipe> AddMixedTarget(const CompileOptions& options, Recipe recipe) {
  if (options.target_bits == 0 && options.target_sqnr_db == 0 && options.max_raised_bytes == 0) {
    return recipe;
  }
  if (recipe.is_float()) {
    return InvalidArgumentError(fmt::format(
        "recipe {} has no integer weights whose bits could be raised: leave --target-bits, "
        "--target-sqnr and --max-raised-mb away",
        recipe.name));
  }
  MixedTarget target = recipe.mixed.value_or(MixedTarget{});
  target.max_bits = options.target_bits;
  target.target_sqnr_db = options.target_sqnr_db;
  target.max_raised_bytes = options.max_raised_bytes;
  recipe = WithMixedTarget(std::move(recipe), target);
  SPILLWAY_RETURN_IF_ERROR(recipe.Validate().WithContext("recipe " + recipe.name));
  return recipe;
}

Result<Recipe> ChooseRecipe(const CompileOptions& options) {
  SPILLWAY_ASSIGN_OR_RETURN(Recipe recipe, FindRecipe(options.recipe));
  SPILLWAY_ASSIGN_OR_RETURN(recipe, AddMixedTarget(options, std::move(recipe)));
  if (recipe.is_float()) {
    if (options.kv_bits == 8) {
      return InvalidArgumentError(fmt::format(
          "KV cache of 8 bits with recipe {}, which has no integers: leave --kv-bits away",
          recipe.name));
    }
    return recipe;
  }
  if (options.htp.precision == Precision::kFp16) {
    return InvalidArgumentError(
        fmt::format("HTP option precision is fp16, but recipe {} makes integers: use --recipe fp16",
                    recipe.name));
  }
  if (options.kv_bits > 0) recipe.kv = options.kv_bits == 8 ? DType::kU8 : DType::kU16;
  return recipe;
}

// What needs a newer chip shows here and not after minutes.
Status CheckRecipeAgainstSoc(const Recipe& recipe, const qnn::htp::Soc& soc) {
  if (recipe.is_float() && !soc.fp16) {
    return UnsupportedError(fmt::format(
        "recipe {} computes in 16-bit floats, which {} does not have; use a quantised recipe",
        recipe.name, soc.name));
  }
  const auto in_blocks = [](const RecipeRule<WeightScheme>& rule) { return rule.scheme.block > 0; };
  const bool blocks =
      recipe.weights.block > 0 || recipe.head.block > 0 ||
      std::any_of(recipe.weight_rules.begin(), recipe.weight_rules.end(), in_blocks);
  if (blocks && !soc.lpbq()) {
    return UnsupportedError(
        fmt::format("recipe {} has weights in blocks, which need HTP architecture v69 or later, "
                    "and {} has v{}; "
                    "use a recipe with one scale a channel, like 16a4w",
                    recipe.name, soc.name, soc.arch));
  }
  return OkStatus();
}

}  // namespace

Result<CheckedOptions> CheckCompileOptions(const CompileOptions& options) {
  if (options.model_path.empty()) return InvalidArgumentError("no model file was given");
  SPILLWAY_RETURN_IF_ERROR(CheckLengths(options));
  CheckedOptions checked;
  SPILLWAY_ASSIGN_OR_RETURN(checked.recipe, ChooseRecipe(options));
  SPILLWAY_ASSIGN_OR_RETURN(checked.soc, qnn::htp::CheckOptions(options.htp));
  SPILLWAY_RETURN_IF_ERROR(CheckRecipeAgainstSoc(checked.recipe, *checked.soc));
  SPILLWAY_RETURN_IF_ERROR(qnn::htp::CheckOpPackageFiles(options.htp));
  SPILLWAY_RETURN_IF_ERROR(CheckOutcome(options));
  for (const std::string& warning : qnn::htp::OptionWarnings(options.htp, *checked.soc)) {
    Log(LogLevel::kWarning, "HTP option {}", warning);
  }
  const std::optional<IoProfile> io = ParseIoProfile(options.io_profile);
  if (!io) {
    return InvalidArgumentError(
        fmt::format("I/O profile '{}': expected 'spillway' or 'executorch'", options.io_profile));
  }
  checked.io = *io;
  return checked;
}

uint32_t CalibrationTokens(const CompileOptions& options, const Recipe& recipe) {
  if (options.calib_tokens > 0) return options.calib_tokens;
  return recipe.NeedsActivations() ? 4096 : 1024;
}

Result<std::vector<uint32_t>> ParsePrefixTokens(const CompileOptions& options,
                                                const ModelConfig& config) {
  std::vector<uint32_t> tokens;
  const std::string& text = options.prefix_tokens;
  if (text == "auto" || text == "none") return tokens;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    uint32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id >= config.vocab_size || (next != end && *next != ',')) {
      return InvalidArgumentError(fmt::format(
          "prefix tokens '{}': expected 'auto', 'none' or token ids below {} with commas between",
          text, config.vocab_size));
    }
    tokens.push_back(id);
    if (next == end) break;
    at = next + 1;
  }
  if (tokens.size() > options.context_len / 2) {
    return InvalidArgumentError(
        fmt::format("{} prefix tokens for a context of {}: expected at most half of it",
                    tokens.size(), options.context_len));
  }
  if (options.io_profile == "executorch") {
    return InvalidArgumentError("the I/O profile executorch has no place for prefix tokens");
  }
  return tokens;
}

Status CheckTensorSizes(const Graph& graph) {
  for (const Tensor& tensor : graph.tensors()) {
    // Weights go out as one value a byte.
    const uint64_t bytes = NumElements(tensor.shape) * DTypeSize(tensor.dtype);
    if (bytes <= std::numeric_limits<uint32_t>::max()) continue;
    return UnsupportedError(
        fmt::format("graph {}: tensor {} {} {} has {:.2f} GB, and the vendor's interface takes at "
                    "most 4.29 GB; "
                    "{}",
                    graph.name(), tensor.name, DTypeName(tensor.dtype), ShapeToString(tensor.shape),
                    static_cast<double>(bytes) / 1e9,
                    tensor.role == TensorRole::kConstant
                        ? "a weight of that size cannot be compiled"
                        : "use a shorter --context-len or a smaller --prefill-ar-len"));
  }
  return OkStatus();
}

Status CheckAgainstModel(const CompileOptions& options, const Model& model) {
  const ModelConfig& config = model.config();
  if (options.context_len > config.max_context && config.max_context > 0) {
    Log(LogLevel::kWarning,
        "context length {} is more than the {} that {} was trained for; answers past that get "
        "worse",
        options.context_len, config.max_context, config.name);
  }
  return OkStatus();
}

}  // namespace spillway
