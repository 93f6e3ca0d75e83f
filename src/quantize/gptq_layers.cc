#include "quantize/gptq_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quantize/gptq_target.h"
#include "quantize/hessian.h"
#include "quantize/layer_pass.h"

namespace spillway {
namespace {

// Of weights that stay floats.
constexpr uint8_t kFloatBits = 16;

// A Linear of a layer's graph.
struct LinearSite {
  std::string weight, input;  // names of the tensors
  // What shall come near to its float values: the output, or the sum of the residual stream
  // that the output is added to.
  std::string target;
  uint32_t rows = 0, cols = 0;
  std::shared_ptr<const ConstantData> data;
  WeightScheme scheme;

  bool NeedsInputs() const {
    return scheme.bits != kFloatBits && scheme.method != WeightMethod::kRtn;
  }
  bool UsesGptq() const { return NeedsInputs() && scheme.method == WeightMethod::kGptq; }
  // The head's output is not computed.
  bool HasTarget() const { return UsesGptq() && weight != kHeadWeightName; }
};

std::string TargetOf(const Graph& graph, const Op& linear) {
  const TensorId output = linear.outputs[0];
  for (const Op& op : graph.ops()) {
    const bool reads = std::find(op.inputs.begin(), op.inputs.end(), output) != op.inputs.end();
    if (reads && op.type == OpType::kAdd) return graph.tensor(op.outputs[0]).name;
  }
  return graph.tensor(output).name;
}

// In the graph's order, in which those that read the same tensor follow each other.
std::vector<LinearSite> LinearsOf(const Graph& graph, const WeightSchemes& schemes) {
  std::vector<LinearSite> sites;
  for (const Op& op : graph.ops()) {
    if (op.type != OpType::kLinear) continue;
    const Tensor& weight = graph.tensor(op.inputs[1]);
    // Not a weight of the layer's: all layers have the same.
    if (weight.name == kKeyRotationWeightName) continue;
    sites.push_back({weight.name, graph.tensor(op.inputs[0]).name, TargetOf(graph, op),
                     weight.shape[0], weight.shape[1], weight.data, schemes(weight.name)});
  }
  return sites;
}

std::span<const float> Floats(std::span<const std::byte> values) {
  return {reinterpret_cast<const float*>(values.data()), values.size() / sizeof(float)};
}

// By the name of a tensor, its values of all windows after each other.
using FloatValues = std::map<std::string, std::vector<float>>;

// What the Linears that read one tensor are quantised with, from the windows as they are behind
// the quantised layers.
class StageMoments {
 public:
  // `exact` has the targets' float values.
  StageMoments(std::span<const LinearSite> sites, const FloatValues* exact, ThreadPool* pool)
      : sites_(sites), exact_(*exact), pool_(pool), hessian_(sites[0].cols) {
    for (const LinearSite& site : sites) {
      if (site.HasTarget()) errors_.try_emplace(site.weight, site.rows, site.cols);
    }
  }

  // Of every tensor of every window, in order.
  void Observe(const Tensor& tensor, std::span<const std::byte> values) {
    const std::span<const float> floats = Floats(values);
    if (tensor.name == sites_[0].input) {
      inputs_.assign(floats.begin(), floats.end());
      hessian_.Add(floats.data(), floats.size() / hessian_.dim(), pool_);
    }
    for (const LinearSite& site : sites_) {
      const auto errors = errors_.find(site.weight);
      if (site.target == tensor.name && errors != errors_.end()) {
        AddErrors(site, floats, errors->second);
      }
    }
  }

  Status Finish() {
    const bool factorise =
        std::any_of(sites_.begin(), sites_.end(), [](const auto& site) { return site.UsesGptq(); });
    return hessian_.Finish(pool_, factorise).WithContext("input " + sites_[0].input);
  }

  const InputHessian& hessian() const { return hessian_; }

  // The weights to round.
  std::shared_ptr<const ConstantData> TargetOf(const LinearSite& site,
                                               std::shared_ptr<const ConstantData> weights) const {
    const auto errors = errors_.find(site.weight);
    if (errors == errors_.end()) return weights;
    return errors->second.Correct(*weights, hessian_, pool_);
  }

 private:
  void AddErrors(const LinearSite& site, std::span<const float> floats, OutputErrors& errors) {
    size_t& seen = seen_[site.weight];
    const std::vector<float>& exact = exact_.at(site.target);
    difference_.resize(floats.size());
    for (size_t i = 0; i < floats.size(); ++i) difference_[i] = exact[seen + i] - floats[i];
    seen += floats.size();
    errors.Add(inputs_.data(), difference_.data(), floats.size() / site.rows, pool_);
  }

  std::span<const LinearSite> sites_;
  const FloatValues& exact_;
  ThreadPool* pool_;
  InputHessian hessian_;
  std::map<std::string, OutputErrors> errors_;  // by weight
  std::map<std::string, size_t> seen_;          // values of the target so far, by weight
  std::vector<float> inputs_, difference_;      // of the window that runs
};

class WeightsInOrder {
 public:
  WeightsInOrder(Decoder& decoder, const FloatPrefix& prefix, const WeightSchemes& schemes,
                 ThreadPool* pool)
      : decoder_(decoder), prefix_(prefix), schemes_(schemes), pool_(pool) {}

  Status Run(const TokenWindows& windows, Progress* progress) {
    const uint32_t layers = decoder_.model().config().num_layers;
    SPILLWAY_RETURN_IF_ERROR(FindNeeds());
    if (needs_inputs_) states_ = EmbedWindows(decoder_, windows, prefix_);
    if (has_targets_) exact_states_ = states_;
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
        has_targets_ = has_targets_ || site.HasTarget();
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
    FloatValues exact;
    SPILLWAY_RETURN_IF_ERROR(RunExact(pass, sites, constants, exact));
    for (size_t begin = 0, end = 0; begin < sites.size(); begin = end) {
      while (end < sites.size() && sites[end].input == sites[begin].input) ++end;
      const std::span<const LinearSite> stage(sites.data() + begin, end - begin);
      SPILLWAY_RETURN_IF_ERROR(QuantizeStage(pass, stage, exact, constants));
    }
    return pass.last() ? OkStatus() : pass.Run(constants, states_, &states_, nullptr);
  }

  // The float values of the layer's targets, and the float states behind it.
  Status RunExact(const LayerPass& pass, const std::vector<LinearSite>& sites,
                  const Constants& constants, FloatValues& exact) {
    for (const LinearSite& site : sites) {
      if (site.HasTarget()) exact[site.target];
    }
    return pass.Run(constants, exact_states_, &exact_states_,
                    [&](const Op&, const Tensor& tensor, std::span<const std::byte> values) {
                      const auto found = exact.find(tensor.name);
                      if (found == exact.end()) return;
                      const std::span<const float> floats = Floats(values);
                      found->second.insert(found->second.end(), floats.begin(), floats.end());
                    });
  }

  // Quantises Linears that read the same tensor, all before them being quantised.
  Status QuantizeStage(const LayerPass& pass, std::span<const LinearSite> sites, FloatValues& exact,
                       Constants& constants) {
    std::optional<StageMoments> moments;
    if (std::any_of(sites.begin(), sites.end(),
                    [](const LinearSite& site) { return site.NeedsInputs(); })) {
      moments.emplace(sites, &exact, pool_);
      SPILLWAY_RETURN_IF_ERROR(
          pass.Run(constants, states_, nullptr,
                   [&](const Op&, const Tensor& tensor, std::span<const std::byte> values) {
                     moments->Observe(tensor, values);
                   }));
      SPILLWAY_RETURN_IF_ERROR(moments->Finish());
    }
    for (const LinearSite& site : sites) {
      if (site.scheme.bits == kFloatBits) continue;
      SPILLWAY_RETURN_IF_ERROR(Quantize(site, moments ? &*moments : nullptr, constants));
      exact.erase(site.target);
    }
    return OkStatus();
  }

  Status Quantize(const LinearSite& site, const StageMoments* moments, Constants& constants) {
    const auto in_memory = constants.find(site.weight);
    std::shared_ptr<const ConstantData> floats =
        in_memory == constants.end() ? site.data : in_memory->second;
    if (moments != nullptr) floats = moments->TargetOf(site, std::move(floats));
    QuantizedMatrix matrix =
        QuantizeMatrix(*floats, site.rows, site.cols, site.scheme,
                       moments == nullptr ? nullptr : &moments->hessian(), pool_);
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
  bool needs_inputs_ = false, has_targets_ = false;
  // Before the layer: behind quantised layers, and behind float ones (empty without targets).
  HiddenStates states_, exact_states_;
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
