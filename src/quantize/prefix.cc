#include "quantize/prefix.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "quantize/window_runner.h"

namespace spillway {
namespace {

// The largest magnitude of each row of an f32 tensor [.., rows, width].
std::vector<float> RowMaxima(std::span<const std::byte> bytes, size_t width) {
  const auto* values = reinterpret_cast<const float*>(bytes.data());
  std::vector<float> maxima(bytes.size() / sizeof(float) / width, 0.0f);
  for (size_t row = 0; row < maxima.size(); ++row) {
    for (size_t i = 0; i < width; ++i) {
      maxima[row] = std::max(maxima[row], std::abs(values[row * width + i]));
    }
  }
  return maxima;
}

}  // namespace

std::vector<uint32_t> AfterPrefix(const std::vector<uint32_t>& window, const FloatPrefix& prefix) {
  const size_t count = prefix.tokens.size();
  const bool starts = count < window.size() &&
                      std::equal(prefix.tokens.begin(), prefix.tokens.end(), window.begin());
  return {window.begin() + static_cast<std::ptrdiff_t>(starts ? count : 0), window.end()};
}

Result<FloatPrefix> ComputePrefix(Decoder& decoder, std::vector<uint32_t> tokens,
                                  ThreadPool* pool) {
  SPILLWAY_ASSIGN_OR_RETURN(
      const auto runner,
      WindowRunner::Create(decoder, static_cast<uint32_t>(tokens.size()), nullptr, pool));
  SPILLWAY_RETURN_IF_ERROR(runner->Run(tokens, nullptr));
  FloatPrefix prefix;
  prefix.tokens = std::move(tokens);
  const size_t layers = decoder.model().config().num_layers;
  for (size_t layer = 0; layer < layers; ++layer) {
    const std::span<const float> k = runner->Output(1 + layer);
    const std::span<const float> v = runner->Output(1 + layers + layer);
    prefix.k.emplace_back(k.begin(), k.end());
    prefix.v.emplace_back(v.begin(), v.end());
  }
  return prefix;
}

Result<double> FirstTokenDominance(Decoder& decoder, const std::vector<uint32_t>& window,
                                   ThreadPool* pool) {
  SPILLWAY_ASSIGN_OR_RETURN(
      const auto runner,
      WindowRunner::Create(decoder, static_cast<uint32_t>(window.size()), nullptr, pool));
  double dominance = 0.0;
  const size_t width = decoder.model().config().hidden_dim;
  const host::TensorObserver observer = [&](const Op& op, const Tensor& tensor,
                                            std::span<const std::byte> values) {
    if (op.type != OpType::kAdd || !tensor.name.ends_with(".out")) return;
    std::vector<float> rows = RowMaxima(values, width);
    const float first = rows[0];
    const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2);
    std::nth_element(rows.begin() + 1, middle, rows.end());
    if (*middle > 0.0f) dominance = std::max(dominance, static_cast<double>(first) / *middle);
  };
  SPILLWAY_RETURN_IF_ERROR(runner->Run(window, observer));
  return dominance;
}

}  // namespace spillway
