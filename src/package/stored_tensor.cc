// What a tensor of a package must be, for the writer and the reader alike.

#include <fmt/format.h>

#include <cmath>

#include "package/graph_file.h"

namespace spillway {
namespace {

constexpr size_t kMaxRank = 8;
constexpr size_t kMaxName = 1024;
// Far above a large vocabulary times a wide model, far below an overflow.
constexpr uint64_t kMaxElements = uint64_t{1} << 36;
constexpr uint8_t kMaxBlockScale = 16;

Status CheckName(const std::string& name) {
  if (name.empty() || name.size() > kMaxName) {
    return InvalidArgumentError(
        fmt::format("a tensor name has {} bytes; expected 1 to {}", name.size(), kMaxName));
  }
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return InvalidArgumentError("a tensor name has control characters; expected plain text");
    }
  }
  return OkStatus();
}

Status CheckShape(const Shape& shape) {
  uint64_t count = 1;
  for (const uint32_t dim : shape) {
    if (dim == 0 || count > kMaxElements / dim) {
      return InvalidArgumentError(
          fmt::format("shape {}; expected no dimension of zero and at most {} elements",
                      ShapeToString(shape), kMaxElements));
    }
    count *= dim;
  }
  if (shape.empty() || shape.size() > kMaxRank) {
    return InvalidArgumentError(
        fmt::format("{} dimensions; expected 1 to {}", shape.size(), kMaxRank));
  }
  return OkStatus();
}

Status CheckPerTensor(const Tensor& tensor) {
  const Encoding& encoding = tensor.encoding;
  if (!std::isfinite(encoding.scale) || encoding.scale <= 0.0f) {
    return InvalidArgumentError(
        fmt::format("scale {}; expected a finite number above 0", encoding.scale));
  }
  // The integer that stands for zero must be one of the type; 0 for biases.
  const int64_t zero_point = -static_cast<int64_t>(encoding.offset);
  const bool is_bias = tensor.dtype == DType::kS32;
  const int64_t min = is_bias ? 0 : DTypeMin(tensor.dtype);
  const int64_t max = is_bias ? 0 : DTypeMax(tensor.dtype);
  if (zero_point < min || zero_point > max) {
    return InvalidArgumentError(fmt::format("offset {}; expected {} to {} for {}", encoding.offset,
                                            -max, -min, DTypeName(tensor.dtype)));
  }
  return OkStatus();
}

Status CheckChannelScales(const Tensor& tensor) {
  const Encoding& encoding = tensor.encoding;
  if (encoding.axis >= tensor.shape.size()) {
    return InvalidArgumentError(fmt::format("channel axis {}; expected less than the {} dimensions",
                                            encoding.axis, tensor.shape.size()));
  }
  const uint32_t channels = tensor.shape[encoding.axis];
  if (encoding.channel_scales.size() != channels) {
    return InvalidArgumentError(fmt::format("{} channel scales; expected {}, one a channel",
                                            encoding.channel_scales.size(), channels));
  }
  for (const float scale : encoding.channel_scales) {
    if (!std::isfinite(scale) || scale <= 0.0f) {
      return InvalidArgumentError(
          fmt::format("channel scale {}; expected a finite number above 0", scale));
    }
  }
  return OkStatus();
}

Status CheckBlocks(const Tensor& tensor) {
  const Encoding& encoding = tensor.encoding;
  if (tensor.dtype != DType::kS8 || tensor.shape.size() != 2 || encoding.bits != 4) {
    return InvalidArgumentError(
        fmt::format("block encoding of {} bits on {} {}; expected 4 bits on an s8 matrix",
                    encoding.bits, DTypeName(tensor.dtype), ShapeToString(tensor.shape)));
  }
  SPILLWAY_RETURN_IF_ERROR(CheckChannelScales(tensor));
  const uint64_t length = tensor.shape[1 - encoding.axis];
  if (encoding.block_size == 0 || encoding.block_size > length) {
    return InvalidArgumentError(
        fmt::format("block size {}; expected 1 to {}", encoding.block_size, length));
  }
  const uint64_t blocks = (length + encoding.block_size - 1) / encoding.block_size;
  const uint64_t expected = blocks * tensor.shape[encoding.axis];
  if (encoding.block_scales.size() != expected) {
    return InvalidArgumentError(
        fmt::format("{} block scales; expected {}", encoding.block_scales.size(), expected));
  }
  for (const uint8_t scale : encoding.block_scales) {
    if (scale < 1 || scale > kMaxBlockScale) {
      return InvalidArgumentError(
          fmt::format("block scale {}; expected 1 to {}", scale, kMaxBlockScale));
    }
  }
  return OkStatus();
}

Status CheckEncoding(const Tensor& tensor) {
  const Encoding& encoding = tensor.encoding;
  if (encoding.kind == Encoding::Kind::kNone) {
    // A float bias becomes s32 in units that follow from its product.
    if (!IsFixedPoint(tensor.dtype) || tensor.dtype == DType::kS32) return OkStatus();
    return InvalidArgumentError(
        fmt::format("{} without an encoding; expected one", DTypeName(tensor.dtype)));
  }
  if (!IsFixedPoint(tensor.dtype)) {
    return InvalidArgumentError(
        fmt::format("{} with an encoding; expected none", DTypeName(tensor.dtype)));
  }
  const size_t max_bits = 8 * DTypeSize(tensor.dtype);
  if (encoding.bits < 1 || encoding.bits > max_bits) {
    return InvalidArgumentError(
        fmt::format("{} significant bits; expected 1 to {}", encoding.bits, max_bits));
  }
  switch (encoding.kind) {
    case Encoding::Kind::kPerTensor:
      return CheckPerTensor(tensor);
    case Encoding::Kind::kPerChannel:
      return CheckChannelScales(tensor);
    case Encoding::Kind::kBlock:
      return CheckBlocks(tensor);
    case Encoding::Kind::kNone:
      break;
  }
  return InternalError("unknown encoding");
}

Status CheckData(const Tensor& tensor) {
  if (tensor.data == nullptr) {
    return InvalidArgumentError("no values; expected a constant with values");
  }
  const DataLayout layout = tensor.data->layout();
  const bool is_s8_matrix = tensor.dtype == DType::kS8 && tensor.shape.size() == 2;
  if (layout != DataLayout::kRowMajor && !is_s8_matrix) {
    return InvalidArgumentError(fmt::format("packed layout of {} {}; expected an s8 matrix",
                                            DTypeName(tensor.dtype), ShapeToString(tensor.shape)));
  }
  if (layout == DataLayout::kPackedNibbles && tensor.encoding.bits != 4) {
    return InvalidArgumentError(
        fmt::format("values of half a byte with an encoding of {} bits; expected 4",
                    static_cast<int>(tensor.encoding.bits)));
  }
  const uint64_t expected = StoredBytes(tensor, layout);
  const size_t found = tensor.data->bytes().size();
  if (found == 0) {
    return InvalidArgumentError(
        "values that can only be read row by row; expected them in memory (quantise the tensor "
        "before it is stored)");
  }
  if (found != expected) {
    return InvalidArgumentError(fmt::format("{} bytes of values; expected {} for {} {}", found,
                                            expected, DTypeName(tensor.dtype),
                                            ShapeToString(tensor.shape)));
  }
  return OkStatus();
}

}  // namespace

Status CheckStoredTensor(const Tensor& tensor) {
  SPILLWAY_RETURN_IF_ERROR(CheckName(tensor.name));
  const std::string context = "tensor " + tensor.name;
  SPILLWAY_RETURN_IF_ERROR(CheckShape(tensor.shape).WithContext(context));
  SPILLWAY_RETURN_IF_ERROR(CheckEncoding(tensor).WithContext(context));
  if (tensor.role != TensorRole::kConstant) return OkStatus();
  return CheckData(tensor).WithContext(context);
}

}  // namespace spillway
