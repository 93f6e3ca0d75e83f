// Every operation alone: host against the vendor's library.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "base/file.h"
#include "compiler/vendor_job.h"
#include "eval/allowed_difference.h"
#include "eval/integer_difference.h"
#include "eval/op_text.h"
#include "eval/perplexity.h"
#include "eval/tensor_value.h"
#include "eval/verify.h"
#include "qnn/htp/soc_table.h"
#include "runtime/context_runner.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "runtime/step_graphs.h"

namespace spillway {
namespace {

using Bytes = std::vector<std::byte>;

// First, middle and last, or evenly spread.
std::set<uint32_t> ChooseLayers(uint32_t layers, uint32_t wanted) {
  std::set<uint32_t> chosen;
  if (wanted >= layers) wanted = layers;
  for (uint32_t i = 0; i < wanted; ++i) {
    chosen.insert(wanted == 1 ? 0 : i * (layers - 1) / (wanted - 1));
  }
  return chosen;
}

// What every tensor of the decode graphs of all shards held in the host's last step.
class Recorder {
 public:
  Recorder(HostModelExecutor& executor, const std::vector<StepGraph>& shards)
      : executor_(executor), shards_(shards) {
    executor_.set_observer(
        [this](const Op&, const Tensor& tensor, std::span<const std::byte> values) {
          if (tensors_.empty()) SaveInputs();
          tensors_[tensor.name].assign(values.begin(), values.end());
        });
  }
  ~Recorder() { executor_.set_observer(nullptr); }

  const Bytes* Find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }

 private:
  void Save(const Tensor& tensor, const std::byte* data) {
    tensors_[tensor.name].assign(data, data + tensor.Bytes());
  }
  void SaveInputs() {
    const StepBuffers& buffers = executor_.buffers(StepKind::kDecode);
    // Mask and positions have one name in all shards; a later shard's hidden state is
    // the output of the one before.
    const StepGraph& first = shards_[0];
    Save(first.input(StepGraph::kHidden), buffers.hidden);
    Save(first.input(StepGraph::kMask), buffers.mask);
    Save(first.input(StepGraph::kPositions), reinterpret_cast<const std::byte*>(buffers.positions));
    uint32_t before = 0;
    for (const StepGraph& step : shards_) {
      for (uint32_t layer = 0; layer < step.layers; ++layer) {
        Save(step.input(step.KInput(layer)), executor_.k(before + layer));
        Save(step.input(step.VInput(layer)), executor_.v(before + layer));
      }
      before += step.layers;
    }
  }

  HostModelExecutor& executor_;
  const std::vector<StepGraph>& shards_;
  std::map<std::string, Bytes> tensors_;
};

// A graph of unconnected operations: input "<op>.in<i>" for each operand that is
// not a constant, output "<op>".
class Probe {
 public:
  // Leaves out the operations in `done` and adds to it what it takes.
  Probe(const Graph& graph, const std::set<uint32_t>& layers, std::set<std::string>& done)
      : in_(graph), probe_("probe") {
    for (const Op& op : graph.ops()) {
      const auto layer = LayerOfName(op.name);
      if (op.type == OpType::kReshape || (layer && !layers.contains(*layer))) continue;
      if (done.insert(op.name).second) Add(op);
    }
  }

  const Graph& graph() const { return probe_; }
  // The operation of the model behind output i.
  const std::vector<const Op*>& ops() const { return ops_; }
  // The tensor of the model behind input i.
  const std::vector<std::string>& sources() const { return sources_; }

 private:
  void Add(const Op& op) {
    Op copy = op;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Tensor& tensor = in_.tensor(op.inputs[i]);
      if (tensor.role == TensorRole::kConstant) {
        const auto known = probe_.Find(tensor.name);
        copy.inputs[i] = known ? *known : probe_.AddTensor(tensor);
        continue;
      }
      const TensorId id =
          probe_.AddInput(fmt::format("{}.in{}", op.name, i), tensor.dtype, tensor.shape);
      probe_.mutable_tensor(id).encoding = tensor.encoding;
      copy.inputs[i] = id;
      sources_.push_back(tensor.name);
    }
    Tensor output = in_.tensor(op.outputs[0]);
    output.role = TensorRole::kInternal;
    copy.outputs[0] = probe_.AddTensor(std::move(output));
    probe_.AppendOp(copy);
    probe_.MarkOutput(copy.outputs[0]);
    ops_.push_back(&op);
  }

  const Graph& in_;
  Graph probe_;
  std::vector<const Op*> ops_;
  std::vector<std::string> sources_;
};

// Compiles the probe into a context of its own and loads it.
Result<std::unique_ptr<ContextRunner>> LoadProbe(const Graph& graph, const Package& package,
                                                 const OperationOptions& options,
                                                 PackageWriter& writer, Progress* progress) {
  SPILLWAY_RETURN_IF_ERROR(writer.AddShard({std::make_shared<const Graph>(graph)}));
  SPILLWAY_RETURN_IF_ERROR(writer.FinishGraphs({}));
  VendorJob job;
  job.folder = writer.PathOf("");
  job.output_path = writer.PathOf("probe.bin");
  job.qnn_lib_dir = options.qnn_lib_dir;
  job.htp.soc = package.manifest().soc;
  job.htp.weight_sharing = false;
  VendorEvents events;
  events.progress = [&](std::string_view stage, double fraction) {
    ReportProgress(progress, fmt::format("operations: {}", stage), fraction);
  };
  SPILLWAY_RETURN_IF_ERROR(RunVendorJobInWorker(job, options.timeout_s, events).status());
  ContextRunnerOptions runner;
  runner.context_paths = {job.output_path};
  runner.qnn_lib_dir = options.qnn_lib_dir;
  runner.htp.soc = job.htp.soc;
  runner.execute_timeout_s = options.timeout_s;
  return OpenContextInWorker(runner);
}

// Of the values that two tensors of one type and encoding stand for.
double SqnrOfTensors(const Tensor& tensor, const std::byte* reference, const std::byte* tested) {
  double signal = 0, noise = 0;
  for (size_t i = 0; i < NumElements(tensor.shape); ++i) {
    const double expected = ValueAt(tensor, reference, i);
    const double error = expected - ValueAt(tensor, tested, i);
    signal += expected * expected;
    noise += error * error;
  }
  return SqnrOf(signal, noise);
}

class OperationComparison {
 public:
  OperationComparison(std::shared_ptr<const Package> package, const OperationOptions& options,
                      Progress* progress)
      : package_(std::move(package)), options_(options), progress_(progress) {}

  Result<std::vector<OperationDifference>> Run(const std::vector<uint32_t>& tokens) {
    SPILLWAY_ASSIGN_OR_RETURN(const StepGraphs graphs, ReadStepGraphs(*package_));
    if (graphs.decode.empty()) {
      return UnsupportedError("operations are compared for packages with kv_forward");
    }
    SPILLWAY_ASSIGN_OR_RETURN(const auto host,
                              HostModelExecutor::Open(package_, {.cache_in_rows = true}));
    Generator generator(host.get());
    const std::span<const uint32_t> before = std::span(tokens).first(tokens.size() - 1);
    const uint32_t kept = generator.StartPrompt(before);
    SPILLWAY_RETURN_IF_ERROR(generator.Feed(before.subspan(kept), nullptr, progress_));
    Recorder recorder(*host, graphs.decode);
    SPILLWAY_RETURN_IF_ERROR(generator.Feed(std::span(tokens).last(1)));
    const std::set<uint32_t> layers = ChooseLayers(graphs.io.kv.layers, options_.layers);
    std::set<std::string> done;
    std::vector<OperationDifference> all;
    for (const StepGraph& step : graphs.decode) {
      const Probe probe(*step.graph, layers, done);
      if (probe.ops().empty()) continue;
      SPILLWAY_ASSIGN_OR_RETURN(const auto found, Compare(probe, recorder, *step.graph));
      all.insert(all.end(), found.begin(), found.end());
    }
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.max_lsb - a.allowed_lsb > b.max_lsb - b.allowed_lsb;
    });
    return all;
  }

 private:
  Result<std::vector<OperationDifference>> Compare(const Probe& probe, const Recorder& recorder,
                                                   const Graph& graph) {
    // Never committed: the folder goes away with the writer.
    SPILLWAY_ASSIGN_OR_RETURN(PackageWriter writer,
                              PackageWriter::Create(package_->path() + "-operations"));
    SPILLWAY_ASSIGN_OR_RETURN(const auto runner,
                              LoadProbe(probe.graph(), *package_, options_, writer, progress_));
    const ContextGraph& loaded = runner->info().contexts[0].graphs[0];
    IoLayout layout;
    layout.contexts.emplace_back().resize(1);
    IoLayout::GraphPlaces& places = layout.contexts[0][0];
    for (const ContextTensor& tensor : loaded.inputs) {
      places.inputs.push_back(layout.Add(tensor.Bytes()));
    }
    for (const ContextTensor& tensor : loaded.outputs) {
      places.outputs.push_back(layout.Add(tensor.Bytes()));
    }
    SPILLWAY_RETURN_IF_ERROR(runner->Bind(layout));
    for (size_t i = 0; i < loaded.inputs.size(); ++i) {
      const Bytes* values = recorder.Find(probe.sources()[i]);
      if (values == nullptr || values->size() != loaded.inputs[i].Bytes()) {
        return InternalError(fmt::format("no recorded values for {}", loaded.inputs[i].name));
      }
      std::memcpy(runner->memory().data() + places.inputs[i], values->data(), values->size());
    }
    ReportProgress(progress_, "operations: execute", -1.0);
    SPILLWAY_RETURN_IF_ERROR(runner->Execute(0, 0));

    const qnn::htp::Soc* soc = nullptr;
    SPILLWAY_ASSIGN_OR_RETURN(soc, qnn::htp::FindSoc(package_->manifest().soc));
    std::vector<OperationDifference> result;
    for (size_t i = 0; i < loaded.outputs.size(); ++i) {
      const Op& op = *probe.ops()[i];
      const Tensor& output = graph.tensor(op.outputs[0]);
      const std::byte* const expected = recorder.Find(output.name)->data();
      const std::byte* const found = runner->memory().data() + places.outputs[i];
      IntegerDifference difference;
      difference.Add(output.dtype, expected, found, NumElements(output.shape));
      result.push_back({op.name, std::string(OpTypeName(op.type)), OpTypesText(graph, op),
                        difference.max, difference.mean(),
                        AllowedLsb(graph, op, static_cast<int>(soc->arch)),
                        SqnrOfTensors(output, expected, found)});
    }
    return result;
  }

  std::shared_ptr<const Package> package_;
  const OperationOptions& options_;
  Progress* progress_;
};

}  // namespace

Result<std::vector<OperationDifference>> CompareOperations(std::shared_ptr<const Package> package,
                                                           const std::vector<uint32_t>& tokens,
                                                           const OperationOptions& options,
                                                           Progress* progress) {
  if (tokens.size() < 2) return InvalidArgumentError("the prompt must have at least 2 tokens");
  return OperationComparison(std::move(package), options, progress).Run(tokens);
}

}  // namespace spillway
