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

Result<std::vector<double>> TokenDominance(Decoder& decoder, const std::vector<uint32_t>& window,
                                           ThreadPool* pool) {
  SPILLWAY_ASSIGN_OR_RETURN(
      const auto runner,
      WindowRunner::Create(decoder, static_cast<uint32_t>(window.size()), nullptr, pool));
  std::vector<double> dominance(window.size(), 0.0);
  const size_t width = decoder.model().config().hidden_dim;
  const host::TensorObserver observer = [&](const Op& op, const Tensor& tensor,
                                            std::span<const std::byte> values) {
    if (op.type != OpType::kAdd || !tensor.name.ends_with(".out")) return;
    const std::vector<float> rows = RowMaxima(values, width);
    std::vector<float> sorted = rows;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    for (size_t i = 0; i < rows.size() && *middle > 0.0f; ++i) {
      dominance[i] = std::max(dominance[i], static_cast<double>(rows[i]) / *middle);
    }
  };
  SPILLWAY_RETURN_IF_ERROR(runner->Run(window, observer));
  return dominance;
}

std::vector<uint32_t> MassivePrefix(const TokenWindows& windows,
                                    const std::vector<double>& dominance) {
  std::vector<uint32_t> tokens;
  for (size_t i = 0; i < kMostPrefixTokens && i < dominance.size(); ++i) {
    const bool common = std::all_of(windows.begin(), windows.end(), [&](const auto& window) {
      return i + 1 < window.size() && window[i] == windows[0][i];
    });
    if (!common || dominance[i] < kMassiveDominance) break;
    tokens.push_back(windows[0][i]);
  }
  return tokens;
}

Result<std::vector<uint32_t>> FindPrefixTokens(Decoder& decoder, const CalibrationWindows& data,
                                               ThreadPool* pool) {
  const bool chat = !data.conversations.empty();
  if (!chat && !data.bos) return std::vector<uint32_t>();
  // Without a template the text stands for what follows BOS.
  const TokenWindows starts = chat ? data.conversations : TokenWindows{data.windows[0]};
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<double> dominance,
                            TokenDominance(decoder, starts[0], pool));
  std::vector<uint32_t> tokens = MassivePrefix(starts, dominance);
  if (!chat && !tokens.empty()) tokens = {*data.bos};
  return tokens;
}

TokenWindows WindowsAfterPrefix(const TokenWindows& windows, const FloatPrefix& prefix) {
  TokenWindows order;
  for (const auto& window : windows) order.push_back(AfterPrefix(window, prefix));
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return order;
}

}  // namespace spillway
