// Add, Mul (second input broadcast), Silu, GeluTanh, Convert.

#include <algorithm>
#include <optional>
#include <vector>

#include "host/fast_kernels.h"
#include "host/integer_functions.h"
#include "host/kernel_table.h"
#include "host/parallel.h"

namespace spillway::host {
namespace {

constexpr size_t kTile = kMaxRun;

// The elements to compute, in tiles.
struct ElementRange {
  size_t begin, end;
  size_t Tiles() const { return (end - begin + kTile - 1) / kTile; }
  size_t At(size_t tile) const { return std::min(end, begin + tile * kTile); }
};

// The output as rows over which b is one contiguous run or one value.
struct BroadcastRows {
  BroadcastRows(const Shape& a, const Shape& b) {
    size_t d = a.size();
    // Trailing dimensions that are all equal, or all 1 in b, make one row.
    repeats = d > 0 && b[d - 1] == 1 && a[d - 1] != 1;
    while (d > 0 && (repeats ? b[d - 1] == 1 : b[d - 1] == a[d - 1])) {
      width *= a[d - 1];
      --d;
    }
    std::vector<size_t> strides(d, 0);
    size_t stride = repeats ? 1 : width;
    for (size_t i = d; i-- > 0;) {
      strides[i] = b[i] == 1 ? 0 : stride;
      stride *= b[i];
    }
    size_t rows = 1;
    for (size_t i = 0; i < d; ++i) rows *= a[i];
    starts.resize(rows, 0);
    for (size_t row = 0; row < rows; ++row) {
      size_t rest = row;
      for (size_t i = d; i-- > 0;) {
        starts[row] += rest % a[i] * strides[i];
        rest /= a[i];
      }
    }
  }
  size_t width = 1;
  bool repeats = false;        // b has one value a row
  std::vector<size_t> starts;  // where b's row begins, for each row of a
};

class BinaryKernel : public Kernel {
 public:
  BinaryKernel(const Graph& graph, const Op& op, const KernelOptions& options)
      : vectors_(*options.table->vectors),
        add_(op.type == OpType::kAdd),
        a_(graph.tensor(op.inputs[0])),
        b_(graph.tensor(op.inputs[1])),
        out_size_(DTypeSize(graph.tensor(op.outputs[0]).dtype)),
        rows_(a_.shape, b_.shape),
        last_(rows_.width) {
    if (a_.dtype != DType::kF32) {
      integers_.emplace(op.type, a_, b_, graph.tensor(op.outputs[0]), vectors_);
    }
  }

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    // Items are tiles of rows, so that one long row is split as well.
    const size_t tiles = (last_ - first_ + kTile - 1) / kTile;
    ParallelFor(pool, rows_.starts.size() * tiles, std::min(kTile, last_ - first_) * 2,
                [&](size_t first, size_t last, size_t) {
                  for (size_t item = first; item < last; ++item) {
                    const size_t row = item / tiles;
                    const size_t column = first_ + item % tiles * kTile;
                    const size_t n = std::min(kTile, last_ - column);
                    const size_t at = row * rows_.width + column;
                    const size_t b_at = rows_.starts[row] + (rows_.repeats ? 0 : column);
                    if (integers_) {
                      integers_->Run(buffers.inputs[0] + at * DTypeSize(a_.dtype),
                                     buffers.inputs[1] + b_at * DTypeSize(b_.dtype), rows_.repeats,
                                     n, buffers.output + at * out_size_);
                    } else {
                      RunFloat(buffers, at, b_at, n);
                    }
                  }
                });
    return OkStatus();
  }

  void LimitRows(size_t first, size_t count) override {
    if (rows_.starts.size() != 1 || rows_.repeats) return;  // b is broadcast
    first_ = first * a_.shape.back();
    last_ = first_ + count * a_.shape.back();
  }

 private:
  void RunFloat(const StepBuffers& buffers, size_t at, size_t b_at, size_t n) const {
    const float* a = reinterpret_cast<const float*>(buffers.inputs[0]) + at;
    const float* b = reinterpret_cast<const float*>(buffers.inputs[1]) + b_at;
    float* out = reinterpret_cast<float*>(buffers.output) + at;
    float repeated[kTile];
    if (rows_.repeats) {
      std::fill_n(repeated, n, *b);
      b = repeated;
    }
    (add_ ? vectors_.add_f32 : vectors_.multiply_f32)(a, b, n, out);
  }

  const VectorOps& vectors_;
  bool add_;
  const Tensor& a_;
  const Tensor& b_;
  size_t out_size_;  // bytes of a value
  BroadcastRows rows_;
  size_t first_ = 0, last_;                // of each row, what to compute
  std::optional<IntegerBinary> integers_;  // none: floats
};

// Silu, GeluTanh in fixed point. 8-bit inputs through a table of every value.
class ActivationKernel : public Kernel {
 public:
  ActivationKernel(const Graph& graph, const Op& op, const KernelOptions& options)
      : in_(graph.tensor(op.inputs[0])),
        range_{0, NumElements(in_.shape)},
        out_size_(DTypeSize(graph.tensor(op.outputs[0]).dtype)),
        function_(op.type, in_, graph.tensor(op.outputs[0]), *options.table->vectors) {
    if (DTypeSize(in_.dtype) == 1) MakeTable();
  }

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    const size_t cost = table_.empty() ? kTile * 8 : kTile;
    ParallelFor(pool, range_.Tiles(), cost, [&](size_t first, size_t last, size_t) {
      for (size_t at = range_.At(first); at < range_.At(last); at += kTile) {
        const size_t n = std::min(kTile, range_.end - at);
        const std::byte* in = buffers.inputs[0] + at * DTypeSize(in_.dtype);
        std::byte* out = buffers.output + at * out_size_;
        if (table_.empty()) {
          function_.Run(in, n, out);
        } else {
          Look(reinterpret_cast<const uint8_t*>(in), n, out);
        }
      }
    });
    return OkStatus();
  }

  void LimitRows(size_t first, size_t count) override {
    range_.begin = first * in_.shape.back();
    range_.end = range_.begin + count * in_.shape.back();
  }

 private:
  // The index is the stored value's bits.
  void MakeTable() {
    std::vector<std::byte> bits(256);
    for (size_t i = 0; i < 256; ++i) bits[i] = static_cast<std::byte>(i);
    std::vector<std::byte> table(256 * out_size_);
    function_.Run(bits.data(), 256, table.data());
    table_ = std::move(table);
  }

  void Look(const uint8_t* in, size_t n, std::byte* out) const {
    if (out_size_ == 1) {
      for (size_t i = 0; i < n; ++i) out[i] = table_[in[i]];
      return;
    }
    const auto* table = reinterpret_cast<const uint16_t*>(table_.data());
    for (size_t i = 0; i < n; ++i) reinterpret_cast<uint16_t*>(out)[i] = table[in[i]];
  }

  const Tensor& in_;
  ElementRange range_;
  size_t out_size_;  // bytes of a value
  IntegerActivation function_;
  std::vector<std::byte> table_;  // empty: computed
};

class ConvertKernel : public Kernel {
 public:
  ConvertKernel(const Graph& graph, const Op& op, const KernelOptions& options)
      : vectors_(*options.table->vectors),
        in_(graph.tensor(op.inputs[0])),
        range_{0, NumElements(in_.shape)},
        factor_(RatioFactor(in_.encoding.scale, graph.tensor(op.outputs[0]).encoding.scale)),
        out_(graph.tensor(op.outputs[0])) {}

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    ParallelFor(pool, range_.Tiles(), kTile * 2, [&](size_t first, size_t last, size_t) {
      double values[kTile];
      for (size_t at = range_.At(first); at < range_.At(last); at += kTile) {
        const size_t n = std::min(kTile, range_.end - at);
        vectors_.load(buffers.inputs[0] + at * DTypeSize(in_.dtype), in_.dtype, n,
                      in_.encoding.offset, values);
        vectors_.scale(values, factor_, n);
        vectors_.store(values, n, out_, buffers.output + at * DTypeSize(out_.dtype));
      }
    });
    return OkStatus();
  }

  void LimitRows(size_t first, size_t count) override {
    range_.begin = first * in_.shape.back();
    range_.end = range_.begin + count * in_.shape.back();
  }

 private:
  const VectorOps& vectors_;
  const Tensor& in_;
  ElementRange range_;
  double factor_;
  OutputSpec out_;
};

class FloatUnary : public Kernel {
 public:
  FloatUnary(const Graph& graph, const Op& op, const KernelOptions& options)
      : function_(op.type == OpType::kSilu ? options.table->vectors->silu_f32
                                           : options.table->vectors->gelu_tanh_f32),
        count_(NumElements(graph.tensor(op.outputs[0]).shape)) {}

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    const float* x = reinterpret_cast<const float*>(buffers.inputs[0]);
    float* out = reinterpret_cast<float*>(buffers.output);
    ParallelFor(pool, count_, 8, [&](size_t begin, size_t end, size_t) {
      function_(x + begin, end - begin, out + begin);
    });
    return OkStatus();
  }

 private:
  void (*function_)(const float* x, size_t n, float* out);
  size_t count_;
};

}  // namespace

std::unique_ptr<Kernel> MakeBinary(const Graph& graph, const Op& op, const KernelOptions& options) {
  return std::make_unique<BinaryKernel>(graph, op, options);
}

std::unique_ptr<Kernel> MakeUnary(const Graph& graph, const Op& op, const KernelOptions& options) {
  const bool from_float = graph.tensor(op.inputs[0]).dtype == DType::kF32;
  const bool to_float = graph.tensor(op.outputs[0]).dtype == DType::kF32;
  if (op.type == OpType::kConvert) {
    if (from_float || to_float) return nullptr;
    return std::make_unique<ConvertKernel>(graph, op, options);
  }
  if (from_float) return std::make_unique<FloatUnary>(graph, op, options);
  return std::make_unique<ActivationKernel>(graph, op, options);
}

}  // namespace spillway::host
