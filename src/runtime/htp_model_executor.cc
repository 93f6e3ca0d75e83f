#include "runtime/htp_model_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "qnn/htp/soc_table.h"
#include "runtime/package_embedding.h"

namespace spillway {
namespace {

constexpr bool kIsSimulator =
#if defined(__x86_64__)
    true;
#else
    false;
#endif

constexpr size_t kNotFound = static_cast<size_t>(-1);

size_t FindGraph(const ContextInfo& info, const std::string& name) {
  for (size_t g = 0; g < info.graphs.size(); ++g) {
    if (info.graphs[g].name == name) return g;
  }
  return kNotFound;
}

// The index of the context's tensor that is `tensor`, by name.
Result<size_t> MatchTensor(const std::string& where, const std::vector<ContextTensor>& tensors,
                           const Tensor& tensor) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name != tensor.name) continue;
    if (tensors[i].dtype == tensor.dtype && tensors[i].Bytes() == tensor.Bytes()) return i;
    return CorruptDataError(fmt::format(
        "{}: tensor \"{}\" is {} {}, but {} {} in the package's graphs; compile the package again",
        where, tensor.name, DTypeName(tensors[i].dtype), ShapeToString(tensors[i].shape),
        DTypeName(tensor.dtype), ShapeToString(tensor.shape)));
  }
  return CorruptDataError(fmt::format(
      "{}: no tensor \"{}\", which the package's graphs have; compile the package again", where,
      tensor.name));
}

size_t Index(StepKind kind) { return kind == StepKind::kPrefill ? 0 : 1; }

// Where a step graph is in the context: which graph, and the indices of its
// inputs and outputs there, in the step graph's order.
struct Matched {
  size_t graph = 0;
  std::vector<size_t> inputs, outputs;
};

Result<Matched> MatchGraph(const std::string& where, const ContextGraph& context,
                           const Graph& graph) {
  if (context.inputs.size() != graph.inputs().size() ||
      context.outputs.size() != graph.outputs().size()) {
    return CorruptDataError(fmt::format(
        "{} has {} inputs and {} outputs, the package's graph {} and {}; compile the package again",
        where, context.inputs.size(), context.outputs.size(), graph.inputs().size(),
        graph.outputs().size()));
  }
  Matched matched;
  for (const TensorId id : graph.inputs()) {
    SPILLWAY_ASSIGN_OR_RETURN(const size_t i, MatchTensor(where, context.inputs, graph.tensor(id)));
    matched.inputs.push_back(i);
  }
  for (const TensorId id : graph.outputs()) {
    SPILLWAY_ASSIGN_OR_RETURN(const size_t i,
                              MatchTensor(where, context.outputs, graph.tensor(id)));
    matched.outputs.push_back(i);
  }
  return matched;
}

// One shard's memory.
struct ShardPlan {
  IoLayout layout;
  std::vector<uint64_t> k, v;     // places of the cache, a layer
  std::array<Matched, 2> graphs;  // prefill, decode
};

// The cache once, for both graphs; every other tensor of every graph for itself.
Result<ShardPlan> PlanShard(const StepGraphs& graphs, size_t shard, const ContextInfo& info,
                            const std::string& path) {
  ShardPlan plan;
  const KvShape& kv = graphs.io.kv;
  const uint64_t cache_bytes =
      uint64_t{kv.kv_heads} * kv.head_dim * (kv.context_len - 1) * DTypeSize(kv.dtype);
  for (uint32_t layer = 0; layer < graphs.any()[shard].layers; ++layer) {
    plan.k.push_back(plan.layout.Add(cache_bytes));
    plan.v.push_back(plan.layout.Add(cache_bytes));
  }
  for (const ContextGraph& graph : info.graphs) {
    IoLayout::GraphPlaces& places = plan.layout.graphs.emplace_back();
    for (const ContextTensor& tensor : graph.inputs) {
      places.inputs.push_back(plan.layout.Add(tensor.Bytes()));
    }
    for (const ContextTensor& tensor : graph.outputs) {
      places.outputs.push_back(plan.layout.Add(tensor.Bytes()));
    }
  }
  for (const StepKind kind : {StepKind::kPrefill, StepKind::kDecode}) {
    if (graphs.of(kind).empty()) continue;
    const StepGraph& step = graphs.of(kind)[shard];
    const std::string where = fmt::format("{}, graph {}", path, step.graph->name());
    const size_t g = FindGraph(info, step.graph->name());
    if (g == kNotFound) {
      return CorruptDataError(where + " is not in the context; compile the package again");
    }
    Matched& match = plan.graphs[Index(kind)];
    SPILLWAY_ASSIGN_OR_RETURN(match, MatchGraph(where, info.graphs[g], *step.graph));
    match.graph = g;
    for (uint32_t layer = 0; layer < step.layers && step.has_cache; ++layer) {
      plan.layout.graphs[g].inputs[match.inputs[step.KInput(layer)]] = plan.k[layer];
      plan.layout.graphs[g].inputs[match.inputs[step.VInput(layer)]] = plan.v[layer];
    }
  }
  return plan;
}

// A context made for another SoC than the package says would fail on the device
// with a number that explains nothing.
Status CheckSoc(const std::string& path, const ContextInfo& info, const std::string& soc_name) {
  const Result<const qnn::htp::Soc*> soc = qnn::htp::FindSoc(soc_name);
  if (info.soc_model == 0 || !soc.ok() || (*soc)->id == info.soc_model) return OkStatus();
  const qnn::htp::Soc* made_for = qnn::htp::FindSocById(info.soc_model);
  return CorruptDataError(fmt::format(
      "{} was compiled for SoC {} ({}), but the package says {} ({}); compile the package again",
      path, made_for == nullptr ? "unknown" : made_for->name, info.soc_model, (*soc)->name,
      (*soc)->id));
}

}  // namespace

Result<std::string> ChooseContextFile(const PackageManifest& manifest, size_t shard,
                                      bool simulator) {
  const ShardInfo& info = manifest.shards[shard];
  if (simulator && !info.plain_file.empty()) return info.plain_file;
  if (info.context_file.empty()) {
    return FailedPreconditionError(fmt::format(
        "shard {} of the package has no context binary: it was compiled without the vendor's "
        "libraries. Compile it again where they are found (--qnn-lib-dir or SPILLWAY_QNN_LIB_DIR){}"
        ", or run it with --executor host",
        shard, simulator ? ", with --with-simulator" : ""));
  }
  if (!simulator || (!manifest.weight_sharing && !manifest.slc_allocator)) {
    return info.context_file;
  }
  std::string why;
  if (manifest.weight_sharing) {
    why = "its graphs share weights (the library answers error 1000 or crashes)";
  }
  if (manifest.slc_allocator) {
    why += std::string(why.empty() ? "" : " and ") +
           "it was made with the SLC allocator (the context loads, but its graphs are missing: "
           "error 6003)";
  }
  return FailedPreconditionError(fmt::format(
      "{} is for a device only; the x86-64 simulator cannot load it: {}. Compile with "
      "--with-simulator to get a plain context (plain_{}.bin) for it, or run with --executor host",
      info.context_file, why, shard));
}

Result<std::unique_ptr<HtpModelExecutor>> HtpModelExecutor::Open(
    std::shared_ptr<const Package> package, const HtpModelOptions& options) {
  std::unique_ptr<HtpModelExecutor> executor(new HtpModelExecutor());
  executor->package_ = package;
  SPILLWAY_ASSIGN_OR_RETURN(executor->graphs_, ReadStepGraphs(*package));
  SPILLWAY_ASSIGN_OR_RETURN(executor->embedding_,
                            MakeEmbedding(package->embedding(), executor->graphs_.io));
  const PackageManifest& manifest = package->manifest();
  for (size_t s = 0; s < manifest.shards.size(); ++s) {
    Result<std::string> file = ChooseContextFile(manifest, s, kIsSimulator);
    if (!file.ok()) return file.status().WithContext(package->path());
    executor->files_.push_back(std::move(file).value());
  }
  ContextOpener open = options.open;
  if (!open) open = options.in_process ? OpenContextInProcess : OpenContextInWorker;
  for (size_t s = 0; s < manifest.shards.size(); ++s) {
    ContextRunnerOptions runner_options;
    runner_options.context_path = package->PathOf(executor->files_[s]);
    runner_options.qnn_lib_dir = options.qnn_lib_dir;
    runner_options.soc = manifest.soc;
    runner_options.load_timeout_s = options.load_timeout_s;
    runner_options.execute_timeout_s = options.execute_timeout_s;
    SPILLWAY_ASSIGN_OR_RETURN(std::unique_ptr<ContextRunner> runner, open(runner_options));
    SPILLWAY_RETURN_IF_ERROR(CheckSoc(runner_options.context_path, runner->info(), manifest.soc));
    executor->runners_.push_back(std::move(runner));
    SPILLWAY_RETURN_IF_ERROR(executor->BindShard(s));
  }
  executor->FinishStep(StepKind::kPrefill);
  executor->FinishStep(StepKind::kDecode);
  return executor;
}

Status HtpModelExecutor::BindShard(size_t shard) {
  ContextRunner& runner = *runners_[shard];
  SPILLWAY_ASSIGN_OR_RETURN(const ShardPlan plan, PlanShard(graphs_, shard, runner.info(),
                                                            package_->PathOf(files_[shard])));
  SPILLWAY_RETURN_IF_ERROR(runner.Bind(plan.layout));

  std::byte* memory = runner.memory().data();
  for (const uint64_t place : plan.k) k_.push_back(memory + place);
  for (const uint64_t place : plan.v) v_.push_back(memory + place);
  for (const StepKind kind : {StepKind::kPrefill, StepKind::kDecode}) {
    if (graphs_.of(kind).empty()) continue;
    const StepGraph& graph = graphs_.of(kind)[shard];
    const Matched& match = plan.graphs[Index(kind)];
    const IoLayout::GraphPlaces& places = plan.layout.graphs[match.graph];
    const auto input = [&](size_t i) { return memory + places.inputs[match.inputs[i]]; };
    const auto output = [&](size_t i) { return memory + places.outputs[match.outputs[i]]; };
    Step& step = Of(kind);
    step.shards.push_back({match.graph, input(StepGraph::kHidden), input(StepGraph::kMask),
                           input(StepGraph::kPositions), output(StepGraph::kMainOutput)});
    for (uint32_t layer = 0; layer < graph.layers; ++layer) {
      step.buffers.k_new.push_back(output(graph.KOutput(layer)));
      step.buffers.v_new.push_back(output(graph.VOutput(layer)));
    }
  }
  return OkStatus();
}

void HtpModelExecutor::FinishStep(StepKind kind) {
  if (graphs_.of(kind).empty()) return;
  Step& step = Of(kind);
  const StepGraph& first = graphs_.of(kind).front();
  step.buffers.ar_len = first.ar_len;
  step.buffers.hidden = step.shards.front().hidden;
  step.buffers.mask = step.shards.front().mask;
  step.buffers.positions = reinterpret_cast<int32_t*>(step.shards.front().positions);
  step.buffers.logits = step.shards.back().main_output;
  step.hidden_bytes = first.output(StepGraph::kMainOutput).Bytes();
  step.mask_bytes = first.input(StepGraph::kMask).Bytes();
  step.positions_bytes = first.input(StepGraph::kPositions).Bytes();
}

Status HtpModelExecutor::Run(StepKind kind, int /*logits_row*/) {
  Step& step = Of(kind);
  if (step.shards.empty()) {
    return FailedPreconditionError(
        fmt::format("the model has no graph {}",
                    kind == StepKind::kPrefill ? kPrefillGraphName : kDecodeGraphName));
  }
  for (size_t s = 0; s < step.shards.size(); ++s) {
    const ShardStep& shard = step.shards[s];
    if (s > 0) {  // each shard's memory belongs to its own process
      std::memcpy(shard.hidden, step.shards[s - 1].main_output, step.hidden_bytes);
      std::memcpy(shard.mask, step.shards[0].mask, step.mask_bytes);
      std::memcpy(shard.positions, step.shards[0].positions, step.positions_bytes);
    }
    SPILLWAY_RETURN_IF_ERROR(runners_[s]->Execute(shard.graph));
  }
  return OkStatus();
}

std::string HtpModelExecutor::Describe() const {
  const std::string files = fmt::format("{}", fmt::join(files_, ", "));
  if (kIsSimulator) return fmt::format("htp (x86 simulator, {})", files);
  return fmt::format("htp ({}, {})", package_->manifest().soc, files);
}

}  // namespace spillway
