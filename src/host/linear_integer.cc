// Linear in fixed point:
//   out = sat(round(factor[n] * (floor(unit * sum_k q_x(r, k) w(n, k)) + correction[n])))
//         - offset
// where correction[n] stands for x.offset * sum_k w(n, k) + bias[n] (quant_math.h),
// and the sums are exact.

#include <algorithm>
#include <vector>

#include "base/memory.h"
#include "host/fast_kernels.h"
#include "host/int_product.h"
#include "host/kernel_table.h"
#include "host/packed_weights.h"
#include "host/parallel.h"

namespace spillway::host {
namespace {

// The unit of work of a thread.
constexpr size_t kTileChannels = 64;
constexpr size_t kTileRows = 48;

class IntegerLinear : public Kernel {
 public:
  IntegerLinear(const Graph& graph, const Op& op, const KernelOptions& options)
      : table_(*options.table),
        products_(*options.table->products),
        dtype_(graph.tensor(op.inputs[0]).dtype),
        rows_{0, graph.tensor(op.outputs[0]).shape[2]},
        k_(graph.tensor(op.inputs[1]).shape[1]),
        n_(graph.tensor(op.inputs[1]).shape[0]),
        row_bytes_(products_.linear_row_bytes(dtype_, k_)),
        out_(graph.tensor(op.outputs[0])),
        weights_(PackedWeights::Get(graph.tensor(op.inputs[1]), *options.table, *options.pool)),
        prepared_(rows_.end * row_bytes_),
        scratch_(options.pool->threads() * kProductScratch * sizeof(double)),
        unpacked_bytes_(weights_->is_nibbles() ? kTileChannels * k_ : 0),
        unpacked_(options.pool->threads() * unpacked_bytes_) {
    unit_ = ProductUnit(dtype_, graph.tensor(op.inputs[1]).dtype);
    ComputeFactors(graph, op);
    ComputeCorrections(graph, op);
  }

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    const size_t begin = rows_.begin, end = rows_.end;
    ParallelFor(pool, end - begin, k_, [&](size_t first, size_t last, size_t) {
      for (size_t r = begin + first; r < begin + last; ++r) {
        products_.prepare_linear_row(buffers.inputs[0] + r * k_ * DTypeSize(dtype_), dtype_, k_,
                                     prepared_.data() + r * row_bytes_);
      }
    });
    // Bands of rows change faster than tiles of channels: a tile's weights stay in the cache.
    const size_t tiles = (n_ + kTileChannels - 1) / kTileChannels;
    const size_t bands = (end - begin + kTileRows - 1) / kTileRows;
    ParallelFor(pool, tiles * bands, std::min(end - begin, kTileRows) * k_ * kTileChannels / 16,
                [&](size_t first, size_t last, size_t thread) {
                  for (size_t item = first; item < last; ++item) {
                    const size_t row = begin + item % bands * kTileRows;
                    RunTile(item / bands, row, std::min(kTileRows, end - row), buffers.output,
                            thread);
                  }
                });
    return OkStatus();
  }

  void LimitRows(size_t first, size_t count) override { rows_ = {first, first + count}; }

 private:
  void ComputeFactors(const Graph& graph, const Op& op) {
    const Tensor& weight = graph.tensor(op.inputs[1]);
    const float x_scale = graph.tensor(op.inputs[0]).encoding.scale;
    const float out_scale = graph.tensor(op.outputs[0]).encoding.scale;
    factors_.resize((n_ + 15) / 16 * 16);
    for (size_t n = 0; n < n_; ++n) {
      factors_[n] = ProductFactor(x_scale, ChannelScale(weight.encoding, n), out_scale) / unit_;
    }
  }

  void ComputeCorrections(const Graph& graph, const Op& op) {
    corrections_.resize((n_ + 15) / 16 * 16);
    bases_.resize(corrections_.size());
    const double offset = graph.tensor(op.inputs[0]).encoding.offset;
    const std::byte* bias =
        op.inputs.size() > 2 ? graph.tensor(op.inputs[2]).data->bytes().data() : nullptr;
    for (size_t n = 0; n < n_; ++n) {
      const double sum = weights_->sums()[n];
      bases_[n] = products_.linear_base(dtype_) * sum;
      corrections_[n] = ZeroPointCorrection(offset * sum, unit_);
      if (bias != nullptr) {
        corrections_[n] += BiasCorrection(LoadInt(bias, DType::kS32, n), unit_);
      }
    }
  }

  void RunTile(size_t tile, size_t row, size_t rows, std::byte* output, size_t thread) {
    const size_t n = tile * kTileChannels;
    const size_t count = std::min(kTileChannels, n_ - n);
    const size_t size = DTypeSize(out_.dtype);
    const std::byte* x = prepared_.data() + row * row_bytes_;
    const ProductFinish finish = {&bases_[n], &corrections_[n], &factors_[n], unit_, out_};
    std::byte* out = output + (row * n_ + n) * size;
    const int8_t* weights = nullptr;
    if (!weights_->is_nibbles()) {
      weights = weights_->data() + n / 16 * Groups() * 64;
    } else if (rows == 1 && products_.row_by_nibbles != nullptr &&
               (dtype_ == DType::kU8 || dtype_ == DType::kU16)) {
      products_.row_by_nibbles(x, dtype_, weights_->Nibbles(n, count), finish, out);
      return;
    } else {
      auto* unpacked = reinterpret_cast<int8_t*>(unpacked_.data() + thread * unpacked_bytes_);
      weights_->Unpack(n, count, unpacked);
      weights = unpacked;
    }
    QuantizedProduct(table_, {x, row_bytes_, rows, dtype_}, {weights, Groups(), count}, finish,
                     reinterpret_cast<double*>(scratch_.data()) + thread * kProductScratch, out,
                     n_ * size);
  }

  size_t Groups() const { return (k_ + 3) / 4; }

  const KernelTable& table_;
  const IntegerProducts& products_;
  DType dtype_;
  struct {
    size_t begin, end;
  } rows_;
  size_t k_, n_, row_bytes_;
  OutputSpec out_;
  std::shared_ptr<const PackedWeights> weights_;
  std::vector<double> factors_;      // [n], padded to whole blocks
  std::vector<double> corrections_;  // likewise
  std::vector<double> bases_;        // likewise: what the products' own base left out
  double unit_ = 1.0;
  AlignedBuffer prepared_;  // [rows][row_bytes]
  AlignedBuffer scratch_;   // [threads][kProductScratch] f64
  size_t unpacked_bytes_;
  AlignedBuffer unpacked_;  // [threads][unpacked_bytes_]: a tile of 4-bit weights as s8
};

}  // namespace

std::unique_ptr<Kernel> MakeIntegerLinear(const Graph& graph, const Op& op,
                                          const KernelOptions& options) {
  if ((graph.tensor(op.inputs[1]).shape[1] + 3) / 4 > kMaxLinearGroups) return nullptr;
  return std::make_unique<IntegerLinear>(graph, op, options);
}

}  // namespace spillway::host
