#include "model/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <type_traits>

namespace spillway {
namespace {

using Biases = GgufArchitecture::Biases;

constexpr std::array<GgufArchitecture, 3> kArchitectures = {{
    {"llama", Biases::kOptional, false, true, true},
    {"qwen2", Biases::kRequired, false, false, false},
    {"qwen3", Biases::kNone, true, false, false},
}};

// Keys (after "<architecture>.") that ReadGgufConfig reads, or that change
// nothing for the computation.
constexpr std::array<std::string_view, 21> kKnownKeys = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.value_length", "attention.layer_norm_rms_epsilon", "rope.freq_base",
    "rope.dimension_count", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    // Notes on where the weights came from.
    "rope.scaling.finetuned", "tensor_data_layout",
    "expert_used_count",  // without experts
};

// Keys that are fine with the value that means "not used".
struct NeutralKey {
  std::string_view key;
  double neutral;
};
constexpr std::array<NeutralKey, 16> kNeutralKeys = {{
    {"expert_count", 0},
    {"expert_shared_count", 0},
    {"attention.causal", 1},
    {"attention.sliding_window", 0},
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"use_parallel_residual", 0},
    {"embedding_scale", 1},
    {"residual_scale", 1},
    {"logit_scale", 1},
    {"rope.scaling.attn_factor", 1},
    {"rope.scaling.yarn_attn_factor", 1},
    {"rope.scaling.yarn_ext_factor", 1},
    {"pooling_type", 0},
}};

// A metadata value for a message.
std::string ValueText(const GgufValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>) {
          std::string shown = v.substr(0, 60);
          std::replace_if(
              shown.begin(), shown.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
          return "\"" + shown + "\"";
        } else if constexpr (std::is_arithmetic_v<T>) {
          return fmt::format("{}", v);
        } else {
          return fmt::format("an array of {} values", v.size());
        }
      },
      value);
}

std::optional<double> AsNumber(const GgufValue& value) {
  return std::visit(
      [](const auto& v) -> std::optional<double> {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(v)>>) {
          return static_cast<double>(v);
        } else {
          return std::nullopt;
        }
      },
      value);
}

class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, const GgufArchitecture& architecture)
      : file_(file), prefix_(std::string(architecture.name) + "."), architecture_(architecture) {}

  Result<ModelConfig> Read() {
    SPILLWAY_RETURN_IF_ERROR(CheckKeys());
    SPILLWAY_RETURN_IF_ERROR(ReadShape());
    SPILLWAY_RETURN_IF_ERROR(ReadHeads());
    SPILLWAY_RETURN_IF_ERROR(ReadVocabulary());
    SPILLWAY_RETURN_IF_ERROR(ReadRope());
    config_.qk_norm = architecture_.qk_norm;
    config_.tied_embeddings = file_.FindTensor("output.weight") == nullptr;
    config_.attention_bias = architecture_.attention_bias == Biases::kRequired ||
                             (architecture_.attention_bias == Biases::kOptional &&
                              file_.FindTensor("blk.0.attn_q.bias") != nullptr);
    return std::move(config_);
  }

 private:
  bool Has(std::string_view key) const { return file_.Has(prefix_ + std::string(key)); }

  Status Wrong(std::string_view key, const std::string& found, const std::string& expected) const {
    return CorruptDataError(fmt::format("{}: metadata \"{}{}\" is {}, expected {}", file_.path(),
                                        prefix_, key, found, expected));
  }

  Status CheckKeys() const;
  Status ReadShape();
  Status ReadHeads();
  Status ReadVocabulary();
  Status ReadRope();
  Status ApplyLinear(double factor);
  Status ApplyYarn(double factor);

  // An integer in [low, high]; `fallback` when the key is missing.
  Status ReadUint(std::string_view key, std::optional<uint32_t> fallback, uint32_t low,
                  uint32_t high, uint32_t* value) const {
    if (!Has(key) && fallback.has_value()) {
      *value = *fallback;
      return OkStatus();
    }
    const std::string full = prefix_ + std::string(key);
    const auto found = file_.metadata().find(full);
    if (found != file_.metadata().end() && found->second.index() >= 5) {
      return UnsupportedError(
          fmt::format("{}: metadata \"{}\" is {}; different values for each "
                      "layer are not supported, expected one integer",
                      file_.path(), full, ValueText(found->second)));
    }
    SPILLWAY_ASSIGN_OR_RETURN(const uint64_t number, file_.GetUint(full));
    if (number < low || number > high) {
      return Wrong(key, std::to_string(number), fmt::format("{} to {}", low, high));
    }
    *value = static_cast<uint32_t>(number);
    return OkStatus();
  }

  // A finite number in [low, high]; `fallback` when the key is missing.
  Status ReadFloat(std::string_view key, std::optional<double> fallback, double low, double high,
                   double* value) const {
    if (!Has(key) && fallback.has_value()) {
      *value = *fallback;
      return OkStatus();
    }
    SPILLWAY_ASSIGN_OR_RETURN(*value, file_.GetFloat(prefix_ + std::string(key)));
    if (!(*value >= low && *value <= high)) {
      return Wrong(key, fmt::format("{}", *value), fmt::format("{} to {}", low, high));
    }
    return OkStatus();
  }

  const GgufFile& file_;
  const std::string prefix_;
  const GgufArchitecture& architecture_;
  ModelConfig config_;
};

Status ConfigReader::CheckKeys() const {
  for (const auto& [key, value] : file_.metadata()) {
    if (key.compare(0, prefix_.size(), prefix_) != 0) continue;
    const std::string_view suffix = std::string_view(key).substr(prefix_.size());
    if (std::find(kKnownKeys.begin(), kKnownKeys.end(), suffix) != kKnownKeys.end()) continue;
    const auto* neutral = std::find_if(kNeutralKeys.begin(), kNeutralKeys.end(),
                                       [suffix](const NeutralKey& k) { return k.key == suffix; });
    if (neutral == kNeutralKeys.end()) {
      return UnsupportedError(fmt::format(
          "{}: metadata \"{}\" = {} is not known for architecture {}; ignoring it could "
          "change the model",
          file_.path(), key, ValueText(value), architecture_.name));
    }
    if (AsNumber(value) != neutral->neutral) {
      return UnsupportedError(fmt::format("{}: metadata \"{}\" = {} is not supported, only {}",
                                          file_.path(), key, ValueText(value), neutral->neutral));
    }
  }
  return OkStatus();
}

Status ConfigReader::ReadShape() {
  config_.architecture = architecture_.name;
  if (file_.Has("general.name")) {
    SPILLWAY_ASSIGN_OR_RETURN(config_.name, file_.GetString("general.name"));
  }
  SPILLWAY_RETURN_IF_ERROR(ReadUint("block_count", {}, 1, 1024, &config_.num_layers));
  SPILLWAY_RETURN_IF_ERROR(ReadUint("embedding_length", {}, 1, 1u << 17, &config_.hidden_dim));
  SPILLWAY_RETURN_IF_ERROR(ReadUint("feed_forward_length", {}, 1, 1u << 20, &config_.ffn_dim));
  SPILLWAY_RETURN_IF_ERROR(ReadUint("context_length", {}, 1, 1u << 30, &config_.max_context));
  double epsilon = 0;
  SPILLWAY_RETURN_IF_ERROR(
      ReadFloat("attention.layer_norm_rms_epsilon", {}, 1e-12, 1e-1, &epsilon));
  config_.rms_norm_eps = static_cast<float>(epsilon);
  return OkStatus();
}

Status ConfigReader::ReadHeads() {
  ModelConfig& c = config_;
  SPILLWAY_RETURN_IF_ERROR(ReadUint("attention.head_count", {}, 1, 4096, &c.num_heads));
  SPILLWAY_RETURN_IF_ERROR(
      ReadUint("attention.head_count_kv", c.num_heads, 1, 4096, &c.num_kv_heads));
  if (c.num_heads % c.num_kv_heads != 0) {
    return Wrong("attention.head_count", std::to_string(c.num_heads),
                 fmt::format("a multiple of attention.head_count_kv, {}", c.num_kv_heads));
  }
  const bool given = Has("attention.key_length") || Has("attention.value_length");
  if (!given && c.hidden_dim % c.num_heads != 0) {
    return Wrong("embedding_length", std::to_string(c.hidden_dim),
                 fmt::format("a multiple of attention.head_count, {}, as there is no "
                             "attention.key_length",
                             c.num_heads));
  }
  const uint32_t usual = c.hidden_dim / c.num_heads;
  uint32_t value_length = 0;
  SPILLWAY_RETURN_IF_ERROR(ReadUint("attention.key_length", usual, 2, 4096, &c.head_dim));
  SPILLWAY_RETURN_IF_ERROR(ReadUint("attention.value_length", usual, 2, 4096, &value_length));
  if (c.head_dim != value_length) {
    return UnsupportedError(
        fmt::format("{}: keys have {} elements and values {} (metadata "
                    "\"{}attention.key_length\" and \"value_length\"); only "
                    "equal lengths are supported",
                    file_.path(), c.head_dim, value_length, prefix_));
  }
  if (c.head_dim < 2 || c.head_dim % 2 != 0) {
    return UnsupportedError(
        fmt::format("{}: heads have {} elements (metadata "
                    "\"{}attention.key_length\", or embedding_length / "
                    "attention.head_count); expected an even number",
                    file_.path(), c.head_dim, prefix_));
  }
  return OkStatus();
}

Status ConfigReader::ReadVocabulary() {
  const GgufTensor* embedding = file_.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return CorruptDataError(file_.path() + ": tensor \"token_embd.weight\" is missing");
  }
  constexpr uint32_t kMaxVocabulary = 1u << 24;
  const uint64_t rows = embedding->rows();
  if (rows > kMaxVocabulary) {
    return CorruptDataError(
        fmt::format("{}: tensor \"token_embd.weight\" has {} rows, expected at "
                    "most {}",
                    file_.path(), rows, kMaxVocabulary));
  }
  const auto count = static_cast<uint32_t>(rows);
  SPILLWAY_RETURN_IF_ERROR(ReadUint("vocab_size", count, 1, kMaxVocabulary, &config_.vocab_size));
  if (config_.vocab_size != count) {
    return Wrong("vocab_size", std::to_string(config_.vocab_size),
                 fmt::format("{}, the rows of token_embd.weight", count));
  }
  const auto tokens = file_.metadata().find("tokenizer.ggml.tokens");
  if (tokens == file_.metadata().end()) return OkStatus();
  const auto* texts = std::get_if<GgufStringArray>(&tokens->second);
  if (texts != nullptr && texts->size() != count) {
    return CorruptDataError(
        fmt::format("{}: metadata \"tokenizer.ggml.tokens\" has {} entries but "
                    "token_embd.weight has {} rows",
                    file_.path(), texts->size(), count));
  }
  return OkStatus();
}

Status ConfigReader::ReadRope() {
  RopeConfig& rope = config_.rope;
  double theta = 0;
  SPILLWAY_RETURN_IF_ERROR(ReadFloat("rope.freq_base", 10000.0, 1.0, 1e12, &theta));
  rope.theta = static_cast<float>(theta);
  SPILLWAY_RETURN_IF_ERROR(
      ReadUint("rope.dimension_count", config_.head_dim, 2, config_.head_dim, &rope.dim));
  if (rope.dim % 2 != 0) {
    return Wrong("rope.dimension_count", std::to_string(rope.dim), "an even number");
  }

  // Files from before rope.scaling.type say only the factor, and mean linear.
  double factor = 1;
  SPILLWAY_RETURN_IF_ERROR(ReadFloat("rope.scale_linear", 1.0, 1e-3, 1e6, &factor));
  SPILLWAY_RETURN_IF_ERROR(ReadFloat("rope.scaling.factor", factor, 1e-3, 1e6, &factor));
  std::string type = "linear";
  if (Has("rope.scaling.type")) {
    SPILLWAY_ASSIGN_OR_RETURN(type, file_.GetString(prefix_ + "rope.scaling.type"));
  }
  if (type == "none") return OkStatus();
  if (type == "linear") return ApplyLinear(factor);
  if (type == "yarn") return ApplyYarn(factor);
  return UnsupportedError(
      fmt::format("{}: metadata \"{}rope.scaling.type\" = {} is not supported, "
                  "only none, linear and yarn",
                  file_.path(), prefix_, ValueText(type)));
}

// Positions are divided by the factor.
Status ConfigReader::ApplyLinear(double factor) {
  if (factor != 1.0) config_.rope.factors.assign(config_.rope.dim / 2, static_cast<float>(factor));
  return OkStatus();
}

// YaRN (arXiv:2309.00071, section 3.2 and 3.4): dimensions that turn less than
// beta_slow times within the original context are interpolated like linear
// scaling, those that turn more than beta_fast times are left alone, with a
// ramp between; cos and sin are multiplied by 0.1 ln(factor) + 1.
Status ConfigReader::ApplyYarn(double factor) {
  RopeConfig& rope = config_.rope;
  uint32_t original = 0;
  double beta_fast = 0, beta_slow = 0;
  SPILLWAY_RETURN_IF_ERROR(
      ReadUint("rope.scaling.original_context_length", {}, 1, 1u << 30, &original));
  SPILLWAY_RETURN_IF_ERROR(ReadFloat("rope.scaling.yarn_beta_fast", 32.0, 1e-3, 1e6, &beta_fast));
  SPILLWAY_RETURN_IF_ERROR(ReadFloat("rope.scaling.yarn_beta_slow", 1.0, 1e-3, 1e6, &beta_slow));
  if (factor < 1.0 || rope.theta <= 1.0f) {
    return Wrong("rope.scaling.factor",
                 fmt::format("{} with rope.freq_base {}", factor, rope.theta),
                 "a factor of at least 1 and a base above 1 for yarn");
  }
  // The (fractional) pair that turns `turns` times within the original context.
  const auto pair_of = [&](double turns) {
    constexpr double kPi = 3.14159265358979323846;
    return rope.dim * std::log(original / (turns * 2 * kPi)) / (2 * std::log(rope.theta));
  };
  const double low = std::max(0.0, std::floor(pair_of(beta_fast)));
  const double high = std::min(rope.dim - 1.0, std::ceil(pair_of(beta_slow)));
  rope.factors.resize(rope.dim / 2);
  for (uint32_t i = 0; i < rope.dim / 2; ++i) {
    const double ramp = std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
    rope.factors[i] = static_cast<float>(1.0 / (ramp / factor + (1.0 - ramp)));
  }
  rope.attention_factor = static_cast<float>(0.1 * std::log(factor) + 1.0);
  return OkStatus();
}

}  // namespace

const GgufArchitecture* FindGgufArchitecture(std::string_view name) {
  const auto* found = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                   [name](const GgufArchitecture& a) { return a.name == name; });
  return found == kArchitectures.end() ? nullptr : found;
}

Result<ModelConfig> ReadGgufConfig(const GgufFile& file) {
  if (file.Has("split.count")) {
    SPILLWAY_ASSIGN_OR_RETURN(const uint64_t parts, file.GetUint("split.count"));
    if (parts > 1) {
      return UnsupportedError(
          fmt::format("{}: this is one of {} parts of a split model; merge the "
                      "parts into one GGUF file first",
                      file.path(), parts));
    }
  }
  if (file.Has("general.type")) {
    SPILLWAY_ASSIGN_OR_RETURN(const std::string type, file.GetString("general.type"));
    if (type != "model") {
      return UnsupportedError(
          fmt::format("{}: metadata \"general.type\" = {} is not supported, "
                      "only \"model\"",
                      file.path(), ValueText(type)));
    }
  }
  SPILLWAY_ASSIGN_OR_RETURN(const std::string name, file.GetString("general.architecture"));
  const GgufArchitecture* architecture = FindGgufArchitecture(name);
  if (architecture == nullptr) {
    std::string known;
    for (const GgufArchitecture& a : kArchitectures) {
      known.append(known.empty() ? "" : ", ").append(a.name);
    }
    return UnsupportedError(fmt::format("{}: architecture {} is not supported; supported are {}",
                                        file.path(), ValueText(name), known));
  }
  return ConfigReader(file, *architecture).Read();
}

}  // namespace spillway
