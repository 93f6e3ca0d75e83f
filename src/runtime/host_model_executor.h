// ModelExecutor on the CPU: the model's own graphs, in float or in the NPU's
// integers.

#ifndef SPILLWAY_RUNTIME_HOST_MODEL_EXECUTOR_H_
#define SPILLWAY_RUNTIME_HOST_MODEL_EXECUTOR_H_

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "host/executor.h"
#include "package/package.h"
#include "runtime/model_executor.h"
#include "runtime/step_graphs.h"
#include "spillway/status.h"

namespace spillway {

struct HostModelOptions {
  // Shared with others and outlives the executor; null: a pool of its own with
  // `threads` threads (0: the processors there are).
  ThreadPool* pool = nullptr;
  size_t threads = 0;
  bool reference_kernels = false;
  std::string recipe;    // only for Describe(): "16a8w"
  KvPrefix prefix;       // of graphs that come from no package
  bool evictor = false;  // Open() only: use the package's evictor where it has one
  // Keep the cache in rows, as the graphs say, even where all could read it packed. Slower;
  // for observers.
  bool cache_in_rows = false;
};

class HostModelExecutor : public ModelExecutor {
 public:
  // `shards[s]` holds the graphs of shard s as ReadStepGraphs() wants them. A
  // graph with AR == CL has no cache inputs. `embedding` must write rows of the
  // first graph's input; its vocabulary may be larger than the logits'.
  static Result<std::unique_ptr<HostModelExecutor>> Create(
      const std::vector<std::vector<std::shared_ptr<const Graph>>>& shards,
      std::shared_ptr<const EmbeddingTable> embedding, const HostModelOptions& options = {});
  // The same, from the table [vocab, hidden] that the rows come from.
  static Result<std::unique_ptr<HostModelExecutor>> Create(
      const std::vector<std::vector<std::shared_ptr<const Graph>>>& shards,
      const Tensor& embedding_table, const HostModelOptions& options = {});
  // All of it from a package.
  static Result<std::unique_ptr<HostModelExecutor>> Open(std::shared_ptr<const Package> package,
                                                         HostModelOptions options = {});

  const ModelIo& io() const override { return graphs_.io; }
  const EmbeddingTable& embedding() const override { return *embedding_; }
  StepBuffers& buffers(StepKind kind) override { return Of(kind).buffers; }
  std::byte* k(uint32_t layer) override { return k_[layer].data(); }
  std::byte* v(uint32_t layer) override { return v_[layer].data(); }
  Status Run(StepKind kind, int logits_row) override;
  bool reads_padding() const override { return !IsFixedPoint(graphs_.io.logits_dtype); }
  std::string Describe() const override;
  uint64_t weight_bytes() const override { return graphs_.weight_bytes; }
  std::optional<AttentionSink> evictor() const override { return evictor_sink_; }
  Status RunEvictor() override;

  // Sees every operation of the following runs, for which the cache must be in rows; null
  // stops it.
  void set_observer(host::TensorObserver observer) { observer_ = std::move(observer); }
  // Bytes of the arenas and the cache.
  size_t buffer_bytes() const;

 private:
  struct Step {
    std::vector<std::unique_ptr<host::Executor>> shards;
    StepBuffers buffers;
    int logits_row = -1;
  };

  HostModelExecutor() = default;
  static Result<std::unique_ptr<HostModelExecutor>> CreateFrom(
      StepGraphs graphs, std::shared_ptr<const EmbeddingTable> embedding,
      const HostModelOptions& options);
  Step& Of(StepKind kind) { return steps_[kind == StepKind::kPrefill ? 0 : 1]; }
  const Step& Of(StepKind kind) const { return steps_[kind == StepKind::kPrefill ? 0 : 1]; }
  bool CanPackCache() const;
  void AllocateCache();
  Status MakeStep(StepKind kind, const HostModelOptions& options);
  void Connect(const std::vector<StepGraph>& graphs, Step& step);
  Status MakeEvictor(const Package& package, const HostModelOptions& options);

  StepGraphs graphs_;
  std::shared_ptr<const EmbeddingTable> embedding_;
  std::unique_ptr<ThreadPool> own_pool_;
  ThreadPool* pool_ = nullptr;
  std::string recipe_;
  host::TensorObserver observer_;
  std::vector<AlignedBuffer> k_, v_;  // a layer, as k() and v() say
  std::array<Step, 2> steps_;
  std::optional<AttentionSink> evictor_sink_;
  std::unique_ptr<host::Executor> evictor_;
};

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_HOST_MODEL_EXECUTOR_H_
