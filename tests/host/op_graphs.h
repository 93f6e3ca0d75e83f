// Graphs of one operation with random types, encodings and values, and a slow
// evaluation in real numbers that shares no code with the host.

#ifndef SPILLWAY_TESTS_HOST_OP_GRAPHS_H_
#define SPILLWAY_TESTS_HOST_OP_GRAPHS_H_

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/memory.h"
#include "graph/graph.h"
#include "graph/packed_cache.h"
#include "host/dispatch.h"
#include "host/executor.h"

namespace spillway::test {

using Bytes = std::vector<std::byte>;
using Reals = std::vector<long double>;

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t Int(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  double Real(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine_);
  }
  template <typename T>
  T Pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(Int(0, static_cast<int64_t>(from.size()) - 1))];
  }

 private:
  std::mt19937 engine_;
};

inline int64_t ReadInt(const std::byte* data, DType dtype, size_t i) {
  int64_t value = 0;
  const auto read = [&](auto zero) {
    std::memcpy(&zero, data + i * sizeof(zero), sizeof(zero));
    value = zero;
  };
  switch (dtype) {
    case DType::kU8:
      read(uint8_t{});
      break;
    case DType::kS8:
      read(int8_t{});
      break;
    case DType::kU16:
      read(uint16_t{});
      break;
    case DType::kS16:
      read(int16_t{});
      break;
    default:
      read(int32_t{});
      break;
  }
  return value;
}

inline void WriteInt(std::byte* data, DType dtype, size_t i, int64_t value) {
  std::memcpy(data + i * DTypeSize(dtype), &value, DTypeSize(dtype));  // little endian
}

// A fixed-point encoding of about [-range, range] (per tensor).
inline Encoding RandomEncoding(Random& random, DType dtype, double range) {
  const int64_t low = DTypeMin(dtype);
  const int64_t high = DTypeMax(dtype);
  const int64_t zero = low + (high - low) * random.Int(20, 80) / 100;
  const double scale = 2.0 * range / static_cast<double>(high - low) * random.Real(0.5, 1.5);
  return Encoding::PerTensor(dtype, static_cast<float>(scale), static_cast<int32_t>(-zero));
}

// Random values of a tensor; every fourth is an extreme one.
inline Bytes RandomValues(Random& random, const Tensor& tensor) {
  Bytes bytes(tensor.Bytes());
  for (size_t i = 0; i < NumElements(tensor.shape); ++i) {
    if (tensor.dtype == DType::kF32) {
      const float value = static_cast<float>(random.Real(-2.0, 2.0));
      std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
      continue;
    }
    if (tensor.dtype == DType::kF16) {
      WriteInt(bytes.data(), tensor.dtype, i,
               FloatToHalf(static_cast<float>(random.Real(-2.0, 2.0))));
      continue;
    }
    const int64_t low = tensor.dtype == DType::kI32 ? 0 : DTypeMin(tensor.dtype);
    const int64_t high = tensor.dtype == DType::kI32 ? 6 : DTypeMax(tensor.dtype);
    int64_t value = random.Int(low, high);
    if (tensor.dtype != DType::kI32 && random.Int(0, 3) == 0) value = random.Int(0, 1) ? low : high;
    WriteInt(bytes.data(), tensor.dtype, i, value);
  }
  return bytes;
}

// Signed weights of `bits` significant bits, per channel or in blocks.
struct WeightSpec {
  int bits = 8;
  uint32_t block = 0;  // 0: per channel
  DataLayout layout = DataLayout::kPackedN16K4;
};
inline TensorId AddWeight(Graph& graph, Random& random, std::string name, uint32_t n, uint32_t k,
                          const WeightSpec& spec, double range) {
  const int64_t most = spec.bits == 4 ? 7 : 127;
  std::vector<int8_t> row_major(static_cast<size_t>(n) * k);
  for (int8_t& q : row_major) {
    q = static_cast<int8_t>(random.Int(0, 3) == 0 ? (random.Int(0, 1) ? most : -most)
                                                  : random.Int(-most, most));
  }
  Encoding encoding = Encoding::PerChannel(static_cast<uint8_t>(spec.bits), 0, {});
  for (uint32_t i = 0; i < n; ++i) {
    encoding.channel_scales.push_back(
        static_cast<float>(range / static_cast<double>(most) * random.Real(0.3, 1.0)));
  }
  if (spec.block > 0) {
    encoding.kind = Encoding::Kind::kBlock;
    encoding.block_size = spec.block;
    for (uint32_t i = 0; i < n * ((k + spec.block - 1) / spec.block); ++i) {
      encoding.block_scales.push_back(static_cast<uint8_t>(random.Int(1, 16)));
    }
  }
  std::vector<int8_t> stored = row_major;
  if (spec.layout != DataLayout::kRowMajor) {
    stored.assign(PackedN16K4Size(n, k), 0);
    for (uint32_t row = 0; row < n; ++row) {
      for (uint32_t col = 0; col < k; ++col) {
        stored[PackedN16K4Index(row, col, k)] = row_major[static_cast<size_t>(row) * k + col];
      }
    }
  }
  const DataLayout stored_as =
      spec.layout == DataLayout::kRowMajor ? DataLayout::kRowMajor : DataLayout::kPackedN16K4;
  const TensorId id = graph.AddConstant(std::move(name), DType::kS8, {n, k},
                                        MakeConstantOf(stored, stored_as), std::move(encoding));
  if (spec.layout == DataLayout::kPackedNibbles) {
    graph.mutable_tensor(id).data = PackNibbles(graph.tensor(id));
  }
  return id;
}

inline TensorId AddBias(Graph& graph, Random& random, std::string name, uint32_t n) {
  std::vector<int32_t> values(n);
  for (int32_t& value : values) value = static_cast<int32_t>(random.Int(-200000, 200000));
  return graph.AddConstant(std::move(name), DType::kS32, {n}, MakeConstantOf(values));
}

inline TensorId AddQuantInput(Graph& graph, Random& random, std::string name, DType dtype,
                              Shape shape, double range = 2.0) {
  const TensorId id = graph.AddInput(std::move(name), dtype, std::move(shape));
  if (IsFixedPoint(dtype)) graph.mutable_tensor(id).encoding = RandomEncoding(random, dtype, range);
  return id;
}

inline std::vector<Bytes> RandomInputs(Random& random, const Graph& graph) {
  std::vector<Bytes> inputs;
  for (const TensorId id : graph.inputs()) inputs.push_back(RandomValues(random, graph.tensor(id)));
  return inputs;
}

// Runs the graph and returns the bytes of each tensor that an operation made, by
// name.
struct RunOptions {
  bool reference = false;
  size_t threads = 1;
  host::CpuTarget target = host::CpuTarget::kScalar;
  bool packed_caches = false;  // RunOutputs() only
};
inline std::map<std::string, Bytes> RunAll(const std::shared_ptr<const Graph>& graph,
                                           const std::vector<Bytes>& inputs,
                                           const RunOptions& options) {
  ::setenv("SPILLWAY_CPU", std::string(host::CpuTargetName(options.target)).c_str(), 1);
  ThreadPool pool(options.threads);
  auto executor = host::Executor::Create(graph, &pool, {options.reference});
  ::unsetenv("SPILLWAY_CPU");
  std::map<std::string, Bytes> tensors;
  if (!executor.ok()) {
    tensors["error: " + executor.status().ToString()] = {};
    return tensors;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::memcpy((*executor)->input(i).data(), inputs[i].data(), inputs[i].size());
  }
  const Status status =
      (*executor)->Run([&](const Op&, const Tensor& tensor, std::span<const std::byte> values) {
        tensors[tensor.name] = Bytes(values.begin(), values.end());
      });
  if (!status.ok()) tensors["error: " + status.ToString()] = {};
  return tensors;
}

// Binds the caches among the inputs packed; returns their memory. They are named "k..." or "v...".
inline std::vector<AlignedBuffer> PackCaches(const Graph& graph, const std::vector<Bytes>& inputs,
                                             host::Executor& executor) {
  std::vector<AlignedBuffer> caches;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!executor.TakesPackedCache(i)) continue;
    const Tensor& tensor = graph.tensor(graph.inputs()[i]);
    const bool keys = tensor.name.starts_with('k');
    const uint32_t dim = tensor.shape[keys ? 2 : 3], tokens = tensor.shape[keys ? 3 : 2];
    const uint32_t context = graph.tensor(*graph.Find("mask")).shape[3];
    const PackedCache packed(tensor.shape[1], dim, context - 1);
    AlignedBuffer& cache = caches.emplace_back(AlignedBuffer::Zeroed(packed.bytes()));
    if (keys) {
      packed.PackKeys(inputs[i].data(), tokens, 0, tokens, 0, cache.data());
    } else {
      packed.PackValues(inputs[i].data(), tokens, 0, tokens, 0, cache.data());
    }
    executor.BindPackedCache(i, cache.data());
  }
  return caches;
}

// The bytes of each output of the graph, operations in groups where the executor has them;
// empty when it fails.
inline std::vector<Bytes> RunOutputs(const std::shared_ptr<const Graph>& graph,
                                     const std::vector<Bytes>& inputs, const RunOptions& options) {
  ::setenv("SPILLWAY_CPU", std::string(host::CpuTargetName(options.target)).c_str(), 1);
  ThreadPool pool(options.threads);
  auto executor = host::Executor::Create(graph, &pool, {options.reference});
  ::unsetenv("SPILLWAY_CPU");
  if (!executor.ok()) return {};
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::memcpy((*executor)->input(i).data(), inputs[i].data(), inputs[i].size());
  }
  std::vector<AlignedBuffer> caches;
  if (options.packed_caches) caches = PackCaches(*graph, inputs, **executor);
  std::vector<Bytes> outputs;
  if (!(*executor)->Run().ok()) return {};
  for (size_t i = 0; i < graph->outputs().size(); ++i) {
    const auto out = (*executor)->output(i);
    outputs.emplace_back(out.begin(), out.end());
  }
  return outputs;
}

inline std::vector<host::CpuTarget> SupportedTargets() {
  std::vector<host::CpuTarget> targets;
  for (const host::CpuTarget target : host::kAllCpuTargets) {
    if (host::IsSupported(target)) targets.push_back(target);
  }
  return targets;
}

// The real value of each element.
inline Reals RealValues(const Tensor& tensor, const std::byte* bytes) {
  Reals reals(NumElements(tensor.shape));
  for (size_t i = 0; i < reals.size(); ++i) {
    if (tensor.dtype == DType::kF32) {
      float value;
      std::memcpy(&value, bytes + i * sizeof(value), sizeof(value));
      reals[i] = value;
    } else if (tensor.encoding.kind == Encoding::Kind::kPerTensor) {
      reals[i] = static_cast<long double>(tensor.encoding.scale) *
                 (ReadInt(bytes, tensor.dtype, i) + tensor.encoding.offset);
    } else {
      reals[i] = ReadInt(bytes, tensor.dtype, i);
    }
  }
  return reals;
}

// A Linear's weight as reals, [N, K].
inline Reals RealWeight(const Tensor& weight) {
  const uint32_t n = weight.shape[0];
  const uint32_t k = weight.shape[1];
  if (weight.dtype == DType::kF32) {
    if (!weight.data->bytes().empty()) return RealValues(weight, weight.data->bytes().data());
    std::vector<float> rows(static_cast<size_t>(n) * k);
    weight.data->ReadRows(0, n, rows.data());
    return Reals(rows.begin(), rows.end());
  }
  Reals reals;
  for (uint32_t row = 0; row < n; ++row) {
    for (uint32_t col = 0; col < k; ++col) {
      long double value = weight.encoding.channel_scales[row];
      value *= MatrixInt(weight, row, col);
      if (weight.encoding.block_size > 0) {
        const uint32_t blocks = (k + weight.encoding.block_size - 1) / weight.encoding.block_size;
        value *= weight.encoding.block_scales[row * blocks + col / weight.encoding.block_size];
      }
      reals.push_back(value);
    }
  }
  return reals;
}

// The sum of products of u16 activations as the vendor forms it, in units of both
// scales: stored left integers times centred right ones, cut to units of 256; the
// left zero point's share rounded to such units, halves down; a bias cut towards 0.
inline long double CutSum(const std::vector<long double>& left,
                          const std::vector<long double>& right, int32_t left_offset,
                          long double bias) {
  long double sum = 0.0L, right_sum = 0.0L;
  for (size_t i = 0; i < left.size(); ++i) {
    sum += left[i] * right[i];
    right_sum += right[i];
  }
  return 256.0L * (std::floor(sum / 256.0L) + std::ceil(left_offset * right_sum / 256.0L - 0.5L) +
                   std::trunc(bias / 256.0L));
}

// Integers of a per-tensor tensor's reals, with or without its offset.
inline long double IntegerOf(const Tensor& tensor, long double real, bool centred) {
  const long double q = std::nearbyint(real / tensor.encoding.scale);
  return centred ? q : q - tensor.encoding.offset;
}

// The operation's result in real numbers.
inline Reals Evaluate(const Graph& graph, const Op& op, const std::vector<Reals>& in) {
  const Shape& shape = graph.tensor(op.outputs[0]).shape;
  const Shape& a_shape = graph.tensor(op.inputs[0]).shape;
  const size_t count = NumElements(shape);
  const size_t width = shape.back();
  Reals out(count);
  // Position of element i along each dimension, and back.
  const auto position = [&](size_t i) {
    std::vector<size_t> at(shape.size());
    for (size_t d = shape.size(); d-- > 0; i /= shape[d]) at[d] = i % shape[d];
    return at;
  };
  const auto index = [](const std::vector<size_t>& at, const Shape& of) {
    size_t i = 0;
    for (size_t d = 0; d < of.size(); ++d) i = i * of[d] + (of[d] == 1 ? 0 : at[d]);
    return i;
  };
  switch (op.type) {
    case OpType::kLinear: {
      const Tensor& weight = graph.tensor(op.inputs[1]);
      const Reals w = RealWeight(weight);
      const size_t k = weight.shape[1];
      const Tensor& x = graph.tensor(op.inputs[0]);
      const bool cut = x.dtype == DType::kU16 && weight.dtype == DType::kS8 &&
                       weight.encoding.bits <= 8 && x.encoding.kind == Encoding::Kind::kPerTensor;
      for (size_t i = 0; i < count; ++i) {
        const size_t n = i % width;
        if (cut) {
          const long double scale = weight.encoding.kind == Encoding::Kind::kPerTensor
                                        ? weight.encoding.scale
                                        : weight.encoding.channel_scales[n];
          std::vector<long double> left(k), right(k);
          for (size_t j = 0; j < k; ++j) {
            left[j] = IntegerOf(x, in[0][i / width * k + j], false);
            right[j] = std::nearbyint(w[n * k + j] / scale);
          }
          const long double bias = in.size() > 2 ? in[2][n] : 0.0L;
          out[i] = CutSum(left, right, x.encoding.offset, bias) * x.encoding.scale * scale;
          continue;
        }
        if (in.size() > 2) {
          out[i] = in[2][n];
          if (weight.dtype == DType::kS8 && graph.tensor(op.inputs[2]).dtype == DType::kS32) {
            out[i] *= static_cast<long double>(graph.tensor(op.inputs[0]).encoding.scale) *
                      weight.encoding.channel_scales[n];
          }
        }
        for (size_t j = 0; j < k; ++j) out[i] += in[0][i / width * k + j] * w[n * k + j];
      }
      break;
    }
    case OpType::kMatMul: {
      const size_t k = a_shape.back();
      const size_t m = shape[shape.size() - 2];
      const Tensor& a = graph.tensor(op.inputs[0]);
      const Tensor& b = graph.tensor(op.inputs[1]);
      for (size_t i = 0; i < count; ++i) {
        const size_t batch = i / (m * width);
        if (a.dtype == DType::kU16 && (b.dtype == DType::kU8 || b.dtype == DType::kS8)) {
          std::vector<long double> left(k), right(k);
          for (size_t j = 0; j < k; ++j) {
            left[j] = IntegerOf(a, in[0][i / width * k + j], false);
            right[j] = IntegerOf(b, in[1][(batch * k + j) * width + i % width], true);
          }
          out[i] =
              CutSum(left, right, a.encoding.offset, 0.0L) * a.encoding.scale * b.encoding.scale;
          continue;
        }
        for (size_t j = 0; j < k; ++j) {
          out[i] += in[0][i / width * k + j] * in[1][(batch * k + j) * width + i % width];
        }
      }
      break;
    }
    case OpType::kAdd:
    case OpType::kMul: {
      // A 16-bit sum multiplies both sides by ratios of 15 bits with one unit.
      const Tensor& y = graph.tensor(op.outputs[0]);
      long double a_gain = 1.0L, b_gain = 1.0L;
      if (op.type == OpType::kAdd && y.dtype == DType::kU16) {
        const long double a_ratio =
            static_cast<long double>(graph.tensor(op.inputs[0]).encoding.scale) / y.encoding.scale;
        const long double b_ratio =
            static_cast<long double>(graph.tensor(op.inputs[1]).encoding.scale) / y.encoding.scale;
        long double unit = 1.0L;
        while (unit < 1e9L && std::nearbyint(std::max(a_ratio, b_ratio) * unit * 2) <= 32767) {
          unit *= 2;
        }
        a_gain = std::nearbyint(a_ratio * unit) / unit / a_ratio;
        b_gain = std::nearbyint(b_ratio * unit) / unit / b_ratio;
      }
      for (size_t i = 0; i < count; ++i) {
        const long double b = in[1][index(position(i), graph.tensor(op.inputs[1]).shape)];
        out[i] = op.type == OpType::kAdd ? a_gain * in[0][i] + b_gain * b : in[0][i] * b;
      }
      break;
    }
    case OpType::kSilu:
      for (size_t i = 0; i < count; ++i) out[i] = in[0][i] / (1.0L + std::exp(-in[0][i]));
      break;
    case OpType::kGeluTanh:
      for (size_t i = 0; i < count; ++i) {
        const long double x = in[0][i];
        const long double root = std::sqrt(2.0L / 3.14159265358979323846L);
        out[i] = 0.5L * x * (1.0L + std::tanh(root * (x + 0.044715L * x * x * x)));
      }
      break;
    case OpType::kRmsNorm:
      for (size_t i = 0; i < count; ++i) {
        long double squares = 0.0L;
        for (size_t j = 0; j < width; ++j) {
          squares += std::pow(in[0][i / width * width + j], 2.0L);
        }
        out[i] = in[0][i] * in[1][i % width] / std::sqrt(squares / width + op.attributes.epsilon);
      }
      break;
    case OpType::kSoftmax:
      for (size_t row = 0; row < count; row += width) {
        const auto begin = in[0].begin() + static_cast<ptrdiff_t>(row);
        const long double most = *std::max_element(begin, begin + static_cast<ptrdiff_t>(width));
        // With 16 bits on both sides weights are cut to 15 bits.
        const bool cut = graph.tensor(op.inputs[0]).dtype == DType::kU16 &&
                         graph.tensor(op.outputs[0]).dtype == DType::kU16;
        const auto weight = [&](size_t j) -> long double {
          if (!cut) return std::exp(in[0][row + j] - most);
          return std::floor(std::exp(static_cast<double>(in[0][row + j] - most)) * 32768.0);
        };
        long double sum = 0.0L;
        for (size_t j = 0; j < width; ++j) sum += weight(j);
        for (size_t j = 0; j < width; ++j) out[row + j] = weight(j) / sum;
      }
      break;
    case OpType::kRotaryEmbedding: {
      const size_t half = graph.tensor(op.inputs[1]).shape[2];
      for (size_t i = 0; i < count; ++i) {
        const auto at = position(i);
        const size_t column = at[3];
        const size_t angle = at[2] * half + column % half;
        if (column < half) {
          out[i] = in[0][i] * in[1][angle] - in[0][i + half] * in[2][angle];
        } else if (column < 2 * half) {
          out[i] = in[0][i] * in[1][angle] + in[0][i - half] * in[2][angle];
        } else {
          out[i] = in[0][i];
        }
      }
      break;
    }
    case OpType::kGather:
      for (size_t i = 0; i < count; ++i) {
        out[i] = in[0][static_cast<size_t>(in[1][i / width]) * width + i % width];
      }
      break;
    case OpType::kReshape:
    case OpType::kConvert:
      out = in[0];
      break;
    case OpType::kTranspose:
      for (size_t i = 0; i < count; ++i) {
        const auto at = position(i);
        std::vector<size_t> from(at.size());
        for (size_t d = 0; d < at.size(); ++d) from[op.attributes.ints[d]] = at[d];
        out[i] = in[0][index(from, a_shape)];
      }
      break;
    case OpType::kConcat:
      for (size_t i = 0; i < count; ++i) {
        auto at = position(i);
        size_t input = 0;
        while (at[op.attributes.axis] >= graph.tensor(op.inputs[input]).shape[op.attributes.axis]) {
          at[op.attributes.axis] -= graph.tensor(op.inputs[input++]).shape[op.attributes.axis];
        }
        out[i] = in[input][index(at, graph.tensor(op.inputs[input]).shape)];
      }
      break;
    case OpType::kTile:
      for (size_t i = 0; i < count; ++i) {
        auto at = position(i);
        for (size_t d = 0; d < at.size(); ++d) at[d] %= a_shape[d];
        out[i] = in[0][index(at, a_shape)];
      }
      break;
    case OpType::kSlice:
      for (size_t i = 0; i < count; ++i) {
        auto at = position(i);
        at[op.attributes.axis] += op.attributes.ints[0];
        out[i] = in[0][index(at, a_shape)];
      }
      break;
  }
  return out;
}

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_HOST_OP_GRAPHS_H_
