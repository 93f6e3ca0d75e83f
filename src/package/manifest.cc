// manifest.json: what docs/package-format.md lists, in that order.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "package/json_fields.h"
#include "package/package.h"

namespace spillway {
namespace {

constexpr std::string_view kFormat = "spillway-package";
constexpr size_t kMaxManifestBytes = size_t{4} << 20;
// Deeper JSON is not ours; printing it would recurse as deep.
constexpr int kMaxNesting = 32;

constexpr uint64_t kMaxLayers = 4096;
constexpr uint64_t kMaxDim = 1 << 24;
constexpr uint64_t kMaxContext = 1 << 24;
constexpr uint64_t kMaxBytes = uint64_t{1} << 48;
constexpr RealRange kAnyReal = {-std::numeric_limits<float>::max(),
                                std::numeric_limits<float>::max()};
constexpr RealRange kPositive = {std::numeric_limits<float>::min(),
                                 std::numeric_limits<float>::max()};
constexpr RealRange kNotNegative = {0.0f, std::numeric_limits<float>::max()};

constexpr std::array<Named<Activation>, 2> kActivations = {{
    {"silu", Activation::kSilu},
    {"gelu_tanh", Activation::kGeluTanh},
}};
constexpr std::array<Named<LayerAttention>, 2> kLayerAttentions = {{
    {"global", LayerAttention::kGlobal},
    {"sliding_window", LayerAttention::kSlidingWindow},
}};
constexpr std::array<Named<DType>, 4> kKvTypes = {{
    {"u8", DType::kU8},
    {"u16", DType::kU16},
    {"f16", DType::kF16},
    {"f32", DType::kF32},
}};

template <typename Fields>
void DescribeRope(Fields& fields, RopeConfig& rope) {
  fields.Real("theta", rope.theta, kPositive);
  fields.Number("dim", rope.dim, {0, kMaxDim});
  fields.Reals("factors", rope.factors, kPositive, kMaxDim);
  fields.Real("attention_factor", rope.attention_factor, kPositive);
}

template <typename Fields>
void DescribeConfig(Fields& fields, ModelConfig& config) {
  fields.Text("architecture", config.architecture, {1, 64});
  fields.Text("name", config.name, {0, 4096});
  fields.Number("num_layers", config.num_layers, {1, kMaxLayers});
  fields.Number("hidden_dim", config.hidden_dim, {1, kMaxDim});
  fields.Number("ffn_dim", config.ffn_dim, {1, kMaxDim});
  fields.Number("num_heads", config.num_heads, {1, kMaxDim});
  fields.Number("num_kv_heads", config.num_kv_heads, {1, kMaxDim});
  fields.Number("head_dim", config.head_dim, {1, kMaxDim});
  fields.Number("vocab_size", config.vocab_size, {1, kMaxDim});
  fields.Number("max_context", config.max_context, {0, std::numeric_limits<uint32_t>::max()});
  fields.Real("rms_norm_eps", config.rms_norm_eps, {0.0f, 1.0f});
  fields.Object("rope", [&](Fields& rope) { DescribeRope(rope, config.rope); });
  fields.Bool("attention_bias", config.attention_bias);
  fields.Bool("qk_norm", config.qk_norm);
  fields.Bool("tied_embeddings", config.tied_embeddings);
  fields.Choice("activation", config.activation, kActivations);
  fields.Number("sliding_window", config.sliding_window, {0, std::numeric_limits<uint32_t>::max()});
  fields.Choices("layer_attention", config.layer_attention, kLayerAttentions, kMaxLayers);
  fields.Object("local_rope", [&](Fields& rope) { DescribeRope(rope, config.local_rope); });
  fields.Bool("post_norms", config.post_norms);
  fields.Real("attention_logit_softcap", config.attention_logit_softcap, kNotNegative);
  fields.Real("final_logit_softcap", config.final_logit_softcap, kNotNegative);
  fields.Real("embedding_scale", config.embedding_scale, kAnyReal);
}

template <typename Fields>
void DescribeGraphs(Fields& fields, PackageManifest& manifest) {
  fields.Text("io_profile", manifest.io_profile, {1, 64});
  fields.Text("mode", manifest.mode, {1, 64});
  fields.Number("context_len", manifest.context_len, {1, kMaxContext});
  fields.Number("prefill_ar_len", manifest.prefill_ar_len, {0, kMaxContext});
  fields.Number("decode_ar_len", manifest.decode_ar_len, {1, kMaxContext});
  fields.OptionalNumber("lookahead_ngram", manifest.lookahead_ngram, {0, kMaxContext});
  fields.OptionalNumber("lookahead_window", manifest.lookahead_window, {0, kMaxContext});
  fields.OptionalNumber("lookahead_gcap", manifest.lookahead_gcap, {0, kMaxContext});
  fields.Text("recipe", manifest.recipe, {1, 256});
  fields.JsonText("recipe_json", manifest.recipe_json);
  fields.Choice("kv_dtype", manifest.kv_dtype, kKvTypes);
  fields.Text("embedding_tensor", manifest.embedding_tensor, {0, 1024});
  fields.Numbers("prefix_tokens", manifest.prefix_tokens, {0, std::numeric_limits<uint32_t>::max()},
                 kMaxContext);
}

template <typename Fields>
void DescribeShard(Fields& fields, ShardInfo& shard) {
  fields.Number("first_layer", shard.first_layer, {0, kMaxLayers});
  fields.Number("num_layers", shard.num_layers, {0, kMaxLayers});
  fields.FileName("context_file", shard.context_file, true);
  fields.FileName("plain_file", shard.plain_file, true);
  fields.Number("spill_fill_bytes", shard.spill_fill_bytes, {0, kMaxBytes});
  fields.OptionalNumber("max_spill_fill_bytes", shard.max_spill_fill_bytes, {0, kMaxBytes});
  fields.Number("context_bytes", shard.context_bytes, {0, kMaxBytes});
  fields.Number("weight_bytes", shard.weight_bytes, {0, kMaxBytes});
}

template <typename Fields>
void DescribeEvictor(Fields& fields, EvictorInfo& evictor) {
  fields.Number("sink", evictor.sink, {0, kMaxContext});
  fields.Number("batch", evictor.batch, {1, kMaxContext});
  fields.FileName("context_file", evictor.context_file, true);
  fields.Number("context_bytes", evictor.context_bytes, {0, kMaxBytes});
}

template <typename Fields>
void DescribeFile(Fields& fields, PackageFile& file) {
  fields.FileName("name", file.name, false);
  fields.Number("bytes", file.bytes, {0, kMaxBytes});
  fields.Hash("hash", file.hash, false);
}

// Everything after the format's name and version.
template <typename Fields>
void DescribeManifest(Fields& fields, PackageManifest& manifest) {
  fields.Text("producer", manifest.producer, {0, 256});
  fields.Object("model", [&](Fields& model) {
    model.FileName("file", manifest.model_file, true);
    model.Hash("hash", manifest.model_hash, true);
    model.Object("config", [&](Fields& config) { DescribeConfig(config, manifest.config); });
  });
  fields.Object("graphs", [&](Fields& graphs) { DescribeGraphs(graphs, manifest); });
  fields.Object("target", [&](Fields& target) {
    target.Text("soc", manifest.soc, {0, 64});
    target.JsonText("htp_options", manifest.htp_options_json);
    target.Bool("slc_allocator", manifest.slc_allocator);
    target.Bool("weight_sharing", manifest.weight_sharing);
    target.JsonText("vendor", manifest.vendor_json);
  });
  fields.List("shards", manifest.shards, kMaxLayers,
              [](Fields& fields_of, ShardInfo& shard) { DescribeShard(fields_of, shard); });
  fields.Optional("evictor", manifest.evictor, [](Fields& fields_of, EvictorInfo& evictor) {
    DescribeEvictor(fields_of, evictor);
  });
  fields.List("files", manifest.files, 2 * kMaxLayers + 64,
              [](Fields& fields_of, PackageFile& file) { DescribeFile(fields_of, file); });
}

void CheckRope(FieldReader& reader, std::string_view key, const RopeConfig& rope,
               uint32_t head_dim) {
  if (rope.dim % 2 != 0 || rope.dim > head_dim) {
    reader.Fail(key, fmt::format("dim {}", rope.dim),
                fmt::format("an even number up to head_dim {}", head_dim));
  }
  if (!rope.factors.empty() && rope.factors.size() != rope.dim / 2) {
    reader.Fail(key, fmt::format("{} factors", rope.factors.size()),
                fmt::format("none or {}", rope.dim / 2));
  }
}

// Whether the fields of the model go with each other.
void CheckConfig(FieldReader& reader, const ModelConfig& config) {
  if (!reader.ok()) return;
  if (config.num_heads % config.num_kv_heads != 0) {
    reader.Fail("model.config.num_heads", std::to_string(config.num_heads),
                fmt::format("a multiple of num_kv_heads {}", config.num_kv_heads));
  }
  CheckRope(reader, "model.config.rope", config.rope, config.head_dim);
  CheckRope(reader, "model.config.local_rope", config.local_rope, config.head_dim);
  if (!config.layer_attention.empty() && config.layer_attention.size() != config.num_layers) {
    reader.Fail("model.config.layer_attention", std::to_string(config.layer_attention.size()),
                fmt::format("none or {}, one a layer", config.num_layers));
  }
}

void CheckGraphs(FieldReader& reader, const PackageManifest& manifest) {
  if (!reader.ok()) return;
  const bool lookahead = manifest.mode == "lookahead";
  const bool hybrid = manifest.mode == "hybrid" || lookahead;
  if (!hybrid && manifest.mode != "kv") {
    reader.Fail("graphs.mode", manifest.mode, "kv, hybrid or lookahead");
  }
  if (hybrid != (manifest.prefill_ar_len != 0) || manifest.prefill_ar_len >= manifest.context_len) {
    reader.Fail("graphs.prefill_ar_len", std::to_string(manifest.prefill_ar_len),
                hybrid ? fmt::format("1 to {} (context_len {})", manifest.context_len - 1,
                                     manifest.context_len)
                       : "0 in mode kv");
  }
  if (lookahead && (manifest.lookahead_ngram < 2 || manifest.lookahead_window == 0)) {
    reader.Fail("graphs.lookahead_ngram", std::to_string(manifest.lookahead_ngram),
                "at least 2, with a window of at least 1, in mode lookahead");
  }
  if (manifest.decode_ar_len >= manifest.context_len) {
    reader.Fail("graphs.decode_ar_len", std::to_string(manifest.decode_ar_len),
                fmt::format("less than context_len {}", manifest.context_len));
  }
}

void CheckEvictor(FieldReader& reader, const PackageManifest& manifest) {
  if (!reader.ok() || !manifest.evictor.has_value()) return;
  const EvictorInfo& evictor = *manifest.evictor;
  if (uint64_t{evictor.sink} + evictor.batch + 1 >= manifest.context_len) {
    reader.Fail("evictor.batch", std::to_string(evictor.batch),
                fmt::format("with sink {} less than context_len {} minus 1", evictor.sink,
                            manifest.context_len));
  }
  const size_t prefix = manifest.prefix_tokens.size();
  if (prefix > 0 && evictor.sink != prefix) {
    reader.Fail("evictor.sink", std::to_string(evictor.sink),
                fmt::format("the prefix's {} tokens", prefix));
  }
}

// Older manifests do not say it.
void FillMaxSpillFill(PackageManifest& manifest) {
  uint64_t largest = 0;
  for (const ShardInfo& shard : manifest.shards) {
    if (shard.max_spill_fill_bytes != 0) return;
    largest = std::max(largest, shard.spill_fill_bytes);
  }
  for (ShardInfo& shard : manifest.shards) shard.max_spill_fill_bytes = largest;
}

void CheckShards(FieldReader& reader, const PackageManifest& manifest) {
  if (!reader.ok()) return;
  uint32_t next_layer = 0;
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    const ShardInfo& shard = manifest.shards[i];
    if (shard.first_layer != next_layer) {
      reader.Fail(fmt::format("shards[{}].first_layer", i), std::to_string(shard.first_layer),
                  std::to_string(next_layer));
    }
    const uint64_t buffer = manifest.shards[0].max_spill_fill_bytes;
    if (shard.max_spill_fill_bytes != buffer || shard.spill_fill_bytes > buffer) {
      reader.Fail(fmt::format("shards[{}].max_spill_fill_bytes", i),
                  std::to_string(shard.max_spill_fill_bytes),
                  fmt::format("{} as in shard 0, and at least spill_fill_bytes {}", buffer,
                              shard.spill_fill_bytes));
    }
    next_layer += shard.num_layers;
  }
  if (next_layer != manifest.config.num_layers) {
    reader.Fail("shards", fmt::format("{} layers", next_layer),
                fmt::format("{}", manifest.config.num_layers));
  }
}

bool IsTooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxNesting) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

// The format's name and version come first: with another version, no other
// field can be trusted.
Status ReadHeader(const nlohmann::json& object, PackageManifest& manifest) {
  const auto format = object.find("format");
  if (format == object.end() || *format != kFormat) {
    return CorruptDataError(fmt::format(
        "field format is not \"{}\"; this is not the manifest of a Spillway package", kFormat));
  }
  Status status;
  FieldReader reader(object, "", status);
  reader.Number("version", manifest.version, {1, std::numeric_limits<int>::max()});
  if (status.ok() && manifest.version > kPackageVersion) {
    return UnsupportedError(
        fmt::format("field version: found {}, expected at most {}; use a newer Spillway or compile "
                    "the model again with this one",
                    manifest.version, kPackageVersion));
  }
  return status;
}

Result<PackageManifest> ReadManifest(std::string_view text) {
  if (text.size() > kMaxManifestBytes || IsTooDeep(text)) {
    return CorruptDataError(
        fmt::format("{} bytes of JSON; expected at most {}, nested at most {} "
                    "deep",
                    text.size(), kMaxManifestBytes, kMaxNesting));
  }
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) return CorruptDataError("not a JSON object");
  PackageManifest manifest;
  SPILLWAY_RETURN_IF_ERROR(ReadHeader(object, manifest));
  Status status;
  FieldReader reader(object, "", status);
  DescribeManifest(reader, manifest);
  FillMaxSpillFill(manifest);
  CheckConfig(reader, manifest.config);
  CheckGraphs(reader, manifest);
  CheckShards(reader, manifest);
  CheckEvictor(reader, manifest);
  SPILLWAY_RETURN_IF_ERROR(status);
  return manifest;
}

}  // namespace

std::string PackageManifest::ToJson() const {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  object["format"] = kFormat;
  object["version"] = version;
  PackageManifest copy = *this;
  FieldWriter writer(object);
  DescribeManifest(writer, copy);
  return object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<PackageManifest> PackageManifest::FromJson(std::string_view text, const std::string& path) {
  Result<PackageManifest> manifest = ReadManifest(text);
  if (!manifest.ok()) return manifest.status().WithContext("'" + path + "'");
  return manifest;
}

}  // namespace spillway
