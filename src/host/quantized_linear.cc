#include "host/quantized_linear.h"

#include <algorithm>

#include "host/parallel.h"

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

QuantizedLinear::QuantizedLinear(const Graph& graph, const Op& op, const KernelOptions& options)
    : table_(*options.table),
      k_(graph.tensor(op.inputs[1]).shape[1]),
      n_(graph.tensor(op.inputs[1]).shape[0]),
      out_(graph.tensor(op.outputs[0])),
      weights_(PackedWeights::Get(graph.tensor(op.inputs[1]), table_, *options.pool)),
      unit_(ProductUnit(graph.tensor(op.inputs[0]).dtype, graph.tensor(op.inputs[1]).dtype)),
      workspace_(*options.workspace),
      scratch_(options.workspace->TakeOfThread(kProductScratch * sizeof(double))),
      unpacked_(options.workspace->TakeOfThread(weights_->is_nibbles() ? kTileColumns * k_ : 0)) {
  ComputeFactors(graph, op);
  ComputeCorrections(graph, op);
}

void QuantizedLinear::ComputeFactors(const Graph& graph, const Op& op) {
  const Tensor& weight = graph.tensor(op.inputs[1]);
  const float x_scale = graph.tensor(op.inputs[0]).encoding.scale;
  const float out_scale = graph.tensor(op.outputs[0]).encoding.scale;
  factors_.resize((n_ + 15) / 16 * 16);
  for (size_t n = 0; n < n_; ++n) {
    factors_[n] = ProductFactor(x_scale, ChannelScale(weight.encoding, n), out_scale) / unit_;
  }
}

void QuantizedLinear::ComputeCorrections(const Graph& graph, const Op& op) {
  corrections_.resize((n_ + 15) / 16 * 16);
  const Tensor& x = graph.tensor(op.inputs[0]);
  const double base = table_.products->linear_base(x.dtype);
  const bool is_unsigned = x.dtype == DType::kU8 || x.dtype == DType::kU16;
  const bool needs_base =
      base != 0.0 || table_.products->linear_quantized == nullptr || !is_unsigned;
  if (needs_base) bases_.resize(corrections_.size());
  const double offset = x.encoding.offset;
  const std::byte* bias =
      op.inputs.size() > 2 ? graph.tensor(op.inputs[2]).data->bytes().data() : nullptr;
  for (size_t n = 0; n < n_; ++n) {
    const double sum = weights_->sums()[n];
    if (needs_base) bases_[n] = base * sum;
    corrections_[n] = ZeroPointCorrection(offset * sum, unit_);
    if (bias != nullptr) {
      corrections_[n] += BiasCorrection(LoadInt(bias, DType::kS32, n), unit_);
    }
  }
}

size_t QuantizedLinear::Columns(size_t tile) const {
  return std::min(kTileColumns, n_ - tile * kTileColumns);
}

void QuantizedLinear::RunTile(size_t tile, const ProductRows& x, size_t thread, std::byte* out,
                              size_t out_stride) const {
  const size_t n = tile * kTileColumns;
  const size_t k_groups = (k_ + 3) / 4;
  const double* bases = bases_.empty() ? nullptr : &bases_[n];
  const ProductFinish finish = {bases, &corrections_[n], &factors_[n], unit_, out_};
  const int8_t* weights = nullptr;
  if (!weights_->is_nibbles()) {
    weights = weights_->data() + n / 16 * k_groups * 64;
  } else if (x.count == 1 && table_.products->row_by_nibbles != nullptr &&
             (x.dtype == DType::kU8 || x.dtype == DType::kU16)) {
    table_.products->row_by_nibbles(x.data, x.dtype, weights_->Nibbles(n, Columns(tile)), finish,
                                    out);
    return;
  } else {
    auto* unpacked = reinterpret_cast<int8_t*>(workspace_.OfThread(thread, unpacked_));
    weights_->Unpack(n, Columns(tile), unpacked);
    weights = unpacked;
  }
  QuantizedProduct(table_, x, {weights, k_groups, Columns(tile)}, finish,
                   reinterpret_cast<double*>(workspace_.OfThread(thread, scratch_)), out,
                   out_stride);
}

}  // namespace spillway::host
