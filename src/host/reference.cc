// The reference kernels: plain loops over the definition of each operation, one
// element at a time, for every supported type. Slow; the yardstick of the others.

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "host/half_kernel.h"
#include "host/kernel.h"
#include "host/quant_math.h"

namespace spillway::host {
namespace {

// One tensor during a run.
struct View {
  const Tensor* tensor = nullptr;
  const std::byte* data = nullptr;

  bool is_float() const { return tensor->dtype == DType::kF32; }
  float scale() const { return tensor->encoding.scale; }
  // q + offset.
  double Centred(size_t i) const {
    return LoadInt(data, tensor->dtype, i) + tensor->encoding.offset;
  }
  double Float(size_t i) const { return reinterpret_cast<const float*>(data)[i]; }
};

struct Output {
  Output(const Tensor& tensor, std::byte* bytes) : data(bytes), spec(tensor) {
    scale = tensor.encoding.scale;
  }
  void Float(size_t i, double value) const {
    reinterpret_cast<float*>(data)[i] = static_cast<float>(value);
  }
  void Steps(size_t i, double steps) const { StoreInt(data, spec.dtype, i, spec.Quantize(steps)); }

  std::byte* data;
  OutputSpec spec;
  float scale = 0.0f;
};

// The integer of a weight that its channel's scale multiplies.
int32_t WeightInt(const Tensor& weight, size_t n, size_t k) {
  const size_t cols = weight.shape[1];
  const int32_t q = MatrixInt(weight, n, k);
  if (weight.encoding.kind != Encoding::Kind::kBlock) return q;
  const size_t size = weight.encoding.block_size;
  return q * weight.encoding.block_scales[n * ((cols + size - 1) / size) + k / size];
}

class ReferenceKernel : public Kernel {
 public:
  ReferenceKernel(const Graph& graph, const Op& op)
      : op_(op), out_tensor_(graph.tensor(op.outputs[0])) {
    for (const TensorId id : op.inputs) in_.push_back({&graph.tensor(id), nullptr});
    if (op.type == OpType::kLinear || op.type == OpType::kGather) {
      row_.resize(in_[op.type == OpType::kLinear ? 1 : 0].tensor->shape[1]);
    }
  }

  Status Run(const StepBuffers& buffers, ThreadPool& /*pool*/) override {
    for (size_t i = 0; i < in_.size(); ++i) in_[i].data = buffers.inputs[i];
    const Output out(out_tensor_, buffers.output);
    switch (op_.type) {
      case OpType::kLinear:
        if (in_[0].is_float()) {
          FloatLinear(out);
        } else {
          IntegerLinear(out);
        }
        break;
      case OpType::kMatMul:
        MatMul(out);
        break;
      case OpType::kAdd:
      case OpType::kMul:
        Binary(out);
        break;
      case OpType::kSilu:
      case OpType::kGeluTanh:
      case OpType::kConvert:
        Unary(out);
        break;
      case OpType::kRmsNorm:
        RmsNorm(out);
        break;
      case OpType::kSoftmax:
        Softmax(out);
        break;
      case OpType::kRotaryEmbedding:
        RotaryEmbedding(out);
        break;
      case OpType::kGather:
        return Gather(out);
      case OpType::kReshape:
        std::memcpy(out.data, in_[0].data, in_[0].tensor->Bytes());
        break;
      case OpType::kTranspose:
        Transpose(out);
        break;
      case OpType::kConcat:
        Concat(out);
        break;
      case OpType::kTile:
        Tile(out);
        break;
      case OpType::kSlice:
        Slice(out);
        break;
    }
    return OkStatus();
  }

  void LimitRows(size_t first, size_t count) override {
    first_row_ = first;
    end_row_ = first + count;
  }

 private:
  size_t Elements() const { return NumElements(out_tensor_.shape); }
  size_t Columns() const { return out_tensor_.shape.back(); }

  // Row n of the weight in row_, in f32.
  void ReadWeightRow(size_t n) {
    const Tensor& weight = *in_[1].tensor;
    const size_t cols = row_.size();
    if (weight.dtype == DType::kS8) {
      const float scale = ChannelScale(weight.encoding, n);
      for (size_t k = 0; k < cols; ++k) {
        row_[k] = scale * static_cast<float>(WeightInt(weight, n, k));
      }
    } else if (weight.data->bytes().empty()) {
      weight.data->ReadRows(n, 1, row_.data());
    } else {
      std::memcpy(row_.data(), weight.data->bytes().data() + n * cols * sizeof(float),
                  cols * sizeof(float));
    }
  }

  void FloatLinear(const Output& out) {
    const size_t k_count = row_.size();
    const size_t rows = out_tensor_.shape[2];
    const size_t n_count = Columns();
    for (size_t n = 0; n < n_count; ++n) {
      ReadWeightRow(n);
      for (size_t r = first_row_; r < std::min(rows, end_row_); ++r) {
        double sum = in_.size() > 2 ? in_[2].Float(n) : 0.0;
        for (size_t k = 0; k < k_count; ++k) sum += in_[0].Float(r * k_count + k) * row_[k];
        out.Float(r * n_count + n, sum);
      }
    }
  }

  void IntegerLinear(const Output& out) {
    const View& x = in_[0];
    const Tensor& weight = *in_[1].tensor;
    const size_t k_count = row_.size();
    const size_t rows = out_tensor_.shape[2];
    const size_t n_count = Columns();
    for (size_t n = 0; n < n_count; ++n) {
      for (size_t k = 0; k < k_count; ++k) row_[k] = static_cast<float>(WeightInt(weight, n, k));
      const double unit = ProductUnit(x.tensor->dtype, weight.dtype);
      const double factor =
          ProductFactor(x.scale(), ChannelScale(weight.encoding, n), out.scale) / unit;
      double weight_sum = 0.0;
      for (size_t k = 0; k < k_count; ++k) weight_sum += static_cast<double>(row_[k]);
      double correction = ZeroPointCorrection(x.tensor->encoding.offset * weight_sum, unit);
      if (in_.size() > 2) {
        correction += BiasCorrection(LoadInt(in_[2].data, DType::kS32, n), unit);
      }
      for (size_t r = first_row_; r < std::min(rows, end_row_); ++r) {
        double sum = 0.0;
        for (size_t k = 0; k < k_count; ++k) {
          sum += LoadInt(x.data, x.tensor->dtype, r * k_count + k) * static_cast<double>(row_[k]);
        }
        out.Steps(r * n_count + n, factor * (std::floor(sum * unit) + correction));
      }
    }
  }

  void MatMul(const Output& out) {
    const View& a = in_[0];
    const View& b = in_[1];
    const size_t rank = out_tensor_.shape.size();
    const size_t rows = out_tensor_.shape[rank - 2];
    const size_t n_count = Columns();
    const size_t k_count = a.tensor->shape.back();
    const double unit = ProductUnit(a.tensor->dtype, b.tensor->dtype);
    const double factor =
        a.is_float() ? 1.0 : ProductFactor(a.scale(), b.scale(), out.scale) / unit;
    for (size_t i = 0; i < Elements(); ++i) {
      const size_t n = i % n_count;
      const size_t batch = i / n_count / rows;
      const size_t a_at = i / n_count * k_count;
      const size_t b_at = batch * k_count * n_count + n;
      double sum = 0.0, b_sum = 0.0;
      for (size_t k = 0; k < k_count; ++k) {
        if (a.is_float()) {
          sum += a.Float(a_at + k) * b.Float(b_at + k * n_count);
        } else {
          const double centred = b.Centred(b_at + k * n_count);
          sum += LoadInt(a.data, a.tensor->dtype, a_at + k) * centred;
          b_sum += centred;
        }
      }
      if (a.is_float()) {
        out.Float(i, sum);
      } else {
        out.Steps(i, factor * (std::floor(sum * unit) +
                               ZeroPointCorrection(a.tensor->encoding.offset * b_sum, unit)));
      }
    }
  }

  // Index of b's element for element i of a.
  size_t Broadcast(size_t i) const {
    const Shape& shape = in_[1].tensor->shape;
    size_t at = 0;
    size_t stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      const size_t position = i % out_tensor_.shape[d];
      i /= out_tensor_.shape[d];
      if (shape[d] != 1) at += position * stride;
      stride *= shape[d];
    }
    return at;
  }

  void Binary(const Output& out) {
    const View& a = in_[0];
    const View& b = in_[1];
    const bool add = op_.type == OpType::kAdd;
    const SumFactors sum = add && !a.is_float()
                               ? MakeSumFactors(a.scale(), b.scale(), out.scale, out_tensor_.dtype)
                               : SumFactors{1.0, 1.0};
    for (size_t i = 0; i < Elements(); ++i) {
      const size_t j = Broadcast(i);
      if (a.is_float()) {
        out.Float(i, add ? a.Float(i) + b.Float(j) : a.Float(i) * b.Float(j));
      } else if (add) {
        out.Steps(i, sum.a * a.Centred(i) + sum.b * b.Centred(j));
      } else {
        out.Steps(i,
                  ProductFactor(a.scale(), b.scale(), out.scale) * (a.Centred(i) * b.Centred(j)));
      }
    }
  }

  void Unary(const Output& out) {
    const View& x = in_[0];
    const bool to_float = out_tensor_.dtype == DType::kF32;
    for (size_t i = 0; i < Elements(); ++i) {
      if (op_.type == OpType::kConvert && !x.is_float() && !to_float) {
        out.Steps(i, RatioFactor(x.scale(), out.scale) * x.Centred(i));
        continue;
      }
      double real = x.is_float() ? x.Float(i) : x.Centred(i) * x.scale();
      if (op_.type == OpType::kSilu) real = SiluOf(real);
      if (op_.type == OpType::kGeluTanh) real = GeluTanhOf(real);
      if (to_float) {
        out.Float(i, real);
      } else {
        out.Steps(i, real / out.scale);
      }
    }
  }

  void RmsNorm(const Output& out) {
    const View& x = in_[0];
    const View& gamma = in_[1];
    const size_t width = Columns();
    for (size_t start = 0; start < Elements(); start += width) {
      double squares = 0.0;
      for (size_t i = 0; i < width; ++i) {
        const double value = x.is_float() ? x.Float(start + i) : x.Centred(start + i);
        squares += value * value;
      }
      const double inverse = RmsInverse(squares, x.is_float() ? 1.0 : x.scale(),
                                        static_cast<double>(width), op_.attributes.epsilon);
      if (x.is_float()) {
        for (size_t i = 0; i < width; ++i) {
          out.Float(start + i, x.Float(start + i) * inverse * gamma.Float(i));
        }
        continue;
      }
      const double factor = ProductFactor(x.scale(), gamma.scale(), out.scale) * inverse;
      for (size_t i = 0; i < width; ++i) {
        out.Steps(start + i, std::floor(factor * (x.Centred(start + i) * gamma.Centred(i))));
      }
    }
  }

  void Softmax(const Output& out) {
    const size_t width = Columns();
    for (size_t start = 0; start < Elements(); start += width) {
      if (in_[0].is_float()) {
        FloatSoftmaxRow(out, start, width);
      } else {
        IntegerSoftmaxRow(out, start, width);
      }
    }
  }

  void FloatSoftmaxRow(const Output& out, size_t start, size_t width) const {
    const View& x = in_[0];
    double max = x.Float(start);
    for (size_t i = 1; i < width; ++i) max = std::max(max, x.Float(start + i));
    double sum = 0.0;
    for (size_t i = 0; i < width; ++i) sum += std::exp(x.Float(start + i) - max);
    for (size_t i = 0; i < width; ++i) {
      out.Float(start + i, std::exp(x.Float(start + i) - max) / sum);
    }
  }

  void IntegerSoftmaxRow(const Output& out, size_t start, size_t width) const {
    const View& x = in_[0];
    double max = x.Centred(start);
    for (size_t i = 1; i < width; ++i) max = std::max(max, x.Centred(start + i));
    const bool cut = SoftmaxIsCut(x.tensor->dtype, out_tensor_.dtype);
    const auto weight = [&](size_t i) {
      return SoftmaxWeight(x.scale(), static_cast<int64_t>(max - x.Centred(start + i)), cut);
    };
    double sum = 0.0;
    for (size_t i = 0; i < width; ++i) sum += weight(i);
    const double factor = 1.0 / (sum * out.scale);
    for (size_t i = 0; i < width; ++i) {
      const double steps = weight(i) * factor;
      out.Steps(start + i, cut ? std::floor(steps) : steps);
    }
  }

  void RotaryEmbedding(const Output& out) {
    const View& x = in_[0];
    const size_t width = Columns();
    const size_t half = in_[1].tensor->shape[2];
    const size_t steps = out_tensor_.shape[2];
    for (size_t i = 0; i < Elements(); ++i) {
      const size_t column = i % width;
      const size_t position = i / width % steps;
      if (column >= 2 * half) {
        if (x.is_float()) {
          out.Float(i, x.Float(i));
        } else {
          out.Steps(i, RatioFactor(x.scale(), out.scale) * x.Centred(i));
        }
        continue;
      }
      // First half: a cos - b sin; second half: a cos + b sin, b its partner.
      const bool first = column < half;
      const size_t other = first ? i + half : i - half;
      const size_t at = position * half + column % half;
      Rotate(out, i, other, at, first ? -1.0 : 1.0);
    }
  }

  void Rotate(const Output& out, size_t i, size_t other, size_t at, double sign) const {
    const View& x = in_[0];
    const View& cos = in_[1];
    const View& sin = in_[2];
    if (x.is_float()) {
      out.Float(i, x.Float(i) * cos.Float(at) + sign * (x.Float(other) * sin.Float(at)));
      return;
    }
    const double along =
        ProductFactor(x.scale(), cos.scale(), out.scale) * (x.Centred(i) * cos.Centred(at));
    const double across =
        ProductFactor(x.scale(), sin.scale(), out.scale) * (x.Centred(other) * sin.Centred(at));
    out.Steps(i, along + sign * across);
  }

  Status Gather(const Output& out) {
    const Tensor& table = *in_[0].tensor;
    const size_t width = table.shape[1];
    const size_t bytes = width * DTypeSize(table.dtype);
    for (size_t i = 0; i < in_[1].tensor->shape[1]; ++i) {
      const int32_t index = LoadInt(in_[1].data, DType::kI32, i);
      SPILLWAY_RETURN_IF_ERROR(CheckIndex(op_, *in_[1].tensor, table, index));
      if (in_[0].data == nullptr) {
        table.data->ReadRows(static_cast<uint64_t>(index), 1, row_.data());
        std::memcpy(out.data + i * bytes, row_.data(), bytes);
      } else {
        std::memcpy(out.data + i * bytes, in_[0].data + static_cast<size_t>(index) * bytes, bytes);
      }
    }
    return OkStatus();
  }

  void CopyElement(const Output& out, size_t to, const View& from, size_t at) const {
    const size_t size = DTypeSize(out_tensor_.dtype);
    std::memcpy(out.data + to * size, from.data + at * size, size);
  }

  void Transpose(const Output& out) {
    const Shape& in_shape = in_[0].tensor->shape;
    const size_t rank = in_shape.size();
    std::vector<size_t> strides(rank, 1);
    for (size_t d = rank - 1; d > 0; --d) strides[d - 1] = strides[d] * in_shape[d];
    for (size_t i = 0; i < Elements(); ++i) {
      size_t at = 0;
      size_t rest = i;
      for (size_t d = rank; d-- > 0;) {
        at += rest % out_tensor_.shape[d] * strides[op_.attributes.ints[d]];
        rest /= out_tensor_.shape[d];
      }
      CopyElement(out, i, in_[0], at);
    }
  }

  void Concat(const Output& out) {
    size_t inner = 1;
    for (size_t d = op_.attributes.axis + 1; d < out_tensor_.shape.size(); ++d) {
      inner *= out_tensor_.shape[d];
    }
    const size_t out_row = out_tensor_.shape[op_.attributes.axis] * inner;
    size_t offset = 0;
    for (const View& in : in_) {
      const size_t in_row = in.tensor->shape[op_.attributes.axis] * inner;
      const size_t count = NumElements(in.tensor->shape);
      for (size_t i = 0; i < count; ++i) {
        CopyElement(out, i / in_row * out_row + offset + i % in_row, in, i);
      }
      offset += in_row;
    }
  }

  void Tile(const Output& out) {
    const Shape& in_shape = in_[0].tensor->shape;
    for (size_t i = 0; i < Elements(); ++i) {
      size_t at = 0;
      size_t stride = 1;
      size_t rest = i;
      for (size_t d = in_shape.size(); d-- > 0;) {
        at += rest % out_tensor_.shape[d] % in_shape[d] * stride;
        rest /= out_tensor_.shape[d];
        stride *= in_shape[d];
      }
      CopyElement(out, i, in_[0], at);
    }
  }

  void Slice(const Output& out) {
    const uint32_t axis = op_.attributes.axis;
    size_t inner = 1;
    for (size_t d = axis + 1; d < out_tensor_.shape.size(); ++d) inner *= out_tensor_.shape[d];
    const size_t out_row = inner * out_tensor_.shape[axis];
    const size_t in_row = inner * in_[0].tensor->shape[axis];
    for (size_t i = 0; i < Elements(); ++i) {
      CopyElement(out, i, in_[0],
                  i / out_row * in_row + inner * op_.attributes.ints[0] + i % out_row);
    }
  }

  const Op& op_;
  const Tensor& out_tensor_;
  std::vector<View> in_;
  std::vector<float> row_;                     // one row of a weight or of a table
  size_t first_row_ = 0, end_row_ = SIZE_MAX;  // of LimitRows()
};

}  // namespace

Status CheckIndex(const Op& op, const Tensor& indices, const Tensor& table, int32_t index) {
  if (index >= 0 && static_cast<uint32_t>(index) < table.shape[0]) return OkStatus();
  return InvalidArgumentError(fmt::format("operation {}: tensor {} holds {}; {} has rows 0 to {}",
                                          op.name, indices.name, index, table.name,
                                          table.shape[0] - 1));
}

std::unique_ptr<Kernel> MakeReferenceKernel(const Graph& graph, const Op& op) {
  if (ComputesInHalf(graph, op)) return MakeHalfKernel(graph, op, MakeReferenceKernel);
  return std::make_unique<ReferenceKernel>(graph, op);
}

}  // namespace spillway::host
