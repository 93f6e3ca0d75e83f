#include "qnn/api/describe_node.h"

#include <fmt/format.h>

#include <span>

#include "qnn/api/errors.h"
#include "qnn/api/tensor.h"

namespace spillway::qnn {
namespace {

std::string DescribeAbiTensors(const abi::Tensor* tensors, uint32_t count) {
  std::string text;
  for (uint32_t i = 0; i < count; ++i) {
    const abi::TensorV1& v1 = tensors[i].v1;
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", v1.name == nullptr ? "?" : v1.name,
                        DescribeTensor(v1.data_type, {v1.dims, v1.rank}));
    if (v1.quantize.definition == abi::kDefined) {
      text += fmt::format(" (encoding {})", static_cast<uint32_t>(v1.quantize.encoding));
    }
  }
  return text.empty() ? "none" : text;
}

std::string DescribeParam(const abi::Param& param) {
  if (param.type == abi::kTensorParam) {
    const abi::TensorV1& v1 = param.tensor.v1;
    return fmt::format("{} {}", param.name, DescribeTensor(v1.data_type, {v1.dims, v1.rank}));
  }
  switch (param.scalar.data_type) {
    case DataType::kFloat32:
      return fmt::format("{} {}", param.name, param.scalar.f32);
    case DataType::kInt32:
      return fmt::format("{} {}", param.name, param.scalar.i32);
    case DataType::kBool8:
      return fmt::format("{} {}", param.name, param.scalar.b8 != 0);
    default:
      return fmt::format("{} {}", param.name, param.scalar.u32);
  }
}

}  // namespace

std::string DescribeAbiNode(const abi::OpConfig& config) {
  std::string text = fmt::format("node '{}' of type {}: inputs {}; outputs {}", config.name,
                                 config.type, DescribeAbiTensors(config.inputs, config.num_inputs),
                                 DescribeAbiTensors(config.outputs, config.num_outputs));
  for (uint32_t i = 0; i < config.num_params; ++i) {
    text += fmt::format("{}{}", i == 0 ? "; parameters " : ", ", DescribeParam(config.params[i]));
  }
  return text;
}

Status RefusedNode(const std::string& description, abi::Error error,
                   const std::vector<std::string>& log_lines) {
  constexpr uint32_t kRefused = 3110;
  constexpr uint32_t kUnknownType = 4005;
  const Status failure =
      VendorFailure(description + ": validation by the target", error, log_lines);
  const auto code = static_cast<uint32_t>(error & 0xffff);
  if (code == kRefused || code == kUnknownType) return UnsupportedError(failure.message());
  return failure;
}

}  // namespace spillway::qnn
