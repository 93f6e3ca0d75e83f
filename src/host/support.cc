// Which operations and types the host has kernels for.

#include <fmt/format.h>

#include <algorithm>

#include "host/kernel.h"
#include "host/quant_math.h"

namespace spillway::host {
namespace {

bool IsActivation(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kU16 || dtype == DType::kS8 || dtype == DType::kS16;
}

// A fixed-point tensor that elementwise code can read: one scale and offset.
bool IsQuantized(const Tensor& tensor) {
  return IsActivation(tensor.dtype) && tensor.encoding.kind == Encoding::Kind::kPerTensor;
}

bool IsF32(const Tensor& tensor) { return tensor.dtype == DType::kF32; }

// f16 is computed in f32 and rounded (half_kernel.h).
bool IsFloat(const Tensor& tensor) { return IsF32(tensor) || tensor.dtype == DType::kF16; }

std::string Types(const Graph& graph, const Op& op) {
  std::string text;
  for (const TensorId id : op.inputs) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", DTypeName(graph.tensor(id).dtype));
  }
  return fmt::format("{} -> {}", text, DTypeName(graph.tensor(op.outputs[0]).dtype));
}

Status Unsupported(const Graph& graph, const Op& op, std::string_view expected) {
  return UnsupportedError(
      fmt::format("graph {}, operation {} ({}): the host executor has no kernel for {}; it has {}",
                  graph.name(), op.name, OpTypeName(op.type), Types(graph, op), expected));
}

Status BadTensor(const Op& op, const Tensor& tensor, std::string_view problem) {
  return InvalidArgumentError(fmt::format("operation {} ({}), tensor {}: {}", op.name,
                                          OpTypeName(op.type), tensor.name, problem));
}

// Constants have all their bytes, unless the operation can read them by rows.
Status CheckConstant(const Op& op, const Tensor& tensor, bool by_rows) {
  const size_t found = tensor.data->bytes().size();
  if (found == 0 && by_rows && IsF32(tensor) && tensor.shape.size() == 2) return OkStatus();
  const DataLayout layout = tensor.data->layout();
  if (layout != DataLayout::kRowMajor && (op.type != OpType::kLinear || tensor.shape.size() != 2)) {
    return BadTensor(op, tensor, "packed data; only the weight of a Linear may be packed");
  }
  const size_t expected = StoredBytes(tensor, layout);
  if (found == expected) return OkStatus();
  return BadTensor(op, tensor, fmt::format("{} bytes of data; expected {}", found, expected));
}

Status CheckTensor(const Op& op, const Tensor& tensor, bool by_rows) {
  if (tensor.role == TensorRole::kConstant) {
    SPILLWAY_RETURN_IF_ERROR(CheckConstant(op, tensor, by_rows));
  }
  const bool per_tensor = tensor.encoding.kind == Encoding::Kind::kPerTensor;
  if (per_tensor && std::abs(static_cast<int64_t>(tensor.encoding.offset)) > kMaxOffset) {
    return BadTensor(op, tensor,
                     fmt::format("offset {}; expected -{} to {}", tensor.encoding.offset,
                                 kMaxOffset, kMaxOffset));
  }
  return OkStatus();
}

Status CheckWeight(const Graph& graph, const Op& op) {
  const Tensor& weight = graph.tensor(op.inputs[1]);
  const Encoding& encoding = weight.encoding;
  if (weight.role != TensorRole::kConstant) return Unsupported(graph, op, "constant weights");
  if (IsFloat(weight)) return OkStatus();
  const size_t rows = weight.shape[0];
  const size_t cols = weight.shape[1];
  if (encoding.kind == Encoding::Kind::kPerTensor) {
    return encoding.offset == 0 ? OkStatus() : Unsupported(graph, op, "weights with offset 0");
  }
  if (encoding.axis != 0 || encoding.channel_scales.size() != rows) {
    return BadTensor(op, weight,
                     fmt::format("{} channel scales on axis {}; expected {} on axis 0",
                                 encoding.channel_scales.size(), encoding.axis, rows));
  }
  if (encoding.kind != Encoding::Kind::kBlock) return OkStatus();
  const size_t size = encoding.block_size;
  if (size == 0 || encoding.block_scales.size() != rows * ((cols + size - 1) / size)) {
    return BadTensor(op, weight,
                     fmt::format("{} block scales with block size {} for {} x {}",
                                 encoding.block_scales.size(), size, rows, cols));
  }
  if (std::any_of(encoding.block_scales.begin(), encoding.block_scales.end(),
                  [](uint8_t s) { return s < 1 || s > 16; })) {
    return BadTensor(op, weight, "a block scale outside 1..16");
  }
  if (weight.data->layout() == DataLayout::kPackedNibbles) return OkStatus();
  const auto* values = reinterpret_cast<const int8_t*>(weight.data->bytes().data());
  if (std::any_of(values, values + weight.data->bytes().size(),
                  [](int8_t q) { return q < -8 || q > 7; })) {
    return BadTensor(op, weight, "a value outside -8..7 with block scales");
  }
  return OkStatus();
}

Status CheckLinear(const Graph& graph, const Op& op) {
  const Tensor& x = graph.tensor(op.inputs[0]);
  const Tensor& weight = graph.tensor(op.inputs[1]);
  const Tensor& out = graph.tensor(op.outputs[0]);
  const Tensor* bias = op.inputs.size() > 2 ? &graph.tensor(op.inputs[2]) : nullptr;
  const bool is_float = IsFloat(x) && IsFloat(out) &&
                        (IsFloat(weight) || weight.dtype == DType::kS8) &&
                        (bias == nullptr || IsFloat(*bias));
  const bool is_integer = IsQuantized(x) && IsQuantized(out) && weight.dtype == DType::kS8 &&
                          (bias == nullptr || bias->dtype == DType::kS32);
  if (!is_float && !is_integer) {
    return Unsupported(graph, op,
                       "f32 or f16 x with weights of f32, f16 or s8 and a float bias, and 8/16-bit "
                       "x and output with "
                       "s8 weights and s32 bias");
  }
  if (bias != nullptr && bias->role != TensorRole::kConstant) {
    return Unsupported(graph, op, "a constant bias");
  }
  return CheckWeight(graph, op);
}

Status CheckGather(const Graph& graph, const Op& op) {
  const Tensor& table = graph.tensor(op.inputs[0]);
  const Tensor& indices = graph.tensor(op.inputs[1]);
  const Tensor& out = graph.tensor(op.outputs[0]);
  if (indices.dtype == DType::kI32 && table.dtype == out.dtype) return OkStatus();
  return Unsupported(graph, op, "i32 indices and a table of the output's type");
}

// Operations whose tensors are all floats or all 8/16-bit fixed point.
Status CheckUniform(const Graph& graph, const Op& op) {
  bool all_float = IsFloat(graph.tensor(op.outputs[0]));
  bool all_quantized = IsQuantized(graph.tensor(op.outputs[0]));
  for (const TensorId id : op.inputs) {
    all_float = all_float && IsFloat(graph.tensor(id));
    all_quantized = all_quantized && IsQuantized(graph.tensor(id));
  }
  if (all_float || all_quantized) return OkStatus();
  return Unsupported(graph, op,
                     "all f32 or f16, or all 8/16-bit fixed point with a scale and an offset");
}

Status CheckConvert(const Graph& graph, const Op& op) {
  const Tensor& in = graph.tensor(op.inputs[0]);
  const Tensor& out = graph.tensor(op.outputs[0]);
  if ((IsFloat(in) || IsQuantized(in)) && (IsFloat(out) || IsQuantized(out))) return OkStatus();
  return Unsupported(graph, op, "f32, f16 and 8/16-bit fixed point");
}

// Operations that copy elements: any type, the same on both sides.
Status CheckCopy(const Graph& graph, const Op& op) {
  for (const TensorId id : op.inputs) {
    if (graph.tensor(id).dtype != graph.tensor(op.outputs[0]).dtype) {
      return Unsupported(graph, op, "equal types");
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckSupported(const Graph& graph, const Op& op) {
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const bool by_rows =
        (op.type == OpType::kLinear && i == 1) || (op.type == OpType::kGather && i == 0);
    SPILLWAY_RETURN_IF_ERROR(CheckTensor(op, graph.tensor(op.inputs[i]), by_rows));
  }
  SPILLWAY_RETURN_IF_ERROR(CheckTensor(op, graph.tensor(op.outputs[0]), false));
  switch (op.type) {
    case OpType::kLinear:
      return CheckLinear(graph, op);
    case OpType::kGather:
      return CheckGather(graph, op);
    case OpType::kConvert:
      return CheckConvert(graph, op);
    case OpType::kReshape:
    case OpType::kTranspose:
    case OpType::kConcat:
    case OpType::kTile:
    case OpType::kSlice:
      return CheckCopy(graph, op);
    default:
      return CheckUniform(graph, op);
  }
}

}  // namespace spillway::host
