// A small graph through the manager, for tests of both qnn/api and qnn/htp.

#ifndef SPILLWAY_TESTS_QNN_API_TINY_GRAPH_H_
#define SPILLWAY_TESTS_QNN_API_TINY_GRAPH_H_

#include <cmath>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "qnn/api/manager.h"

namespace spillway::test {

// y [1, 1, rows, n] u16 = x [1, 1, rows, k] u16 times w [k, n] s8 per channel, as a
// 1x1 Conv2d.
struct TinyConv {
  uint32_t rows = 4, k = 64, n = 32;
  float x_scale = 1e-4F, y_scale = 5e-3F;
  std::vector<int8_t> weights;  // [k, n]
  std::vector<float> weight_scales;

  TinyConv() : TinyConv(4, 64, 32) {}
  TinyConv(uint32_t row_count, uint32_t inputs, uint32_t outputs)
      : rows(row_count), k(inputs), n(outputs) {
    for (uint32_t i = 0; i < k * n; ++i) {
      weights.push_back(static_cast<int8_t>((i * 37) % 255 - 127));
    }
    for (uint32_t i = 0; i < n; ++i) {
      weight_scales.push_back(0.01F + 0.0001F * static_cast<float>(i % 7));
    }
  }

  qnn::TensorDesc Activation(const std::string& name, qnn::TensorRole role, uint32_t columns,
                             float scale) const {
    qnn::TensorDesc desc;
    desc.name = name;
    desc.role = role;
    desc.dims = {1, 1, rows, columns};
    desc.encoding = qnn::TensorEncoding::PerTensor(scale, -32768);
    return desc;
  }
  qnn::TensorDesc Weights(const std::string& name) const {
    qnn::TensorDesc desc;
    desc.name = name;
    desc.role = qnn::TensorRole::kStatic;
    desc.dtype = qnn::DataType::kSfixed8;
    desc.dims = {1, 1, k, n};
    desc.encoding = qnn::TensorEncoding::PerAxis(3, weight_scales);
    desc.data = std::as_bytes(std::span(weights));
    return desc;
  }

  std::vector<uint16_t> Input() const {
    std::vector<uint16_t> x(rows * k);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i * 7919);
    return x;
  }
  // In float64, rounded to the output's encoding and clamped.
  std::vector<uint16_t> Expected(const std::vector<uint16_t>& x) const {
    std::vector<uint16_t> y(rows * n);
    for (uint32_t r = 0; r < rows; ++r) {
      for (uint32_t c = 0; c < n; ++c) {
        double sum = 0;
        for (uint32_t i = 0; i < k; ++i) sum += (x[r * k + i] - 32768.0) * weights[i * n + c];
        const double q = std::nearbyint(sum * x_scale * weight_scales[c] / y_scale) + 32768;
        y[r * n + c] = static_cast<uint16_t>(std::min(std::max(q, 0.0), 65535.0));
      }
    }
    return y;
  }
};

inline qnn::OpDesc ConvOp(const std::string& name, qnn::TensorId x, qnn::TensorId w,
                          qnn::TensorId y) {
  const uint32_t ones[] = {1, 1};
  const uint32_t zeros[] = {0, 0, 0, 0};
  qnn::OpDesc op;
  op.name = name;
  op.type = "Conv2d";
  op.inputs = {x, w};
  op.outputs = {y};
  op.params = {{"stride", qnn::TensorParam::Uint32({2}, ones)},
               {"pad_amount", qnn::TensorParam::Uint32({2, 2}, zeros)},
               {"group", 1U}};
  return op;
}

// Adds tensors and node of `conv` to `graph`.
inline Status BuildTinyConv(const TinyConv& conv, qnn::Graph* graph) {
  SPILLWAY_ASSIGN_OR_RETURN(
      const qnn::TensorId x,
      graph->AddTensor(conv.Activation("x", qnn::TensorRole::kAppWrite, conv.k, conv.x_scale)));
  SPILLWAY_ASSIGN_OR_RETURN(const qnn::TensorId w, graph->AddTensor(conv.Weights("w")));
  SPILLWAY_ASSIGN_OR_RETURN(
      const qnn::TensorId y,
      graph->AddTensor(conv.Activation("y", qnn::TensorRole::kAppRead, conv.n, conv.y_scale)));
  return graph->AddNode(ConvOp("conv", x, w, y));
}

// The calls in a record of the fake library, without their configurations: "backendCreate
// deviceCreate ".
inline std::string CallsOf(const std::string& record) {
  std::string calls;
  std::istringstream lines(record);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("call ")) calls += line.substr(5) + " ";
  }
  return calls;
}

// Runs a graph of one input and one output.
inline Result<std::vector<uint16_t>> RunTinyConv(const TinyConv& conv, qnn::Graph* graph) {
  const std::vector<uint16_t> x = conv.Input();
  std::vector<uint16_t> y(conv.rows * conv.n, 0xabcd);
  const std::span<const std::byte> inputs[] = {std::as_bytes(std::span(x))};
  const std::span<std::byte> outputs[] = {std::as_writable_bytes(std::span(y))};
  SPILLWAY_RETURN_IF_ERROR(graph->Execute(inputs, outputs));
  return y;
}

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_QNN_API_TINY_GRAPH_H_
