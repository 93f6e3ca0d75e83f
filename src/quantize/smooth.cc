#include "quantize/smooth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "quantize/window_runner.h"

namespace spillway {
namespace {

constexpr float kLargestFactor = 1024.0f;

// The largest magnitude of each channel, by the name of the tensor.
using ChannelMaxima = std::map<std::string, std::vector<float>>;

// Which tensor of a layer a factor divides, and what reads it.
struct Site {
  const char* key;     // of SmoothFactors
  const char* tensor;  // the readers' input
  std::vector<const char*> readers;
};

std::vector<Site> SitesOf(const SmoothOptions& options) {
  std::vector<Site> sites;
  if (options.norms) {
    sites.push_back({"attn_norm", "attn_norm", {"q", "k", "v"}});
    sites.push_back({"ffn_norm", "ffn_norm", {"gate", "up"}});
  }
  if (options.gated) sites.push_back({"gated", "gated", {"down"}});
  if (options.mixed) sites.push_back({"mixed", "mixed.joined", {"o"}});
  return sites;
}

void IncludeRows(const float* values, size_t count, size_t width, std::vector<float>& maxima) {
  maxima.resize(width, 0.0f);
  for (size_t i = 0; i < count; ++i) {
    float& largest = maxima[i % width];
    largest = std::max(largest, std::abs(values[i]));
  }
}

// Maxima of all tensors that `wanted` has.
Status ObserveMaxima(Decoder& decoder, const TokenWindows& windows, const FloatPrefix& prefix,
                     ThreadPool* pool, ChannelMaxima& wanted) {
  const host::TensorObserver observer = [&](const Op&, const Tensor& tensor,
                                            std::span<const std::byte> values) {
    const auto found = wanted.find(tensor.name);
    if (found == wanted.end()) return;
    IncludeRows(reinterpret_cast<const float*>(values.data()), values.size() / sizeof(float),
                tensor.shape.back(), found->second);
  };
  std::unique_ptr<WindowRunner> runner;
  size_t length = 0;
  for (const auto& window : windows) {
    const std::vector<uint32_t> tokens = AfterPrefix(window, prefix);
    if (runner == nullptr || tokens.size() != length) {
      length = tokens.size();
      SPILLWAY_ASSIGN_OR_RETURN(
          runner, WindowRunner::Create(decoder, static_cast<uint32_t>(length), &prefix, pool));
    }
    SPILLWAY_RETURN_IF_ERROR(runner->Run(tokens, observer));
  }
  return OkStatus();
}

float Factor(float activation, float weight, float strength) {
  if (!(activation > 0.0f) || !(weight > 0.0f)) return 1.0f;
  const float factor = std::pow(activation, strength) / std::pow(weight, 1.0f - strength);
  return std::isfinite(factor) ? std::clamp(factor, 1.0f / kLargestFactor, kLargestFactor) : 1.0f;
}

// The channels of a KV head are those of all its query heads.
std::vector<float> PerKvHead(const std::vector<float>& maxima, const ModelConfig& config) {
  const size_t dim = config.head_dim;
  std::vector<float> joined(config.num_kv_heads * dim, 0.0f);
  for (size_t i = 0; i < maxima.size(); ++i) {
    float& largest = joined[i / dim / config.GroupSize() * dim + i % dim];
    largest = std::max(largest, maxima[i]);
  }
  return joined;
}

}  // namespace

Result<SmoothFactors> ComputeSmoothFactors(Decoder& decoder, const TokenWindows& windows,
                                           const FloatPrefix& prefix, const SmoothOptions& options,
                                           ThreadPool* pool) {
  if (!(options.strength >= 0.0f && options.strength <= 1.0f) || windows.empty()) {
    return InvalidArgumentError(
        fmt::format("smoothing with strength {} on {} windows; expected a strength from 0 to 1 and "
                    "at least one window",
                    options.strength, windows.size()));
  }
  const ModelConfig& config = decoder.model().config();
  const std::vector<Site> sites = SitesOf(options);
  ChannelMaxima activations, weights;
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const Site& site : sites) activations[fmt::format("layers.{}.{}", layer, site.tensor)];
  }
  SPILLWAY_RETURN_IF_ERROR(ObserveMaxima(decoder, windows, prefix, pool, activations));

  DecoderOptions graph_options;
  graph_options.name = "smooth";
  graph_options.context_len = 1;
  SPILLWAY_ASSIGN_OR_RETURN(const Graph graph, decoder.Build(graph_options));
  SmoothFactors factors;
  std::vector<float> row;
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const Site& site : sites) {
      std::vector<float> columns;
      for (const char* reader : site.readers) {
        const auto id = graph.Find(fmt::format("layers.{}.{}.weight", layer, reader));
        if (!id) return InternalError(fmt::format("layer {} has no weight {}", layer, reader));
        const Tensor& weight = graph.tensor(*id);
        row.resize(weight.shape[1]);
        for (uint32_t n = 0; n < weight.shape[0]; ++n) {
          weight.data->ReadRows(n, 1, row.data());
          IncludeRows(row.data(), row.size(), row.size(), columns);
        }
      }
      std::vector<float> inputs = activations[fmt::format("layers.{}.{}", layer, site.tensor)];
      if (std::string_view(site.key) == "mixed") {
        inputs = PerKvHead(inputs, config);
        columns = PerKvHead(columns, config);
      }
      std::vector<float>& result = factors[fmt::format("layers.{}.{}", layer, site.key)];
      for (size_t k = 0; k < inputs.size(); ++k) {
        result.push_back(Factor(inputs[k], columns[k], options.strength));
      }
    }
  }
  return factors;
}

}  // namespace spillway
