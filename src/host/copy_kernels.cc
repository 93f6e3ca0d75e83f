// Operations that move elements: Transpose, Concat, Tile, Slice.

#include <cstring>
#include <vector>

#include "host/fast_kernels.h"
#include "host/parallel.h"

namespace spillway::host {
namespace {

// Copies pieces of equal length: output piece i comes from one input, at a place
// computed once.
class PieceCopy : public Kernel {
 public:
  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    ParallelFor(pool, pieces_.size(), bytes_ / 4 + 2, [&](size_t begin, size_t end, size_t) {
      for (size_t i = begin; i < end; ++i) {
        std::memcpy(buffers.output + i * bytes_, buffers.inputs[0] + pieces_[i], bytes_);
      }
    });
    return OkStatus();
  }

 protected:
  size_t bytes_ = 0;            // of a piece
  std::vector<size_t> pieces_;  // byte offset in the input, in output order
};

class TransposeKernel : public Kernel {
 public:
  TransposeKernel(const Graph& graph, const Op& op) {
    const Tensor& in = graph.tensor(op.inputs[0]);
    const Tensor& out = graph.tensor(op.outputs[0]);
    const size_t rank = in.shape.size();
    std::vector<size_t> strides(rank, DTypeSize(in.dtype));
    for (size_t d = rank - 1; d > 0; --d) strides[d - 1] = strides[d] * in.shape[d];
    // Trailing dimensions that keep their place are copied whole.
    size_t kept = rank;
    bytes_ = DTypeSize(in.dtype);
    while (kept > 0 && op.attributes.ints[kept - 1] == kept - 1) bytes_ *= in.shape[--kept];
    width_ = kept > 0 ? out.shape[kept - 1] : 1;
    stride_ = kept > 0 ? strides[op.attributes.ints[kept - 1]] : 0;
    size_t rows = 1;
    for (size_t d = 0; d + 1 < kept; ++d) rows *= out.shape[d];
    starts_.resize(rows, 0);
    for (size_t row = 0; row < rows; ++row) {
      size_t rest = row;
      for (size_t d = kept > 0 ? kept - 1 : 0; d-- > 0;) {
        starts_[row] += rest % out.shape[d] * strides[op.attributes.ints[d]];
        rest /= out.shape[d];
      }
    }
  }

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    ParallelFor(
        pool, starts_.size(), width_ * (bytes_ / 8 + 2), [&](size_t begin, size_t end, size_t) {
          for (size_t row = begin; row < end; ++row) {
            CopyRow(buffers.inputs[0] + starts_[row], buffers.output + row * width_ * bytes_);
          }
        });
    return OkStatus();
  }

 private:
  void CopyRow(const std::byte* in, std::byte* out) const {
    switch (bytes_) {
      case 1:
        return CopyElements<uint8_t>(in, out);
      case 2:
        return CopyElements<uint16_t>(in, out);
      case 4:
        return CopyElements<uint32_t>(in, out);
      default:
        for (size_t i = 0; i < width_; ++i) {
          std::memcpy(out + i * bytes_, in + i * stride_, bytes_);
        }
    }
  }

  template <typename T>
  void CopyElements(const std::byte* in, std::byte* out) const {
    T* to = reinterpret_cast<T*>(out);
    for (size_t i = 0; i < width_; ++i) to[i] = *reinterpret_cast<const T*>(in + i * stride_);
  }

  size_t bytes_ = 0;            // of a piece that stays together
  size_t width_ = 0;            // pieces of the innermost moved dimension
  size_t stride_ = 0;           // bytes between them in the input
  std::vector<size_t> starts_;  // bytes, for each row of the output
};

class ConcatKernel : public Kernel {
 public:
  ConcatKernel(const Graph& graph, const Op& op) {
    const Tensor& out = graph.tensor(op.outputs[0]);
    size_t inner = DTypeSize(out.dtype);
    for (size_t d = op.attributes.axis + 1; d < out.shape.size(); ++d) inner *= out.shape[d];
    out_row_ = out.shape[op.attributes.axis] * inner;
    rows_ = out.Bytes() / out_row_;
    for (const TensorId id : op.inputs) {
      in_rows_.push_back(graph.tensor(id).shape[op.attributes.axis] * inner);
    }
  }

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    ParallelFor(pool, rows_, out_row_ / 8 + 4, [&](size_t begin, size_t end, size_t) {
      for (size_t row = begin; row < end; ++row) {
        std::byte* out = buffers.output + row * out_row_;
        for (size_t i = 0; i < in_rows_.size(); ++i) {
          std::memcpy(out, buffers.inputs[i] + row * in_rows_[i], in_rows_[i]);
          out += in_rows_[i];
        }
      }
    });
    return OkStatus();
  }

 private:
  size_t out_row_ = 0, rows_ = 0;  // bytes of a row of the output, rows
  std::vector<size_t> in_rows_;    // bytes of a row of each input
};

// The innermost repeated dimension and what is inside it is a piece.
class TileKernel : public PieceCopy {
 public:
  TileKernel(const Graph& graph, const Op& op) {
    const Tensor& in = graph.tensor(op.inputs[0]);
    const Tensor& out = graph.tensor(op.outputs[0]);
    size_t outer = in.shape.size();
    bytes_ = DTypeSize(in.dtype);
    while (outer > 0 && op.attributes.ints[outer - 1] == 1) bytes_ *= in.shape[--outer];
    size_t repeats = 1;  // of the dimension that is the last of a piece
    if (outer > 0) {
      repeats = op.attributes.ints[outer - 1];
      bytes_ *= in.shape[--outer];
    }
    size_t rows = 1;
    for (size_t d = 0; d < outer; ++d) rows *= out.shape[d];
    for (size_t row = 0; row < rows; ++row) {
      size_t at = 0;
      size_t stride = bytes_;
      size_t rest = row;
      for (size_t d = outer; d-- > 0;) {
        at += rest % out.shape[d] % in.shape[d] * stride;
        rest /= out.shape[d];
        stride *= in.shape[d];
      }
      pieces_.insert(pieces_.end(), repeats, at);
    }
  }
};

// What is inside the cut axis, and the part of it that stays, is a piece.
class SliceKernel : public PieceCopy {
 public:
  SliceKernel(const Graph& graph, const Op& op) {
    const Tensor& in = graph.tensor(op.inputs[0]);
    const uint32_t axis = op.attributes.axis;
    size_t inner = DTypeSize(in.dtype);
    for (size_t d = axis + 1; d < in.shape.size(); ++d) inner *= in.shape[d];
    bytes_ = inner * op.attributes.ints[1];
    const size_t row = inner * in.shape[axis];
    for (size_t i = 0; i < in.Bytes() / row; ++i) {
      pieces_.push_back(i * row + inner * op.attributes.ints[0]);
    }
  }
};

}  // namespace

std::unique_ptr<Kernel> MakeCopy(const Graph& graph, const Op& op) {
  switch (op.type) {
    case OpType::kTranspose:
      return std::make_unique<TransposeKernel>(graph, op);
    case OpType::kConcat:
      return std::make_unique<ConcatKernel>(graph, op);
    case OpType::kSlice:
      return std::make_unique<SliceKernel>(graph, op);
    default:
      return std::make_unique<TileKernel>(graph, op);
  }
}

}  // namespace spillway::host
