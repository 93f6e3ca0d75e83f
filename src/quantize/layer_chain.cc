#include "quantize/layer_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "quantize/window_runner.h"

namespace spillway {

// Rows of the model's weight, or of a quantised one in its place.
class LayerChain::Weight : public ConstantData {
 public:
  Weight(std::shared_ptr<const ConstantData> floats, uint32_t cols)
      : floats_(std::move(floats)), cols_(cols) {}

  void Use(const QuantizedMatrix* matrix) { matrix_ = matrix; }

  std::span<const std::byte> bytes() const override { return {}; }
  void ReadRows(uint64_t row, uint64_t count, float* out) const override {
    if (matrix_ != nullptr) {
      for (uint64_t r = 0; r < count; ++r) Dequantize(row + r, out + r * cols_);
    } else if (floats_->bytes().empty()) {
      floats_->ReadRows(row, count, out);
    } else {
      std::memcpy(out, floats_->bytes().data() + row * cols_ * sizeof(float),
                  count * cols_ * sizeof(float));
    }
  }

 private:
  void Dequantize(uint64_t row, float* out) const {
    const auto* integers = reinterpret_cast<const int8_t*>(matrix_->data->bytes().data());
    const Encoding& encoding = matrix_->encoding;
    const float scale = encoding.channel_scales[row];
    const uint32_t block = encoding.kind == Encoding::Kind::kBlock ? encoding.block_size : cols_;
    const uint32_t blocks = (cols_ + block - 1) / block;
    for (uint32_t b = 0; b < blocks; ++b) {
      const float step = encoding.kind == Encoding::Kind::kBlock
                             ? scale * static_cast<float>(encoding.block_scales[row * blocks + b])
                             : scale;
      for (uint32_t k = b * block; k < std::min(cols_, (b + 1) * block); ++k) {
        out[k] = step * static_cast<float>(integers[PackedN16K4Index(row, k, cols_)]);
      }
    }
  }

  std::shared_ptr<const ConstantData> floats_;
  uint32_t cols_;
  const QuantizedMatrix* matrix_ = nullptr;
};

namespace {

Result<Graph> BuildLayer(Decoder& decoder, uint32_t layer, uint32_t length, uint32_t past) {
  DecoderOptions options;
  options.name = "layer";
  options.ar_len = length;
  options.context_len = past + length;
  options.first_layer = layer;
  options.num_layers = 1;
  return decoder.Build(options);
}

void AddSites(const Graph& graph, uint32_t layer, std::vector<LayerChain::Site>& sites) {
  for (const Op& op : graph.ops()) {
    if (op.type != OpType::kLinear) continue;
    const Tensor& weight = graph.tensor(op.inputs[1]);
    if (weight.name == kKeyRotationWeightName) continue;
    sites.push_back({op.name, layer, weight.shape[0], weight.shape[1], weight.data});
  }
}

// Windows of one length, at most `tokens` in all.
TokenWindows Choose(const TokenWindows& windows, const FloatPrefix& prefix, uint32_t tokens) {
  TokenWindows chosen;
  size_t length = std::max<size_t>(tokens / 2, 2), total = 0;
  for (const auto& window : windows) {
    std::vector<uint32_t> rest = AfterPrefix(window, prefix);
    // A stub at a text's end would make all others as short.
    if (rest.size() < 2 || (!chosen.empty() && rest.size() < length / 2)) continue;
    length = std::min(length, rest.size());
    total += length;
    chosen.push_back(std::move(rest));
    if (total >= tokens) break;
  }
  for (auto& window : chosen) window.resize(length);
  return chosen;
}

double LogSumExp(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

// Of one position.
double KlDivergence(std::span<const float> expected, double expected_log_sum,
                    std::span<const float> found) {
  const double shift = LogSumExp(found) - expected_log_sum;
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double log_probability = expected[i] - expected_log_sum;
    // What is left out is less than 1e-10 of all.
    if (log_probability < -30) continue;
    sum += std::exp(log_probability) * (double{expected[i]} - found[i] + shift);
  }
  return sum;
}

double SquaredError(std::span<const float> expected, std::span<const float> found) {
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = static_cast<double>(expected[i]) - found[i];
    sum += error * error;
  }
  return sum;
}

}  // namespace

Result<std::vector<LayerChain::Site>> LayerChain::SitesOf(Decoder& decoder) {
  std::vector<Site> sites;
  for (uint32_t layer = 0; layer < decoder.model().config().num_layers; ++layer) {
    SPILLWAY_ASSIGN_OR_RETURN(const Graph graph, BuildLayer(decoder, layer, 1, 0));
    AddSites(graph, layer, sites);
  }
  return sites;
}

Status LayerChain::AddLayer(Decoder& decoder, uint32_t layer, const FloatPrefix& prefix,
                            ThreadPool* pool) {
  const auto past = static_cast<uint32_t>(prefix.tokens.size());
  SPILLWAY_ASSIGN_OR_RETURN(Graph graph, BuildLayer(decoder, layer, length_, past));
  const size_t before = sites_.size();
  AddSites(graph, layer, sites_);
  for (size_t i = before; i < sites_.size(); ++i) {
    const Site& site = sites_[i];
    const auto weight = std::make_shared<Weight>(site.weight, site.cols);
    weights_[site.operation] = weight;
    const auto tensor = graph.Find(site.operation + ".weight");
    if (!tensor) return InternalError(site.operation + " has no weight of its name");
    graph.mutable_tensor(*tensor).data = weight;
  }
  SPILLWAY_ASSIGN_OR_RETURN(
      layers_.emplace_back(),
      host::Executor::Create(std::make_shared<const Graph>(std::move(graph)), pool));
  SetWindowInputs(length_, prefix, layer, 1, *layers_.back());
  return OkStatus();
}

Result<std::unique_ptr<LayerChain>> LayerChain::Create(Decoder& decoder,
                                                       const TokenWindows& windows,
                                                       const FloatPrefix& prefix, uint32_t tokens,
                                                       ThreadPool* pool) {
  const TokenWindows chosen = Choose(windows, prefix, tokens);
  if (chosen.empty()) {
    return InvalidArgumentError(fmt::format(
        "no window of at least 2 tokens among {} to measure damage on", windows.size()));
  }
  std::unique_ptr<LayerChain> chain(new LayerChain);
  chain->length_ = static_cast<uint32_t>(chosen[0].size());
  const ModelConfig& config = decoder.model().config();
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    SPILLWAY_RETURN_IF_ERROR(chain->AddLayer(decoder, layer, prefix, pool));
  }
  const auto embedding = decoder.EmbeddingData();
  for (const auto& window : chosen) {
    std::vector<std::vector<float>> states;
    std::vector<float>& first = states.emplace_back(window.size() * config.hidden_dim);
    for (size_t i = 0; i < window.size(); ++i) {
      embedding->ReadRows(window[i], 1, first.data() + i * config.hidden_dim);
    }
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
      SPILLWAY_RETURN_IF_ERROR(chain->RunLayer(layer, states[layer], nullptr));
      const std::span<const float> output = chain->OutputOf(layer);
      (layer + 1 < config.num_layers ? states.emplace_back() : chain->logits_.emplace_back())
          .assign(output.begin(), output.end());
    }
    const std::vector<float>& logits = chain->logits_.back();
    for (const float logit : logits) chain->signal_ += double{logit} * logit;
    std::vector<double>& log_sums = chain->log_sums_.emplace_back();
    const size_t vocab = logits.size() / window.size();
    for (size_t i = 0; i < window.size(); ++i) {
      log_sums.push_back(LogSumExp(std::span(logits).subspan(i * vocab, vocab)));
    }
    chain->states_.push_back(std::move(states));
  }
  return chain;
}

Status LayerChain::RunLayer(uint32_t layer, std::span<const float> hidden,
                            const host::TensorObserver& observer) {
  std::memcpy(layers_[layer]->input(0).data(), hidden.data(), hidden.size() * sizeof(float));
  return layers_[layer]->Run(observer);
}

std::span<const float> LayerChain::OutputOf(uint32_t layer) {
  const std::span<const std::byte> bytes = layers_[layer]->output(0);
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::vector<LayerChain::Activation> LayerChain::activations() const {
  std::vector<Activation> activations;
  for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
    for (const Op& op : layers_[layer]->graph().ops()) {
      // Each layer's graph has the tables of positions again; they are copies.
      if (!KeepsEncoding(op.type)) activations.push_back({op.name, layer});
    }
  }
  return activations;
}

void LayerChain::Use(const std::string& operation, const QuantizedMatrix* matrix) {
  weights_.at(operation)->Use(matrix);
}

Result<LogitDamage> LayerChain::MeasureFrom(uint32_t layer, const std::string& operation,
                                            const Change& change) {
  host::TensorObserver observer;
  if (change) {
    observer = [&](const Op& op, const Tensor&, std::span<const std::byte> values) {
      if (op.name != operation) return;
      // The executor's own memory, which the operations after this one read.
      auto* floats = reinterpret_cast<float*>(const_cast<std::byte*>(values.data()));
      change({floats, values.size() / sizeof(float)});
    };
  }
  LogitDamage damage;
  for (size_t w = 0; w < states_.size(); ++w) {
    std::span<const float> hidden = states_[w][layer];
    for (uint32_t l = layer; l < layers_.size(); ++l) {
      SPILLWAY_RETURN_IF_ERROR(RunLayer(l, hidden, observer));
      hidden = OutputOf(l);
    }
    damage.noise += SquaredError(logits_[w], hidden);
    const size_t vocab = hidden.size() / length_;
    for (size_t i = 0; i < length_; ++i) {
      damage.kl += KlDivergence(std::span(logits_[w]).subspan(i * vocab, vocab), log_sums_[w][i],
                                hidden.subspan(i * vocab, vocab));
    }
  }
  damage.noise /= signal_;
  damage.kl /= static_cast<double>(length_) * static_cast<double>(states_.size());
  return damage;
}

}  // namespace spillway
