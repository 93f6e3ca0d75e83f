#include "tests/fake_qnn/describe.h"

#include <cstdio>

namespace fake_qnn {
namespace {

constexpr uint32_t kMostData = 256;  // bytes of static data that are written out

__attribute__((format(printf, 1, 2))) std::string Text(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

template <typename Item>
std::string List(uint32_t count, const Item& item) {
  std::string text;
  for (uint32_t i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + item(i);
  return text;
}

std::string ScaleOffsets(const abi::ScaleOffset* values, uint32_t count) {
  return List(count, [&](uint32_t i) {
    return Text("%g:%d", static_cast<double>(values[i].scale), values[i].offset);
  });
}

// `channels` is the length of the axis of a blockwise encoding.
std::string Blockwise(const abi::BlockwiseExpansion& block, const abi::TensorV1& tensor) {
  const uint32_t channels = tensor.dims[block.axis];
  std::string text = Text(" axis %d blocks %u bits %u storage %u ", block.axis,
                          block.blocks_per_axis, block.block_scale_bitwidth, block.storage_type);
  text += ScaleOffsets(block.scale_offsets, channels) + " times ";
  return text + List(channels * block.blocks_per_axis,
                     [&](uint32_t i) { return std::to_string(block.block_scales8[i]); });
}

std::string DescribeEncoding(const abi::TensorV1& tensor) {
  const abi::QuantizeParams& params = tensor.quantize;
  if (params.definition != abi::kDefined) return "none";
  const std::string kind = std::to_string(params.encoding);
  switch (params.encoding) {
    case abi::kScaleOffset:
      return kind + " " + ScaleOffsets(&params.scale_offset, 1);
    case abi::kAxisScaleOffset:
      return kind + Text(" axis %d ", params.axis.axis) +
             ScaleOffsets(params.axis.scale_offsets, params.axis.count);
    case abi::kBwAxisScaleOffset:
      return kind + Text(" bits %u axis %d ", params.bw_axis.bitwidth, params.bw_axis.axis) +
             List(params.bw_axis.count, [&](uint32_t i) {
               return Text("%g", static_cast<double>(params.bw_axis.scales[i]));
             });
    case abi::kBlockwiseExpansion:
      return kind + Blockwise(*params.blockwise, tensor);
    default:
      return kind;
  }
}

std::string Dims(const abi::TensorV1& tensor) {
  return "[" + List(tensor.rank, [&](uint32_t i) { return std::to_string(tensor.dims[i]); }) + "]";
}

std::string Names(const abi::Tensor* tensors, uint32_t count) {
  return List(count, [&](uint32_t i) { return std::string(tensors[i].v1.name); });
}

std::string DescribeParam(const abi::Param& param) {
  const std::string name = std::string(" ") + param.name + "=";
  if (param.type == abi::kTensorParam) {
    const abi::TensorV1& tensor = param.tensor.v1;
    const auto* values = static_cast<const uint32_t*>(tensor.client.data);
    return name + Text("0x%x", static_cast<unsigned>(tensor.data_type)) + Dims(tensor) + ":" +
           List(tensor.client.size / 4, [&](uint32_t i) { return std::to_string(values[i]); });
  }
  return name + DescribeScalar(param.scalar);
}

}  // namespace

std::string DescribeScalar(const abi::Scalar& scalar) {
  switch (scalar.data_type) {
    case abi::DataType::kFloat32:
      return Text("f32:%g", static_cast<double>(scalar.f32));
    case abi::DataType::kBool8:
      return Text("b8:%u", scalar.b8);
    case abi::DataType::kInt32:
      return Text("i32:%d", scalar.i32);
    case abi::DataType::kString:
      return std::string("text:") + scalar.text;
    default:
      return Text("ui32:%u", scalar.u32);
  }
}

std::string DescribeTensorLine(const abi::TensorV1& tensor) {
  std::string line = Text("tensor %s type %u dtype 0x%x ", tensor.name, tensor.type,
                          static_cast<unsigned>(tensor.data_type)) +
                     Dims(tensor) + " encoding " + DescribeEncoding(tensor);
  if (tensor.type != abi::kStatic || tensor.client.size > kMostData) return line;
  line += " data ";
  for (uint32_t i = 0; i < tensor.client.size; ++i) {
    line += Text("%02x", static_cast<const unsigned char*>(tensor.client.data)[i]);
  }
  return line;
}

std::string DescribeNodeLine(const abi::OpConfig& config) {
  std::string line = std::string("node ") + config.name + " " + config.type + " in " +
                     Names(config.inputs, config.num_inputs) + " out " +
                     Names(config.outputs, config.num_outputs);
  for (uint32_t i = 0; i < config.num_params; ++i) line += DescribeParam(config.params[i]);
  return line;
}

}  // namespace fake_qnn
