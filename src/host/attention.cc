// Attention in fixed point, from the queries to the weighted values, for one KV head and
// a few tokens at a time. Only blocks of columns that the mask opens for one of them are
// computed: a hidden column's masked score is at most `hidden_bound_`, and where that is so
// far below the row's largest that its weight is 0, leaving it out changes nothing. Where
// it is not (an encoding whose scores end close to 0), all columns are computed.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/memory.h"
#include "graph/packed_cache.h"
#include "host/fused_kernels.h"
#include "host/int_product.h"
#include "host/integer_functions.h"
#include "host/kernel_table.h"
#include "host/parallel.h"
#include "host/softmax_weights.h"

namespace spillway::host {
namespace {

constexpr size_t kBlock = PackedCache::kBlock;  // columns of the context
constexpr size_t kMostTokens = 16;              // of an item of work
constexpr size_t kScoreBytes = 1 << 19;         // that an item may keep

// What a row of the mask says of a block.
enum class View : uint8_t { kHidden, kOpen, kMixed };

struct Sizes {
  Sizes(const Graph& graph, const AttentionTensors& tensors) {
    const Shape& q = graph.tensor(tensors.q).shape;
    const Shape& mask = graph.tensor(tensors.mask).shape;
    kv_heads = q[1];
    head_dim = q[3];
    tokens = mask[2];
    context = mask[3];
    past = context - tokens;
    group = q[2] / tokens;
    cache_blocks = (past + kBlock - 1) / kBlock;
    blocks = cache_blocks + (tokens + kBlock - 1) / kBlock;
    columns = blocks * kBlock;
    const size_t row_bytes = group * columns * sizeof(uint16_t);
    item_tokens = std::clamp<size_t>(kScoreBytes / row_bytes, 1, std::min(kMostTokens, tokens));
  }
  size_t kv_heads, group, head_dim, tokens, context, past;
  size_t cache_blocks, blocks, columns;  // columns: of whole blocks
  size_t item_tokens;
};

// Offsets in a thread's part of the workspace.
struct Places {
  Places(const Sizes& size, const IntegerProducts& products, Workspace& workspace) {
    const size_t rows = size.group * size.item_tokens;
    const size_t longest = std::max(size.columns, size.head_dim);
    const auto take = [&](size_t bytes) { return workspace.TakeOfThread(bytes); };
    q_row_bytes = products.linear_row_bytes(DType::kU16, size.head_dim);
    q = take(rows * q_row_bytes);
    scores = take(rows * size.columns * sizeof(uint16_t));
    row_max = take(rows * sizeof(uint16_t));
    weights = take(rows * products.linear_row_bytes(DType::kU16, size.columns));
    k = take(kBlock * size.head_dim);
    v = take(size.columns * size.head_dim);
    mixed = take(rows * size.head_dim * sizeof(double));
    blocks = take(size.blocks * sizeof(uint32_t));
    ones = take(longest + products.linear_row_bytes(DType::kU8, longest));
    base = take(std::max(kBlock, size.head_dim) * sizeof(double));
    correction = take(std::max(kBlock, size.head_dim) * sizeof(double));
    product = take(kProductScratch * sizeof(double));
  }
  size_t q_row_bytes;
  size_t q, scores, row_max, weights, k, v, mixed, blocks, ones, base, correction, product;
};

// The same as addresses.
struct Scratch {
  Scratch(const Places& places, const Workspace& workspace, size_t thread)
      : q_row_bytes(places.q_row_bytes) {
    const auto place = [&](auto*& pointer, size_t offset) {
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
          workspace.OfThread(thread, offset));
    };
    place(q, places.q);
    place(scores, places.scores);
    place(row_max, places.row_max);
    place(weights, places.weights);
    place(k, places.k);
    place(v, places.v);
    place(mixed, places.mixed);
    place(blocks, places.blocks);
    place(ones, places.ones);
    place(base, places.base);
    place(correction, places.correction);
    place(product, places.product);
  }

  size_t q_row_bytes;
  std::byte* q;        // [group][tokens][q_row_bytes]
  uint16_t* scores;    // [group][tokens][columns], then the weights
  uint16_t* row_max;   // [group][tokens]
  std::byte* weights;  // [group][tokens][a prepared row]
  int8_t* k;           // a block, packed
  int8_t* v;           // all blocks of the item that are not in a packed cache
  double* mixed;       // [group][tokens][head_dim]
  uint32_t* blocks;    // of the item
  std::byte* ones;     // of ColumnSums()
  double *base, *correction;
  double* product;
};

class AttentionKernel : public Kernel {
 public:
  AttentionKernel(const Graph& graph, const AttentionTensors& tensors, const KernelOptions& options)
      : table_(*options.table),
        products_(*options.table->products),
        size_(graph, tensors),
        tokens_(size_.tokens),
        cache_(size_.kv_heads, size_.head_dim, size_.context - 1),
        score_out_(graph.tensor(tensors.scores)),
        masked_out_(graph.tensor(tensors.masked)),
        mixed_out_(graph.tensor(tensors.mixed)),
        add_mask_(OpType::kAdd, graph.tensor(tensors.scores), graph.tensor(tensors.mask),
                  graph.tensor(tensors.masked), *options.table->vectors),
        views_(size_.tokens * size_.blocks),
        workspace_(*options.workspace),
        places_(size_, products_, *options.workspace) {
    const Encoding& q = graph.tensor(tensors.q).encoding;
    const Encoding& k = graph.tensor(tensors.k_new).encoding;
    const Encoding& v = graph.tensor(tensors.v_new).encoding;
    const Encoding& scores = graph.tensor(tensors.scores).encoding;
    const Encoding& mask = graph.tensor(tensors.mask).encoding;
    const Encoding& masked = graph.tensor(tensors.masked).encoding;
    const Encoding& weights = graph.tensor(tensors.weights).encoding;
    const Encoding& mixed = graph.tensor(tensors.mixed).encoding;
    q_offset_ = q.offset;
    score_offset_ = scores.offset;
    mask_offset_ = mask.offset;
    weight_scale_ = weights.scale;
    const double unit = ProductUnit(DType::kU16, DType::kU8);
    const size_t width = std::max(kBlock, size_.head_dim);
    score_factors_.assign(kBlock, ProductFactor(q.scale, k.scale, scores.scale) / unit);
    mixed_factors_.assign(width, ProductFactor(weights.scale, v.scale, mixed.scale) / unit);
    no_correction_.assign(width, ZeroPointCorrection(0.0, unit));
    sum_ = MakeSumFactors(scores.scale, mask.scale, masked.scale, DType::kU16);
    hidden_bound_ = masked_out_.Quantize(sum_.a * (65535 + score_offset_) + sum_.b * mask_offset_);
    weight_table_ = CutSoftmaxWeights(masked.scale);
    last_weight_ = static_cast<uint32_t>(weight_table_->size() - 2);
    zero_distance_ = (*weight_table_)[last_weight_] == 0 ? static_cast<int32_t>(last_weight_)
                                                         : std::numeric_limits<int32_t>::max();
  }

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    ViewMask(reinterpret_cast<const uint16_t*>(buffers.inputs[1]));
    const size_t parts = (tokens_ + size_.item_tokens - 1) / size_.item_tokens;
    ParallelFor(pool, size_.kv_heads * parts, size_.columns * size_.head_dim,
                [&](size_t first, size_t last, size_t thread) {
                  Scratch scratch(places_, workspace_, thread);
                  for (size_t i = first; i < last; ++i) {
                    RunItem({i / parts, i % parts * size_.item_tokens}, buffers, scratch);
                  }
                });
    return OkStatus();
  }

  void LimitRows(size_t first, size_t count) override { tokens_ = first + count; }
  void ReadPackedCache(bool packed) override { packed_ = packed; }

 private:
  struct Item {
    size_t head, token;
    size_t tokens = 0, blocks = 0;
    bool all = false;  // compute hidden columns, too
  };

  // First column of a block, and how many it has; `fresh` tells the step's own tokens.
  struct Columns {
    size_t first, count;
    bool fresh;
  };
  Columns ColumnsOf(size_t block) const {
    const bool fresh = block >= size_.cache_blocks;
    const size_t first = (fresh ? block - size_.cache_blocks : block) * kBlock;
    return {first, std::min(kBlock, (fresh ? size_.tokens : size_.past) - first), fresh};
  }

  void ViewMask(const uint16_t* mask) {
    const int32_t open = -mask_offset_;
    for (size_t t = 0; t < tokens_; ++t) {
      for (size_t b = 0; b < size_.blocks; ++b) {
        const Columns columns = ColumnsOf(b);
        const uint16_t* at = MaskAt(mask, t, columns);
        uint32_t opened = 0, closed = 0;
        for (size_t c = 0; c < columns.count; ++c) {
          opened += at[c] == open ? 1 : 0;
          closed += at[c] == 0 ? 1 : 0;
        }
        views_[t * size_.blocks + b] = closed == columns.count   ? View::kHidden
                                       : opened == columns.count ? View::kOpen
                                                                 : View::kMixed;
      }
    }
  }

  const uint16_t* MaskAt(const uint16_t* mask, size_t token, const Columns& columns) const {
    return mask + token * size_.context + (columns.fresh ? size_.past : 0) + columns.first;
  }

  void RunItem(Item item, const StepBuffers& buffers, Scratch& scratch) {
    item.tokens = std::min(size_.item_tokens, tokens_ - item.token);
    PrepareQueries(item, buffers.inputs[0], scratch);
    ChooseBlocks(item, scratch);
    Scores(item, buffers, scratch);
    if (!HiddenIsZero(item, scratch)) {
      item.all = true;
      ChooseBlocks(item, scratch);
      Scores(item, buffers, scratch);
    }
    Weights(item, scratch);
    Mix(item, buffers, scratch);
  }

  void PrepareQueries(const Item& item, const std::byte* q, Scratch& scratch) const {
    for (size_t g = 0; g < size_.group; ++g) {
      for (size_t t = 0; t < item.tokens; ++t) {
        const size_t row = (item.head * size_.group + g) * size_.tokens + item.token + t;
        products_.prepare_linear_row(q + row * size_.head_dim * sizeof(uint16_t), DType::kU16,
                                     size_.head_dim,
                                     scratch.q + (g * item.tokens + t) * scratch.q_row_bytes);
      }
    }
  }

  View ViewOf(const Item& item, size_t token, size_t block) const {
    const View view = views_[(item.token + token) * size_.blocks + block];
    return item.all && view == View::kHidden ? View::kMixed : view;
  }

  void ChooseBlocks(Item& item, Scratch& scratch) const {
    item.blocks = 0;
    for (size_t b = 0; b < size_.blocks; ++b) {
      bool seen = false;
      for (size_t t = 0; t < item.tokens; ++t) seen |= ViewOf(item, t, b) != View::kHidden;
      if (seen) scratch.blocks[item.blocks++] = static_cast<uint32_t>(b);
    }
  }

  // Masked scores [group][tokens][blocks * kBlock] and the largest of each row.
  void Scores(const Item& item, const StepBuffers& buffers, Scratch& scratch) const {
    const auto* mask = reinterpret_cast<const uint16_t*>(buffers.inputs[1]);
    const size_t rows = size_.group * item.tokens;
    const size_t stride = item.blocks * kBlock;
    std::fill_n(scratch.row_max, rows, uint16_t{0});
    for (size_t i = 0; i < item.blocks; ++i) {
      const Columns columns = ColumnsOf(scratch.blocks[i]);
      const int8_t* keys = Keys(item.head, columns, buffers, scratch);
      QuantizedProduct(table_, {scratch.q, scratch.q_row_bytes, rows, DType::kU16},
                       {keys, size_.head_dim / 4, columns.count},
                       {scratch.base, scratch.correction, score_factors_.data(), kUnit, score_out_},
                       scratch.product, reinterpret_cast<std::byte*>(scratch.scores + i * kBlock),
                       stride * sizeof(uint16_t));
      for (size_t row = 0; row < rows; ++row) {
        const size_t token = row % item.tokens;
        uint16_t* values = scratch.scores + row * stride + i * kBlock;
        uint16_t max = 0;
        const View view = ViewOf(item, token, scratch.blocks[i]);
        if (view == View::kOpen) {
          max = table_.vectors->rescale_u16(values, columns.count, score_offset_, sum_.a,
                                            masked_out_);
        } else if (view == View::kMixed) {
          max = AddMask(MaskAt(mask, item.token + token, columns), columns.count, values);
        }
        scratch.row_max[row] = std::max(scratch.row_max[row], max);
      }
    }
  }

  // The packed keys of a block; also scratch.base and correction for them.
  const int8_t* Keys(size_t head, const Columns& columns, const StepBuffers& buffers,
                     Scratch& scratch) const {
    const std::byte* from = buffers.inputs[columns.fresh ? 2 : 4];
    const size_t k_groups = size_.head_dim / 4;
    const int8_t* keys = scratch.k;
    if (packed_ && !columns.fresh) {
      keys = reinterpret_cast<const int8_t*>(from) + cache_.KeyAt(head, 0, columns.first);
    } else {
      const size_t ld = columns.fresh ? size_.tokens : size_.past;
      const auto* at = reinterpret_cast<const uint8_t*>(from) + head * size_.head_dim * ld;
      table_.vectors->pack_columns(at + columns.first, ld, size_.head_dim, columns.count,
                                   k_groups * 64, scratch.k);
    }
    ColumnSums(table_, {keys, k_groups, columns.count}, scratch.ones, scratch.base);
    const double base = products_.linear_base(DType::kU16);
    for (size_t c = 0; c < kBlock; ++c) {
      scratch.correction[c] = ZeroPointCorrection(q_offset_ * scratch.base[c], kUnit);
      scratch.base[c] *= base;
    }
    return keys;
  }

  uint16_t AddMask(const uint16_t* mask, size_t count, uint16_t* values) const {
    auto* scores = reinterpret_cast<std::byte*>(values);
    add_mask_.Run(scores, reinterpret_cast<const std::byte*>(mask), false, count, scores);
    return *std::max_element(values, values + count);
  }

  bool HiddenIsZero(const Item& item, const Scratch& scratch) const {
    for (size_t row = 0; row < size_.group * item.tokens; ++row) {
      if (scratch.row_max[row] - hidden_bound_ < zero_distance_) return false;
    }
    return true;
  }

  // Masked scores become the softmax, 0 where a column is hidden or not there.
  void Weights(const Item& item, Scratch& scratch) const {
    const size_t stride = item.blocks * kBlock;
    for (size_t row = 0; row < size_.group * item.tokens; ++row) {
      uint16_t* values = scratch.scores + row * stride;
      const uint16_t max = scratch.row_max[row];
      uint64_t sum = 0;
      for (size_t i = 0; i < item.blocks; ++i) {
        const bool seen = ViewOf(item, row % item.tokens, scratch.blocks[i]) != View::kHidden;
        const size_t count = seen ? ColumnsOf(scratch.blocks[i]).count : 0;
        sum += table_.vectors->look_up_u16(values + i * kBlock, count, max, weight_table_->data(),
                                           last_weight_);
        std::fill(values + i * kBlock + count, values + (i + 1) * kBlock, uint16_t{0});
      }
      table_.vectors->cut_u16(values, 1.0 / (static_cast<double>(sum) * weight_scale_), stride);
    }
  }

  // Blocks of an item whose values lie together: kPackedN16K4 with `stride` bytes from one
  // block of 16 of head_dim to the next.
  struct Stretch {
    size_t first, blocks;
    const int8_t* values;
    size_t stride;
  };

  // The stretch that begins with block `first` of the item.
  Stretch StretchAt(const Item& item, size_t first, const StepBuffers& buffers,
                    Scratch& scratch) const {
    const uint32_t* blocks = scratch.blocks;
    const bool cached = packed_ && blocks[first] < size_.cache_blocks;
    size_t end = first + 1;
    while (end < item.blocks &&
           (!cached || (blocks[end] == blocks[end - 1] + 1 && blocks[end] < size_.cache_blocks))) {
      ++end;
    }
    if (cached) {
      const size_t at = cache_.ValueAt(item.head, blocks[first] * kBlock, 0);
      return {first, end - first, reinterpret_cast<const int8_t*>(buffers.inputs[5]) + at,
              cache_.columns() * 16};
    }
    const Stretch part = {first, end - first, scratch.v, (end - first) * kBlock * 16};
    for (size_t i = first; i < end; ++i) {
      const Columns columns = ColumnsOf(blocks[i]);
      const size_t rows = columns.fresh ? size_.tokens : size_.past;
      const std::byte* values = buffers.inputs[columns.fresh ? 3 : 5];
      const auto* at = reinterpret_cast<const uint8_t*>(values) +
                       (item.head * rows + columns.first) * size_.head_dim;
      table_.vectors->pack_columns(at, size_.head_dim, columns.count, size_.head_dim, part.stride,
                                   scratch.v + (i - first) * kBlock * 16);
    }
    return part;
  }

  // The weights of a stretch as the products read them: rows [group][tokens].
  ProductRows PrepareWeights(const Item& item, const Stretch& part, Scratch& scratch) const {
    const size_t k = part.blocks * kBlock;
    const ProductRows rows = {scratch.weights, products_.linear_row_bytes(DType::kU16, k),
                              size_.group * item.tokens, DType::kU16};
    for (size_t r = 0; r < rows.count; ++r) {
      const uint16_t* from = scratch.scores + r * item.blocks * kBlock + part.first * kBlock;
      products_.prepare_linear_row(reinterpret_cast<const std::byte*>(from), DType::kU16, k,
                                   scratch.weights + r * rows.row_bytes);
    }
    return rows;
  }

  void Mix(const Item& item, const StepBuffers& buffers, Scratch& scratch) const {
    const size_t rows = size_.group * item.tokens;
    std::fill_n(scratch.mixed, rows * size_.head_dim, 0.0);
    std::fill_n(scratch.base, size_.head_dim, 0.0);
    for (size_t first = 0; first < item.blocks;) {
      const Stretch part = StretchAt(item, first, buffers, scratch);
      AddStretch(part, PrepareWeights(item, part, scratch), scratch);
      first += part.blocks;
    }
    const size_t size = DTypeSize(mixed_out_.dtype);
    for (size_t row = 0; row < rows; ++row) {
      double* values = scratch.mixed + row * size_.head_dim;
      table_.vectors->finish_product(values, scratch.base, kUnit, no_correction_.data(),
                                     mixed_factors_.data(), size_.head_dim);
      const size_t g = item.head * size_.group + row / item.tokens;
      const size_t to = g * size_.tokens + item.token + row % item.tokens;
      table_.vectors->store(values, size_.head_dim, mixed_out_,
                            static_cast<std::byte*>(buffers.output) + to * size_.head_dim * size);
    }
  }

  // Adds weights by values to scratch.mixed, and to scratch.base what the products' base
  // leaves out.
  void AddStretch(const Stretch& part, const ProductRows& weights, Scratch& scratch) const {
    constexpr size_t kRows = kProductScratch / 16;
    const size_t k_groups = part.blocks * kBlock / 4;
    const double base = products_.linear_base(DType::kU16);
    for (size_t c = 0; c < size_.head_dim; c += 16) {
      const int8_t* values = part.values + c / 16 * part.stride;
      for (size_t r = 0; r < weights.count; r += kRows) {
        const size_t count = std::min(kRows, weights.count - r);
        products_.linear(weights.data + r * weights.row_bytes, weights.row_bytes, count,
                         weights.dtype, values, k_groups, 1, scratch.product);
        for (size_t i = 0; i < count; ++i) {
          double* to = scratch.mixed + (r + i) * size_.head_dim + c;
          for (size_t j = 0; j < 16; ++j) to[j] += scratch.product[i * 16 + j];
        }
      }
      if (base == 0.0) continue;
      double sums[16];
      ColumnSums(table_, {values, k_groups, 16}, scratch.ones, sums);
      for (size_t j = 0; j < 16; ++j) scratch.base[c + j] += base * sums[j];
    }
  }

  static constexpr double kUnit = 1.0 / 256.0;  // ProductUnit(u16, u8)

  const KernelTable& table_;
  const IntegerProducts& products_;
  Sizes size_;
  size_t tokens_;  // to compute, from the first
  PackedCache cache_;
  bool packed_ = false;  // the cache is one
  OutputSpec score_out_, masked_out_, mixed_out_;
  IntegerBinary add_mask_;
  int32_t q_offset_ = 0, score_offset_ = 0, mask_offset_ = 0;
  double weight_scale_ = 1.0;
  SumFactors sum_ = {1.0, 1.0};
  int32_t hidden_bound_ = 0;  // largest masked score where the mask is 0
  std::vector<double> score_factors_, mixed_factors_, no_correction_;
  std::shared_ptr<const std::vector<uint16_t>> weight_table_;
  uint32_t last_weight_ = 0;   // index of the last weight
  int32_t zero_distance_ = 0;  // from here on weights are 0
  std::vector<View> views_;    // [tokens][blocks]
  const Workspace& workspace_;
  Places places_;
};

bool IsU16(const Tensor& tensor) { return tensor.dtype == DType::kU16; }
bool IsCentredU8(const Tensor& tensor) {
  return tensor.dtype == DType::kU8 && tensor.encoding.offset == -128;
}

}  // namespace

bool CanFuseAttention(const Graph& graph, const AttentionTensors& tensors) {
  const Tensor& q = graph.tensor(tensors.q);
  const Tensor& mask = graph.tensor(tensors.mask);
  const Tensor& mixed = graph.tensor(tensors.mixed);
  const bool cached = tensors.k_cache.has_value();
  if (cached != tensors.v_cache.has_value()) return false;
  for (const TensorId id :
       {tensors.q, tensors.scores, tensors.mask, tensors.masked, tensors.weights}) {
    if (!IsU16(graph.tensor(id))) return false;
  }
  if (!IsCentredU8(graph.tensor(tensors.k_new)) || !IsCentredU8(graph.tensor(tensors.v_new)) ||
      graph.tensor(tensors.weights).encoding.offset != 0 ||
      (mixed.dtype != DType::kU16 && mixed.dtype != DType::kU8)) {
    return false;
  }
  if (q.shape.size() != 4 || mask.shape.size() != 4 || mask.shape[0] * mask.shape[1] != 1) {
    return false;
  }
  const uint32_t tokens = mask.shape[2], context = mask.shape[3];
  return q.shape[0] == 1 && q.shape[2] % tokens == 0 && q.shape[3] % 16 == 0 &&
         q.shape[3] <= 1024 && cached == (tokens < context) && context <= 65536 &&
         graph.tensor(tensors.k_new).shape[3] == tokens &&
         graph.tensor(tensors.v_new).shape[2] == tokens;
}

std::unique_ptr<Kernel> MakeAttention(const Graph& graph, const AttentionTensors& tensors,
                                      const KernelOptions& options) {
  return std::make_unique<AttentionKernel>(graph, tensors, options);
}

}  // namespace spillway::host
