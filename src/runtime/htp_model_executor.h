// ModelExecutor on the vendor's library: a package's context binaries, on x86-64
// in its simulator.

#ifndef SPILLWAY_RUNTIME_HTP_MODEL_EXECUTOR_H_
#define SPILLWAY_RUNTIME_HTP_MODEL_EXECUTOR_H_

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "package/package.h"
#include "runtime/context_runner.h"
#include "runtime/model_executor.h"
#include "runtime/step_graphs.h"
#include "spillway/status.h"

namespace spillway {

struct HtpModelOptions {
  std::string qnn_lib_dir;  // empty: as qnn/api/library.h says
  bool in_process = false;  // otherwise a child process for each shard
  double load_timeout_s = 600;
  double execute_timeout_s = 120;
  // Opens one context binary; for tests. Empty: as the options above say.
  std::function<Result<std::unique_ptr<ContextRunner>>(const ContextRunnerOptions&)> open;
};

class HtpModelExecutor : public ModelExecutor {
 public:
  // Loads every shard. kFailedPrecondition when the package has no context binary
  // that this machine can load, with the reason and the compile option that
  // makes one; kCorruptData when a context's graphs are not those of the package.
  static Result<std::unique_ptr<HtpModelExecutor>> Open(std::shared_ptr<const Package> package,
                                                        const HtpModelOptions& options = {});

  const ModelIo& io() const override { return graphs_.io; }
  const EmbeddingTable& embedding() const override { return *embedding_; }
  StepBuffers& buffers(StepKind kind) override { return Of(kind).buffers; }
  std::byte* k(uint32_t layer) override { return k_[layer]; }
  std::byte* v(uint32_t layer) override { return v_[layer]; }
  // Runs all rows whatever `logits_row` is: the graph is fixed.
  Status Run(StepKind kind, int logits_row) override;
  std::string Describe() const override;
  uint64_t weight_bytes() const override { return graphs_.weight_bytes; }

 private:
  // One step graph in one shard's context.
  struct ShardStep {
    size_t graph = 0;  // in ContextRunner::graphs()
    std::byte* hidden = nullptr;
    std::byte* mask = nullptr;
    std::byte* positions = nullptr;
    const std::byte* main_output = nullptr;  // logits or hidden
  };
  struct Step {
    std::vector<ShardStep> shards;
    StepBuffers buffers;
    size_t hidden_bytes = 0, mask_bytes = 0, positions_bytes = 0;
  };

  HtpModelExecutor() = default;
  Step& Of(StepKind kind) { return steps_[kind == StepKind::kPrefill ? 0 : 1]; }
  Status BindShard(size_t shard);
  void FinishStep(StepKind kind);

  std::shared_ptr<const Package> package_;
  StepGraphs graphs_;
  std::shared_ptr<const EmbeddingTable> embedding_;
  std::vector<std::unique_ptr<ContextRunner>> runners_;  // one a shard
  std::vector<std::string> files_;                       // their context binaries
  std::vector<std::byte*> k_, v_;                        // in the runners' memory
  std::array<Step, 2> steps_;
};

// The file of shard `shard` to load: on x86-64 (`simulator`) the plain context,
// or the normal one when the simulator can load it; elsewhere the normal one.
// kFailedPrecondition says why there is none.
Result<std::string> ChooseContextFile(const PackageManifest& manifest, size_t shard,
                                      bool simulator);

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_HTP_MODEL_EXECUTOR_H_
