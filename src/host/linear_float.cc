// Linear in f32. Weights are turned to f32 a tile of channels at a time, in
// scratch memory of the thread, so the model's quantised weights never exist in
// f32 as a whole.

#include <algorithm>

#include "base/memory.h"
#include "host/fast_kernels.h"
#include "host/kernel_table.h"
#include "host/parallel.h"

namespace spillway::host {
namespace {

// A tile's weights stay in the second-level cache.
constexpr size_t kTileBytes = 512 * 1024;

size_t TileChannels(size_t k, size_t n) {
  const size_t fit = std::clamp<size_t>(kTileBytes / (k * sizeof(float)) / 12 * 12, 12, 96);
  return std::min(fit, n);
}

class FloatLinear : public Kernel {
 public:
  FloatLinear(const Graph& graph, const Op& op, const KernelOptions& options)
      : vectors_(*options.table->vectors),
        weight_(graph.tensor(op.inputs[1])),
        has_bias_(op.inputs.size() > 2),
        rows_(graph.tensor(op.outputs[0]).shape[2]),
        k_(weight_.shape[1]),
        n_(weight_.shape[0]),
        tile_(TileChannels(k_, n_)) {
    if (!IsPlain()) scratch_ = AlignedBuffer(options.pool->threads() * tile_ * k_ * sizeof(float));
  }

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    const size_t tiles = (n_ + tile_ - 1) / tile_;
    ParallelFor(pool, tiles, tile_ * k_, [&](size_t first, size_t last, size_t thread) {
      for (size_t tile = first; tile < last; ++tile) RunTile(tile * tile_, buffers, thread);
    });
    return OkStatus();
  }

  void LimitRows(size_t first, size_t count) override {
    first_row_ = first;
    rows_ = count;
  }

 private:
  // The weights are f32 in memory already.
  bool IsPlain() const { return weight_.dtype == DType::kF32 && !weight_.data->bytes().empty(); }

  const float* Weights(size_t n, size_t count, size_t thread) {
    if (IsPlain()) return reinterpret_cast<const float*>(weight_.data->bytes().data()) + n * k_;
    float* out = reinterpret_cast<float*>(scratch_.data()) + thread * tile_ * k_;
    if (weight_.dtype == DType::kF32) {
      weight_.data->ReadRows(n, count, out);
    } else {
      for (size_t i = 0; i < count; ++i) Dequantize(n + i, out + i * k_);
    }
    return out;
  }

  void Dequantize(size_t n, float* out) const {
    const Encoding& encoding = weight_.encoding;
    const float scale = ChannelScale(encoding, n);
    const size_t block = encoding.kind == Encoding::Kind::kBlock ? encoding.block_size : k_;
    for (size_t k = 0; k < k_; ++k) {
      const int32_t multiplier =
          block == k_ ? BlockScale(n, 1, 0) : BlockScale(n, (k_ + block - 1) / block, k / block);
      out[k] = scale * static_cast<float>(MatrixInt(weight_, n, k) * multiplier);
    }
  }

  int32_t BlockScale(size_t n, size_t blocks, size_t block) const {
    if (weight_.encoding.kind != Encoding::Kind::kBlock) return 1;
    return weight_.encoding.block_scales[n * blocks + block];
  }

  void RunTile(size_t n, const StepBuffers& buffers, size_t thread) {
    const size_t count = std::min(tile_, n_ - n);
    const float* weights = Weights(n, count, thread);
    const float* x = reinterpret_cast<const float*>(buffers.inputs[0]) + first_row_ * k_;
    float* out = reinterpret_cast<float*>(buffers.output) + first_row_ * n_ + n;
    vectors_.product_rows_f32(x, rows_, k_, weights, count, out, n_);
    if (!has_bias_) return;
    const float* bias = reinterpret_cast<const float*>(buffers.inputs[2]) + n;
    for (size_t r = 0; r < rows_; ++r) vectors_.add_f32(out + r * n_, bias, count, out + r * n_);
  }

  const VectorOps& vectors_;
  const Tensor& weight_;
  bool has_bias_;
  size_t first_row_ = 0, rows_;  // to compute
  size_t k_, n_, tile_;
  AlignedBuffer scratch_;  // [threads][tile][k] f32
};

}  // namespace

std::unique_ptr<Kernel> MakeFloatLinear(const Graph& graph, const Op& op,
                                        const KernelOptions& options) {
  return std::make_unique<FloatLinear>(graph, op, options);
}

}  // namespace spillway::host
