#include "host/quantized_linear.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "host/parallel.h"
#include "host/shared_values.h"

namespace spillway::host {

PreparedRows::PreparedRows(const Tensor& x, const KernelOptions& options)
    : products_(*options.table->products),
      dtype_(x.dtype),
      k_(x.shape.back()),
      row_bytes_(products_.linear_row_bytes(dtype_, k_)),
      workspace_(*options.workspace),
      buffer_(options.workspace->TakeShared(NumElements(x.shape) / k_ * row_bytes_)) {}

void PreparedRows::Prepare(const std::byte* x, size_t begin, size_t end, ThreadPool& pool) {
  ParallelFor(pool, end - begin, k_, [&](size_t first, size_t last, size_t) {
    for (size_t r = begin + first; r < begin + last; ++r) {
      products_.prepare_linear_row(x + r * k_ * DTypeSize(dtype_), dtype_, k_,
                                   workspace_.Shared(buffer_) + r * row_bytes_);
    }
  });
}

LinearTerms::LinearTerms(const Graph& graph, const Op& op, const KernelTable& table,
                         std::shared_ptr<const PackedWeights> packed)
    : weights(std::move(packed)),
      weight_scale(graph.tensor(op.inputs[1]).encoding.scale),
      channel_scales(graph.tensor(op.inputs[1]).encoding.channel_scales) {
  const Tensor& x = graph.tensor(op.inputs[0]);
  const Tensor& weight = graph.tensor(op.inputs[1]);
  const size_t n = weight.shape[0], padded = (n + 15) / 16 * 16;
  unit = ProductUnit(x.dtype, weight.dtype);
  const double base = table.products->linear_base(x.dtype);
  const bool is_unsigned = x.dtype == DType::kU8 || x.dtype == DType::kU16;
  const bool needs_base =
      base != 0.0 || table.products->linear_quantized == nullptr || !is_unsigned;
  factors.resize(padded);
  corrections.resize(padded);
  if (needs_base) bases.resize(padded);
  const float out_scale = graph.tensor(op.outputs[0]).encoding.scale;
  const double offset = x.encoding.offset;
  const std::byte* bias =
      op.inputs.size() > 2 ? graph.tensor(op.inputs[2]).data->bytes().data() : nullptr;
  for (size_t i = 0; i < n; ++i) {
    const double sum = weights->sums()[i];
    factors[i] =
        ProductFactor(x.encoding.scale, ChannelScale(weight.encoding, i), out_scale) / unit;
    corrections[i] = ZeroPointCorrection(offset * sum, unit);
    if (bias != nullptr) corrections[i] += BiasCorrection(LoadInt(bias, DType::kS32, i), unit);
    if (needs_base) bases[i] = base * sum;
  }
}

namespace {

// Prompt and single tokens run the same Linears in two graphs.
std::shared_ptr<const LinearTerms> TermsOf(const Graph& graph, const Op& op,
                                           const KernelOptions& options) {
  // What the terms are made of besides the scales of the weights. The pointers are those of
  // living things as long as a Linear with these terms lives.
  using Key = std::tuple<const PackedWeights*, const KernelTable*, DType, float, int32_t, float,
                         const ConstantData*>;
  static auto* const known = new SharedValues<Key, LinearTerms>;
  const Tensor& x = graph.tensor(op.inputs[0]);
  const Tensor& weight = graph.tensor(op.inputs[1]);
  const auto packed = PackedWeights::Get(weight, *options.table, *options.pool);
  const auto make = [&] {
    return std::make_shared<const LinearTerms>(graph, op, *options.table, packed);
  };
  const ConstantData* bias = op.inputs.size() > 2 ? graph.tensor(op.inputs[2]).data.get() : nullptr;
  const Key key = {packed.get(),
                   options.table,
                   x.dtype,
                   x.encoding.scale,
                   x.encoding.offset,
                   graph.tensor(op.outputs[0]).encoding.scale,
                   bias};
  const auto shared = known->Get(key, make);
  // The same bytes may stand for other values.
  const bool same = shared->weight_scale == weight.encoding.scale &&
                    shared->channel_scales == weight.encoding.channel_scales;
  return same ? shared : make();
}

}  // namespace

QuantizedLinear::QuantizedLinear(const Graph& graph, const Op& op, const KernelOptions& options)
    : table_(*options.table),
      k_(graph.tensor(op.inputs[1]).shape[1]),
      n_(graph.tensor(op.inputs[1]).shape[0]),
      out_(graph.tensor(op.outputs[0])),
      terms_(TermsOf(graph, op, options)),
      weights_(*terms_->weights),
      workspace_(*options.workspace),
      scratch_(options.workspace->TakeOfThread(kProductScratch * sizeof(double))),
      unpacked_(options.workspace->TakeOfThread(weights_.is_nibbles() ? kTileColumns * k_ : 0)) {}

size_t QuantizedLinear::Columns(size_t tile) const {
  return std::min(kTileColumns, n_ - tile * kTileColumns);
}

void QuantizedLinear::RunTile(size_t tile, const ProductRows& x, size_t thread, std::byte* out,
                              size_t out_stride) const {
  const size_t n = tile * kTileColumns;
  const size_t k_groups = (k_ + 3) / 4;
  const LinearTerms& terms = *terms_;
  const double* bases = terms.bases.empty() ? nullptr : &terms.bases[n];
  const ProductFinish finish = {bases, &terms.corrections[n], &terms.factors[n], terms.unit, out_};
  const int8_t* weights = nullptr;
  if (!weights_.is_nibbles()) {
    weights = weights_.data() + n / 16 * k_groups * 64;
  } else if (x.count == 1 && table_.products->row_by_nibbles != nullptr &&
             (x.dtype == DType::kU8 || x.dtype == DType::kU16)) {
    table_.products->row_by_nibbles(x.data, x.dtype, weights_.Nibbles(n, Columns(tile)), finish,
                                    out);
    return;
  } else {
    auto* unpacked = reinterpret_cast<int8_t*>(workspace_.OfThread(thread, unpacked_));
    weights_.Unpack(n, Columns(tile), unpacked);
    weights = unpacked;
  }
  QuantizedProduct(table_, x, {weights, k_groups, Columns(tile)}, finish,
                   reinterpret_cast<double*>(workspace_.OfThread(thread, scratch_)), out,
                   out_stride);
}

}  // namespace spillway::host
