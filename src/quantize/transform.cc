#include "quantize/transform.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "decoder/decoder.h"
#include "quantize/rotation.h"

namespace spillway {
namespace {

// Rows that a rotation of the output side mixes are computed together; the latest ones
// are kept, because readers take a few rows at a time.
constexpr size_t kCacheBytes = size_t{192} << 20;

using Rows = std::shared_ptr<const std::vector<float>>;

// Thread-safe.
class RowsCache {
 public:
  Rows Find(const void* matrix, uint64_t segment) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->matrix != matrix || entry->segment != segment) continue;
      entries_.splice(entries_.begin(), entries_, entry);
      return entries_.front().rows;
    }
    return nullptr;
  }
  void Insert(const void* matrix, uint64_t segment, Rows rows) {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes_ += rows->size() * sizeof(float);
    entries_.push_front({matrix, segment, std::move(rows)});
    while (bytes_ > kCacheBytes && entries_.size() > 1) {
      bytes_ -= entries_.back().rows->size() * sizeof(float);
      entries_.pop_back();
    }
  }
  void Forget(const void* matrix) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(entries_, [&](const Entry& entry) {
      if (entry.matrix != matrix) return false;
      bytes_ -= entry.rows->size() * sizeof(float);
      return true;
    });
  }

 private:
  struct Entry {
    const void* matrix;
    uint64_t segment;
    Rows rows;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;  // latest first
  size_t bytes_ = 0;
};

// W' = R_out^T diag(row) W diag(column) R_in; a rotation smaller than its side is
// applied to each segment of it. Absent parts are identities.
struct MatrixChange {
  std::vector<float> column, row;
  std::shared_ptr<const Rotation> in, out;

  bool empty() const { return column.empty() && row.empty() && in == nullptr && out == nullptr; }
};

class ChangedMatrix : public ConstantData {
 public:
  ChangedMatrix(std::shared_ptr<const ConstantData> source, uint32_t cols, MatrixChange change,
                std::shared_ptr<RowsCache> cache)
      : source_(std::move(source)),
        cols_(cols),
        change_(std::move(change)),
        cache_(std::move(cache)) {}
  ~ChangedMatrix() override { cache_->Forget(this); }

  std::span<const std::byte> bytes() const override { return {}; }

  void ReadRows(uint64_t row, uint64_t count, float* out) const override {
    if (change_.out == nullptr) return ReadUnmixed(row, count, out);
    const uint64_t dim = change_.out->dim();
    while (count > 0) {
      const uint64_t segment = row / dim;
      const uint64_t begin = row % dim;
      const uint64_t take = std::min(count, dim - begin);
      const Rows rows = Segment(segment);
      std::memcpy(out, rows->data() + begin * cols_, take * cols_ * sizeof(float));
      out += take * cols_;
      row += take;
      count -= take;
    }
  }

 private:
  // Everything but the rotation of the output side.
  void ReadUnmixed(uint64_t row, uint64_t count, float* out) const {
    const std::span<const std::byte> bytes = source_->bytes();
    if (bytes.empty()) {
      source_->ReadRows(row, count, out);
    } else {
      std::memcpy(out, bytes.data() + row * cols_ * sizeof(float), count * cols_ * sizeof(float));
    }
    for (uint64_t i = 0; i < count; ++i) {
      float* values = out + i * cols_;
      const float scale = change_.row.empty() ? 1.0f : change_.row[row + i];
      for (uint32_t k = 0; k < cols_; ++k) {
        values[k] *= change_.column.empty() ? scale : scale * change_.column[k];
      }
      if (change_.in == nullptr) continue;
      for (uint32_t k = 0; k < cols_; k += change_.in->dim()) change_.in->Apply(values + k, 1);
    }
  }

  Rows Segment(uint64_t segment) const {
    // Threads that read neighbouring rows wait for the one that makes them.
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Rows known = cache_->Find(this, segment)) return known;
    const uint64_t dim = change_.out->dim();
    auto rows = std::make_shared<std::vector<float>>(dim * cols_);
    ReadUnmixed(segment * dim, dim, rows->data());
    change_.out->Apply(rows->data(), cols_);
    cache_->Insert(this, segment, rows);
    return rows;
  }

  std::shared_ptr<const ConstantData> source_;
  uint32_t cols_;
  MatrixChange change_;
  std::shared_ptr<RowsCache> cache_;
  mutable std::mutex mutex_;
};

void Multiply(std::vector<float>& values, const std::vector<float>& by) {
  if (values.empty()) values.assign(by.size(), 1.0f);
  for (size_t i = 0; i < by.size(); ++i) values[i] *= by[i];
}

std::vector<float> Inverses(std::vector<float> values) {
  for (float& value : values) value = 1.0f / value;
  return values;
}

// "layers.12.q.weight" as 12 and "q.weight"; a name of no layer as it is.
struct WeightName {
  std::optional<uint32_t> layer;
  std::string_view part;
};
WeightName ParseName(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return {std::nullopt, name};
  const size_t dot = name.find('.', kLayers.size());
  const auto layer = std::strtoul(name.data() + kLayers.size(), nullptr, 10);
  return {static_cast<uint32_t>(layer), name.substr(dot + 1)};
}

class FoldedTransform : public WeightTransform {
 public:
  FoldedTransform(const Model& model, const TransformOptions& options, SmoothFactors factors)
      : config_(model.config()),
        options_(options),
        factors_(std::move(factors)),
        cache_(std::make_shared<RowsCache>()) {
    if (options.fold_norms) {
      for (const LayerWeights& layer : model.layers()) {
        attention_norms_.push_back(layer.attn_norm.ReadAll());
        ffn_norms_.push_back(layer.ffn_norm.ReadAll());
      }
      final_norm_ = model.final_norm().ReadAll();
    }
    if (options.rotate_residual) {
      residual_ = std::make_shared<const Rotation>(config_.hidden_dim, options.seed);
    }
    if (options.rotate_values) {
      for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
        values_.push_back(
            std::make_shared<const Rotation>(config_.head_dim, options.seed * 1000003 + layer));
      }
    }
    if (options.rotate_keys) {
      const std::vector<float> q = Rotation(config_.head_dim, options.seed).Matrix();
      key_rotation_ = MakeConstantOf(q);
    }
  }

  std::shared_ptr<const ConstantData> Matrix(const std::string& name,
                                             std::shared_ptr<const ConstantData> weights,
                                             uint32_t /*rows*/, uint32_t cols) const override {
    MatrixChange change = ChangeOf(ParseName(name));
    if (change.empty()) return weights;
    return std::make_shared<ChangedMatrix>(std::move(weights), cols, std::move(change), cache_);
  }

  void Vector(const std::string& name, std::vector<float>& values) const override {
    const auto [layer, part] = ParseName(name);
    if (part == "v.bias") {
      if (const auto* factors = Factors(*layer, "mixed")) Multiply(values, Inverses(*factors));
      if (values_.empty()) return;
      for (size_t i = 0; i < values.size(); i += config_.head_dim) {
        values_[*layer]->Apply(values.data() + i, 1);
      }
      return;
    }
    const bool norm =
        part == "attn_norm.gamma" || part == "ffn_norm.gamma" || part == "final_norm.gamma";
    if (!norm) return;
    if (options_.fold_norms) values.assign(values.size(), 1.0f);
    if (!layer) return;
    const auto* factors = Factors(*layer, part.substr(0, part.find('.')));
    if (factors != nullptr) Multiply(values, Inverses(*factors));
  }

  bool SplitsEmbedding() const override { return options_.fold_norms; }

  std::shared_ptr<const ConstantData> KeyRotation() const override { return key_rotation_; }

 private:
  const std::vector<float>* Factors(uint32_t layer, std::string_view part) const {
    const auto found = factors_.find(fmt::format("layers.{}.{}", layer, part));
    return found == factors_.end() ? nullptr : &found->second;
  }

  MatrixChange ChangeOf(const WeightName& name) const {
    MatrixChange change;
    const std::string_view part = name.part;
    if (!name.layer) {
      if (part == kHeadWeightName && options_.fold_norms) change.column = final_norm_;
      change.in = residual_;
      return change;
    }
    const uint32_t layer = *name.layer;
    if (part == "q.weight" || part == "k.weight" || part == "v.weight") {
      ReadsNorm(layer, "attn_norm", attention_norms_, change);
      if (part == "v.weight") WritesValues(layer, change);
    } else if (part == "gate.weight" || part == "up.weight") {
      ReadsNorm(layer, "ffn_norm", ffn_norms_, change);
      const auto* gated = Factors(layer, "gated");
      if (part == "up.weight" && gated != nullptr) change.row = Inverses(*gated);
    } else if (part == "o.weight") {
      if (const auto* mixed = Factors(layer, "mixed")) change.column = ForQueryHeads(*mixed);
      if (!values_.empty()) change.in = values_[layer];
      change.out = residual_;
    } else if (part == "down.weight") {
      if (const auto* gated = Factors(layer, "gated")) change.column = *gated;
      change.out = residual_;
    }
    return change;
  }

  void ReadsNorm(uint32_t layer, std::string_view norm,
                 const std::vector<std::vector<float>>& gammas, MatrixChange& change) const {
    if (options_.fold_norms) change.column = gammas[layer];
    if (const auto* factors = Factors(layer, norm)) Multiply(change.column, *factors);
    change.in = residual_;
  }

  void WritesValues(uint32_t layer, MatrixChange& change) const {
    if (const auto* mixed = Factors(layer, "mixed")) change.row = Inverses(*mixed);
    if (!values_.empty()) change.out = values_[layer];
  }

  // The query heads of a KV head all mix its values.
  std::vector<float> ForQueryHeads(const std::vector<float>& factors) const {
    std::vector<float> repeated;
    for (uint32_t head = 0; head < config_.num_heads; ++head) {
      const auto first = factors.begin() + head / config_.GroupSize() * config_.head_dim;
      repeated.insert(repeated.end(), first, first + config_.head_dim);
    }
    return repeated;
  }

  const ModelConfig config_;
  const TransformOptions options_;
  const SmoothFactors factors_;
  std::vector<std::vector<float>> attention_norms_, ffn_norms_;
  std::vector<float> final_norm_;
  std::shared_ptr<const Rotation> residual_;
  std::vector<std::shared_ptr<const Rotation>> values_;  // a layer
  std::shared_ptr<const ConstantData> key_rotation_;
  std::shared_ptr<RowsCache> cache_;
};

Status CheckFactors(const ModelConfig& config, const TransformOptions& options,
                    const SmoothFactors& factors) {
  const std::map<std::string_view, size_t> sizes = {
      {"attn_norm", config.hidden_dim},
      {"ffn_norm", config.hidden_dim},
      {"gated", config.ffn_dim},
      {"mixed", static_cast<size_t>(config.num_kv_heads) * config.head_dim}};
  for (const auto& [name, values] : factors) {
    const auto [layer, part] = ParseName(name);
    const auto size = sizes.find(part);
    if (!layer || *layer >= config.num_layers || size == sizes.end()) {
      return InvalidArgumentError(fmt::format(
          "smoothing factors for '{}'; expected layers.N.attn_norm, ffn_norm, gated or mixed with "
          "N below {}",
          name, config.num_layers));
    }
    if (values.size() != size->second) {
      return InvalidArgumentError(fmt::format("smoothing factors for {}: {}; expected {}", name,
                                              values.size(), size->second));
    }
    if (options.rotate_residual && part.ends_with("_norm")) {
      return InvalidArgumentError(fmt::format(
          "smoothing factors for {} together with a rotated residual stream: leave one out", name));
    }
    for (const float value : values) {
      if (!(value > 0.0f) || !std::isnormal(value) || !std::isnormal(1.0f / value)) {
        return InvalidArgumentError(
            fmt::format("smoothing factors for {}: {}; expected positive numbers", name, value));
      }
    }
  }
  return OkStatus();
}

}  // namespace

TransformOptions TransformsOf(const Recipe& recipe) {
  TransformOptions options;
  options.rotate_residual = recipe.HasTransform("rotate_r1");
  options.fold_norms = recipe.HasTransform("norm_folding") || options.rotate_residual;
  options.rotate_values = recipe.HasTransform("rotate_r2");
  options.rotate_keys = recipe.HasTransform("rotate_r3");
  return options;
}

Result<std::shared_ptr<const WeightTransform>> MakeTransform(const Model& model,
                                                             const TransformOptions& options,
                                                             SmoothFactors factors) {
  if (options.rotate_residual && !options.fold_norms) {
    return InvalidArgumentError(
        "a rotation of the residual stream needs the norms folded: norm weights belong to channels "
        "that the rotation mixes");
  }
  SPILLWAY_RETURN_IF_ERROR(CheckFactors(model.config(), options, factors));
  return std::shared_ptr<const WeightTransform>(
      std::make_shared<FoldedTransform>(model, options, std::move(factors)));
}

}  // namespace spillway
