#include "qnn/api/abi_tensor.h"

#include <fmt/format.h>

namespace spillway::qnn {
namespace {

abi::TensorType AbiRole(TensorRole role) {
  switch (role) {
    case TensorRole::kAppWrite:
      return abi::kAppWrite;
    case TensorRole::kAppRead:
      return abi::kAppRead;
    case TensorRole::kNative:
      return abi::kNative;
    case TensorRole::kStatic:
      return abi::kStatic;
  }
  return abi::kNative;
}

abi::Scalar AbiScalar(const OpParam& param) {
  abi::Scalar scalar = {};
  if (const auto* u32 = std::get_if<uint32_t>(&param.value)) {
    scalar.data_type = DataType::kUint32;
    scalar.u32 = *u32;
  } else if (const auto* i32 = std::get_if<int32_t>(&param.value)) {
    scalar.data_type = DataType::kInt32;
    scalar.i32 = *i32;
  } else if (const auto* f32 = std::get_if<float>(&param.value)) {
    scalar.data_type = DataType::kFloat32;
    scalar.f32 = *f32;
  } else if (const auto* flag = std::get_if<bool>(&param.value)) {
    scalar.data_type = DataType::kBool8;
    scalar.b8 = *flag ? 1 : 0;
  }
  return scalar;
}

TensorDesc ParamTensorDesc(const std::string& op_name, const std::string& param_name,
                           const TensorParam& param) {
  TensorDesc desc;
  desc.name = op_name + "." + param_name;
  desc.role = TensorRole::kStatic;
  desc.dtype = param.dtype;
  desc.dims = param.dims;
  desc.data = param.data;
  return desc;
}

// Reads `count` scale-offset pairs; more than `most` of them, or none to read, is
// damage.
Status ReadPairs(const abi::ScaleOffset* pairs, uint32_t count, uint64_t most,
                 TensorEncoding* encoding) {
  if (pairs == nullptr || count == 0 || count > most) {
    return CorruptDataError(fmt::format("an encoding with {} scales", count));
  }
  for (uint32_t i = 0; i < count; ++i) {
    encoding->scales.push_back(pairs[i].scale);
    encoding->offsets.push_back(pairs[i].offset);
  }
  return OkStatus();
}

Status ReadBwAxis(const abi::BwAxisScaleOffset& source, uint64_t most, TensorEncoding* encoding) {
  if (source.scales == nullptr || source.count == 0 || source.count > most) {
    return CorruptDataError(fmt::format("an encoding with {} scales", source.count));
  }
  encoding->bitwidth = source.bitwidth;
  encoding->axis = source.axis;
  encoding->scales.assign(source.scales, source.scales + source.count);
  if (source.offsets != nullptr) {
    encoding->offsets.assign(source.offsets, source.offsets + source.count);
  }
  return OkStatus();
}

// Inputs and outputs of a graph carry one of these encodings; others (block
// forms are for constants) are refused by name.
Status ReadEncoding(const abi::QuantizeParams& params, uint64_t most, TensorEncoding* encoding) {
  using Kind = TensorEncoding::Kind;
  if (params.definition != abi::kDefined) return OkStatus();
  switch (params.encoding) {
    case abi::kScaleOffset:
      encoding->kind = Kind::kPerTensor;
      return ReadPairs(&params.scale_offset, 1, 1, encoding);
    case abi::kAxisScaleOffset:
      encoding->kind = Kind::kPerAxis;
      encoding->axis = params.axis.axis;
      return ReadPairs(params.axis.scale_offsets, params.axis.count, most, encoding);
    case abi::kBwScaleOffset:
      encoding->kind = Kind::kBwPerTensor;
      encoding->bitwidth = params.bw.bitwidth;
      encoding->scales = {params.bw.scale};
      encoding->offsets = {params.bw.offset};
      return OkStatus();
    case abi::kBwAxisScaleOffset:
      encoding->kind = Kind::kBwPerAxis;
      return ReadBwAxis(params.bw_axis, most, encoding);
    case abi::kUndefinedEncoding:
      return OkStatus();
    default:
      return CorruptDataError(
          fmt::format("encoding {}, known are 0 to 3", static_cast<uint32_t>(params.encoding)));
  }
}

}  // namespace

AbiTensor::AbiTensor(const TensorDesc& desc)
    : name_(desc.name), dims_(desc.dims), encoding_(desc.encoding) {
  tensor_.version = 1;
  abi::TensorV1& v1 = tensor_.v1;
  v1.name = name_.c_str();
  v1.type = AbiRole(desc.role);
  v1.data_type = desc.dtype;
  v1.rank = static_cast<uint32_t>(dims_.size());
  v1.dims = dims_.data();
  v1.mem_type = abi::kMemRaw;
  if (desc.role == TensorRole::kStatic) SetData(desc.data.data(), desc.data.size());
  FillEncoding();
}

void AbiTensor::SetData(const void* data, uint64_t size) {
  tensor_.v1.client.data = const_cast<void*>(data);
  tensor_.v1.client.size = static_cast<uint32_t>(size);
}

void AbiTensor::FillEncoding() {
  using Kind = TensorEncoding::Kind;
  abi::QuantizeParams& params = tensor_.v1.quantize;
  if (encoding_.kind == Kind::kNone) {
    params.definition = abi::kUndefinedDefinition;
    params.encoding = abi::kUndefinedEncoding;
    return;
  }
  if (encoding_.offsets.empty()) encoding_.offsets.resize(encoding_.scales.size());
  for (size_t i = 0; i < encoding_.scales.size(); ++i) {
    scale_offsets_.push_back({encoding_.scales[i], encoding_.offsets[i]});
  }
  const auto count = static_cast<uint32_t>(scale_offsets_.size());
  params.definition = abi::kDefined;
  switch (encoding_.kind) {
    case Kind::kNone:
      break;
    case Kind::kPerTensor:
      params.encoding = abi::kScaleOffset;
      params.scale_offset = scale_offsets_[0];
      break;
    case Kind::kPerAxis:
      params.encoding = abi::kAxisScaleOffset;
      params.axis = {encoding_.axis, count, scale_offsets_.data()};
      break;
    case Kind::kBwPerTensor:
      params.encoding = abi::kBwScaleOffset;
      params.bw = {encoding_.bitwidth, encoding_.scales[0], encoding_.offsets[0]};
      break;
    case Kind::kBwPerAxis:
      params.encoding = abi::kBwAxisScaleOffset;
      params.bw_axis = {encoding_.bitwidth, encoding_.axis, count, encoding_.scales.data(),
                        encoding_.offsets.data()};
      break;
    case Kind::kBlockwise:
      params.encoding = abi::kBlockwiseExpansion;
      blockwise_.axis = encoding_.axis;
      blockwise_.scale_offsets = scale_offsets_.data();
      blockwise_.blocks_per_axis = encoding_.blocks_per_axis;
      blockwise_.block_scale_bitwidth = encoding_.block_scale_bitwidth;
      blockwise_.storage_type = 0;
      blockwise_.block_scales8 = encoding_.block_scales.data();
      params.blockwise = &blockwise_;
      break;
  }
}

AbiParams::AbiParams(const std::string& op_name, const std::vector<OpParam>& params)
    : params_(&params) {
  for (const OpParam& param : params) {
    if (const auto* tensor = std::get_if<TensorParam>(&param.value)) {
      tensors_.emplace_back(ParamTensorDesc(op_name, param.name, *tensor));
    }
  }
}

std::vector<abi::Param>& AbiParams::list() {
  list_.clear();
  size_t next_tensor = 0;
  for (const OpParam& param : *params_) {
    abi::Param& out = list_.emplace_back();
    out.name = param.name.c_str();
    if (std::holds_alternative<TensorParam>(param.value)) {
      out.type = abi::kTensorParam;
      out.tensor = tensors_[next_tensor++].tensor();
    } else {
      out.type = abi::kScalarParam;
      out.scalar = AbiScalar(param);
    }
  }
  return list_;
}

Result<TensorInfo> ReadAbiTensor(const abi::Tensor& tensor) {
  if (tensor.version != 1 && tensor.version != 2) {
    return CorruptDataError(
        fmt::format("a tensor description of version {}, known are 1 and 2", tensor.version));
  }
  const abi::TensorV1& v1 = tensor.v1;  // version 2 begins with the same fields
  TensorInfo info;
  info.name = v1.name == nullptr ? "" : v1.name;
  info.dtype = v1.data_type;
  info.vendor_id = v1.id;
  constexpr uint32_t kMostRank = 16;
  if (v1.rank > kMostRank || (v1.rank > 0 && v1.dims == nullptr)) {
    return CorruptDataError(fmt::format("tensor '{}' has {} dimensions", info.name, v1.rank));
  }
  uint32_t largest = 1;
  for (uint32_t i = 0; i < v1.rank; ++i) {
    info.dims.push_back(v1.dims[i]);
    if (v1.dims[i] > largest) largest = v1.dims[i];
  }
  const Status status = ReadEncoding(v1.quantize, largest, &info.encoding);
  if (!status.ok()) return status.WithContext(fmt::format("tensor '{}'", info.name));
  return info;
}

}  // namespace spillway::qnn
