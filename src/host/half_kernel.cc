#include "host/half_kernel.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "base/memory.h"
#include "host/parallel.h"

namespace spillway::host {
namespace {

void ToFloats(const std::byte* halves, size_t count, float* out) {
  const auto* in = reinterpret_cast<const uint16_t*>(halves);
  for (size_t i = 0; i < count; ++i) out[i] = HalfToFloat(in[i]);
}

// A matrix of f16 in memory, read as rows of f32.
class HalfRows : public ConstantData {
 public:
  HalfRows(std::shared_ptr<const ConstantData> halves, size_t cols)
      : halves_(std::move(halves)), cols_(cols) {}
  std::span<const std::byte> bytes() const override { return {}; }
  void ReadRows(uint64_t row, uint64_t count, float* out) const override {
    ToFloats(halves_->bytes().data() + row * cols_ * sizeof(uint16_t), count * cols_, out);
  }

 private:
  std::shared_ptr<const ConstantData> halves_;
  size_t cols_;
};

class HalfKernel : public Kernel {
 public:
  HalfKernel(const Graph& graph, const Op& op, const KernelMaker& make) : op_(op), shadow_("half") {
    for (size_t i = 0; i < op.inputs.size(); ++i) AddInput(graph.tensor(op.inputs[i]), i);
    Tensor output = graph.tensor(op.outputs[0]);
    rows_ = output.shape.size() < 2 ? 1 : output.shape[output.shape.size() - 2];
    elements_ = NumElements(output.shape);
    half_output_ = output.dtype == DType::kF16;
    if (half_output_) {
      output.dtype = DType::kF32;
      output_ = AlignedBuffer(elements_ * sizeof(float));
    }
    output.name = "output";
    output.role = TensorRole::kInternal;
    op_.outputs[0] = shadow_.AddTensor(std::move(output));
    inner_ = make(shadow_, op_);
    pointers_.resize(op.inputs.size());
  }

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    for (size_t i = 0; i < pointers_.size(); ++i) {
      const Input& input = inputs_[i];
      if (input.constant != nullptr) {
        const std::span<const std::byte> bytes = input.constant->bytes();
        pointers_[i] = bytes.empty() ? nullptr : bytes.data();
      } else if (input.elements == 0) {
        pointers_[i] = buffers.inputs[i];
      } else {
        auto* floats = reinterpret_cast<float*>(const_cast<std::byte*>(input.floats.data()));
        ParallelFor(pool, input.elements, 2, [&](size_t begin, size_t end, size_t) {
          ToFloats(buffers.inputs[i] + begin * sizeof(uint16_t), end - begin, floats + begin);
        });
        pointers_[i] = input.floats.data();
      }
    }
    if (!half_output_) return inner_->Run({pointers_, buffers.output, buffers.outputs}, pool);
    std::byte* const floats_out[] = {output_.data()};
    SPILLWAY_RETURN_IF_ERROR(inner_->Run({pointers_, output_.data(), floats_out}, pool));
    // With limited rows the others keep what they had.
    const size_t width = elements_ / rows_;
    const size_t first = first_row_ * width;
    const size_t count = std::min(limit_, rows_) * width;
    const auto* floats = reinterpret_cast<const float*>(output_.data()) + first;
    auto* halves = reinterpret_cast<uint16_t*>(buffers.output) + first;
    ParallelFor(pool, count, 4, [&](size_t begin, size_t end, size_t) {
      for (size_t at = begin; at < end; ++at) halves[at] = FloatToHalf(floats[at]);
    });
    return OkStatus();
  }

  void LimitRows(size_t first, size_t count) override {
    first_row_ = first;
    limit_ = count;
    inner_->LimitRows(first, count);
  }

 private:
  struct Input {
    std::shared_ptr<const ConstantData> constant;  // in f32; null: not constant
    AlignedBuffer floats;                          // what the f16 values are turned into
    size_t elements = 0;                           // 0: passed on as it is
  };

  void AddInput(const Tensor& original, size_t index) {
    Input& input = inputs_.emplace_back();
    Tensor tensor = original;
    tensor.name = "input" + std::to_string(index);
    const bool half = tensor.dtype == DType::kF16;
    if (half) tensor.dtype = DType::kF32;
    if (half && tensor.role == TensorRole::kConstant) {
      if (tensor.shape.size() == 2) {
        tensor.data = std::make_shared<HalfRows>(tensor.data, tensor.shape[1]);
      } else {
        std::vector<float> floats(NumElements(tensor.shape));
        ToFloats(tensor.data->bytes().data(), floats.size(), floats.data());
        tensor.data = MakeConstantOf(floats);
      }
      input.constant = tensor.data;
    } else if (half) {
      input.elements = NumElements(tensor.shape);
      input.floats = AlignedBuffer(input.elements * sizeof(float));
    }
    op_.inputs[index] = shadow_.AddTensor(std::move(tensor));
  }

  Op op_;
  Graph shadow_;  // the operation's tensors, f32 for f16
  std::vector<Input> inputs_;
  std::vector<const std::byte*> pointers_;
  AlignedBuffer output_;
  bool half_output_ = false;
  size_t rows_ = 0, elements_ = 0;
  size_t first_row_ = 0, limit_ = SIZE_MAX;  // of LimitRows()
  std::unique_ptr<Kernel> inner_;
};

}  // namespace

bool ComputesInHalf(const Graph& graph, const Op& op) {
  if (KeepsEncoding(op.type)) return false;
  const auto is_half = [&](TensorId id) { return graph.tensor(id).dtype == DType::kF16; };
  return is_half(op.outputs[0]) || std::any_of(op.inputs.begin(), op.inputs.end(), is_half);
}

std::unique_ptr<Kernel> MakeHalfKernel(const Graph& graph, const Op& op, const KernelMaker& make) {
  return std::make_unique<HalfKernel>(graph, op, make);
}

}  // namespace spillway::host
