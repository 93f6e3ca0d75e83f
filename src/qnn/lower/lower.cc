#include "qnn/lower/lower.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "qnn/lower/weights.h"

namespace spillway::qnn {
namespace {

Result<DataType> VendorType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return DataType::kFloat32;
    case DType::kF16:
      return DataType::kFloat16;
    case DType::kU8:
      return DataType::kUfixed8;
    case DType::kU16:
      return DataType::kUfixed16;
    case DType::kS8:
      return DataType::kSfixed8;
    case DType::kS16:
      return DataType::kSfixed16;
    case DType::kS32:
      return DataType::kSfixed32;
    case DType::kI32:
      return DataType::kInt32;
  }
  return InternalError("unknown data type");
}

TensorRole VendorRole(spillway::TensorRole role, const LowerOptions& options) {
  switch (role) {
    case spillway::TensorRole::kInput:
      return TensorRole::kAppWrite;
    case spillway::TensorRole::kOutput:
      return TensorRole::kAppRead;
    case spillway::TensorRole::kConstant:
      return TensorRole::kStatic;
    case spillway::TensorRole::kInternal:
      return options.dump_intermediates ? TensorRole::kAppRead : TensorRole::kNative;
  }
  return TensorRole::kNative;
}

TensorEncoding VendorEncoding(const Encoding& encoding) {
  switch (encoding.kind) {
    case Encoding::Kind::kNone:
      return {};
    case Encoding::Kind::kPerTensor:
      return TensorEncoding::PerTensor(encoding.scale, encoding.offset);
    default:
      return WeightEncoding(encoding, static_cast<int32_t>(encoding.axis));
  }
}

std::vector<uint32_t> Uint32s(const Shape& shape) { return {shape.begin(), shape.end()}; }

class Lowering {
 public:
  Lowering(const spillway::Graph& graph, Graph* vendor, const LowerOptions& options)
      : in_(graph), out_(vendor), options_(options) {}

  Result<LowerResult> Run() {
    // Inputs and outputs first, in the contract's order, which the binary keeps.
    for (const spillway::TensorId id : in_.inputs()) SPILLWAY_RETURN_IF_ERROR(Define(id));
    for (const spillway::TensorId id : in_.outputs()) SPILLWAY_RETURN_IF_ERROR(Define(id));
    for (const Op& op : in_.ops()) {
      SPILLWAY_RETURN_IF_ERROR(Lower(op).WithContext(
          fmt::format("graph {}, operation {} ({})", in_.name(), op.name, OpTypeName(op.type))));
    }
    return result_;
  }

 private:
  Status Define(spillway::TensorId id) {
    if (ids_.contains(id)) return OkStatus();
    const Tensor& tensor = in_.tensor(id);
    TensorDesc desc;
    desc.name = tensor.name;
    desc.role = VendorRole(tensor.role, options_);
    SPILLWAY_ASSIGN_OR_RETURN(desc.dtype, VendorType(tensor.dtype));
    desc.dims = Uint32s(tensor.shape);
    desc.encoding = VendorEncoding(tensor.encoding);
    if (tensor.role == spillway::TensorRole::kConstant) {
      desc.data = tensor.data->bytes();
      result_.weight_bytes += desc.data.size();
    }
    SPILLWAY_ASSIGN_OR_RETURN(ids_[id], out_->AddTensor(desc));
    return OkStatus();
  }

  // The weights of a Linear as the vendor's convolution wants them.
  Result<TensorId> DefineWeights(spillway::TensorId id) {
    const auto found = ids_.find(id);
    if (found != ids_.end()) return found->second;
    const Tensor& tensor = in_.tensor(id);
    const std::vector<std::byte> transposed = TransposeWeights(tensor);
    TensorDesc desc;
    desc.name = tensor.name;
    desc.role = TensorRole::kStatic;
    SPILLWAY_ASSIGN_OR_RETURN(desc.dtype, VendorType(tensor.dtype));
    desc.dims = {1, 1, tensor.shape[1], tensor.shape[0]};
    if (tensor.dtype != DType::kF16) desc.encoding = WeightEncoding(tensor.encoding, 3);
    desc.data = transposed;
    result_.weight_bytes += transposed.size();
    SPILLWAY_ASSIGN_OR_RETURN(const TensorId made, out_->AddTensor(desc));
    ids_[id] = made;
    return made;
  }

  // Adds a node; IR operands become vendor tensors by name.
  Status AddNode(const Op& op, std::string_view type, std::vector<OpParam> params = {}) {
    OpDesc desc;
    desc.name = op.name;
    desc.type = type;
    desc.params = std::move(params);
    for (const spillway::TensorId id : op.inputs) {
      SPILLWAY_RETURN_IF_ERROR(Define(id));
      desc.inputs.push_back(ids_.at(id));
    }
    SPILLWAY_RETURN_IF_ERROR(Define(op.outputs[0]));
    desc.outputs.push_back(ids_.at(op.outputs[0]));
    ++result_.nodes;
    return out_->AddNode(desc);
  }

  Status LowerLinear(const Op& op) {
    SPILLWAY_RETURN_IF_ERROR(DefineWeights(op.inputs[1]).status());
    constexpr uint32_t kOne[] = {1, 1};
    constexpr uint32_t kNone[] = {0, 0, 0, 0};
    return AddNode(op, "Conv2d",
                   {{"stride", TensorParam::Uint32({2}, kOne)},
                    {"pad_amount", TensorParam::Uint32({2, 2}, kNone)},
                    {"dilation", TensorParam::Uint32({2}, kOne)}});
  }

  Status LowerSilu(const Op& op) {
    const Tensor& x = in_.tensor(op.inputs[0]);
    SPILLWAY_RETURN_IF_ERROR(Define(op.inputs[0]));
    TensorDesc sigmoid;
    sigmoid.name = op.name + ".sigmoid";
    SPILLWAY_ASSIGN_OR_RETURN(sigmoid.dtype, VendorType(x.dtype));
    sigmoid.dims = Uint32s(x.shape);
    if (IsFixedPoint(x.dtype)) {
      sigmoid.encoding = TensorEncoding::PerTensor(1.0f / static_cast<float>(DTypeMax(x.dtype)), 0);
    }
    SPILLWAY_ASSIGN_OR_RETURN(const TensorId middle, out_->AddTensor(sigmoid));
    OpDesc first;
    first.name = op.name + ".sigmoid";
    first.type = "Sigmoid";
    first.inputs = {ids_.at(op.inputs[0])};
    first.outputs = {middle};
    SPILLWAY_RETURN_IF_ERROR(out_->AddNode(first));
    SPILLWAY_RETURN_IF_ERROR(Define(op.outputs[0]));
    OpDesc second;
    second.name = op.name;
    second.type = "ElementWiseMultiply";
    second.inputs = {ids_.at(op.inputs[0]), middle};
    second.outputs = {ids_.at(op.outputs[0])};
    result_.nodes += 2;
    return out_->AddNode(second);
  }

  Status LowerRmsNorm(const Op& op) {
    const uint32_t width = in_.tensor(op.inputs[1]).shape[0];
    const bool is_half = in_.tensor(op.inputs[0]).dtype == DType::kF16;
    const std::vector<int32_t> zeros(width, 0);
    TensorDesc beta;
    beta.name = op.name + ".beta";
    beta.role = TensorRole::kStatic;
    beta.dtype = is_half ? DataType::kFloat16 : DataType::kSfixed32;
    beta.dims = {width};
    if (!is_half) beta.encoding = TensorEncoding::PerTensor(1.0f, 0);
    beta.data = std::as_bytes(std::span<const int32_t>(zeros));
    if (is_half) beta.data = beta.data.first(width * sizeof(uint16_t));
    for (const spillway::TensorId id : op.inputs) SPILLWAY_RETURN_IF_ERROR(Define(id));
    SPILLWAY_RETURN_IF_ERROR(Define(op.outputs[0]));
    SPILLWAY_ASSIGN_OR_RETURN(const TensorId beta_id, out_->AddTensor(beta));
    const uint32_t axis[] = {static_cast<uint32_t>(in_.tensor(op.inputs[0]).shape.size() - 1)};
    OpDesc desc;
    desc.name = op.name;
    desc.type = "RmsNorm";
    desc.inputs = {ids_.at(op.inputs[0]), ids_.at(op.inputs[1]), beta_id};
    desc.outputs = {ids_.at(op.outputs[0])};
    desc.params = {{"axes", TensorParam::Uint32({1}, axis)}, {"epsilon", op.attributes.epsilon}};
    ++result_.nodes;
    return out_->AddNode(desc);
  }

  Status LowerRotary(const Op& op) {
    std::vector<OpParam> params = {{"interleaved", false}};
    const uint32_t rotated = 2 * in_.tensor(op.inputs[1]).shape[2];
    if (rotated != in_.tensor(op.inputs[0]).shape[3]) {
      params.push_back({"rotary_embedding_dim", rotated});
    }
    return AddNode(op, "RotaryEmbedding", std::move(params));
  }

  // Everything of the other axes.
  Status LowerSlice(const Op& op) {
    const Shape& shape = in_.tensor(op.inputs[0]).shape;
    std::vector<int32_t> ranges;  // begin, end, step of each axis
    for (uint32_t axis = 0; axis < shape.size(); ++axis) {
      const bool cut = axis == op.attributes.axis;
      const uint32_t begin = cut ? op.attributes.ints[0] : 0;
      const uint32_t end = cut ? begin + op.attributes.ints[1] : shape[axis];
      ranges.insert(ranges.end(), {static_cast<int32_t>(begin), static_cast<int32_t>(end), 1});
    }
    const auto rank = static_cast<uint32_t>(shape.size());
    return AddNode(op, "StridedSlice", {{"ranges", TensorParam::Int32({rank, 3}, ranges)}});
  }

  Status Lower(const Op& op) {
    const std::vector<uint32_t>& ints = op.attributes.ints;
    const auto count = static_cast<uint32_t>(ints.size());
    switch (op.type) {
      case OpType::kLinear:
        return LowerLinear(op);
      case OpType::kMatMul:
        return AddNode(op, "MatMul", {{"transpose_in0", false}, {"transpose_in1", false}});
      case OpType::kAdd:
        return AddNode(op, "ElementWiseAdd");
      case OpType::kMul:
        return AddNode(op, "ElementWiseMultiply");
      case OpType::kSilu:
        return LowerSilu(op);
      case OpType::kGeluTanh:
        return AddNode(op, "Gelu");
      case OpType::kRmsNorm:
        return LowerRmsNorm(op);
      case OpType::kSoftmax:
        return AddNode(op, "Softmax");
      case OpType::kRotaryEmbedding:
        return LowerRotary(op);
      case OpType::kGather:
        return AddNode(op, "Gather", {{"axis", int32_t{0}}});
      case OpType::kReshape:
        return AddNode(op, "Reshape");
      case OpType::kTranspose:
        return AddNode(op, "Transpose", {{"perm", TensorParam::Uint32({count}, ints)}});
      case OpType::kConcat:
        return AddNode(op, "Concat", {{"axis", op.attributes.axis}});
      case OpType::kTile:
        return AddNode(op, "Tile", {{"multiples", TensorParam::Uint32({count}, ints)}});
      case OpType::kConvert:
        return AddNode(op, "Convert");
      case OpType::kSlice:
        return LowerSlice(op);
    }
    return InternalError("unknown operation");
  }

  const spillway::Graph& in_;
  Graph* out_;
  const LowerOptions& options_;
  std::map<spillway::TensorId, TensorId> ids_;
  LowerResult result_;
};

}  // namespace

Result<LowerResult> LowerGraph(const spillway::Graph& graph, Graph* vendor_graph,
                               const LowerOptions& options) {
  return Lowering(graph, vendor_graph, options).Run();
}

}  // namespace spillway::qnn
