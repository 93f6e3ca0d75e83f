#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "model/gguf_config.h"

namespace spillway {

WeightView::WeightView(std::shared_ptr<const GgufFile> file, const GgufTensor* tensor)
    : file_(std::move(file)), tensor_(tensor), rows_(tensor->rows()), cols_(tensor->cols()) {}

const std::string& WeightView::name() const {
  static const std::string kAbsent;
  return tensor_ == nullptr ? kAbsent : tensor_->name;
}

uint64_t WeightView::stored_bytes() const { return tensor_ == nullptr ? 0 : tensor_->data.size(); }

void WeightView::ReadRows(uint64_t row, uint64_t count, float* out) const {
  assert(tensor_ != nullptr && row <= rows_ && count <= rows_ - row);
  const GgufBlock block = GgufBlockOf(tensor_->type);
  const uint64_t row_bytes = cols_ / block.elements * block.bytes;
  const std::byte* data = tensor_->data.data();
  if (row_order_ == nullptr) {
    DequantizeBlocks(tensor_->type, data + row * row_bytes, count * cols_, out);
    return;
  }
  const std::vector<uint32_t>& order = *row_order_;
  if (order.size() != rows_) {  // a vector: its elements are ordered
    std::vector<float> stored(cols_);
    DequantizeBlocks(tensor_->type, data, count * cols_, stored.data());
    for (uint64_t i = 0; i < count * cols_; ++i) out[i] = stored[order[i]];
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {
    DequantizeBlocks(tensor_->type, data + order[row + i] * row_bytes, cols_, out + i * cols_);
  }
}

std::vector<float> WeightView::ReadAll() const {
  std::vector<float> values(rows_ * cols_);
  if (tensor_ != nullptr) ReadRows(0, rows_, values.data());
  return values;
}

void WeightView::ReleasePages() const {
  if (tensor_ != nullptr) file_->mapping().Release(tensor_->file_offset, tensor_->data.size());
}

WeightView WeightView::WithRowOrder(std::shared_ptr<const std::vector<uint32_t>> order) const {
  assert(order == nullptr || order->size() == rows_ || (rows_ == 1 && order->size() == cols_));
  WeightView view = *this;
  view.row_order_ = std::move(order);
  return view;
}

namespace {

using RowOrder = std::shared_ptr<const std::vector<uint32_t>>;

// Where each row of the half-split order is in a file with interleaved pairs:
// within the rotated part of a head, rows 2i come first, then rows 2i + 1.
RowOrder HalfSplitOrder(uint32_t heads, uint32_t head_dim, uint32_t rope_dim) {
  std::vector<uint32_t> order(size_t{heads} * head_dim);
  std::iota(order.begin(), order.end(), 0u);
  const uint32_t half = rope_dim / 2;
  for (uint32_t head = 0; head < heads; ++head) {
    const uint32_t base = head * head_dim;
    for (uint32_t i = 0; i < half; ++i) {
      order[base + i] = base + 2 * i;
      order[base + half + i] = base + 2 * i + 1;
    }
  }
  return std::make_shared<const std::vector<uint32_t>>(std::move(order));
}

// Dimensions without trailing ones, which mean nothing.
std::vector<uint64_t> Significant(std::vector<uint64_t> dims) {
  while (dims.size() > 1 && dims.back() == 1) dims.pop_back();
  return dims;
}

// Finds tensors, checks their shapes and remembers which were taken.
class TensorFinder {
 public:
  explicit TensorFinder(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {}

  // `rows` x `cols`; one row is a vector.
  Status Take(const std::string& name, uint64_t rows, uint64_t cols, WeightView* view) {
    const GgufTensor* tensor = file_->FindTensor(name);
    const std::vector<uint64_t> expected = Significant({cols, rows});
    if (tensor == nullptr) {
      return CorruptDataError(
          fmt::format("{}: tensor \"{}\" of shape [{}] is missing; the file is "
                      "incomplete or is not what its architecture says",
                      file_->path(), name, fmt::join(expected, ", ")));
    }
    if (Significant(tensor->dims) != expected) {
      return CorruptDataError(fmt::format(
          "{}: tensor \"{}\" has shape [{}], expected [{}] from the "
          "metadata",
          file_->path(), name, fmt::join(tensor->dims, ", "), fmt::join(expected, ", ")));
    }
    taken_.insert(tensor);
    *view = WeightView(file_, tensor);
    return OkStatus();
  }

  // Every tensor of the file must have been taken: one that is ignored would
  // have changed the result.
  Status CheckAllTaken(const std::string& architecture) const {
    constexpr size_t kMaxShown = 10;
    std::vector<std::string> left;
    for (const GgufTensor& tensor : file_->tensors()) {
      if (taken_.count(&tensor) == 0) left.push_back(tensor.name);
    }
    if (left.empty()) return OkStatus();
    const size_t shown = std::min(left.size(), kMaxShown);
    return UnsupportedError(fmt::format(
        "{}: {} tensors are not part of architecture {}: {}{}", file_->path(), left.size(),
        architecture, fmt::join(left.begin(), left.begin() + static_cast<ptrdiff_t>(shown), ", "),
        left.size() > shown ? ", ..." : ""));
  }

 private:
  std::shared_ptr<const GgufFile> file_;
  std::set<const GgufTensor*> taken_;
};

// The rows of q and k as the rest of Spillway expects them.
struct RowOrders {
  RowOrder q, k;  // null: as in the file
};

Status TakeAttention(const ModelConfig& c, const std::string& prefix, const RowOrders& orders,
                     TensorFinder* finder, LayerWeights* layer) {
  const uint64_t q_rows = uint64_t{c.num_heads} * c.head_dim;
  const uint64_t kv_rows = uint64_t{c.num_kv_heads} * c.head_dim;
  const auto take = [&](const char* name, uint64_t rows, uint64_t cols, WeightView* view) {
    return finder->Take(prefix + name, rows, cols, view);
  };
  SPILLWAY_RETURN_IF_ERROR(take("attn_norm.weight", 1, c.hidden_dim, &layer->attn_norm));
  SPILLWAY_RETURN_IF_ERROR(take("attn_q.weight", q_rows, c.hidden_dim, &layer->wq));
  SPILLWAY_RETURN_IF_ERROR(take("attn_k.weight", kv_rows, c.hidden_dim, &layer->wk));
  SPILLWAY_RETURN_IF_ERROR(take("attn_v.weight", kv_rows, c.hidden_dim, &layer->wv));
  SPILLWAY_RETURN_IF_ERROR(take("attn_output.weight", c.hidden_dim, q_rows, &layer->wo));
  layer->wq = layer->wq.WithRowOrder(orders.q);
  layer->wk = layer->wk.WithRowOrder(orders.k);
  if (c.attention_bias) {
    SPILLWAY_RETURN_IF_ERROR(take("attn_q.bias", 1, q_rows, &layer->bq));
    SPILLWAY_RETURN_IF_ERROR(take("attn_k.bias", 1, kv_rows, &layer->bk));
    SPILLWAY_RETURN_IF_ERROR(take("attn_v.bias", 1, kv_rows, &layer->bv));
    layer->bq = layer->bq.WithRowOrder(orders.q);
    layer->bk = layer->bk.WithRowOrder(orders.k);
  }
  if (c.qk_norm) {
    SPILLWAY_RETURN_IF_ERROR(take("attn_q_norm.weight", 1, c.head_dim, &layer->q_norm));
    SPILLWAY_RETURN_IF_ERROR(take("attn_k_norm.weight", 1, c.head_dim, &layer->k_norm));
  }
  return OkStatus();
}

Status TakeFeedForward(const ModelConfig& c, const std::string& prefix, TensorFinder* finder,
                       LayerWeights* layer) {
  const auto take = [&](const char* name, uint64_t rows, uint64_t cols, WeightView* view) {
    return finder->Take(prefix + name, rows, cols, view);
  };
  SPILLWAY_RETURN_IF_ERROR(take("ffn_norm.weight", 1, c.hidden_dim, &layer->ffn_norm));
  SPILLWAY_RETURN_IF_ERROR(take("ffn_gate.weight", c.ffn_dim, c.hidden_dim, &layer->w_gate));
  SPILLWAY_RETURN_IF_ERROR(take("ffn_up.weight", c.ffn_dim, c.hidden_dim, &layer->w_up));
  return take("ffn_down.weight", c.hidden_dim, c.ffn_dim, &layer->w_down);
}

// rope_freqs.weight, when the file has it, divides the frequencies on top of
// the metadata's scaling.
Status ApplyRopeFreqs(const GgufFile& file, TensorFinder* finder, RopeConfig* rope) {
  constexpr const char* kName = "rope_freqs.weight";
  if (file.FindTensor(kName) == nullptr) return OkStatus();
  WeightView view;
  SPILLWAY_RETURN_IF_ERROR(finder->Take(kName, 1, rope->dim / 2, &view));
  const std::vector<float> divisors = view.ReadAll();
  if (rope->factors.empty()) rope->factors.assign(divisors.size(), 1.0f);
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (!(divisors[i] > 0.0f) || !std::isfinite(divisors[i])) {
      return CorruptDataError(
          fmt::format("{}: tensor \"{}\" has {} at index {}, expected a number "
                      "above zero",
                      file.path(), kName, divisors[i], i));
    }
    rope->factors[i] *= divisors[i];
  }
  return OkStatus();
}

}  // namespace

Result<std::shared_ptr<const Model>> Model::Open(const std::string& path) {
  std::shared_ptr<Model> model(new Model());
  SPILLWAY_ASSIGN_OR_RETURN(model->file_, GgufFile::Open(path));
  const GgufFile& file = *model->file_;
  SPILLWAY_ASSIGN_OR_RETURN(model->config_, ReadGgufConfig(file));
  ModelConfig& c = model->config_;
  const GgufArchitecture& architecture = *FindGgufArchitecture(c.architecture);

  TensorFinder finder(model->file_);
  SPILLWAY_RETURN_IF_ERROR(
      finder.Take("token_embd.weight", c.vocab_size, c.hidden_dim, &model->embedding_));
  SPILLWAY_RETURN_IF_ERROR(finder.Take("output_norm.weight", 1, c.hidden_dim, &model->final_norm_));
  model->head_ = model->embedding_;
  if (!c.tied_embeddings) {
    SPILLWAY_RETURN_IF_ERROR(
        finder.Take("output.weight", c.vocab_size, c.hidden_dim, &model->head_));
  }
  if (architecture.rope_freqs) {
    SPILLWAY_RETURN_IF_ERROR(ApplyRopeFreqs(file, &finder, &c.rope));
  }

  RowOrders orders;
  if (architecture.interleaved_rope) {
    orders.q = HalfSplitOrder(c.num_heads, c.head_dim, c.rope.dim);
    orders.k = HalfSplitOrder(c.num_kv_heads, c.head_dim, c.rope.dim);
  }
  model->layers_.resize(c.num_layers);
  for (uint32_t i = 0; i < c.num_layers; ++i) {
    const std::string prefix = fmt::format("blk.{}.", i);
    LayerWeights& layer = model->layers_[i];
    SPILLWAY_RETURN_IF_ERROR(TakeAttention(c, prefix, orders, &finder, &layer));
    SPILLWAY_RETURN_IF_ERROR(TakeFeedForward(c, prefix, &finder, &layer));
  }
  SPILLWAY_RETURN_IF_ERROR(finder.CheckAllTaken(c.architecture));
  for (const GgufTensor& tensor : file.tensors()) {
    model->num_parameters_ += tensor.cols() * tensor.rows();
  }
  return std::shared_ptr<const Model>(std::move(model));
}

}  // namespace spillway
