#include "graph/graph.h"

#include <fmt/format.h>

#include <cassert>
#include <cstring>
#include <set>

#include "base/memory.h"

namespace spillway {
namespace {

class OwnedConstant : public ConstantData {
 public:
  OwnedConstant(std::span<const std::byte> bytes, DataLayout layout)
      : buffer_(bytes.size()), layout_(layout) {
    if (!bytes.empty()) std::memcpy(buffer_.data(), bytes.data(), bytes.size());
  }
  std::span<const std::byte> bytes() const override { return {buffer_.data(), buffer_.size()}; }
  DataLayout layout() const override { return layout_; }

 private:
  AlignedBuffer buffer_;
  DataLayout layout_;
};

std::string TensorLine(const Tensor& tensor) {
  std::string line =
      fmt::format("{} {}{}", tensor.name, DTypeName(tensor.dtype), ShapeToString(tensor.shape));
  if (tensor.encoding.kind != Encoding::Kind::kNone)
    line += " {" + tensor.encoding.ToString() + "}";
  return line;
}

}  // namespace

void ConstantData::ReadRows(uint64_t /*row*/, uint64_t /*count*/, float* /*out*/) const {
  assert(false && "this constant is read through bytes()");
}

std::shared_ptr<const ConstantData> MakeConstant(std::span<const std::byte> bytes,
                                                 DataLayout layout) {
  return std::make_shared<OwnedConstant>(bytes, layout);
}

TensorId Graph::AddTensor(Tensor tensor) {
  const TensorId id = static_cast<TensorId>(tensors_.size());
  [[maybe_unused]] const bool is_new = by_name_.emplace(tensor.name, id).second;
  assert(is_new && "tensor names are unique");
  tensors_.push_back(std::move(tensor));
  return id;
}

TensorId Graph::AddInput(std::string name, DType dtype, Shape shape) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.role = TensorRole::kInput;
  const TensorId id = AddTensor(std::move(tensor));
  inputs_.push_back(id);
  return id;
}

TensorId Graph::AddConstant(std::string name, DType dtype, Shape shape,
                            std::shared_ptr<const ConstantData> data, Encoding encoding) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.role = TensorRole::kConstant;
  tensor.data = std::move(data);
  tensor.encoding = std::move(encoding);
  return AddTensor(std::move(tensor));
}

TensorId Graph::AddOp(OpType type, std::string name, std::vector<TensorId> inputs,
                      OpAttributes attributes) {
  std::vector<Shape> shapes;
  shapes.reserve(inputs.size());
  for (const TensorId input : inputs) shapes.push_back(tensors_[input].shape);
  Result<Shape> shape = InferShape(type, shapes, attributes);
  assert(shape.ok() && "the caller builds operations whose shapes fit");
  Tensor tensor;
  tensor.name = name;
  tensor.shape = std::move(shape).value();
  tensor.dtype = tensors_[inputs[0]].dtype;
  const TensorId output = AddTensor(std::move(tensor));
  ops_.push_back({type, std::move(name), std::move(inputs), {output}, std::move(attributes)});
  return output;
}

TensorId Graph::AddReshape(std::string name, TensorId input, Shape shape) {
  assert(NumElements(shape) == NumElements(tensors_[input].shape));
  Tensor tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  tensor.dtype = tensors_[input].dtype;
  const TensorId output = AddTensor(std::move(tensor));
  ops_.push_back({OpType::kReshape, std::move(name), {input}, {output}, {}});
  return output;
}

void Graph::MarkOutput(TensorId id) {
  tensors_[id].role = TensorRole::kOutput;
  outputs_.push_back(id);
}

std::optional<TensorId> Graph::Find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

void Graph::Rename(TensorId id, std::string name) {
  by_name_.erase(tensors_[id].name);
  [[maybe_unused]] const bool is_new = by_name_.emplace(name, id).second;
  assert(is_new && "tensor names are unique");
  tensors_[id].name = std::move(name);
}

std::string Graph::ToString() const {
  std::string text = fmt::format("graph {}\n", name_);
  for (const TensorId id : inputs_) text += "  input  " + TensorLine(tensors_[id]) + "\n";
  for (const TensorId id : outputs_) text += "  output " + TensorLine(tensors_[id]) + "\n";
  for (const Op& op : ops_) {
    text += fmt::format("  {} = {}(", TensorLine(tensors_[op.outputs[0]]), OpTypeName(op.type));
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      text += (i == 0 ? "" : ", ") + tensors_[op.inputs[i]].name;
    }
    text += ")\n";
  }
  return text;
}

uint64_t StoredBytes(const Tensor& tensor, DataLayout layout) {
  switch (layout) {
    case DataLayout::kPackedN16K4:
      return PackedN16K4Size(tensor.shape[0], tensor.shape[1]);
    case DataLayout::kPackedNibbles:
      return PackedNibblesSize(tensor.shape[0], tensor.shape[1]);
    case DataLayout::kRowMajor:
      break;
  }
  return tensor.Bytes();
}

int32_t MatrixInt(const Tensor& matrix, size_t n, size_t k) {
  const size_t cols = matrix.shape[1];
  const std::byte* data = matrix.data->bytes().data();
  switch (matrix.data->layout()) {
    case DataLayout::kPackedN16K4:
      return reinterpret_cast<const int8_t*>(data)[PackedN16K4Index(n, k, cols)];
    case DataLayout::kPackedNibbles:
      return PackedNibble(data, n, k, cols);
    case DataLayout::kRowMajor:
      break;
  }
  return reinterpret_cast<const int8_t*>(data)[n * cols + k];
}

std::vector<int32_t> ChannelSums(const Tensor& matrix) {
  const size_t rows = matrix.shape[0], cols = matrix.shape[1];
  const Encoding& encoding = matrix.encoding;
  const bool has_blocks = encoding.kind == Encoding::Kind::kBlock;
  const size_t size = has_blocks ? encoding.block_size : cols;
  const size_t blocks = (cols + size - 1) / size;
  const auto scale = [&](size_t n, size_t k) -> int32_t {
    return has_blocks ? encoding.block_scales[n * blocks + k / size] : 1;
  };
  std::vector<int32_t> sums(rows, 0);
  if (matrix.data->layout() != DataLayout::kPackedN16K4 || (has_blocks && size % 4 != 0)) {
    for (size_t n = 0; n < rows; ++n) {
      for (size_t k = 0; k < cols; ++k) sums[n] += MatrixInt(matrix, n, k) * scale(n, k);
    }
    return sums;
  }
  const auto* group = reinterpret_cast<const int8_t*>(matrix.data->bytes().data());
  for (size_t n0 = 0; n0 < rows; n0 += 16) {
    for (size_t k = 0; k < cols; k += 4, group += 64) {
      for (size_t n = n0; n < std::min(rows, n0 + 16); ++n) {
        const int8_t* four = group + (n - n0) * 4;
        sums[n] += (four[0] + four[1] + four[2] + four[3]) * scale(n, k);
      }
    }
  }
  return sums;
}

std::shared_ptr<const ConstantData> PackNibbles(const Tensor& matrix) {
  const size_t rows = matrix.shape[0], cols = matrix.shape[1];
  std::vector<std::byte> packed(PackedNibblesSize(rows, cols), std::byte{0x88});
  for (size_t n = 0; n < rows; ++n) {
    std::byte* block = packed.data() + n / 16 * ((cols + 7) / 8) * 64 + n % 16 * 4;
    for (size_t k = 0; k < cols; ++k) {
      std::byte& pair = block[k / 8 * 64 + k % 4];
      const int shift = k % 8 < 4 ? 0 : 4;
      pair &= std::byte{0xf0} >> shift;
      pair |= static_cast<std::byte>((MatrixInt(matrix, n, k) + 8) << shift);
    }
  }
  return MakeConstantOf(packed, DataLayout::kPackedNibbles);
}

uint64_t ConstantBytes(const std::vector<std::shared_ptr<const Graph>>& graphs) {
  std::set<const ConstantData*> seen;
  uint64_t bytes = 0;
  for (const auto& graph : graphs) {
    for (const Tensor& tensor : graph->tensors()) {
      if (tensor.role != TensorRole::kConstant || !seen.insert(tensor.data.get()).second) continue;
      bytes += tensor.Bytes();
    }
  }
  return bytes;
}

}  // namespace spillway
