#include "runtime/host_model_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/package_embedding.h"

namespace spillway {
Result<std::unique_ptr<HostModelExecutor>> HostModelExecutor::Create(
    const std::vector<std::vector<std::shared_ptr<const Graph>>>& shards,
    std::shared_ptr<const EmbeddingTable> embedding, const HostModelOptions& options) {
  SPILLWAY_ASSIGN_OR_RETURN(StepGraphs graphs, ReadStepGraphs(shards));
  return CreateFrom(std::move(graphs), std::move(embedding), options);
}

Result<std::unique_ptr<HostModelExecutor>> HostModelExecutor::Create(
    const std::vector<std::vector<std::shared_ptr<const Graph>>>& shards,
    const Tensor& embedding_table, const HostModelOptions& options) {
  SPILLWAY_ASSIGN_OR_RETURN(StepGraphs graphs, ReadStepGraphs(shards));
  SPILLWAY_ASSIGN_OR_RETURN(std::shared_ptr<const EmbeddingTable> embedding,
                            MakeEmbedding(embedding_table, graphs.io));
  return CreateFrom(std::move(graphs), std::move(embedding), options);
}

Result<std::unique_ptr<HostModelExecutor>> HostModelExecutor::Open(
    std::shared_ptr<const Package> package, HostModelOptions options) {
  SPILLWAY_ASSIGN_OR_RETURN(StepGraphs graphs, ReadStepGraphs(*package));
  SPILLWAY_ASSIGN_OR_RETURN(std::shared_ptr<const EmbeddingTable> embedding,
                            MakeEmbedding(package->embedding(), graphs.io));
  if (options.recipe.empty()) options.recipe = package->manifest().recipe;
  SPILLWAY_ASSIGN_OR_RETURN(auto executor,
                            CreateFrom(std::move(graphs), std::move(embedding), options));
  if (options.evictor && package->evictor() != nullptr) {
    SPILLWAY_RETURN_IF_ERROR(executor->MakeEvictor(*package, options));
  }
  return executor;
}

Result<std::unique_ptr<HostModelExecutor>> HostModelExecutor::CreateFrom(
    StepGraphs graphs, std::shared_ptr<const EmbeddingTable> embedding,
    const HostModelOptions& options) {
  std::unique_ptr<HostModelExecutor> executor(new HostModelExecutor());
  executor->graphs_ = std::move(graphs);
  if (!options.prefix.tokens.empty()) executor->graphs_.io.prefix = options.prefix;
  executor->embedding_ = std::move(embedding);
  executor->recipe_ = options.recipe;
  executor->pool_ = options.pool;
  if (executor->pool_ == nullptr) {
    executor->own_pool_ = std::make_unique<ThreadPool>(options.threads);
    executor->pool_ = executor->own_pool_.get();
  }
  for (const StepKind kind : {StepKind::kPrefill, StepKind::kDecode}) {
    SPILLWAY_RETURN_IF_ERROR(executor->MakeStep(kind, options));
  }
  executor->graphs_.io.kv.packed = !options.cache_in_rows && executor->CanPackCache();
  executor->AllocateCache();
  for (const StepKind kind : {StepKind::kPrefill, StepKind::kDecode}) {
    const std::vector<StepGraph>& steps = executor->graphs_.of(kind);
    if (!steps.empty()) executor->Connect(steps, executor->Of(kind));
  }
  return executor;
}

// When all graphs can read it so: they share the cache.
bool HostModelExecutor::CanPackCache() const {
  for (const StepKind kind : {StepKind::kPrefill, StepKind::kDecode}) {
    const std::vector<StepGraph>& graphs = graphs_.of(kind);
    for (size_t s = 0; s < graphs.size(); ++s) {
      const host::Executor& executor = *Of(kind).shards[s];
      for (uint32_t layer = 0; layer < graphs[s].layers && graphs[s].has_cache; ++layer) {
        if (!executor.TakesPackedCache(graphs[s].KInput(layer)) ||
            !executor.TakesPackedCache(graphs[s].VInput(layer))) {
          return false;
        }
      }
    }
  }
  return graphs_.io.kv.dtype == DType::kU8;
}

void HostModelExecutor::AllocateCache() {
  const KvShape& kv = graphs_.io.kv;
  const size_t bytes = kv.packed ? kv.packed_cache().bytes() : kv.row_bytes();
  for (uint32_t layer = 0; layer < kv.layers; ++layer) {
    // Columns that no token has written yet are read (and hidden by the mask), so they must
    // hold numbers.
    k_.push_back(AlignedBuffer::Zeroed(std::max<size_t>(bytes, 64)));
    v_.push_back(AlignedBuffer::Zeroed(std::max<size_t>(bytes, 64)));
  }
}

Status HostModelExecutor::MakeStep(StepKind kind, const HostModelOptions& options) {
  const std::vector<StepGraph>& graphs = graphs_.of(kind);
  Step& step = Of(kind);
  host::ExecutorOptions executor_options;
  executor_options.reference_kernels = options.reference_kernels;
  for (const StepGraph& graph : graphs) {
    SPILLWAY_ASSIGN_OR_RETURN(std::unique_ptr<host::Executor> executor,
                              host::Executor::Create(graph.graph, pool_, executor_options));
    step.shards.push_back(std::move(executor));
  }
  return OkStatus();
}

// Shards read the first one's mask and positions, the hidden states of the shard
// before, and the cache that all graphs share.
void HostModelExecutor::Connect(const std::vector<StepGraph>& graphs, Step& step) {
  StepBuffers& buffers = step.buffers;
  host::Executor& first = *step.shards.front();
  buffers.ar_len = graphs[0].ar_len;
  buffers.hidden = first.input(StepGraph::kHidden).data();
  buffers.mask = first.input(StepGraph::kMask).data();
  buffers.positions = reinterpret_cast<int32_t*>(first.input(StepGraph::kPositions).data());
  buffers.logits = step.shards.back()->output(StepGraph::kMainOutput).data();

  uint32_t first_layer = 0;
  for (size_t s = 0; s < graphs.size(); ++s) {
    const StepGraph& graph = graphs[s];
    host::Executor& executor = *step.shards[s];
    if (s > 0) {
      executor.BindInput(StepGraph::kHidden,
                         step.shards[s - 1]->output(StepGraph::kMainOutput).data());
      executor.BindInput(StepGraph::kMask, buffers.mask);
      executor.BindInput(StepGraph::kPositions, first.input(StepGraph::kPositions).data());
    }
    const auto bind = [&](size_t input, const AlignedBuffer& cache) {
      if (graphs_.io.kv.packed) {
        executor.BindPackedCache(input, cache.data());
      } else {
        executor.BindInput(input, cache.data());
      }
    };
    for (uint32_t layer = 0; layer < graph.layers && graph.has_cache; ++layer) {
      bind(graph.KInput(layer), k_[first_layer + layer]);
      bind(graph.VInput(layer), v_[first_layer + layer]);
    }
    for (uint32_t layer = 0; layer < graph.layers; ++layer) {
      buffers.k_new.push_back(executor.output(graph.KOutput(layer)).data());
      buffers.v_new.push_back(executor.output(graph.VOutput(layer)).data());
    }
    first_layer += graph.layers;
  }
}

// Its inputs and outputs are the keys of all layers, then the values.
Status HostModelExecutor::MakeEvictor(const Package& package, const HostModelOptions& options) {
  host::ExecutorOptions executor_options;
  executor_options.reference_kernels = options.reference_kernels;
  SPILLWAY_ASSIGN_OR_RETURN(evictor_,
                            host::Executor::Create(package.evictor(), pool_, executor_options));
  for (size_t layer = 0; layer < k_.size() && !graphs_.io.kv.packed; ++layer) {
    evictor_->BindInput(layer, k_[layer].data());
    evictor_->BindInput(k_.size() + layer, v_[layer].data());
  }
  const EvictorInfo& info = *package.manifest().evictor;
  evictor_sink_ = AttentionSink{info.sink, info.batch};
  return OkStatus();
}

Status HostModelExecutor::RunEvictor() {
  if (evictor_ == nullptr) return ModelExecutor::RunEvictor();
  const KvShape& kv = graphs_.io.kv;
  const PackedCache packed = kv.packed_cache();
  const size_t layers = k_.size(), columns = kv.context_len - 1;
  for (size_t layer = 0; layer < layers && kv.packed; ++layer) {
    packed.UnpackKeys(k_[layer].data(), columns, evictor_->input(layer).data());
    packed.UnpackValues(v_[layer].data(), columns, evictor_->input(layers + layer).data());
  }
  SPILLWAY_RETURN_IF_ERROR(evictor_->Run());
  for (size_t layer = 0; layer < layers; ++layer) {
    const std::span<std::byte> k = evictor_->output(layer), v = evictor_->output(layers + layer);
    if (kv.packed) {
      packed.PackKeys(k.data(), columns, 0, columns, 0, k_[layer].data());
      packed.PackValues(v.data(), columns, 0, columns, 0, v_[layer].data());
    } else {
      std::memcpy(k_[layer].data(), k.data(), k.size());
      std::memcpy(v_[layer].data(), v.data(), v.size());
    }
  }
  return OkStatus();
}

Status HostModelExecutor::Run(StepKind kind, int logits_row) {
  Step& step = Of(kind);
  if (step.shards.empty()) {
    return FailedPreconditionError(
        fmt::format("the model has no graph {}",
                    kind == StepKind::kPrefill ? kPrefillGraphName : kDecodeGraphName));
  }
  if (logits_row != step.logits_row) {
    // In float, what padding leaves behind could be larger than what a mask takes away.
    for (const std::unique_ptr<host::Executor>& shard : step.shards) {
      if (reads_padding()) break;
      shard->LimitRows(step.buffers.ar_len, logits_row < 0 ? step.buffers.ar_len
                                                           : static_cast<uint32_t>(logits_row) + 1);
    }
    step.shards.back()->LimitOutputRow(StepGraph::kMainOutput, logits_row);
    step.logits_row = logits_row;
  }
  for (const std::unique_ptr<host::Executor>& shard : step.shards) {
    SPILLWAY_RETURN_IF_ERROR(shard->Run(observer_));
  }
  return OkStatus();
}

std::string HostModelExecutor::Describe() const {
  const bool is_float = graphs_.io.logits_dtype == DType::kF32;
  const size_t threads = pool_->threads();
  return fmt::format("host, {}, {} thread{}",
                     recipe_.empty() ? (is_float ? "float" : "integers") : recipe_, threads,
                     threads == 1 ? "" : "s");
}

size_t HostModelExecutor::buffer_bytes() const {
  size_t bytes = 0;
  for (const AlignedBuffer& buffer : k_) bytes += buffer.size();
  for (const AlignedBuffer& buffer : v_) bytes += buffer.size();
  for (const Step& step : steps_) {
    for (const std::unique_ptr<host::Executor>& shard : step.shards) bytes += shard->arena_bytes();
  }
  return bytes;
}

}  // namespace spillway
