// Operations on whole rows: RmsNorm, Softmax, RotaryEmbedding.

#include <algorithm>
#include <vector>

#include "base/memory.h"
#include "host/fast_kernels.h"
#include "host/kernel_table.h"
#include "host/parallel.h"
#include "host/softmax_weights.h"

namespace spillway::host {
namespace {

bool IsFloat(const Tensor& tensor) { return tensor.dtype == DType::kF32; }

// Doubles for each thread of a pool.
class Scratch {
 public:
  Scratch(const ThreadPool& pool, size_t count)
      : count_(count), buffer_(pool.threads() * count * sizeof(double)) {}
  double* OfThread(size_t thread) const {
    return reinterpret_cast<double*>(buffer_.data()) + thread * count_;
  }

 private:
  size_t count_;
  AlignedBuffer buffer_;
};

// ----------------------------------------------------------------- RmsNorm

class RmsNormKernel : public Kernel {
 public:
  RmsNormKernel(const Graph& graph, const Op& op, const KernelOptions& options)
      : vectors_(*options.table->vectors),
        x_(graph.tensor(op.inputs[0])),
        gamma_(graph.tensor(op.inputs[1])),
        out_(graph.tensor(op.outputs[0])),
        width_(x_.shape.back()),
        rows_(NumElements(x_.shape) / width_),
        epsilon_(op.attributes.epsilon),
        factor_(ProductFactor(x_.encoding.scale, gamma_.encoding.scale,
                              graph.tensor(op.outputs[0]).encoding.scale)),
        values_(*options.pool, IsFloat(x_) ? 0 : width_),
        gamma_values_(IsFloat(x_) ? 0 : width_) {}

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    if (!IsFloat(x_)) {
      vectors_.load(buffers.inputs[1], gamma_.dtype, width_, gamma_.encoding.offset,
                    gamma_values_.data());
    }
    ParallelFor(pool, rows_, width_ * 2, [&](size_t first, size_t last, size_t thread) {
      for (size_t row = first; row < last; ++row) RunRow(first_row_ + row, buffers, thread);
    });
    return OkStatus();
  }

  void LimitRows(size_t first, size_t count) override {
    first_row_ = first;
    rows_ = count;
  }

 private:
  void RunRow(size_t row, const StepBuffers& buffers, size_t thread) const {
    const size_t at = row * width_;
    if (IsFloat(x_)) {
      vectors_.rms_norm_f32(reinterpret_cast<const float*>(buffers.inputs[0]) + at,
                            reinterpret_cast<const float*>(buffers.inputs[1]), epsilon_, width_,
                            reinterpret_cast<float*>(buffers.output) + at);
      return;
    }
    double* values = values_.OfThread(thread);
    vectors_.load(buffers.inputs[0] + at * DTypeSize(x_.dtype), x_.dtype, width_,
                  x_.encoding.offset, values);
    const double inverse = RmsInverse(vectors_.sum_squares(values, width_), x_.encoding.scale,
                                      static_cast<double>(width_), epsilon_);
    vectors_.multiply(values, gamma_values_.data(), factor_ * inverse, width_);
    for (size_t i = 0; i < width_; ++i) values[i] = std::floor(values[i]);
    vectors_.store(values, width_, out_, buffers.output + at * DTypeSize(out_.dtype));
  }

  const VectorOps& vectors_;
  const Tensor& x_;
  const Tensor& gamma_;
  OutputSpec out_;
  size_t width_;
  size_t first_row_ = 0, rows_;  // to compute
  float epsilon_;
  double factor_;
  Scratch values_;
  std::vector<double> gamma_values_;
};

// ----------------------------------------------------------------- Softmax

class SoftmaxKernel : public Kernel {
 public:
  SoftmaxKernel(const Graph& graph, const Op& op, const KernelOptions& options)
      : vectors_(*options.table->vectors),
        x_(graph.tensor(op.inputs[0])),
        out_(graph.tensor(op.outputs[0])),
        out_scale_(graph.tensor(op.outputs[0]).encoding.scale),
        width_(x_.shape.back()),
        rows_(NumElements(x_.shape) / width_),
        values_(*options.pool, IsFloat(x_) ? 0 : width_) {
    if (IsFloat(x_)) return;
    cut_ = SoftmaxIsCut(x_.dtype, out_.dtype);
    weights_ =
        SoftmaxWeights<uint32_t>(x_.encoding.scale, DTypeMax(x_.dtype) - DTypeMin(x_.dtype), cut_);
  }

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    ParallelFor(pool, rows_, width_ * 4, [&](size_t first, size_t last, size_t thread) {
      for (size_t row = first; row < last; ++row) RunRow(row * width_, buffers, thread);
    });
    return OkStatus();
  }

 private:
  void RunRow(size_t at, const StepBuffers& buffers, size_t thread) const {
    if (IsFloat(x_)) {
      vectors_.softmax_f32(reinterpret_cast<const float*>(buffers.inputs[0]) + at, width_,
                           reinterpret_cast<float*>(buffers.output) + at);
      return;
    }
    double* values = values_.OfThread(thread);
    vectors_.load(buffers.inputs[0] + at * DTypeSize(x_.dtype), x_.dtype, width_,
                  x_.encoding.offset, values);
    const double max = vectors_.max(values, width_);
    const double last = static_cast<double>(weights_.size() - 1);
    uint64_t sum = 0;
    for (size_t i = 0; i < width_; ++i) {
      const uint32_t weight =
          weights_[static_cast<size_t>(static_cast<int32_t>(std::min(max - values[i], last)))];
      sum += weight;
      values[i] = weight;
    }
    vectors_.scale(values, 1.0 / (static_cast<double>(sum) * out_scale_), width_);
    for (size_t i = 0; cut_ && i < width_; ++i) values[i] = std::floor(values[i]);
    vectors_.store(values, width_, out_, buffers.output + at * DTypeSize(out_.dtype));
  }

  const VectorOps& vectors_;
  const Tensor& x_;
  OutputSpec out_;
  float out_scale_;
  bool cut_ = false;
  size_t width_, rows_;
  Scratch values_;
  std::vector<uint32_t> weights_;  // SoftmaxWeight by distance from the maximum
};

// --------------------------------------------------------- RotaryEmbedding

class RotaryKernel : public Kernel {
 public:
  RotaryKernel(const Graph& graph, const Op& op, const KernelOptions& options)
      : vectors_(*options.table->vectors),
        x_(graph.tensor(op.inputs[0])),
        cos_(graph.tensor(op.inputs[1])),
        sin_(graph.tensor(op.inputs[2])),
        out_(graph.tensor(op.outputs[0])),
        width_(x_.shape[3]),
        half_(cos_.shape[2]),
        steps_(x_.shape[2]),
        rows_(static_cast<size_t>(x_.shape[1]) * steps_),
        scratch_(*options.pool, IsFloat(x_) ? 0 : 2 * width_ + 2 * half_) {
    const float out_scale = graph.tensor(op.outputs[0]).encoding.scale;
    keep_factor_ = RatioFactor(x_.encoding.scale, out_scale);
    cos_factor_ = ProductFactor(x_.encoding.scale, cos_.encoding.scale, out_scale);
    sin_factor_ = ProductFactor(x_.encoding.scale, sin_.encoding.scale, out_scale);
  }

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    ParallelFor(pool, rows_, width_ * 2, [&](size_t first, size_t last, size_t thread) {
      for (size_t row = first; row < last; ++row) {
        const size_t angle = row % steps_ * half_;
        if (IsFloat(x_)) {
          RunFloat(row * width_, angle, buffers);
        } else {
          RunInteger(row * width_, angle, buffers, scratch_.OfThread(thread));
        }
      }
    });
    return OkStatus();
  }

 private:
  void RunFloat(size_t at, size_t angle, const StepBuffers& buffers) const {
    const float* x = reinterpret_cast<const float*>(buffers.inputs[0]) + at;
    const float* cos = reinterpret_cast<const float*>(buffers.inputs[1]) + angle;
    const float* sin = reinterpret_cast<const float*>(buffers.inputs[2]) + angle;
    float* out = reinterpret_cast<float*>(buffers.output) + at;
    vectors_.rotate_f32(x, x + half_, cos, sin, -1.0f, half_, out);
    vectors_.rotate_f32(x + half_, x, cos, sin, 1.0f, half_, out + half_);
    std::copy(x + 2 * half_, x + width_, out + 2 * half_);
  }

  void RunInteger(size_t at, size_t angle, const StepBuffers& buffers, double* scratch) const {
    double* x = scratch;         // [width]
    double* out = x + width_;    // [width]
    double* cos = out + width_;  // [half]
    double* sin = cos + half_;   // [half]
    vectors_.load(buffers.inputs[0] + at * DTypeSize(x_.dtype), x_.dtype, width_,
                  x_.encoding.offset, x);
    vectors_.load(buffers.inputs[1] + angle * DTypeSize(cos_.dtype), cos_.dtype, half_,
                  cos_.encoding.offset, cos);
    vectors_.load(buffers.inputs[2] + angle * DTypeSize(sin_.dtype), sin_.dtype, half_,
                  sin_.encoding.offset, sin);
    vectors_.rotate(x, x + half_, cos, sin, cos_factor_, -sin_factor_, half_, out);
    vectors_.rotate(x + half_, x, cos, sin, cos_factor_, sin_factor_, half_, out + half_);
    std::copy(x + 2 * half_, x + width_, out + 2 * half_);
    vectors_.scale(out + 2 * half_, keep_factor_, width_ - 2 * half_);
    vectors_.store(out, width_, out_, buffers.output + at * DTypeSize(out_.dtype));
  }

  const VectorOps& vectors_;
  const Tensor& x_;
  const Tensor& cos_;
  const Tensor& sin_;
  OutputSpec out_;
  size_t width_, half_, steps_, rows_;
  Scratch scratch_;
  double keep_factor_ = 0.0, cos_factor_ = 0.0, sin_factor_ = 0.0;
};

}  // namespace

std::unique_ptr<Kernel> MakeRmsNorm(const Graph& graph, const Op& op,
                                    const KernelOptions& options) {
  return std::make_unique<RmsNormKernel>(graph, op, options);
}

std::unique_ptr<Kernel> MakeSoftmax(const Graph& graph, const Op& op,
                                    const KernelOptions& options) {
  return std::make_unique<SoftmaxKernel>(graph, op, options);
}

std::unique_ptr<Kernel> MakeRotaryEmbedding(const Graph& graph, const Op& op,
                                            const KernelOptions& options) {
  return std::make_unique<RotaryKernel>(graph, op, options);
}

}  // namespace spillway::host
