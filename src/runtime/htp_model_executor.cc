#include "runtime/htp_model_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "qnn/htp/options.h"
#include "qnn/htp/options_json.h"
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

// Where a step graph is in its context: which graph, and the indices of its
// inputs and outputs there, in the step graph's order.
struct Matched {
  size_t graph = 0;
  std::vector<size_t> inputs, outputs;
};

// `more_outputs`: the context may have others than the graph's own.
Result<Matched> MatchGraph(const std::string& where, const ContextGraph& context,
                           const Graph& graph, bool more_outputs) {
  const size_t outputs = graph.outputs().size();
  if (context.inputs.size() != graph.inputs().size() || context.outputs.size() < outputs ||
      (context.outputs.size() > outputs && !more_outputs)) {
    return CorruptDataError(fmt::format(
        "{} has {} inputs and {} outputs, the package's graph {} and {}; compile the package again",
        where, context.inputs.size(), context.outputs.size(), graph.inputs().size(), outputs));
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

// The memory of all shards.
struct ModelPlan {
  IoLayout layout;
  std::vector<uint64_t> k, v;                  // places of the cache, a layer
  std::array<std::vector<Matched>, 2> graphs;  // prefill, decode; a shard
  Matched evictor;                             // in the last context
};

class Planner {
 public:
  // `evictor`: null, or the graph of the context after the shards'.
  Planner(const StepGraphs& graphs, const Graph* evictor, const std::vector<ContextInfo>& contexts,
          bool more_outputs)
      : graphs_(graphs), evictor_(evictor), contexts_(contexts), more_outputs_(more_outputs) {}

  // The cache once, for both graphs; mask, positions and the hidden state that goes
  // from one shard to the next once a graph; every other tensor for itself.
  Result<ModelPlan> Run(const std::function<std::string(size_t)>& name_of) {
    const KvShape& kv = graphs_.io.kv;
    for (uint32_t layer = 0; layer < kv.layers; ++layer) {
      plan_.k.push_back(plan_.layout.Add(kv.row_bytes()));
      plan_.v.push_back(plan_.layout.Add(kv.row_bytes()));
    }
    for (const ContextInfo& context : contexts_) {
      plan_.layout.contexts.emplace_back().resize(context.graphs.size());
    }
    for (const StepKind kind : {StepKind::kPrefill, StepKind::kDecode}) {
      uint32_t first_layer = 0;
      for (size_t shard = 0; shard < graphs_.of(kind).size(); ++shard) {
        const StepGraph& step = graphs_.of(kind)[shard];
        SPILLWAY_RETURN_IF_ERROR(Match(kind, shard, step, name_of(shard)));
        ShareInputs(kind, shard, first_layer);
        first_layer += step.layers;
      }
    }
    if (evictor_ != nullptr) {
      SPILLWAY_RETURN_IF_ERROR(PlaceEvictor(name_of(contexts_.size() - 1)));
    }
    PlaceTheRest();
    return std::move(plan_);
  }

 private:
  static constexpr uint64_t kNowhere = ~uint64_t{0};

  Status Match(StepKind kind, size_t shard, const StepGraph& step, const std::string& name) {
    const std::string where = fmt::format("{}, graph {}", name, step.graph->name());
    const size_t g = FindGraph(contexts_[shard], step.graph->name());
    if (g == kNotFound) {
      return CorruptDataError(where + " is not in the context; compile the package again");
    }
    const ContextGraph& graph = contexts_[shard].graphs[g];
    SPILLWAY_ASSIGN_OR_RETURN(Matched match, MatchGraph(where, graph, *step.graph, more_outputs_));
    match.graph = g;
    plan_.graphs[Index(kind)].push_back(std::move(match));
    PlacesOf(shard, g).inputs.assign(graph.inputs.size(), kNowhere);
    PlacesOf(shard, g).outputs.assign(graph.outputs.size(), kNowhere);
    return OkStatus();
  }

  void ShareInputs(StepKind kind, size_t shard, uint32_t first_layer) {
    const std::vector<Matched>& matches = plan_.graphs[Index(kind)];
    const StepGraph& step = graphs_.of(kind)[shard];
    for (uint32_t layer = 0; layer < step.layers && step.has_cache; ++layer) {
      Input(matches, shard, step.KInput(layer)) = plan_.k[first_layer + layer];
      Input(matches, shard, step.VInput(layer)) = plan_.v[first_layer + layer];
    }
    if (shard == 0) {
      for (const size_t i : {StepGraph::kHidden, StepGraph::kMask, StepGraph::kPositions}) {
        Input(matches, 0, i) = plan_.layout.Add(step.input(i).Bytes());
      }
      return;
    }
    for (const size_t i : {StepGraph::kMask, StepGraph::kPositions}) {
      Input(matches, shard, i) = Input(matches, 0, i);
    }
    const uint64_t hidden = plan_.layout.Add(step.input(StepGraph::kHidden).Bytes());
    Input(matches, shard, StepGraph::kHidden) = hidden;
    const Matched& before = matches[shard - 1];
    PlacesOf(shard - 1, before.graph).outputs[before.outputs[StepGraph::kMainOutput]] = hidden;
  }

  // It reads the cache itself.
  Status PlaceEvictor(const std::string& name) {
    const size_t context = contexts_.size() - 1;
    const std::string where = fmt::format("{}, graph {}", name, evictor_->name());
    const size_t g = FindGraph(contexts_[context], evictor_->name());
    if (g == kNotFound) {
      return CorruptDataError(where + " is not in the context; add the evictor again");
    }
    const ContextGraph& graph = contexts_[context].graphs[g];
    SPILLWAY_ASSIGN_OR_RETURN(plan_.evictor, MatchGraph(where, graph, *evictor_, more_outputs_));
    plan_.evictor.graph = g;
    IoLayout::GraphPlaces& places = PlacesOf(context, g);
    places.inputs.assign(graph.inputs.size(), kNowhere);
    const size_t layers = plan_.k.size();
    for (size_t layer = 0; layer < layers; ++layer) {
      places.inputs[plan_.evictor.inputs[layer]] = plan_.k[layer];
      places.inputs[plan_.evictor.inputs[layers + layer]] = plan_.v[layer];
    }
    return OkStatus();
  }

  void PlaceTheRest() {
    for (size_t c = 0; c < contexts_.size(); ++c) {
      for (size_t g = 0; g < contexts_[c].graphs.size(); ++g) {
        Place(contexts_[c].graphs[g].inputs, PlacesOf(c, g).inputs);
        Place(contexts_[c].graphs[g].outputs, PlacesOf(c, g).outputs);
      }
    }
  }

  void Place(const std::vector<ContextTensor>& tensors, std::vector<uint64_t>& places) {
    places.resize(tensors.size(), kNowhere);
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (places[i] == kNowhere) places[i] = plan_.layout.Add(tensors[i].Bytes());
    }
  }

  IoLayout::GraphPlaces& PlacesOf(size_t context, size_t graph) {
    return plan_.layout.contexts[context][graph];
  }
  // The place of the step graph's input `i`.
  uint64_t& Input(const std::vector<Matched>& matches, size_t shard, size_t i) {
    return PlacesOf(shard, matches[shard].graph).inputs[matches[shard].inputs[i]];
  }

  const StepGraphs& graphs_;
  const Graph* evictor_;
  const std::vector<ContextInfo>& contexts_;
  bool more_outputs_;
  ModelPlan plan_;
};

Encoding EncodingOf(const Graph& graph, const std::string& tensor) {
  for (const Tensor& one : graph.tensors()) {
    if (one.name == tensor) return one.encoding;
  }
  return {};
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

constexpr char kOnlinePrepareHint[] =
    "run it with --online-prepare to build its graphs here (seconds to minutes)";

// 0: each context has its own buffer, or nothing spills.
uint64_t SharedSpillFill(const PackageManifest& manifest, const HtpOptions& htp) {
  if (manifest.shards.size() < 2 || !htp.multi_contexts.value_or(true)) return 0;
  return manifest.shards[0].max_spill_fill_bytes;
}

}  // namespace

Result<std::string> ChooseContextFile(const PackageManifest& manifest, size_t shard,
                                      bool simulator) {
  const ShardInfo& info = manifest.shards[shard];
  if (simulator && !info.plain_file.empty()) return info.plain_file;
  if (info.context_file.empty()) {
    return UnsupportedError(fmt::format(
        "shard {} of the package has no context binary: it was compiled without the vendor's "
        "libraries. Compile it again where they are found (--qnn-lib-dir or SPILLWAY_QNN_LIB_DIR){}"
        ", {}, or run it with --executor host",
        shard, simulator ? ", with --with-simulator" : "", kOnlinePrepareHint));
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
  return UnsupportedError(fmt::format(
      "{} is for a device only; the x86-64 simulator cannot load it: {}. Compile with "
      "--with-simulator to get a plain context (plain_{}.bin) for it, {}, or run with --executor "
      "host",
      info.context_file, why, shard, kOnlinePrepareHint));
}

Result<HtpOptions> LoadOptions(const PackageManifest& manifest, const HtpRunOptions& run) {
  HtpOptions options;
  if (!manifest.htp_options_json.empty()) {
    SPILLWAY_ASSIGN_OR_RETURN(options, qnn::htp::HtpOptionsFromJson(manifest.htp_options_json));
  }
  if (!manifest.soc.empty()) options.soc = manifest.soc;
  // What the compiler decided, where it had the choice.
  if (options.slc_allocator == SlcAllocator::kAuto) {
    options.slc_allocator = manifest.slc_allocator ? SlcAllocator::kOn : SlcAllocator::kOff;
  }
  options.priority = run.priority.value_or(options.priority);
  options.pd_session = run.pd_session.value_or(options.pd_session);
  options.performance = run.performance.value_or(options.performance);
  if (run.rpc_polling_us) options.rpc_polling_us = run.rpc_polling_us;
  if (run.rpc_control_latency_us) options.rpc_control_latency_us = run.rpc_control_latency_us;
  if (run.sleep_latency_us) options.sleep_latency_us = run.sleep_latency_us;
  options.profile_level = run.profile_level.value_or(options.profile_level);
  options.log_level = run.log_level.value_or(options.log_level);
  options.online_prepare = options.online_prepare || run.online_prepare;
  SPILLWAY_RETURN_IF_ERROR(qnn::htp::CheckOptions(options).status());
  return options;
}

Result<std::unique_ptr<HtpModelExecutor>> HtpModelExecutor::Open(
    std::shared_ptr<const Package> package, const HtpModelOptions& options) {
  std::unique_ptr<HtpModelExecutor> executor(new HtpModelExecutor());
  executor->package_ = std::move(package);
  const Package& opened = *executor->package_;
  executor->dump_ = options.dump;
  SPILLWAY_ASSIGN_OR_RETURN(executor->graphs_, ReadStepGraphs(opened));
  SPILLWAY_ASSIGN_OR_RETURN(executor->embedding_,
                            MakeEmbedding(opened.embedding(), executor->graphs_.io));
  const PackageManifest& manifest = opened.manifest();
  ContextRunnerOptions runner;
  Result<HtpOptions> htp = LoadOptions(manifest, options.run);
  if (!htp.ok()) return htp.status().WithContext(opened.path());
  runner.htp = std::move(htp).value();
  executor->profiled_ = runner.htp.profile_level != ProfileLevel::kOff;
  if (runner.htp.online_prepare) {
    runner.prepare_folder = opened.path();
    if (options.dump != nullptr) runner.htp.dump_intermediates = true;
  } else {
    for (size_t s = 0; s < manifest.shards.size(); ++s) {
      Result<std::string> file = ChooseContextFile(manifest, s, kIsSimulator);
      if (!file.ok()) return file.status().WithContext(opened.path());
      executor->files_.push_back(std::move(file).value());
      runner.context_paths.push_back(opened.PathOf(executor->files_.back()));
    }
    runner.shared_spill_fill_bytes = SharedSpillFill(manifest, runner.htp);
  }
  if (options.dump != nullptr && !runner.htp.dump_intermediates) {
    return UnsupportedError(
        fmt::format("{}: its graphs give no intermediates away. Compile the package with "
                    "--dump-intermediates, {}, or dump with --executor host",
                    opened.path(), kOnlinePrepareHint));
  }
  if (options.evictor && manifest.evictor.has_value()) executor->UseEvictor(runner);
  runner.qnn_lib_dir = options.qnn_lib_dir;
  runner.load_timeout_s = options.load_timeout_s;
  runner.prepare_timeout_s = options.prepare_timeout_s;
  runner.execute_timeout_s = options.execute_timeout_s;
  runner.progress = options.progress;
  ContextOpener open = options.open;
  if (!open) open = options.in_process ? OpenContextInProcess : OpenContextInWorker;
  SPILLWAY_ASSIGN_OR_RETURN(executor->runner_, open(runner));
  SPILLWAY_RETURN_IF_ERROR(executor->CheckContexts(manifest.soc));
  SPILLWAY_RETURN_IF_ERROR(executor->BindMemory(runner.htp.dump_intermediates));
  return executor;
}

void HtpModelExecutor::UseEvictor(ContextRunnerOptions& runner) {
  const EvictorInfo& info = *package_->manifest().evictor;
  if (runner.prepare_folder.empty()) {
    if (info.context_file.empty()) {
      Log(LogLevel::kInfo, "the package's evictor has no context; keys are turned on the host");
      return;
    }
    files_.push_back(info.context_file);
    runner.context_paths.push_back(package_->PathOf(info.context_file));
  }
  runner.evictor = true;
  evictor_sink_ = AttentionSink{info.sink, info.batch};
}

std::string HtpModelExecutor::NameOf(size_t shard) const {
  return shard < files_.size() ? package_->PathOf(files_[shard])
                               : fmt::format("{}, shard {}", package_->path(), shard);
}

Status HtpModelExecutor::CheckContexts(const std::string& soc) const {
  const std::vector<ContextInfo>& contexts = runner_->info().contexts;
  const size_t expected = package_->manifest().shards.size() + (evictor_sink_ ? 1 : 0);
  if (contexts.size() != expected) {
    return InternalError(
        fmt::format("{} contexts were loaded; expected {}", contexts.size(), expected));
  }
  for (size_t s = 0; s < contexts.size(); ++s) {
    SPILLWAY_RETURN_IF_ERROR(CheckSoc(NameOf(s), contexts[s], soc));
  }
  return OkStatus();
}

Status HtpModelExecutor::BindMemory(bool more_outputs) {
  const std::vector<ContextInfo>& contexts = runner_->info().contexts;
  SPILLWAY_ASSIGN_OR_RETURN(
      const ModelPlan plan,
      Planner(graphs_, evictor_sink_ ? package_->evictor().get() : nullptr, contexts, more_outputs)
          .Run([&](size_t shard) { return NameOf(shard); }));
  SPILLWAY_RETURN_IF_ERROR(runner_->Bind(plan.layout));

  std::byte* memory = runner_->memory().data();
  for (const uint64_t place : plan.k) k_.push_back(memory + place);
  for (const uint64_t place : plan.v) v_.push_back(memory + place);
  for (const StepKind kind : {StepKind::kPrefill, StepKind::kDecode}) {
    Step& step = Of(kind);
    const std::vector<StepGraph>& graphs = graphs_.of(kind);
    for (size_t s = 0; s < graphs.size(); ++s) {
      const StepGraph& graph = graphs[s];
      const Matched& match = plan.graphs[Index(kind)][s];
      const IoLayout::GraphPlaces& places = plan.layout.contexts[s][match.graph];
      const auto input = [&](size_t i) { return memory + places.inputs[match.inputs[i]]; };
      const auto output = [&](size_t i) { return memory + places.outputs[match.outputs[i]]; };
      ShardStep& shard = step.shards.emplace_back();
      shard.graph = match.graph;
      shard.profile.graph = graph.graph->name();
      shard.profile.shard = static_cast<uint32_t>(s);
      const std::vector<ContextTensor>& outputs = contexts[s].graphs[match.graph].outputs;
      for (size_t i = 0; i < outputs.size() && dump_ != nullptr; ++i) {
        shard.outputs.push_back(
            {outputs[i], EncodingOf(*graph.graph, outputs[i].name), memory + places.outputs[i]});
      }
      if (s == 0) {
        step.name = graph.graph->name();
        step.buffers.ar_len = graph.ar_len;
        step.buffers.hidden = input(StepGraph::kHidden);
        step.buffers.mask = input(StepGraph::kMask);
        step.buffers.positions = reinterpret_cast<int32_t*>(input(StepGraph::kPositions));
      }
      step.buffers.logits = output(StepGraph::kMainOutput);  // the last shard's stays
      for (uint32_t layer = 0; layer < graph.layers; ++layer) {
        step.buffers.k_new.push_back(output(graph.KOutput(layer)));
        step.buffers.v_new.push_back(output(graph.VOutput(layer)));
      }
    }
  }
  if (evictor_sink_) {
    evictor_.graph = plan.evictor.graph;
    BindEvictor(plan.layout.contexts.back()[evictor_.graph], plan.evictor.outputs);
  }
  return OkStatus();
}

void HtpModelExecutor::BindEvictor(const IoLayout::GraphPlaces& places,
                                   const std::vector<size_t>& outputs) {
  evictor_.profile.graph = kEvictorGraphName;
  evictor_.profile.shard = static_cast<uint32_t>(package_->manifest().shards.size());
  for (const size_t output : outputs) {
    kept_.push_back(runner_->memory().data() + places.outputs[output]);
  }
}

Status HtpModelExecutor::RunEvictor() {
  if (!evictor_sink_) return ModelExecutor::RunEvictor();
  SPILLWAY_RETURN_IF_ERROR(runner_->Execute(package_->manifest().shards.size(), evictor_.graph));
  if (profiled_) CountProfile(evictor_, runner_->profile());
  const size_t bytes = graphs_.io.kv.row_bytes();
  for (size_t layer = 0; layer < k_.size(); ++layer) {
    std::memcpy(k_[layer], kept_[layer], bytes);
    std::memcpy(v_[layer], kept_[k_.size() + layer], bytes);
  }
  return OkStatus();
}

Status HtpModelExecutor::Run(StepKind kind, int /*logits_row*/) {
  Step& step = Of(kind);
  if (step.shards.empty()) {
    return FailedPreconditionError(
        fmt::format("the model has no graph {}",
                    kind == StepKind::kPrefill ? kPrefillGraphName : kDecodeGraphName));
  }
  for (size_t s = 0; s < step.shards.size(); ++s) {
    SPILLWAY_RETURN_IF_ERROR(runner_->Execute(s, step.shards[s].graph));
    if (profiled_) CountProfile(step.shards[s], runner_->profile());
  }
  return dump_ == nullptr ? OkStatus() : Dump(step);
}

void HtpModelExecutor::CountProfile(ShardStep& shard, const ExecuteProfile& profile) const {
  ++shard.profile.calls;
  shard.profile.total_us += profile.total_us;
  shard.profile.accelerator_us += profile.accelerator_us;
  shard.profile.cycles += profile.cycles;
  for (const auto& [name, cycles] : profile.operations) shard.operation_cycles[name] += cycles;
}

void HtpModelExecutor::MoveProfile(ShardStep& shard, std::vector<GraphProfile>& profiles) {
  constexpr size_t kMostOperations = 20;
  GraphProfile& profile = shard.profile;
  if (profile.calls == 0) return;
  profile.operations.assign(shard.operation_cycles.begin(), shard.operation_cycles.end());
  std::stable_sort(profile.operations.begin(), profile.operations.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (profile.operations.size() > kMostOperations) profile.operations.resize(kMostOperations);
  shard.operation_cycles.clear();
  GraphProfile empty;
  empty.graph = profile.graph;
  empty.shard = profile.shard;
  profiles.push_back(std::exchange(profile, std::move(empty)));
}

std::vector<GraphProfile> HtpModelExecutor::TakeProfile() {
  std::vector<GraphProfile> profiles;
  for (Step& step : steps_) {
    for (ShardStep& shard : step.shards) MoveProfile(shard, profiles);
  }
  MoveProfile(evictor_, profiles);
  return profiles;
}

Status HtpModelExecutor::Dump(const Step& step) const {
  SPILLWAY_RETURN_IF_ERROR(dump_->BeginStep(step.name));
  for (const ShardStep& shard : step.shards) {
    for (const DumpedTensor& one : shard.outputs) {
      dump_->Add(one.tensor.name, one.tensor.dtype, one.tensor.shape, one.encoding,
                 {one.data, one.tensor.Bytes()});
    }
  }
  return dump_->EndStep();
}

std::string HtpModelExecutor::Describe() const {
  const std::string files =
      files_.empty() ? "prepared online" : fmt::format("{}", fmt::join(files_, ", "));
  if (kIsSimulator) return fmt::format("htp (x86 simulator, {})", files);
  return fmt::format("htp ({}, {})", package_->manifest().soc, files);
}

}  // namespace spillway
