#include "decoder/decoder.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "model/rope.h"

namespace spillway {
namespace {

constexpr std::array<std::pair<IoProfile, std::string_view>, 2> kProfiles = {{
    {IoProfile::kSpillway, "spillway"},
    {IoProfile::kExecutorch, "executorch"},
}};

// A weight of the model's file, read row by row, times a factor.
class ModelRows : public ConstantData {
 public:
  ModelRows(WeightView view, float factor) : view_(std::move(view)), factor_(factor) {}
  std::span<const std::byte> bytes() const override { return {}; }
  void ReadRows(uint64_t row, uint64_t count, float* out) const override {
    view_.ReadRows(row, count, out);
    if (factor_ == 1.0f) return;
    for (uint64_t i = 0; i < count * view_.cols(); ++i) out[i] *= factor_;
  }

 private:
  WeightView view_;
  float factor_;
};

// The constants of a model's weights, transformed when there is a transform.
std::shared_ptr<const ConstantData> MatrixConstant(const std::string& name, const WeightView& view,
                                                   float factor, const WeightTransform* transform) {
  auto rows = std::make_shared<ModelRows>(view, factor);
  if (transform == nullptr) return rows;
  return transform->Matrix(name, std::move(rows), static_cast<uint32_t>(view.rows()),
                           static_cast<uint32_t>(view.cols()));
}

std::shared_ptr<const ConstantData> VectorConstant(const std::string& name, const WeightView& view,
                                                   float factor, const WeightTransform* transform) {
  std::vector<float> values = view.ReadAll();
  for (float& value : values) value *= factor;
  if (transform != nullptr) transform->Vector(name, values);
  return MakeConstantOf(values);
}

}  // namespace

std::string_view IoProfileName(IoProfile profile) {
  for (const auto& [value, name] : kProfiles) {
    if (value == profile) return name;
  }
  return "unknown";
}

std::optional<IoProfile> ParseIoProfile(std::string_view name) {
  for (const auto& [value, text] : kProfiles) {
    if (text == name) return value;
  }
  return std::nullopt;
}

RopeTables MakeRopeTables(const RopeConfig& rope, uint32_t context_len) {
  const uint32_t half = rope.dim / 2;
  RopeTables tables;
  tables.cos.resize(static_cast<size_t>(context_len) * half);
  tables.sin.resize(tables.cos.size());
  const std::vector<double> frequencies = RopeFrequencies(rope);
  for (uint32_t i = 0; i < half; ++i) {
    const double frequency = frequencies[i];
    for (uint32_t position = 0; position < context_len; ++position) {
      const size_t at = static_cast<size_t>(position) * half + i;
      tables.cos[at] = static_cast<float>(std::cos(position * frequency) * rope.attention_factor);
      tables.sin[at] = static_cast<float>(std::sin(position * frequency) * rope.attention_factor);
    }
  }
  return tables;
}

Decoder::Decoder(std::shared_ptr<const Model> model,
                 std::shared_ptr<const WeightTransform> transform)
    : model_(std::move(model)), transform_(std::move(transform)) {}

bool Decoder::TiesEmbedding() const {
  return model_->config().tied_embeddings &&
         (transform_ == nullptr || !transform_->SplitsEmbedding());
}

std::shared_ptr<const ConstantData> Decoder::Cached(
    const std::string& name, const std::function<std::shared_ptr<const ConstantData>()>& make) {
  std::shared_ptr<const ConstantData>& slot = constants_[name];
  if (slot == nullptr) slot = make();
  return slot;
}

std::shared_ptr<const ConstantData> Decoder::EmbeddingData() {
  // A tied model has one matrix, so the head's constant is the embedding too.
  const char* name = TiesEmbedding() ? kHeadWeightName : kEmbeddingWeightName;
  return Cached(name,
                [&] { return MatrixConstant(name, model_->embedding(), 1.0f, transform_.get()); });
}

// Builds one graph; a member function a part of the transformer.
class GraphBuilder {
 public:
  GraphBuilder(Decoder& decoder, const DecoderOptions& options)
      : decoder_(decoder),
        model_(*decoder.model_),
        config_(model_.config()),
        options_(options),
        graph_(options.name),
        last_layer_(options.num_layers == 0 ? config_.num_layers
                                            : options.first_layer + options.num_layers),
        cached_(options.context_len - options.ar_len) {}

  Result<Graph> Build() {
    SPILLWAY_RETURN_IF_ERROR(CheckOptions());
    AddInputs();
    AddPositionTables();
    TensorId x = input_;
    for (uint32_t layer = options_.first_layer; layer < last_layer_; ++layer) {
      x = AddLayer(layer, x);
    }
    AddResult(x);
    for (const TensorId id : k_new_) graph_.MarkOutput(id);
    for (const TensorId id : v_new_) graph_.MarkOutput(id);
    SPILLWAY_RETURN_IF_ERROR(graph_.Validate());
    return std::move(graph_);
  }

 private:
  Status CheckOptions() const {
    if (options_.ar_len == 0 || options_.context_len < options_.ar_len) {
      return InvalidArgumentError(
          fmt::format("context length {} and AR length {}: the context must be at least as long as "
                      "the AR length, and both at least 1",
                      options_.context_len, options_.ar_len));
    }
    if (options_.first_layer >= last_layer_ || last_layer_ > config_.num_layers) {
      return InvalidArgumentError(fmt::format("layers {} to {} of a model with {} layers",
                                              options_.first_layer, last_layer_,
                                              config_.num_layers));
    }
    return OkStatus();
  }

  bool first_shard() const { return options_.first_layer == 0; }
  bool last_shard() const { return last_layer_ == config_.num_layers; }
  uint32_t ar() const { return options_.ar_len; }

  static std::string Name(uint32_t layer, std::string_view part) {
    return fmt::format("layers.{}.{}", layer, part);
  }

  TensorId MatrixOf(const std::string& name, const WeightView& view, float factor = 1.0f) {
    auto data = decoder_.Cached(
        name, [&] { return MatrixConstant(name, view, factor, decoder_.transform_.get()); });
    return graph_.AddConstant(
        name, DType::kF32, {static_cast<uint32_t>(view.rows()), static_cast<uint32_t>(view.cols())},
        std::move(data));
  }

  TensorId VectorOf(const std::string& name, const WeightView& view, float factor = 1.0f) {
    auto data = decoder_.Cached(
        name, [&] { return VectorConstant(name, view, factor, decoder_.transform_.get()); });
    return graph_.AddConstant(name, DType::kF32, {static_cast<uint32_t>(view.cols())},
                              std::move(data));
  }

  TensorId Linear(const std::string& name, TensorId x, const WeightView& weight,
                  const WeightView& bias, float factor = 1.0f) {
    std::vector<TensorId> inputs = {x, MatrixOf(name + ".weight", weight, factor)};
    if (bias) inputs.push_back(VectorOf(name + ".bias", bias, factor));
    return graph_.AddOp(OpType::kLinear, name, std::move(inputs));
  }

  TensorId RmsNorm(const std::string& name, TensorId x, const WeightView& gamma,
                   float factor = 1.0f) {
    return graph_.AddOp(OpType::kRmsNorm, name, {x, VectorOf(name + ".gamma", gamma, factor)},
                        {.epsilon = config_.rms_norm_eps});
  }

  void AddInputs() {
    const bool ids = first_shard() && options_.io == IoProfile::kExecutorch;
    if (ids) {
      input_ = graph_.AddInput(kTokensInputName, DType::kI32, {1, ar()});
    } else {
      // Between shards the hidden state keeps the name it was made under.
      const std::string name =
          first_shard() ? kHiddenInputName : Name(options_.first_layer - 1, "out");
      input_ = graph_.AddInput(name, DType::kF32, {1, 1, ar(), config_.hidden_dim});
    }
    mask_ = graph_.AddInput(kMaskInputName, DType::kF32, {1, 1, ar(), options_.context_len});
    positions_ = graph_.AddInput(kPositionsInputName, DType::kI32, {1, ar()});
    if (cached_ > 0) AddCacheInputs();
    if (ids) AddEmbedding();
    if (config_.GroupSize() > 1) {
      mask_ = graph_.AddOp(OpType::kTile, "attention_mask.tiled", {mask_},
                           {.ints = {1, 1, config_.GroupSize(), 1}});
    }
  }

  void AddCacheInputs() {
    for (uint32_t layer = options_.first_layer; layer < last_layer_; ++layer) {
      k_cache_.push_back(graph_.AddInput(fmt::format("k_cache_{}", layer), DType::kF32,
                                         {1, config_.num_kv_heads, config_.head_dim, cached_}));
      graph_.mutable_tensor(k_cache_.back()).encoding_of = Name(layer, "k.cached");
    }
    for (uint32_t layer = options_.first_layer; layer < last_layer_; ++layer) {
      v_cache_.push_back(graph_.AddInput(fmt::format("v_cache_{}", layer), DType::kF32,
                                         {1, config_.num_kv_heads, cached_, config_.head_dim}));
      graph_.mutable_tensor(v_cache_.back()).encoding_of = Name(layer, "v.cached");
    }
  }

  void AddEmbedding() {
    const TensorId table =
        graph_.AddConstant(kEmbeddingWeightName, DType::kF32,
                           {config_.vocab_size, config_.hidden_dim}, decoder_.EmbeddingData());
    const TensorId rows = graph_.AddOp(OpType::kGather, "embedding", {table, input_});
    input_ = graph_.AddReshape("embedding.rows", rows, {1, 1, ar(), config_.hidden_dim});
  }

  void AddPositionTables() {
    const Shape shape = {options_.context_len, config_.rope.dim / 2};
    const auto table = [&](const std::string& name, bool cosine) {
      auto data = decoder_.Cached(fmt::format("{}.{}", name, options_.context_len), [&] {
        const RopeTables tables = MakeRopeTables(config_.rope, options_.context_len);
        return MakeConstantOf(cosine ? tables.cos : tables.sin);
      });
      const TensorId constant =
          graph_.AddConstant(name + ".table", DType::kF32, shape, std::move(data));
      return graph_.AddOp(OpType::kGather, name, {constant, positions_});
    };
    cos_ = table("rope.cos", true);
    sin_ = table("rope.sin", false);
  }

  // [1, 1, AR, heads * head_dim] -> [1, AR, heads, head_dim], normed when the
  // model norms q and k -> [1, heads, AR, head_dim].
  TensorId SplitHeads(const std::string& name, TensorId x, uint32_t heads, const WeightView& norm,
                      float norm_factor) {
    x = graph_.AddReshape(name + ".split", x, {1, ar(), heads, config_.head_dim});
    if (norm) x = RmsNorm(name + ".norm", x, norm, norm_factor);
    return graph_.AddOp(OpType::kTranspose, name + ".heads", {x}, {.ints = {0, 2, 1, 3}});
  }

  // [1, heads, AR, head_dim], also with the transform's rotation of queries and keys.
  TensorId Rotate(const std::string& name, TensorId x, uint32_t heads) {
    x = graph_.AddOp(OpType::kRotaryEmbedding, name + ".rope", {x, cos_, sin_});
    const auto rotation =
        decoder_.transform_ == nullptr ? nullptr : decoder_.transform_->KeyRotation();
    if (rotation == nullptr) return x;
    if (!key_rotation_) {
      key_rotation_ = graph_.AddConstant(kKeyRotationWeightName, DType::kF32,
                                         {config_.head_dim, config_.head_dim}, rotation);
    }
    x = graph_.AddReshape(name + ".rope.rows", x, {1, 1, heads * ar(), config_.head_dim});
    x = graph_.AddOp(OpType::kLinear, name + ".rotated", {x, *key_rotation_});
    return graph_.AddReshape(name + ".rotated.heads", x, {1, heads, ar(), config_.head_dim});
  }

  // Queries as rows of one product a KV head: [1, kv_heads, group * AR, head_dim].
  TensorId AddQuery(uint32_t layer, TensorId x, const LayerWeights& weights) {
    const float factor = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
    const bool normed = static_cast<bool>(weights.q_norm);
    TensorId q = Linear(Name(layer, "q"), x, weights.wq, weights.bq, normed ? 1.0f : factor);
    q = SplitHeads(Name(layer, "q"), q, config_.num_heads, weights.q_norm, factor);
    q = Rotate(Name(layer, "q"), q, config_.num_heads);
    return graph_.AddReshape(
        Name(layer, "q.grouped"), q,
        {1, config_.num_kv_heads, config_.GroupSize() * ar(), config_.head_dim});
  }

  // The step's keys, transposed: [1, kv_heads, head_dim, AR].
  TensorId AddKey(uint32_t layer, TensorId x, const LayerWeights& weights) {
    TensorId k = Linear(Name(layer, "k"), x, weights.wk, weights.bk);
    k = SplitHeads(Name(layer, "k"), k, config_.num_kv_heads, weights.k_norm, 1.0f);
    k = Rotate(Name(layer, "k"), k, config_.num_kv_heads);
    k = graph_.AddOp(OpType::kConvert, Name(layer, "k.cached"), {k});
    return graph_.AddOp(OpType::kTranspose, fmt::format("k_new_{}", layer), {k},
                        {.ints = {0, 1, 3, 2}});
  }

  // The step's values: [1, kv_heads, AR, head_dim].
  TensorId AddValue(uint32_t layer, TensorId x, const LayerWeights& weights) {
    TensorId v = Linear(Name(layer, "v"), x, weights.wv, weights.bv);
    v = graph_.AddOp(OpType::kConvert, Name(layer, "v.cached"), {v});
    v = graph_.AddReshape(Name(layer, "v.split"), v,
                          {1, ar(), config_.num_kv_heads, config_.head_dim});
    return graph_.AddOp(OpType::kTranspose, fmt::format("v_new_{}", layer), {v},
                        {.ints = {0, 2, 1, 3}});
  }

  TensorId WithCache(uint32_t layer, std::string_view part, const std::vector<TensorId>& caches,
                     TensorId fresh, uint32_t axis) {
    if (cached_ == 0) return fresh;
    return graph_.AddOp(OpType::kConcat, Name(layer, part),
                        {caches[layer - options_.first_layer], fresh}, {.axis = axis});
  }

  TensorId AddAttention(uint32_t layer, TensorId x, const LayerWeights& weights) {
    const TensorId q = AddQuery(layer, x, weights);
    k_new_.push_back(AddKey(layer, x, weights));
    v_new_.push_back(AddValue(layer, x, weights));
    const TensorId k = WithCache(layer, "k.all", k_cache_, k_new_.back(), 3);
    const TensorId v = WithCache(layer, "v.all", v_cache_, v_new_.back(), 2);
    const TensorId scores = graph_.AddOp(OpType::kMatMul, Name(layer, "scores"), {q, k});
    const TensorId masked =
        graph_.AddOp(OpType::kAdd, Name(layer, "scores.masked"), {scores, mask_});
    const TensorId weights_of = graph_.AddOp(OpType::kSoftmax, Name(layer, "attention"), {masked});
    TensorId mixed = graph_.AddOp(OpType::kMatMul, Name(layer, "mixed"), {weights_of, v});
    mixed = graph_.AddReshape(Name(layer, "mixed.heads"), mixed,
                              {1, config_.num_heads, ar(), config_.head_dim});
    mixed = graph_.AddOp(OpType::kTranspose, Name(layer, "mixed.tokens"), {mixed},
                         {.ints = {0, 2, 1, 3}});
    mixed = graph_.AddReshape(Name(layer, "mixed.joined"), mixed,
                              {1, 1, ar(), config_.num_heads * config_.head_dim});
    return Linear(Name(layer, "o"), mixed, weights.wo, {});
  }

  TensorId AddMlp(uint32_t layer, TensorId x, const LayerWeights& weights) {
    const TensorId gate = Linear(Name(layer, "gate"), x, weights.w_gate, {});
    const TensorId up = Linear(Name(layer, "up"), x, weights.w_up, {});
    const OpType activation =
        config_.activation == Activation::kSilu ? OpType::kSilu : OpType::kGeluTanh;
    const TensorId active = graph_.AddOp(activation, Name(layer, "gate.active"), {gate});
    const TensorId gated = graph_.AddOp(OpType::kMul, Name(layer, "gated"), {active, up});
    return Linear(Name(layer, "down"), gated, weights.w_down, {});
  }

  TensorId AddLayer(uint32_t layer, TensorId x) {
    const LayerWeights& weights = model_.layers()[layer];
    TensorId normed = RmsNorm(Name(layer, "attn_norm"), x, weights.attn_norm);
    const TensorId attention = AddAttention(layer, normed, weights);
    x = graph_.AddOp(OpType::kAdd, Name(layer, "attn_out"), {x, attention});
    normed = RmsNorm(Name(layer, "ffn_norm"), x, weights.ffn_norm);
    const TensorId mlp = AddMlp(layer, normed, weights);
    return graph_.AddOp(OpType::kAdd, Name(layer, "out"), {x, mlp});
  }

  void AddResult(TensorId x) {
    if (!last_shard()) {
      graph_.MarkOutput(x);
      return;
    }
    x = RmsNorm("final_norm", x, model_.final_norm());
    x = graph_.AddOp(OpType::kLinear, "head", {x, MatrixOf(kHeadWeightName, model_.head())});
    graph_.MarkOutput(graph_.AddReshape(kLogitsName, x, {1, ar(), config_.vocab_size}));
  }

  Decoder& decoder_;
  const Model& model_;
  const ModelConfig& config_;
  const DecoderOptions& options_;
  Graph graph_;
  uint32_t last_layer_;  // one past the shard's last
  uint32_t cached_;      // columns of the cache
  std::optional<TensorId> key_rotation_;
  TensorId input_ = 0, mask_ = 0, positions_ = 0, cos_ = 0, sin_ = 0;
  std::vector<TensorId> k_cache_, v_cache_, k_new_, v_new_;
};

Result<Graph> Decoder::Build(const DecoderOptions& options) {
  return GraphBuilder(*this, options).Build();
}

}  // namespace spillway
