#include "eval/analyze.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>

#include "eval/float_executor.h"
#include "eval/op_text.h"
#include "eval/perplexity.h"
#include "eval/tensor_value.h"
#include "quantize/recipe.h"
#include "quantize/transform.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "runtime/step_graphs.h"

namespace spillway {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool IsScores(std::string_view name) {
  return name.ends_with(".scores") || name.ends_with(".scores.masked") ||
         name.ends_with(".attention");
}

// Which columns of a [.., AR, CL] tensor a row may look at in the current step.
struct VisibleColumns {
  uint32_t past = 0, ar = 0, context = 0;
  bool Sees(size_t row, size_t column) const {
    return column < past || (column >= context - ar && column - (context - ar) <= row % ar);
  }
};

// Real values that a tensor can hold, with half a step on either side.
std::pair<float, float> HeldRange(const Tensor& tensor) {
  if (tensor.dtype != DType::kU8 && tensor.dtype != DType::kU16) {
    const float most = tensor.dtype == DType::kF16 ? 65504.0f : std::numeric_limits<float>::max();
    return {-most, most};
  }
  const float half = 0.5f * tensor.encoding.scale;
  return {DequantizeValue(static_cast<int32_t>(DTypeMin(tensor.dtype)), tensor.encoding) - half,
          DequantizeValue(static_cast<int32_t>(DTypeMax(tensor.dtype)), tensor.encoding) + half};
}

struct TensorSums {
  double signal = 0, noise = 0;
  float largest = 0;
  uint64_t count = 0, clipped = 0;

  void Add(const Tensor& tensor, const std::byte* found, std::span<const float> expected,
           const VisibleColumns& visible) {
    const bool scores = IsScores(tensor.name);
    const auto [low, high] = HeldRange(tensor);
    const size_t width = tensor.shape.back();
    for (size_t i = 0; i < expected.size(); ++i) {
      if (scores && !visible.Sees(i / width, i % width)) continue;
      const double reference = expected[i];
      const double error = reference - ValueAt(tensor, found, i);
      signal += reference * reference;
      noise += error * error;
      largest = std::max(largest, std::abs(expected[i]));
      clipped += expected[i] < low || expected[i] > high ? 1 : 0;
      ++count;
    }
  }
};

// The float tensor that a tensor of the quantised graph stands for: its own name, or for
// a Convert ("x.u16") that of what it converts.
std::string FloatName(const Graph& graph, const Op& op) {
  const std::string& name = graph.tensor(op.outputs[0]).name;
  const std::string& source = graph.tensor(op.inputs[0]).name;
  const bool conversion = op.type == OpType::kConvert && name.starts_with(source + ".");
  return conversion ? source : name;
}

// Rotations that the recipe asks for; smoothing's factors are not in the package.
Result<std::shared_ptr<const WeightTransform>> TransformOf(const Recipe& recipe,
                                                           const Model& model) {
  const TransformOptions options = TransformsOf(recipe);
  if (!options.any()) return std::shared_ptr<const WeightTransform>();
  return MakeTransform(model, options);
}

// What smoothing divides: the channels of these have factors of their own.
bool IsSmoothed(std::string_view name, const Recipe& recipe) {
  if (!recipe.HasTransform("smoothquant")) return false;
  if (name.ends_with(".up") || name.ends_with(".gated")) return true;
  const bool norms = !recipe.HasTransform("rotate_r1");
  return norms && (name.ends_with(".attn_norm") || name.ends_with(".ffn_norm"));
}

class Analysis {
 public:
  Analysis(std::shared_ptr<const Package> package, Progress* progress)
      : package_(std::move(package)), progress_(progress) {}

  Status Open(std::shared_ptr<const Model> model, uint32_t threads) {
    const PackageManifest& manifest = package_->manifest();
    SPILLWAY_RETURN_IF_ERROR(CheckModel(model->config()));
    SPILLWAY_ASSIGN_OR_RETURN(graphs_, ReadStepGraphs(*package_));
    if (graphs_.decode.empty()) return UnsupportedError("the package has no graph kv_forward");
    SPILLWAY_ASSIGN_OR_RETURN(recipe_,
                              Recipe::FromJson(manifest.recipe_json, "the package's recipe"));
    FloatExecutorOptions options;
    options.decode_ar = manifest.decode_ar_len;
    options.context_len = manifest.context_len;
    options.prefix_tokens = manifest.prefix_tokens;
    SPILLWAY_ASSIGN_OR_RETURN(options.transform, TransformOf(recipe_, *model));
    SPILLWAY_ASSIGN_OR_RETURN(float_, FloatExecutor::Create(std::move(model), options,
                                                            std::make_shared<ThreadPool>(threads)));
    HostModelOptions host;
    host.threads = threads;
    host.cache_in_rows = true;
    SPILLWAY_ASSIGN_OR_RETURN(quantised_, HostModelExecutor::Open(package_, host));
    return OkStatus();
  }

  Result<AnalysisReport> Run(std::vector<uint32_t> tokens) {
    const std::vector<uint32_t>& prefix = graphs_.io.prefix.tokens;
    if (tokens.size() >= prefix.size() &&
        std::equal(prefix.begin(), prefix.end(), tokens.begin())) {
      tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(prefix.size()));
    }
    visible_.ar = package_->manifest().decode_ar_len;
    visible_.context = graphs_.io.kv.context_len;
    const size_t room = visible_.context - prefix.size();
    const size_t calls = std::min(tokens.size(), room) / visible_.ar;
    if (calls == 0) {
      return InvalidArgumentError(
          fmt::format("{} tokens to analyse; expected at least {}", tokens.size(), visible_.ar));
    }
    Generator expected(float_.get()), found(quantised_.get());
    Observe();
    for (size_t call = 0; call < calls; ++call) {
      ReportProgress(progress_, "analyse", static_cast<double>(call) / static_cast<double>(calls));
      const auto step = std::span(tokens).subspan(call * visible_.ar, visible_.ar);
      visible_.past = found.n_past();
      SPILLWAY_RETURN_IF_ERROR(expected.Feed(step, [](uint32_t, std::span<const float>) {}));
      SPILLWAY_RETURN_IF_ERROR(found.Feed(step, [](uint32_t, std::span<const float>) {}));
    }
    AnalysisReport report;
    report.tokens = static_cast<uint32_t>(calls * visible_.ar);
    Finish(report);
    return report;
  }

 private:
  Status CheckModel(const ModelConfig& found) const {
    const ModelConfig& wanted = package_->manifest().config;
    if (found.num_layers == wanted.num_layers && found.hidden_dim == wanted.hidden_dim &&
        found.ffn_dim == wanted.ffn_dim && found.num_heads == wanted.num_heads &&
        found.num_kv_heads == wanted.num_kv_heads && found.head_dim == wanted.head_dim &&
        found.vocab_size == wanted.vocab_size) {
      return OkStatus();
    }
    return InvalidArgumentError(fmt::format(
        "the float model has {} layers of width {} and {} tokens, the package {} of {} and {}; "
        "give the GGUF file that it was compiled from ({})",
        found.num_layers, found.hidden_dim, found.vocab_size, wanted.num_layers, wanted.hidden_dim,
        wanted.vocab_size, package_->manifest().model_file));
  }

  // The quantised run comes after the float run of the same step.
  void Observe() {
    for (const StepGraph& step : graphs_.decode) {
      for (const Op& op : step.graph->ops()) {
        if (IsCompared(op)) names_[op.name] = FloatName(*step.graph, op);
      }
      for (const auto& [op, name] : names_) floats_[name];
    }
    float_->set_observer(
        [this](const Op&, const Tensor& tensor, std::span<const std::byte> values) {
          const auto wanted = floats_.find(tensor.name);
          if (wanted == floats_.end()) return;
          wanted->second.resize(values.size() / sizeof(float));
          std::memcpy(wanted->second.data(), values.data(), values.size());
        });
    quantised_->set_observer(
        [this](const Op& op, const Tensor& tensor, std::span<const std::byte> values) {
          const auto name = names_.find(op.name);
          if (name == names_.end()) return;
          const std::vector<float>& expected = floats_[name->second];
          // Rotations of keys and smoothing make tensors that the other run does not have.
          if (expected.size() != NumElements(tensor.shape)) return;
          if (IsSmoothed(name->second, recipe_)) return;
          sums_[op.name].Add(tensor, values.data(), expected, visible_);
        });
  }

  // A table's rows are copied, but were rounded when the table was.
  static bool IsCompared(const Op& op) {
    return !KeepsEncoding(op.type) || op.type == OpType::kGather;
  }

  void Finish(AnalysisReport& report) {
    std::unordered_map<std::string, double> quality;  // by tensor
    for (const StepGraph& step : graphs_.decode) {
      for (const Op& op : step.graph->ops()) {
        double input = kInfinity;
        for (const TensorId id : op.inputs) {
          const auto known = quality.find(step.graph->tensor(id).name);
          if (known != quality.end()) input = std::min(input, known->second);
        }
        double& output = quality[step.graph->tensor(op.outputs[0]).name];
        output = input;
        if (!IsCompared(op)) continue;
        const auto sums = sums_.find(op.name);
        if (sums == sums_.end()) {
          report.left_out.push_back(op.name);
          continue;
        }
        output = SqnrOf(sums->second.signal, sums->second.noise);
        report.operations.push_back(Describe(*step.graph, op, sums->second, output, input));
      }
    }
    SumUp(report);
    std::stable_sort(report.operations.begin(), report.operations.end(),
                     [](const auto& a, const auto& b) { return a.sqnr_db < b.sqnr_db; });
  }

  static OperationQuality Describe(const Graph& graph, const Op& op, const TensorSums& sums,
                                   double output, double input) {
    OperationQuality quality;
    quality.operation = op.name;
    quality.type = OpTypeName(op.type);
    quality.types = OpTypesText(graph, op);
    quality.layer = LayerOfName(op.name);
    quality.sqnr_db = output;
    quality.input_sqnr_db = input;
    quality.largest = sums.largest;
    quality.clipped =
        sums.count == 0 ? 0 : static_cast<double>(sums.clipped) / static_cast<double>(sums.count);
    return quality;
  }

  // Operations are still in the graphs' order.
  static void SumUp(AnalysisReport& report) {
    for (const OperationQuality& operation : report.operations) {
      if (operation.operation == "head") report.logits_sqnr_db = operation.sqnr_db;
      if (!operation.layer.has_value()) continue;
      if (report.layers.empty() || report.layers.back().layer != *operation.layer) {
        report.layers.push_back({*operation.layer, kInfinity, "", kInfinity});
      }
      LayerQuality& layer = report.layers.back();
      if (operation.operation.ends_with(".out")) layer.sqnr_db = operation.sqnr_db;
      if (operation.sqnr_db < layer.worst_sqnr_db) {
        layer.worst = operation.operation;
        layer.worst_sqnr_db = operation.sqnr_db;
      }
    }
  }

  std::shared_ptr<const Package> package_;
  Progress* progress_;
  StepGraphs graphs_;
  std::unique_ptr<FloatExecutor> float_;
  std::unique_ptr<HostModelExecutor> quantised_;
  Recipe recipe_;
  VisibleColumns visible_;
  std::unordered_map<std::string, std::string> names_;          // operation to float tensor
  std::unordered_map<std::string, std::vector<float>> floats_;  // by tensor, of this step
  std::unordered_map<std::string, TensorSums> sums_;            // by operation
};

}  // namespace

Result<AnalysisReport> AnalyzePackage(std::shared_ptr<const Package> package,
                                      std::shared_ptr<const Model> model,
                                      std::vector<uint32_t> tokens, uint32_t threads,
                                      Progress* progress) {
  Analysis analysis(std::move(package), progress);
  SPILLWAY_RETURN_IF_ERROR(analysis.Open(std::move(model), threads));
  return analysis.Run(std::move(tokens));
}

}  // namespace spillway
