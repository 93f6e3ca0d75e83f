#include "quantize/gptq_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "host/executor.h"
#include "quantize/hessian.h"
#include "quantize/window_runner.h"

namespace spillway {
namespace {

using Constants = std::map<std::string, std::shared_ptr<const ConstantData>>;

// What calibration windows are between two layers: [tokens][hidden] f32.
using HiddenStates = std::vector<std::vector<float>>;

// A Linear of the layer's graph.
struct LinearSite {
  std::string weight, input;  // names of the tensors
  uint32_t rows = 0, cols = 0;
  std::shared_ptr<const ConstantData> data;
};

// Of weights that stay floats.
constexpr uint8_t kFloatBits = 16;

bool NeedsInputs(const WeightScheme& scheme) {
  return scheme.bits != kFloatBits && scheme.method != WeightMethod::kRtn;
}

std::vector<LinearSite> LinearsOf(const Graph& graph) {
  std::vector<LinearSite> sites;
  for (const Op& op : graph.ops()) {
    if (op.type != OpType::kLinear) continue;
    const Tensor& weight = graph.tensor(op.inputs[1]);
    // Not a weight of the layer's: all layers have the same.
    if (weight.name == kKeyRotationWeightName) continue;
    sites.push_back({weight.name, graph.tensor(op.inputs[0]).name, weight.shape[0], weight.shape[1],
                     weight.data});
  }
  return sites;
}

// One layer of the float graph, on windows of any length.
class LayerPass {
 public:
  LayerPass(Decoder& decoder, uint32_t layer, const FloatPrefix& prefix, ThreadPool* pool)
      : decoder_(decoder), layer_(layer), prefix_(prefix), pool_(pool) {}

  Result<Graph> BuildGraph(size_t length) const {
    const auto past = static_cast<uint32_t>(prefix_.tokens.size());
    DecoderOptions options;
    options.name = "weights";
    options.ar_len = static_cast<uint32_t>(length);
    options.context_len = past + options.ar_len;
    options.first_layer = layer_;
    options.num_layers = 1;
    return decoder_.Build(options);
  }

  // Replaces each hidden state by what the layer makes of it, unless the layer is
  // the last, whose result is the logits. Constants in `weights` stand in for those of
  // the same name.
  Status Run(const Constants& weights, HiddenStates& states, const host::TensorObserver& observer) {
    const size_t width = decoder_.model().config().hidden_dim;
    std::unique_ptr<host::Executor> executor;
    size_t length = 0;
    for (auto& state : states) {
      if (executor == nullptr || state.size() / width != length) {
        length = state.size() / width;
        SPILLWAY_ASSIGN_OR_RETURN(executor, MakeExecutor(weights, length));
      }
      std::memcpy(executor->input(0).data(), state.data(), state.size() * sizeof(float));
      SPILLWAY_RETURN_IF_ERROR(executor->Run(observer));
      if (last()) continue;
      std::memcpy(state.data(), executor->output(0).data(), state.size() * sizeof(float));
    }
    return OkStatus();
  }

  bool last() const { return layer_ + 1 == decoder_.model().config().num_layers; }

 private:
  Result<std::unique_ptr<host::Executor>> MakeExecutor(const Constants& weights, size_t length) {
    SPILLWAY_ASSIGN_OR_RETURN(Graph graph, BuildGraph(length));
    for (TensorId id = 0; id < graph.tensors().size(); ++id) {
      const auto found = weights.find(graph.tensor(id).name);
      if (found != weights.end()) graph.mutable_tensor(id).data = found->second;
    }
    SPILLWAY_ASSIGN_OR_RETURN(
        auto executor,
        host::Executor::Create(std::make_shared<const Graph>(std::move(graph)), pool_));
    // Nobody reads the logits; one row is the least that can be computed.
    if (last()) executor->LimitOutputRow(0, 0);
    SetWindowInputs(static_cast<uint32_t>(length), prefix_, layer_, 1, *executor);
    return executor;
  }

  Decoder& decoder_;
  uint32_t layer_;
  const FloatPrefix& prefix_;
  ThreadPool* pool_;
};

class WeightsInOrder {
 public:
  WeightsInOrder(Decoder& decoder, const FloatPrefix& prefix, const WeightSchemes& schemes,
                 ThreadPool* pool)
      : decoder_(decoder), prefix_(prefix), schemes_(schemes), pool_(pool) {}

  Status Run(const TokenWindows& windows, Progress* progress) {
    const uint32_t layers = decoder_.model().config().num_layers;
    bool needs_windows = false;
    for (uint32_t layer = 0; layer < layers; ++layer) {
      SPILLWAY_ASSIGN_OR_RETURN(const Graph graph,
                                LayerPass(decoder_, layer, prefix_, pool_).BuildGraph(1));
      for (const LinearSite& site : LinearsOf(graph)) {
        needs_windows = needs_windows || NeedsInputs(schemes_(site.weight));
      }
    }
    HiddenStates states = needs_windows ? Embed(windows) : HiddenStates();
    for (uint32_t layer = 0; layer < layers; ++layer) {
      ReportProgress(progress, "quantise weights", static_cast<double>(layer) / layers);
      SPILLWAY_RETURN_IF_ERROR(RunLayer(layer, states));
    }
    ReportProgress(progress, "quantise weights", 1.0);
    return OkStatus();
  }

  QuantizedWeights result;

 private:
  HiddenStates Embed(const TokenWindows& windows) {
    const size_t width = decoder_.model().config().hidden_dim;
    const auto embedding = decoder_.EmbeddingData();
    HiddenStates states;
    for (const auto& window : WindowsAfterPrefix(windows, prefix_)) {
      std::vector<float> state(window.size() * width);
      for (size_t i = 0; i < window.size(); ++i) {
        embedding->ReadRows(window[i], 1, state.data() + i * width);
      }
      states.push_back(std::move(state));
    }
    return states;
  }

  Status RunLayer(uint32_t layer, HiddenStates& states) {
    LayerPass pass(decoder_, layer, prefix_, pool_);
    SPILLWAY_ASSIGN_OR_RETURN(const Graph graph, pass.BuildGraph(1));
    const std::vector<LinearSite> sites = LinearsOf(graph);
    Constants constants;
    for (const LinearSite& site : sites) {
      if (site.weight == kHeadWeightName) continue;  // too large, and read once
      constants[site.weight] = ReadMatrix(*site.data, site.rows, site.cols, pool_);
    }
    // By the name of the input. What the inputs of one name feed shares a Hessian.
    std::map<std::string, InputHessian> hessians;
    for (const LinearSite& site : sites) {
      if (NeedsInputs(schemes_(site.weight))) {
        hessians.try_emplace(site.input, site.cols);
      }
    }
    if (!hessians.empty()) {
      HiddenStates seen = states;
      SPILLWAY_RETURN_IF_ERROR(pass.Run(
          constants, seen, [&](const Op&, const Tensor& tensor, std::span<const std::byte> values) {
            const auto found = hessians.find(tensor.name);
            if (found == hessians.end()) return;
            found->second.Add(reinterpret_cast<const float*>(values.data()),
                              values.size() / sizeof(float) / found->second.dim(), pool_);
          }));
    }
    for (size_t i = 0; i < sites.size(); ++i) {
      SPILLWAY_RETURN_IF_ERROR(QuantizeSite(sites, i, hessians, constants));
    }
    return states.empty() || pass.last() ? OkStatus() : pass.Run(constants, states, nullptr);
  }

  // Linears that share an input follow each other, so a Hessian is finished at the
  // first and dropped after the last of them.
  Status QuantizeSite(const std::vector<LinearSite>& sites, size_t i,
                      std::map<std::string, InputHessian>& hessians, Constants& constants) {
    const LinearSite& site = sites[i];
    const WeightScheme scheme = schemes_(site.weight);
    if (scheme.bits == kFloatBits) return OkStatus();
    const auto uses = [&](size_t other, WeightMethod method) {
      return sites[other].input == site.input && schemes_(sites[other].weight).method == method;
    };
    const auto hessian = hessians.find(site.input);
    if (hessian != hessians.end() && hessian->second.second_moments().empty()) {
      bool factorise = false;
      for (size_t other = 0; other < sites.size(); ++other) {
        factorise = factorise || uses(other, WeightMethod::kGptq);
      }
      SPILLWAY_RETURN_IF_ERROR(
          hessian->second.Finish(pool_, factorise).WithContext("input " + site.input));
    }
    const auto found = constants.find(site.weight);
    const ConstantData& floats = found == constants.end() ? *site.data : *found->second;
    QuantizedMatrix matrix =
        QuantizeMatrix(floats, site.rows, site.cols, scheme,
                       hessian == hessians.end() ? nullptr : &hessian->second, pool_);
    if (matrix.bad_row) {
      return CorruptDataError(fmt::format(
          "weight {}, row {} has a value that is not finite; the model's file is damaged",
          site.weight, *matrix.bad_row));
    }
    if (found != constants.end()) {
      found->second = DequantizeMatrix(matrix, site.rows, site.cols, pool_);
    }
    result.insert_or_assign(site.weight, std::move(matrix));
    const bool done = std::none_of(sites.begin() + static_cast<std::ptrdiff_t>(i) + 1, sites.end(),
                                   [&](const auto& other) { return other.input == site.input; });
    if (done && hessian != hessians.end()) hessians.erase(hessian);
    return OkStatus();
  }

  Decoder& decoder_;
  const FloatPrefix& prefix_;
  const WeightSchemes& schemes_;
  ThreadPool* pool_;
};

}  // namespace

Result<QuantizedWeights> QuantizeWeightsInOrder(Decoder& decoder, const TokenWindows& windows,
                                                const FloatPrefix& prefix,
                                                const WeightSchemes& schemes, ThreadPool* pool,
                                                Progress* progress) {
  WeightsInOrder job(decoder, prefix, schemes, pool);
  SPILLWAY_RETURN_IF_ERROR(job.Run(windows, progress));
  return std::move(job.result);
}

}  // namespace spillway
