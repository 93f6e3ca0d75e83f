#include "quantize/gptq_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quantize/hessian.h"
#include "quantize/layer_pass.h"

namespace spillway {
namespace {

// Of weights that stay floats.
constexpr uint8_t kFloatBits = 16;

// A Linear of a layer's graph.
struct LinearSite {
  std::string weight, input;  // names of the tensors
  uint32_t rows = 0, cols = 0;
  std::shared_ptr<const ConstantData> data;
  WeightScheme scheme;

  bool NeedsInputs() const {
    return scheme.bits != kFloatBits && scheme.method != WeightMethod::kRtn;
  }
  bool UsesGptq() const { return NeedsInputs() && scheme.method == WeightMethod::kGptq; }
};

// In the graph's order, in which those that read the same tensor follow each other.
std::vector<LinearSite> LinearsOf(const Graph& graph, const WeightSchemes& schemes) {
  std::vector<LinearSite> sites;
  for (const Op& op : graph.ops()) {
    if (op.type != OpType::kLinear) continue;
    const Tensor& weight = graph.tensor(op.inputs[1]);
    // Not a weight of the layer's: all layers have the same.
    if (weight.name == kKeyRotationWeightName) continue;
    sites.push_back({weight.name, graph.tensor(op.inputs[0]).name, weight.shape[0], weight.shape[1],
                     weight.data, schemes(weight.name)});
  }
  return sites;
}

class WeightsInOrder {
 public:
  WeightsInOrder(Decoder& decoder, const FloatPrefix& prefix, const WeightSchemes& schemes,
                 ThreadPool* pool)
      : decoder_(decoder), prefix_(prefix), schemes_(schemes), pool_(pool) {}

  Status Run(const TokenWindows& windows, Progress* progress) {
    const uint32_t layers = decoder_.model().config().num_layers;
    SPILLWAY_RETURN_IF_ERROR(FindNeeds());
    if (needs_inputs_) states_ = EmbedWindows(decoder_, windows, prefix_);
    for (uint32_t layer = 0; layer < layers; ++layer) {
      ReportProgress(progress, "quantise weights", static_cast<double>(layer) / layers);
      SPILLWAY_RETURN_IF_ERROR(RunLayer(layer));
    }
    ReportProgress(progress, "quantise weights", 1.0);
    return OkStatus();
  }

  QuantizedWeights result;

 private:
  Status FindNeeds() {
    for (uint32_t layer = 0; layer < decoder_.model().config().num_layers; ++layer) {
      SPILLWAY_ASSIGN_OR_RETURN(const Graph graph,
                                LayerPass(decoder_, layer, prefix_, pool_).BuildGraph(1));
      for (const LinearSite& site : LinearsOf(graph, schemes_)) {
        needs_inputs_ = needs_inputs_ || site.NeedsInputs();
      }
    }
    return OkStatus();
  }

  Status RunLayer(uint32_t layer) {
    const LayerPass pass(decoder_, layer, prefix_, pool_);
    SPILLWAY_ASSIGN_OR_RETURN(const Graph graph, pass.BuildGraph(1));
    const std::vector<LinearSite> sites = LinearsOf(graph, schemes_);
    Constants constants;
    for (const LinearSite& site : sites) {
      if (site.weight == kHeadWeightName) continue;  // too large, and read once
      constants[site.weight] = ReadMatrix(*site.data, site.rows, site.cols, pool_);
    }
    for (size_t begin = 0, end = 0; begin < sites.size(); begin = end) {
      while (end < sites.size() && sites[end].input == sites[begin].input) ++end;
      const std::span<const LinearSite> stage(sites.data() + begin, end - begin);
      SPILLWAY_RETURN_IF_ERROR(QuantizeStage(pass, stage, constants));
    }
    return pass.last() ? OkStatus() : pass.Run(constants, states_, &states_, nullptr);
  }

  // Quantises Linears that read the same tensor, all before them being quantised.
  Status QuantizeStage(const LayerPass& pass, std::span<const LinearSite> sites,
                       Constants& constants) {
    std::optional<InputHessian> hessian;
    if (std::any_of(sites.begin(), sites.end(),
                    [](const LinearSite& site) { return site.NeedsInputs(); })) {
      hessian.emplace(sites[0].cols);
      SPILLWAY_RETURN_IF_ERROR(
          pass.Run(constants, states_, nullptr,
                   [&](const Op&, const Tensor& tensor, std::span<const std::byte> values) {
                     if (tensor.name != sites[0].input) return;
                     hessian->Add(reinterpret_cast<const float*>(values.data()),
                                  values.size() / sizeof(float) / hessian->dim(), pool_);
                   }));
      const bool factorise =
          std::any_of(sites.begin(), sites.end(), [](const auto& site) { return site.UsesGptq(); });
      SPILLWAY_RETURN_IF_ERROR(
          hessian->Finish(pool_, factorise).WithContext("input " + sites[0].input));
    }
    for (const LinearSite& site : sites) {
      if (site.scheme.bits == kFloatBits) continue;
      SPILLWAY_RETURN_IF_ERROR(Quantize(site, hessian ? &*hessian : nullptr, constants));
    }
    return OkStatus();
  }

  Status Quantize(const LinearSite& site, const InputHessian* hessian, Constants& constants) {
    const auto in_memory = constants.find(site.weight);
    const ConstantData& floats = in_memory == constants.end() ? *site.data : *in_memory->second;
    QuantizedMatrix matrix =
        QuantizeMatrix(floats, site.rows, site.cols, site.scheme, hessian, pool_);
    if (matrix.bad_row) {
      return CorruptDataError(fmt::format(
          "weight {}, row {} has a value that is not finite; the model's file is damaged",
          site.weight, *matrix.bad_row));
    }
    if (in_memory != constants.end()) {
      in_memory->second = DequantizeMatrix(matrix, site.rows, site.cols, pool_);
    }
    result.insert_or_assign(site.weight, std::move(matrix));
    return OkStatus();
  }

  Decoder& decoder_;
  const FloatPrefix& prefix_;
  const WeightSchemes& schemes_;
  ThreadPool* pool_;
  bool needs_inputs_ = false;
  HiddenStates states_;  // before the layer, behind quantised layers
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
