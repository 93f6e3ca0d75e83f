#include "qnn/api/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace spillway::qnn {
namespace {

constexpr size_t kMostDims = 5;
constexpr uint64_t kMostBytes = uint64_t{1} << 32;  // the vendor's size field has 32 bits

struct TypeInfo {
  DataType type;
  size_t size;
  std::string_view name;
  bool fixed_point;
};

constexpr TypeInfo kTypes[] = {
    {DataType::kInt8, 1, "i8", false},     {DataType::kInt16, 2, "i16", false},
    {DataType::kInt32, 4, "i32", false},   {DataType::kInt64, 8, "i64", false},
    {DataType::kUint8, 1, "ui8", false},   {DataType::kUint16, 2, "ui16", false},
    {DataType::kUint32, 4, "ui32", false}, {DataType::kUint64, 8, "ui64", false},
    {DataType::kFloat16, 2, "f16", false}, {DataType::kBfloat16, 2, "bf16", false},
    {DataType::kFloat32, 4, "f32", false}, {DataType::kFloat64, 8, "f64", false},
    {DataType::kSfixed4, 0, "s4", true},   {DataType::kSfixed8, 1, "s8", true},
    {DataType::kSfixed16, 2, "s16", true}, {DataType::kSfixed32, 4, "s32", true},
    {DataType::kUfixed4, 0, "u4", true},   {DataType::kUfixed8, 1, "u8", true},
    {DataType::kUfixed16, 2, "u16", true}, {DataType::kUfixed32, 4, "u32", true},
    {DataType::kBool8, 1, "b8", false},
};

const TypeInfo* FindType(DataType type) {
  for (const TypeInfo& info : kTypes) {
    if (info.type == type) return &info;
  }
  return nullptr;
}

Status BadTensor(const TensorDesc& tensor, const std::string& what) {
  return InvalidArgumentError(fmt::format("tensor '{}' ({}): {}", tensor.name,
                                          DescribeTensor(tensor.dtype, tensor.dims), what));
}

Status CheckScales(const TensorDesc& tensor, size_t expected) {
  const TensorEncoding& encoding = tensor.encoding;
  if (encoding.scales.size() != expected) {
    return BadTensor(tensor, fmt::format("the encoding has {} scales, expected {}",
                                         encoding.scales.size(), expected));
  }
  if (!encoding.offsets.empty() && encoding.offsets.size() != expected) {
    return BadTensor(tensor, fmt::format("the encoding has {} offsets, expected {} or none",
                                         encoding.offsets.size(), expected));
  }
  for (size_t i = 0; i < expected; ++i) {
    if (!std::isfinite(encoding.scales[i]) || encoding.scales[i] <= 0) {
      return BadTensor(tensor, fmt::format("scale {} is {}, expected a finite number above 0", i,
                                           encoding.scales[i]));
    }
  }
  return OkStatus();
}

Status CheckBlocks(const TensorDesc& tensor) {
  const TensorEncoding& encoding = tensor.encoding;
  const uint64_t expected = uint64_t{encoding.blocks_per_axis} * encoding.scales.size();
  if (encoding.blocks_per_axis == 0 || encoding.block_scales.size() != expected) {
    return BadTensor(tensor,
                     fmt::format("the encoding has {} block scales, expected {} ({} per "
                                 "channel, above 0)",
                                 encoding.block_scales.size(), expected, encoding.blocks_per_axis));
  }
  if (encoding.block_scale_bitwidth < 1 || encoding.block_scale_bitwidth > 8) {
    return BadTensor(tensor, fmt::format("block scales of {} bits, expected 1 to 8",
                                         encoding.block_scale_bitwidth));
  }
  const uint32_t most = 1u << encoding.block_scale_bitwidth;
  for (const uint8_t scale : encoding.block_scales) {
    if (scale == 0 || scale > most) {
      return BadTensor(tensor, fmt::format("a block scale is {}, expected 1 to {}", scale, most));
    }
  }
  return OkStatus();
}

Status CheckEncoding(const TensorDesc& tensor) {
  using Kind = TensorEncoding::Kind;
  const TensorEncoding& encoding = tensor.encoding;
  if (encoding.kind == Kind::kNone) {
    if (IsFixedPoint(tensor.dtype)) {
      return BadTensor(tensor, "a fixed-point tensor needs an encoding");
    }
    return OkStatus();
  }
  if (!IsFixedPoint(tensor.dtype)) {
    return BadTensor(tensor, "has an encoding, but its values are not fixed-point");
  }
  const bool has_bits = encoding.kind == Kind::kBwPerTensor || encoding.kind == Kind::kBwPerAxis;
  if (has_bits && (encoding.bitwidth == 0 || encoding.bitwidth > 8 * DataTypeSize(tensor.dtype))) {
    return BadTensor(tensor, fmt::format("an encoding of {} bits, expected 1 to {}",
                                         encoding.bitwidth, 8 * DataTypeSize(tensor.dtype)));
  }
  if (encoding.kind == Kind::kPerTensor || encoding.kind == Kind::kBwPerTensor) {
    return CheckScales(tensor, 1);
  }
  if (encoding.axis < 0 || static_cast<size_t>(encoding.axis) >= tensor.dims.size()) {
    return BadTensor(tensor, fmt::format("encoding axis {}, expected 0 to {}", encoding.axis,
                                         tensor.dims.size() - 1));
  }
  SPILLWAY_RETURN_IF_ERROR(CheckScales(tensor, tensor.dims[encoding.axis]));
  return encoding.kind == Kind::kBlockwise ? CheckBlocks(tensor) : OkStatus();
}

template <typename T>
TensorParam MakeParam(DataType dtype, std::vector<uint32_t> dims, std::span<const T> values) {
  TensorParam param;
  param.dtype = dtype;
  param.dims = std::move(dims);
  param.data.resize(values.size_bytes());
  if (!values.empty()) std::memcpy(param.data.data(), values.data(), values.size_bytes());
  return param;
}

}  // namespace

size_t DataTypeSize(DataType type) {
  const TypeInfo* info = FindType(type);
  return info == nullptr ? 0 : info->size;
}

std::string DataTypeName(DataType type) {
  const TypeInfo* info = FindType(type);
  return info == nullptr ? fmt::format("type 0x{:04x}", static_cast<uint32_t>(type))
                         : std::string(info->name);
}

bool IsFixedPoint(DataType type) {
  const TypeInfo* info = FindType(type);
  return info != nullptr && info->fixed_point;
}

TensorEncoding TensorEncoding::PerTensor(float scale, int32_t offset) {
  TensorEncoding encoding;
  encoding.kind = Kind::kPerTensor;
  encoding.scales = {scale};
  encoding.offsets = {offset};
  return encoding;
}

TensorEncoding TensorEncoding::PerAxis(int32_t axis, std::vector<float> scales) {
  TensorEncoding encoding;
  encoding.kind = Kind::kPerAxis;
  encoding.axis = axis;
  encoding.scales = std::move(scales);
  return encoding;
}

TensorEncoding TensorEncoding::BwPerAxis(int32_t axis, uint32_t bitwidth,
                                         std::vector<float> scales) {
  TensorEncoding encoding = PerAxis(axis, std::move(scales));
  encoding.kind = Kind::kBwPerAxis;
  encoding.bitwidth = bitwidth;
  return encoding;
}

uint64_t ByteSize(DataType dtype, std::span<const uint32_t> dims) {
  uint64_t size = DataTypeSize(dtype);
  for (const uint32_t dim : dims) size *= dim;
  return size;
}

std::string DescribeTensor(DataType dtype, std::span<const uint32_t> dims) {
  return fmt::format("{} [{}]", DataTypeName(dtype), fmt::join(dims.begin(), dims.end(), ", "));
}

Status CheckTensorWithoutData(const TensorDesc& tensor) {
  if (tensor.name.empty()) return BadTensor(tensor, "has no name");
  if (DataTypeSize(tensor.dtype) == 0) {
    return BadTensor(tensor,
                     "HTP takes no tensor of this type; store 4-bit values one per byte "
                     "in an 8-bit type with a bit-width encoding");
  }
  if (tensor.dims.empty() || tensor.dims.size() > kMostDims) {
    return BadTensor(
        tensor, fmt::format("has {} dimensions, HTP takes 1 to {}", tensor.dims.size(), kMostDims));
  }
  uint64_t size = DataTypeSize(tensor.dtype);
  for (const uint32_t dim : tensor.dims) {
    if (dim == 0) return BadTensor(tensor, "has a dimension of 0");
    if (dim > kMostBytes / size) return BadTensor(tensor, "is larger than 4 GiB");
    size *= dim;
  }
  if (size >= kMostBytes) return BadTensor(tensor, "is larger than 4 GiB");
  return CheckEncoding(tensor);
}

Status CheckTensor(const TensorDesc& tensor) {
  SPILLWAY_RETURN_IF_ERROR(CheckTensorWithoutData(tensor));
  const bool is_static = tensor.role == TensorRole::kStatic;
  const uint64_t size = ByteSize(tensor.dtype, tensor.dims);
  if (is_static && tensor.data.size() != size) {
    return BadTensor(tensor,
                     fmt::format("has {} bytes of data, expected {}", tensor.data.size(), size));
  }
  if (!is_static && !tensor.data.empty()) {
    return BadTensor(tensor, "has data, but only static tensors do");
  }
  return OkStatus();
}

Status CheckParams(const std::string& op_name, const std::vector<OpParam>& params) {
  for (const OpParam& param : params) {
    const auto* tensor = std::get_if<TensorParam>(&param.value);
    if (tensor == nullptr) continue;
    TensorDesc desc;
    desc.name = op_name + "." + param.name;
    desc.role = TensorRole::kStatic;
    desc.dtype = tensor->dtype;
    desc.dims = tensor->dims;
    desc.data = tensor->data;
    SPILLWAY_RETURN_IF_ERROR(CheckTensor(desc));
  }
  return OkStatus();
}

TensorParam TensorParam::Uint32(std::vector<uint32_t> dims, std::span<const uint32_t> values) {
  return MakeParam(DataType::kUint32, std::move(dims), values);
}

TensorParam TensorParam::Int32(std::vector<uint32_t> dims, std::span<const int32_t> values) {
  return MakeParam(DataType::kInt32, std::move(dims), values);
}

}  // namespace spillway::qnn
