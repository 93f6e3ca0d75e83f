#include <fmt/format.h>

#include "graph/graph.h"

namespace spillway {
namespace {

Status CheckTensor(const Tensor& tensor) {
  if (tensor.shape.empty() || NumElements(tensor.shape) == 0) {
    return InvalidArgumentError(
        fmt::format("tensor {} has shape {}; expected at least one dimension and none of zero",
                    tensor.name, ShapeToString(tensor.shape)));
  }
  if (tensor.role == TensorRole::kConstant && tensor.data == nullptr) {
    return InvalidArgumentError(fmt::format("constant {} has no data", tensor.name));
  }
  const bool has_encoding = tensor.encoding.kind != Encoding::Kind::kNone;
  if (has_encoding != IsFixedPoint(tensor.dtype) && tensor.dtype != DType::kS32) {
    return InvalidArgumentError(fmt::format("tensor {} is {} with encoding {}", tensor.name,
                                            DTypeName(tensor.dtype), tensor.encoding.ToString()));
  }
  if (tensor.encoding.kind == Encoding::Kind::kPerTensor && !(tensor.encoding.scale > 0.0f)) {
    return InvalidArgumentError(
        fmt::format("tensor {} has scale {}; expected > 0", tensor.name, tensor.encoding.scale));
  }
  return OkStatus();
}

Status CheckEncodings(const Graph& graph, const Op& op) {
  if (!KeepsEncoding(op.type)) return OkStatus();
  const Tensor& output = graph.tensor(op.outputs[0]);
  for (const TensorId id : op.inputs) {
    const Tensor& input = graph.tensor(id);
    if (op.type == OpType::kGather && input.dtype == DType::kI32) continue;
    if (input.dtype != output.dtype || input.encoding != output.encoding) {
      return InvalidArgumentError(
          fmt::format("{} copies integers, but {} is {} {} and {} is {} {}", OpTypeName(op.type),
                      input.name, DTypeName(input.dtype), input.encoding.ToString(), output.name,
                      DTypeName(output.dtype), output.encoding.ToString()));
    }
  }
  return OkStatus();
}

Status CheckOp(const Graph& graph, const Op& op, std::vector<bool>& ready) {
  if (op.outputs.size() != 1) {
    return InvalidArgumentError(fmt::format("{} outputs; expected 1", op.outputs.size()));
  }
  std::vector<Shape> shapes;
  for (const TensorId id : op.inputs) {
    if (id >= ready.size() || !ready[id]) {
      return InvalidArgumentError(
          fmt::format("input {} is used before it is made",
                      id < ready.size() ? graph.tensor(id).name : fmt::format("number {}", id)));
    }
    shapes.push_back(graph.tensor(id).shape);
  }
  const TensorId out = op.outputs[0];
  if (out >= ready.size()) return InvalidArgumentError(fmt::format("no tensor number {}", out));
  const Tensor& output = graph.tensor(out);
  if (ready[out]) return InvalidArgumentError(fmt::format("{} is made twice", output.name));
  ready[out] = true;
  SPILLWAY_ASSIGN_OR_RETURN(const Shape shape, InferShape(op.type, shapes, op.attributes));
  const bool fits = op.type == OpType::kReshape ? NumElements(shape) == NumElements(output.shape)
                                                : shape == output.shape;
  if (!fits) {
    return InvalidArgumentError(fmt::format("output {} has shape {}; expected {}", output.name,
                                            ShapeToString(output.shape), ShapeToString(shape)));
  }
  return CheckEncodings(graph, op);
}

}  // namespace

Status Graph::Validate() const {
  std::vector<bool> ready(tensors_.size(), false);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    if (const Status status = CheckTensor(tensor); !status.ok()) {
      return status.WithContext("graph " + name_);
    }
    ready[i] = tensor.role == TensorRole::kInput || tensor.role == TensorRole::kConstant;
  }
  for (const Op& op : ops_) {
    if (const Status status = CheckOp(*this, op, ready); !status.ok()) {
      return status.WithContext(
          fmt::format("graph {}, operation {} ({})", name_, op.name, OpTypeName(op.type)));
    }
  }
  for (const TensorId id : outputs_) {
    if (!ready[id]) {
      return InvalidArgumentError(
          fmt::format("graph {}: output {} is never made", name_, tensors_[id].name));
    }
  }
  return OkStatus();
}

}  // namespace spillway
