#include "graph/legalize.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

namespace spillway {
namespace {

// True when moving the axes leaves the elements in the same order in memory:
// only dimensions of size 1 change places.
bool MovesNothing(const Shape& shape, const std::vector<uint32_t>& order) {
  uint32_t last = 0;
  for (const uint32_t axis : order) {
    if (shape[axis] == 1) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

class Legalizer {
 public:
  Legalizer(const Graph& graph, const LegalizeTarget& target) : in_(graph), target_(target) {}

  Result<Graph> Run() {
    MarkUsed();
    out_.set_name(in_.name());
    for (const TensorId id : in_.inputs()) {
      const Tensor& tensor = in_.tensor(id);
      const TensorId copy = out_.AddInput(tensor.name, tensor.dtype, tensor.shape);
      out_.mutable_tensor(copy).encoding = tensor.encoding;
      out_.mutable_tensor(copy).encoding_of = tensor.encoding_of;
      map_[id] = copy;
    }
    for (const Op& op : in_.ops()) {
      if (!used_[op.outputs[0]]) continue;
      SPILLWAY_RETURN_IF_ERROR(CheckRules(op));
      if (!Dissolve(op)) Copy(op);
    }
    for (const TensorId id : in_.outputs()) out_.MarkOutput(map_.at(id));
    SPILLWAY_RETURN_IF_ERROR(out_.Validate());
    return std::move(out_);
  }

 private:
  void MarkUsed() {
    used_.assign(in_.tensors().size(), false);
    for (const TensorId id : in_.outputs()) used_[id] = true;
    for (auto op = in_.ops().rbegin(); op != in_.ops().rend(); ++op) {
      if (!used_[op->outputs[0]]) continue;
      for (const TensorId id : op->inputs) used_[id] = true;
    }
  }

  bool IsOutput(TensorId id) const { return in_.tensor(id).role == TensorRole::kOutput; }

  // Drops an operation that does nothing, or makes it a Reshape. An operation
  // that makes an output of the graph stays, because outputs keep their names.
  bool Dissolve(const Op& op) {
    const Tensor& input = in_.tensor(op.inputs[0]);
    const TensorId out = op.outputs[0];
    const Tensor& output = in_.tensor(out);
    if (op.type == OpType::kConvert) {
      const bool same = input.dtype == output.dtype && input.encoding == output.encoding;
      if (!same || IsOutput(out)) return false;
      map_[out] = Mapped(op.inputs[0]);
      return true;
    }
    const bool moves_nothing =
        op.type == OpType::kReshape ||
        (op.type == OpType::kTranspose && MovesNothing(input.shape, op.attributes.ints));
    if (!moves_nothing) return false;
    // A chain of reshapes reads its first input.
    TensorId source = Mapped(op.inputs[0]);
    const auto earlier = reshape_source_.find(source);
    if (earlier != reshape_source_.end()) source = earlier->second;
    if (!IsOutput(out) && out_.tensor(source).shape == output.shape) {
      map_[out] = source;
      return true;
    }
    const TensorId made = NewTensor(output);
    out_.AppendOp({OpType::kReshape, op.name, {source}, {made}, {}});
    reshape_source_[made] = source;
    map_[out] = made;
    return true;
  }

  TensorId NewTensor(const Tensor& tensor) {
    Tensor copy = tensor;
    copy.role =
        tensor.role == TensorRole::kConstant ? TensorRole::kConstant : TensorRole::kInternal;
    return out_.AddTensor(std::move(copy));
  }

  // The new graph's tensor for one that an operation reads. Constants come along
  // with their first reader; everything else was made before, as in_ is valid.
  TensorId Mapped(TensorId id) {
    if (in_.tensor(id).role == TensorRole::kConstant && !map_.contains(id)) {
      map_[id] = NewTensor(in_.tensor(id));
    }
    return map_.at(id);
  }

  void Copy(const Op& op) {
    Op copy = op;
    for (TensorId& id : copy.inputs) id = Mapped(id);
    copy.outputs[0] = NewTensor(in_.tensor(op.outputs[0]));
    map_[op.outputs[0]] = copy.outputs[0];
    out_.AppendOp(std::move(copy));
  }

  Status Refuse(const Op& op, std::string_view rule) const {
    std::string types;
    for (const TensorId id : op.inputs) {
      const Tensor& tensor = in_.tensor(id);
      types += fmt::format("{} {} {}, ", tensor.name, DTypeName(tensor.dtype),
                           ShapeToString(tensor.shape));
    }
    const Tensor& output = in_.tensor(op.outputs[0]);
    return UnsupportedError(
        fmt::format("graph {}, operation {} ({}; {}-> {} {} {}) is not possible on HTP v{}: {}",
                    in_.name(), op.name, OpTypeName(op.type), types, output.name,
                    DTypeName(output.dtype), ShapeToString(output.shape), target_.htp_arch, rule));
  }

  Status CheckMatMul(const Op& op) const {
    const DType a = in_.tensor(op.inputs[0]).dtype;
    const DType b = in_.tensor(op.inputs[1]).dtype;
    const DType out = in_.tensor(op.outputs[0]).dtype;
    const bool known = out == a && ((a == DType::kU16 && (b == DType::kU8 || b == DType::kU16)) ||
                                    (a == b && (a == DType::kU8 || a == DType::kF16)));
    if (!known) {
      return Refuse(op,
                    "products are u16 x u8, u16 x u16, u8 x u8 or f16 x f16, output as the left "
                    "side");
    }
    if (a == DType::kU16 && b == DType::kU16 && target_.htp_arch < 73) {
      return Refuse(op, "u16 x u16 products need v73 or later; use an 8-bit KV cache");
    }
    return OkStatus();
  }

  // Other block sizes finalise and give wrong numbers.
  Status CheckBlocks(const Op& op, const Encoding& encoding) const {
    if (encoding.kind != Encoding::Kind::kBlock) return OkStatus();
    const uint32_t size = encoding.block_size;
    const uint32_t cols = in_.tensor(op.inputs[1]).shape[1];
    if ((size == 16 || size == 32 || size == 64) && cols % size == 0) return OkStatus();
    return Refuse(op, fmt::format("blocks of 16, 32 or 64 that divide the input's {} values; "
                                  "found blocks of {}",
                                  cols, size));
  }

  Status CheckLinear(const Op& op) const {
    const Tensor& x = in_.tensor(op.inputs[0]);
    const Tensor& weight = in_.tensor(op.inputs[1]);
    const bool is_half = x.dtype == DType::kF16;
    const bool known = (x.dtype == DType::kU16 || x.dtype == DType::kU8 || is_half) &&
                       weight.dtype == (is_half ? DType::kF16 : DType::kS8) &&
                       in_.tensor(op.outputs[0]).dtype == x.dtype;
    if (!known) {
      return Refuse(op, "u16 or u8 activations with s8 weights, f16 with f16, output as the input");
    }
    if (op.inputs.size() == 3 &&
        in_.tensor(op.inputs[2]).dtype != (is_half ? DType::kF16 : DType::kS32)) {
      return Refuse(op, "a bias is s32, with f16 activations f16");
    }
    return CheckBlocks(op, weight.encoding);
  }

  // Reference: the measured tables of the HTP operators.
  Status CheckRules(const Op& op) const {
    size_t rank = in_.tensor(op.outputs[0]).shape.size();
    for (const TensorId id : op.inputs) rank = std::max(rank, in_.tensor(id).shape.size());
    if (rank > target_.max_rank) {
      return Refuse(op, fmt::format("the rank limit is {}", target_.max_rank));
    }
    const DType in = in_.tensor(op.inputs[0]).dtype;
    const DType out = in_.tensor(op.outputs[0]).dtype;
    switch (op.type) {
      case OpType::kMatMul:
        return CheckMatMul(op);
      case OpType::kLinear:
        return CheckLinear(op);
      case OpType::kAdd:
      case OpType::kMul:
        if (in != out || in_.tensor(op.inputs[1]).dtype != in) {
          return Refuse(op, "both inputs and the output have one type");
        }
        return OkStatus();
      case OpType::kConvert:
        return OkStatus();
      case OpType::kGather:
        if (in_.tensor(op.inputs[1]).dtype != DType::kI32) return Refuse(op, "indices are i32");
        return OkStatus();
      default:
        if (in != out) return Refuse(op, "input and output have one type");
        return OkStatus();
    }
  }

  const Graph& in_;
  LegalizeTarget target_;
  Graph out_;
  std::vector<bool> used_;
  std::map<TensorId, TensorId> map_;             // old -> new
  std::map<TensorId, TensorId> reshape_source_;  // new reshape output -> its source
};

}  // namespace

Result<Graph> Legalize(const Graph& graph, const LegalizeTarget& target) {
  SPILLWAY_RETURN_IF_ERROR(graph.Validate());
  SPILLWAY_ASSIGN_OR_RETURN(const Graph first, Legalizer(graph, target).Run());
  // Joining chains leaves operations that nobody reads; a second pass drops them.
  return Legalizer(first, target).Run();
}

}  // namespace spillway
