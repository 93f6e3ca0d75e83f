#include "quantize/quantize_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/memory.h"
#include "decoder/decoder.h"

namespace spillway {
namespace {

// A hidden score lies at least this far below the smallest visible one, so its
// share after softmax is below e^-20 = 2e-9, far under the 1/65535 of the
// output; the mask's full -255 would waste the range of the sum.
constexpr float kHiddenMargin = 20.0f;

std::vector<float> FloatValues(const Tensor& tensor) {
  std::vector<float> values(NumElements(tensor.shape));
  const std::span<const std::byte> bytes = tensor.data->bytes();
  if (bytes.empty()) {
    tensor.data->ReadRows(0, values.size() / tensor.shape.back(), values.data());
  } else {
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  }
  return values;
}

// Calibration sees damaged weights only when its text reaches them.
Status CheckFinite(const std::string& name, const QuantizedMatrix& matrix) {
  if (!matrix.bad_row) return OkStatus();
  return CorruptDataError(
      fmt::format("weight {}, row {} has a value that is not finite; the model's file is damaged",
                  name, *matrix.bad_row));
}

bool EndsWithCached(const std::string& name) { return name.ends_with(".cached"); }

// A cache is the right side of a product at run time, and the vendor's products
// with 8-bit right sides are exact only when the zero point is in the middle:
// with 127 instead of 128 they are up to 100 steps off, with 64 up to 160.
Encoding CacheEncoding(DType dtype, const Range& range) {
  return SymmetricEncoding(dtype, std::max(range.max, -range.min));
}

// u8 or u16 values of a per-tensor encoding.
std::shared_ptr<const ConstantData> QuantizeToConstant(const std::vector<float>& values,
                                                       const Encoding& encoding, DType dtype) {
  AlignedBuffer buffer(values.size() * DTypeSize(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    const int32_t q = QuantizeValue(values[i], encoding, dtype);
    if (dtype == DType::kU16) {
      reinterpret_cast<uint16_t*>(buffer.data())[i] = static_cast<uint16_t>(q);
    } else {
      reinterpret_cast<uint8_t*>(buffer.data())[i] = static_cast<uint8_t>(q);
    }
  }
  return MakeConstant({buffer.data(), buffer.size()});
}

// Which operation reads an op's output; softmax needs to know.
bool FeedsSoftmax(const Graph& graph, TensorId id) {
  return std::any_of(graph.ops().begin(), graph.ops().end(), [&](const Op& op) {
    return op.type == OpType::kSoftmax && op.inputs[0] == id;
  });
}

}  // namespace

Encoding MaskEncoding() { return Encoding::PerTensor(DType::kU16, 255.0f / 65535.0f, -65535); }

GraphQuantizer::GraphQuantizer(Recipe recipe, TensorRanges ranges, ThreadPool* pool)
    : recipe_(std::move(recipe)), ranges_(std::move(ranges)), pool_(pool) {}

Result<Range> GraphQuantizer::RangeOf(const std::string& name) const {
  const auto found = ranges_.find(name);
  if (found == ranges_.end()) {
    return InternalError(fmt::format("calibration did not see the tensor {}", name));
  }
  return found->second;
}

const QuantizedMatrix& GraphQuantizer::Matrix(const std::shared_ptr<const ConstantData>& data,
                                              uint32_t rows, uint32_t cols,
                                              const WeightScheme& scheme) {
  const auto found = matrices_.find(data);
  if (found != matrices_.end()) return found->second;
  return matrices_.emplace(data, QuantizeMatrix(*data, rows, cols, scheme.bits, pool_))
      .first->second;
}

Tensor GraphQuantizer::QuantizeEmbedding(const std::string& name,
                                         const std::shared_ptr<const ConstantData>& data,
                                         uint32_t rows, uint32_t cols) {
  const QuantizedMatrix& matrix = Matrix(data, rows, cols, recipe_.embedding);
  if (bad_.ok()) bad_ = CheckFinite(name, matrix);
  ranges_[kHiddenInputName] = {matrix.min, matrix.max};
  Tensor tensor;
  tensor.name = name;
  tensor.dtype = DType::kS8;
  tensor.shape = {rows, cols};
  tensor.encoding = matrix.encoding;
  tensor.role = TensorRole::kConstant;
  tensor.data = matrix.data;
  return tensor;
}

// A constant vector or table of the activation type. Its range is its own, rounded,
// so that the tables of all context lengths have one encoding.
Status GraphQuantizer::QuantizeVector(Tensor& tensor) {
  auto found = vectors_.find(tensor.data);
  if (found == vectors_.end()) {
    const std::vector<float> values = FloatValues(tensor);
    const auto [min, max] = std::minmax_element(values.begin(), values.end());
    QuantizedVector vector;
    vector.encoding =
        AffineEncoding(recipe_.activation.dtype, RoundRangeUp(*min), RoundRangeUp(*max));
    vector.data = QuantizeToConstant(values, vector.encoding, recipe_.activation.dtype);
    found = vectors_.emplace(tensor.data, std::move(vector)).first;
  }
  tensor.dtype = recipe_.activation.dtype;
  tensor.data = found->second.data;
  tensor.encoding = found->second.encoding;
  return OkStatus();
}

// s32 in units of the input's scale times the channel's.
Status GraphQuantizer::QuantizeBias(const Op& op, Graph& graph) {
  Tensor& bias = graph.mutable_tensor(op.inputs[2]);
  const Encoding& weight = graph.tensor(op.inputs[1]).encoding;
  auto found = vectors_.find(bias.data);
  if (found == vectors_.end()) {
    const std::vector<float> values = FloatValues(bias);
    std::vector<float> scales(values.size());
    std::vector<int32_t> integers(values.size());
    for (size_t n = 0; n < values.size(); ++n) {
      scales[n] = graph.tensor(op.inputs[0]).encoding.scale * weight.channel_scales[n];
      const double q = std::nearbyint(static_cast<double>(values[n]) / scales[n]);
      if (std::abs(q) > static_cast<double>(DTypeMax(DType::kS32))) {
        return UnsupportedError(fmt::format(
            "bias {}[{}] = {} does not fit 32 bits in units of {}: the channel's weights are "
            "almost zero",
            bias.name, n, values[n], scales[n]));
      }
      integers[n] = static_cast<int32_t>(q);
    }
    QuantizedVector vector;
    vector.data = MakeConstantOf(integers);
    vector.encoding = Encoding::PerChannel(32, 0, std::move(scales));
    found = vectors_.emplace(bias.data, std::move(vector)).first;
  }
  bias.dtype = DType::kS32;
  bias.data = found->second.data;
  bias.encoding = found->second.encoding;
  return OkStatus();
}

Status GraphQuantizer::QuantizeConstants(const Op& op, Graph& graph) {
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    Tensor& tensor = graph.mutable_tensor(op.inputs[i]);
    if (tensor.role != TensorRole::kConstant || tensor.dtype != DType::kF32) continue;
    if (op.type == OpType::kLinear && i == 1) {
      const QuantizedMatrix& matrix =
          Matrix(tensor.data, tensor.shape[0], tensor.shape[1], recipe_.WeightOf(op.name));
      SPILLWAY_RETURN_IF_ERROR(CheckFinite(tensor.name, matrix));
      tensor.dtype = DType::kS8;
      tensor.data = matrix.data;
      tensor.encoding = matrix.encoding;
    } else if (op.type == OpType::kLinear && i == 2) {
      SPILLWAY_RETURN_IF_ERROR(QuantizeBias(op, graph));
    } else {
      SPILLWAY_RETURN_IF_ERROR(QuantizeVector(tensor));
    }
  }
  return OkStatus();
}

Status GraphQuantizer::QuantizeInputs(Graph& graph) {
  for (const TensorId id : graph.inputs()) {
    Tensor& tensor = graph.mutable_tensor(id);
    if (tensor.dtype != DType::kF32) continue;
    if (tensor.name == kMaskInputName) {
      tensor.dtype = DType::kU16;
      tensor.encoding = MaskEncoding();
      continue;
    }
    const bool cache = !tensor.encoding_of.empty();
    tensor.dtype = cache ? recipe_.kv : recipe_.activation.dtype;
    SPILLWAY_ASSIGN_OR_RETURN(const Range range, RangeOf(cache ? tensor.encoding_of : tensor.name));
    tensor.encoding = cache ? CacheEncoding(tensor.dtype, range)
                            : AffineEncoding(tensor.dtype, range.min, range.max);
  }
  return OkStatus();
}

Result<Encoding> GraphQuantizer::OutputEncoding(const Graph& graph, const Op& op,
                                                const Graph& quantized) const {
  const Tensor& output = graph.tensor(op.outputs[0]);
  if (KeepsEncoding(op.type)) return quantized.tensor(op.inputs[0]).encoding;
  if (op.type == OpType::kSoftmax) return Encoding::PerTensor(DType::kU16, 1.0f / 65535.0f, 0);
  if (op.type == OpType::kAdd && FeedsSoftmax(graph, op.outputs[0])) {
    SPILLWAY_ASSIGN_OR_RETURN(const Range scores, RangeOf(graph.tensor(op.inputs[0]).name));
    return AffineEncoding(recipe_.activation.dtype, scores.min - kHiddenMargin, scores.max);
  }
  SPILLWAY_ASSIGN_OR_RETURN(const Range range, RangeOf(output.name));
  if (EndsWithCached(output.name)) return CacheEncoding(recipe_.kv, range);
  return AffineEncoding(recipe_.activation.dtype, range.min, range.max);
}

Result<std::vector<Tensor>> GraphQuantizer::QuantizePrefix(const FloatPrefix& prefix,
                                                           const ModelConfig& config) {
  std::vector<Tensor> tensors;
  const auto count = static_cast<uint32_t>(prefix.tokens.size());
  for (const bool is_k : {true, false}) {
    const std::vector<std::vector<float>>& layers = is_k ? prefix.k : prefix.v;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      SPILLWAY_ASSIGN_OR_RETURN(
          const Range range, RangeOf(fmt::format("layers.{}.{}.cached", layer, is_k ? "k" : "v")));
      Tensor tensor;
      tensor.name = fmt::format("prefix.{}.{}", is_k ? "k" : "v", layer);
      tensor.dtype = recipe_.kv;
      tensor.shape = is_k ? Shape{1, config.num_kv_heads, config.head_dim, count}
                          : Shape{1, config.num_kv_heads, count, config.head_dim};
      tensor.role = TensorRole::kConstant;
      tensor.encoding = CacheEncoding(recipe_.kv, range);
      tensor.data = QuantizeToConstant(layers[layer], tensor.encoding, recipe_.kv);
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

Result<Graph> GraphQuantizer::Quantize(const Graph& graph) {
  SPILLWAY_RETURN_IF_ERROR(bad_);
  Graph quantized = graph;
  SPILLWAY_RETURN_IF_ERROR(QuantizeInputs(quantized));
  for (const Op& op : graph.ops()) {
    SPILLWAY_RETURN_IF_ERROR(QuantizeConstants(op, quantized));
    SPILLWAY_ASSIGN_OR_RETURN(Encoding encoding, OutputEncoding(graph, op, quantized));
    Tensor& output = quantized.mutable_tensor(op.outputs[0]);
    output.dtype = KeepsEncoding(op.type)        ? quantized.tensor(op.inputs[0]).dtype
                   : EndsWithCached(output.name) ? recipe_.kv
                                                 : recipe_.activation.dtype;
    output.encoding = std::move(encoding);
  }
  SPILLWAY_RETURN_IF_ERROR(quantized.Validate());
  return quantized;
}

}  // namespace spillway
