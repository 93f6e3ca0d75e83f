// The constants of a quantised graph: weights, norms, tables, biases, prefix.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/float16.h"
#include "base/memory.h"
#include "decoder/decoder.h"
#include "quantize/quantize_graph.h"

namespace spillway {
namespace {

void ReadFloats(const ConstantData& data, uint64_t row, uint64_t count, uint64_t cols, float* out) {
  const std::span<const std::byte> bytes = data.bytes();
  if (bytes.empty()) return data.ReadRows(row, count, out);
  std::memcpy(out, bytes.data() + row * cols * sizeof(float), count * cols * sizeof(float));
}

std::vector<float> FloatValues(const Tensor& tensor) {
  std::vector<float> values(NumElements(tensor.shape));
  const uint64_t cols = tensor.shape.back();
  ReadFloats(*tensor.data, 0, values.size() / cols, cols, values.data());
  return values;
}

// Calibration sees damaged weights only when its text reaches them.
Status CheckFinite(const std::string& name, const QuantizedMatrix& matrix) {
  if (!matrix.bad_row) return OkStatus();
  return CorruptDataError(
      fmt::format("weight {}, row {} has a value that is not finite; the model's file is damaged",
                  name, *matrix.bad_row));
}

class HalfConstant : public ConstantData {
 public:
  explicit HalfConstant(AlignedBuffer buffer) : buffer_(std::move(buffer)) {}
  std::span<const std::byte> bytes() const override { return {buffer_.data(), buffer_.size()}; }

 private:
  AlignedBuffer buffer_;
};

// A matrix in f16, row-major; a value beyond its range counts as not finite.
QuantizedMatrix HalfMatrix(const ConstantData& matrix, uint32_t rows, uint32_t cols,
                           ThreadPool* pool) {
  constexpr uint32_t kRows = 16;
  AlignedBuffer buffer(size_t{rows} * cols * sizeof(uint16_t));
  auto* halves = reinterpret_cast<uint16_t*>(buffer.data());
  const uint32_t groups = (rows + kRows - 1) / kRows;
  std::vector<std::optional<uint32_t>> bad(groups);
  std::vector<std::vector<float>> scratch(pool->threads());
  pool->ParallelFor(groups, 1, [&](size_t begin, size_t end, size_t thread) {
    scratch[thread].resize(size_t{kRows} * cols);
    for (size_t group = begin; group < end; ++group) {
      const auto first = static_cast<uint32_t>(group * kRows);
      const uint32_t count = std::min(kRows, rows - first);
      ReadFloats(matrix, first, count, cols, scratch[thread].data());
      for (size_t i = 0; i < size_t{count} * cols; ++i) {
        const uint16_t half = FloatToHalf(scratch[thread][i]);
        halves[size_t{first} * cols + i] = half;
        const bool finite = (half & 0x7c00u) != 0x7c00u;
        if (!finite && !bad[group]) bad[group] = first + static_cast<uint32_t>(i / cols);
      }
    }
  });
  QuantizedMatrix result;
  result.data = std::make_shared<HalfConstant>(std::move(buffer));
  for (const std::optional<uint32_t>& row : bad) {
    if (!result.bad_row) result.bad_row = row;
  }
  return result;
}

// u8, u16 or f16 values.
std::shared_ptr<const ConstantData> StoreValues(const std::vector<float>& values,
                                                const Encoding& encoding, DType dtype) {
  AlignedBuffer buffer(values.size() * DTypeSize(dtype));
  auto* wide = reinterpret_cast<uint16_t*>(buffer.data());
  auto* narrow = reinterpret_cast<uint8_t*>(buffer.data());
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF16) {
      wide[i] = FloatToHalf(values[i]);
    } else if (dtype == DType::kU16) {
      wide[i] = static_cast<uint16_t>(QuantizeValue(values[i], encoding, dtype));
    } else {
      narrow[i] = static_cast<uint8_t>(QuantizeValue(values[i], encoding, dtype));
    }
  }
  return MakeConstant({buffer.data(), buffer.size()});
}

}  // namespace

const QuantizedMatrix& GraphQuantizer::Matrix(const DataPtr& data, uint32_t rows, uint32_t cols,
                                              const WeightScheme& scheme, bool keep) {
  const MatrixKey key = {data, scheme.bits, scheme.block, scheme.method};
  const auto found = matrices_.find(key);
  if (found != matrices_.end()) {
    found->second.keep = found->second.keep || keep;
    return found->second.matrix;
  }
  CachedMatrix cached;
  cached.keep = keep;
  cached.matrix = scheme.bits == 16 ? HalfMatrix(*data, rows, cols, pool_)
                                    : QuantizeMatrix(*data, rows, cols, scheme, nullptr, pool_);
  return matrices_.emplace(key, std::move(cached)).first->second.matrix;
}

void GraphQuantizer::UseMatrices(std::map<std::string, QuantizedMatrix> matrices) {
  for (auto& [name, matrix] : matrices) given_[name].matrix = std::move(matrix);
}

void GraphQuantizer::ReleaseMatrices() {
  std::erase_if(matrices_, [](const auto& entry) { return !entry.second.keep; });
  for (auto& [name, given] : given_) {
    if (!given.used || name == kHeadWeightName) continue;
    given.matrix = {};
    given.released = true;
  }
}

Status GraphQuantizer::SetGivenMatrix(Tensor& tensor) {
  GivenMatrix& given = given_.at(tensor.name);
  if (given.released) {
    return InternalError(fmt::format("the matrix of {} was released", tensor.name));
  }
  SPILLWAY_RETURN_IF_ERROR(CheckFinite(tensor.name, given.matrix));
  given.used = true;
  tensor.dtype = DType::kS8;
  tensor.data = given.matrix.data;
  tensor.encoding = given.matrix.encoding;
  return OkStatus();
}

Status GraphQuantizer::SetMatrix(const WeightScheme& scheme, bool keep, Tensor& tensor) {
  if (given_.contains(tensor.name)) return SetGivenMatrix(tensor);
  const QuantizedMatrix& matrix =
      Matrix(tensor.data, tensor.shape[0], tensor.shape[1], scheme, keep);
  SPILLWAY_RETURN_IF_ERROR(CheckFinite(tensor.name, matrix));
  tensor.dtype = scheme.bits == 16 ? DType::kF16 : DType::kS8;
  tensor.data = matrix.data;
  tensor.encoding = matrix.encoding;
  return OkStatus();
}

Tensor GraphQuantizer::QuantizeEmbedding(const std::string& name, const DataPtr& data,
                                         uint32_t rows, uint32_t cols) {
  const WeightScheme& scheme = recipe_.embedding;
  const auto given = given_.find(name);
  const QuantizedMatrix& matrix =
      given != given_.end() ? given->second.matrix : Matrix(data, rows, cols, scheme, true);
  if (bad_.ok()) bad_ = CheckFinite(name, matrix);
  ranges_[kHiddenInputName] = {matrix.min, matrix.max};
  Tensor tensor;
  tensor.name = name;
  tensor.dtype = scheme.bits == 16 ? DType::kF16 : DType::kS8;
  tensor.shape = {rows, cols};
  tensor.encoding = matrix.encoding;
  tensor.role = TensorRole::kConstant;
  tensor.data = matrix.data;
  return tensor;
}

// Its range is its own, rounded, so that the tables of all context lengths have
// one encoding.
void GraphQuantizer::SetVector(const ActivationScheme& scheme, Tensor& tensor) {
  const std::pair<DataPtr, DType> key = {tensor.data, scheme.dtype};
  auto found = vectors_.find(key);
  if (found == vectors_.end()) {
    const std::vector<float> values = FloatValues(tensor);
    const auto [min, max] = std::minmax_element(values.begin(), values.end());
    QuantizedVector vector;
    vector.encoding = ActivationEncoding(scheme, {RoundRangeUp(*min), RoundRangeUp(*max)});
    vector.data = StoreValues(values, vector.encoding, scheme.dtype);
    found = vectors_.emplace(key, std::move(vector)).first;
  }
  tensor.dtype = scheme.dtype;
  tensor.data = found->second.data;
  tensor.encoding = found->second.encoding;
}

// s32 in units of the input's scale times the channel's.
Status GraphQuantizer::SetBias(const Tensor& x, const Tensor& weight, Tensor& bias) {
  const std::pair<DataPtr, DType> key = {bias.data, DType::kS32};
  auto found = vectors_.find(key);
  if (found == vectors_.end()) {
    const std::vector<float> values = FloatValues(bias);
    std::vector<float> scales(values.size());
    std::vector<int32_t> integers(values.size());
    for (size_t n = 0; n < values.size(); ++n) {
      scales[n] = x.encoding.scale * weight.encoding.channel_scales[n];
      const double q = std::nearbyint(static_cast<double>(values[n]) / scales[n]);
      if (!(std::abs(q) <= static_cast<double>(DTypeMax(DType::kS32)))) {
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
    found = vectors_.emplace(key, std::move(vector)).first;
  }
  bias.dtype = DType::kS32;
  bias.data = found->second.data;
  bias.encoding = found->second.encoding;
  return OkStatus();
}

Result<std::vector<Tensor>> GraphQuantizer::QuantizePrefix(const FloatPrefix& prefix,
                                                           const ModelConfig& config) {
  std::vector<Tensor> tensors;
  const auto count = static_cast<uint32_t>(prefix.tokens.size());
  for (const bool is_k : {true, false}) {
    const std::vector<std::vector<float>>& layers = is_k ? prefix.k : prefix.v;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      Tensor tensor;
      tensor.name = fmt::format("prefix.{}.{}", is_k ? "k" : "v", layer);
      tensor.dtype = recipe_.kv;
      tensor.shape = is_k ? Shape{1, config.num_kv_heads, config.head_dim, count}
                          : Shape{1, config.num_kv_heads, count, config.head_dim};
      tensor.role = TensorRole::kConstant;
      if (!recipe_.is_float()) {
        SPILLWAY_ASSIGN_OR_RETURN(const Range range, RangeOf(fmt::format("layers.{}.{}.cached",
                                                                         layer, is_k ? "k" : "v")));
        tensor.encoding = ActivationEncoding({recipe_.kv, true}, range);
      }
      tensor.data = StoreValues(layers[layer], tensor.encoding, recipe_.kv);
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

}  // namespace spillway
