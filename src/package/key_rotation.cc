#include "package/key_rotation.h"

#include <fmt/format.h>

#include <span>

#include "base/float16.h"

namespace spillway {
namespace {

Status Misfit(const std::string& what, std::string_view found, std::string_view expected) {
  return CorruptDataError(
      fmt::format("{} is {}; the graph contract asks for {}", what, found, expected));
}

// The constant's name in docs/package-format.md.
constexpr char kKeyRotation[] = "key_rotation.weight";

// Real values of a Linear weight [N, K], row-major.
Result<std::vector<float>> ReadMatrix(const Tensor& weight) {
  const size_t rows = weight.shape[0], cols = weight.shape[1];
  const std::span<const std::byte> bytes = weight.data->bytes();
  const Encoding& encoding = weight.encoding;
  std::vector<float> values(rows * cols);
  if (weight.dtype == DType::kF32 && bytes.empty()) {
    weight.data->ReadRows(0, rows, values.data());
    return values;
  }
  const uint64_t expected = StoredBytes(weight, weight.data->layout());
  if (bytes.size() < expected) {
    return Misfit(fmt::format("tensor \"{}\"", weight.name),
                  fmt::format("{} bytes long", bytes.size()), fmt::format("{}", expected));
  }
  const bool block = encoding.kind == Encoding::Kind::kBlock;
  const bool fixed =
      weight.dtype == DType::kS8 && encoding.channel_scales.size() == rows &&
      (!block || encoding.block_scales.size() * encoding.block_size == values.size());
  if (!fixed && weight.dtype != DType::kF32 && weight.dtype != DType::kF16) {
    return Misfit(fmt::format("tensor \"{}\"", weight.name),
                  fmt::format("{} {}", DTypeName(weight.dtype), ShapeToString(weight.shape)),
                  "f32, f16, or s8 with a scale for each row");
  }
  for (size_t n = 0; n < rows; ++n) {
    for (size_t k = 0; k < cols; ++k) {
      const size_t at = n * cols + k;
      float& value = values[at];
      if (weight.dtype == DType::kF32) {
        value = reinterpret_cast<const float*>(bytes.data())[at];
      } else if (weight.dtype == DType::kF16) {
        value = HalfToFloat(reinterpret_cast<const uint16_t*>(bytes.data())[at]);
      } else {
        value = encoding.channel_scales[n] * static_cast<float>(MatrixInt(weight, n, k));
        if (block) value *= encoding.block_scales[(n * cols + k) / encoding.block_size];
      }
    }
  }
  return values;
}

}  // namespace

Result<std::vector<float>> ReadKeyRotation(const Graph& graph, uint32_t head_dim) {
  for (const Op& op : graph.ops()) {
    for (const TensorId id : op.inputs) {
      const Tensor& tensor = graph.tensor(id);
      if (tensor.role != TensorRole::kConstant || tensor.name != kKeyRotation) continue;
      if (tensor.shape != Shape{head_dim, head_dim}) {
        return Misfit(fmt::format("tensor \"{}\"", tensor.name), ShapeToString(tensor.shape),
                      ShapeToString({head_dim, head_dim}));
      }
      return ReadMatrix(tensor);
    }
  }
  return std::vector<float>();
}

}  // namespace spillway
