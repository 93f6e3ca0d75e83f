// ModelExecutor on the vendor's library: a package's context binaries, or its graphs
// prepared where they run, on x86-64 in the library's simulator.

#ifndef SPILLWAY_RUNTIME_HTP_MODEL_EXECUTOR_H_
#define SPILLWAY_RUNTIME_HTP_MODEL_EXECUTOR_H_

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "package/package.h"
#include "runtime/context_runner.h"
#include "runtime/model_executor.h"
#include "runtime/step_graphs.h"
#include "runtime/tensor_dump.h"
#include "spillway/session.h"
#include "spillway/status.h"

namespace spillway {

struct HtpModelOptions {
  std::string qnn_lib_dir;  // empty: as qnn/api/library.h says
  bool in_process = false;  // otherwise one child process for all shards
  double load_timeout_s = 600;
  double prepare_timeout_s = 3600;
  double execute_timeout_s = 120;
  bool evictor = false;  // use the package's evictor where it has one that can be run
  HtpRunOptions run;
  std::shared_ptr<TensorDump> dump;  // gets every output of every step; may be null
  std::function<void(std::string_view stage, double fraction)> progress;
  // Opens the contexts; for tests. Empty: as the options above say.
  ContextOpener open;
};

class HtpModelExecutor : public ModelExecutor {
 public:
  // Loads every shard into one process. kUnsupported when the package has no context
  // binary that this machine can load, or no intermediates to dump, with the reason and
  // the option that helps; kCorruptData when a context's graphs are not those of the
  // package.
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
  std::optional<AttentionSink> evictor() const override { return evictor_sink_; }
  Status RunEvictor() override;

  std::vector<GraphProfile> TakeProfile() override;

 private:
  // One output of a context, for dumps.
  struct DumpedTensor {
    ContextTensor tensor;
    Encoding encoding;
    const std::byte* data = nullptr;
  };
  // One step graph in one shard's context.
  struct ShardStep {
    size_t graph = 0;  // in ContextInfo::graphs
    std::vector<DumpedTensor> outputs;
    GraphProfile profile;
    std::map<std::string, uint64_t> operation_cycles;
  };
  struct Step {
    std::string name;
    std::vector<ShardStep> shards;
    StepBuffers buffers;
  };

  HtpModelExecutor() = default;
  Step& Of(StepKind kind) { return steps_[kind == StepKind::kPrefill ? 0 : 1]; }
  void UseEvictor(ContextRunnerOptions& runner);
  Status CheckContexts(const std::string& soc) const;
  Status BindMemory(bool more_outputs);
  void BindEvictor(const IoLayout::GraphPlaces& places, const std::vector<size_t>& outputs);
  static void MoveProfile(ShardStep& shard, std::vector<GraphProfile>& profiles);
  void CountProfile(ShardStep& shard, const ExecuteProfile& profile) const;
  Status Dump(const Step& step) const;
  // What context `shard` came from, for messages.
  std::string NameOf(size_t shard) const;

  std::shared_ptr<const Package> package_;
  StepGraphs graphs_;
  std::shared_ptr<const EmbeddingTable> embedding_;
  std::shared_ptr<TensorDump> dump_;
  std::unique_ptr<ContextRunner> runner_;  // one context a shard
  std::vector<std::string> files_;         // the context binaries; empty: prepared here
  bool profiled_ = false;
  std::vector<std::byte*> k_, v_;  // in the runner's memory
  std::array<Step, 2> steps_;

  // The evictor is the context after the shards'.
  std::optional<AttentionSink> evictor_sink_;
  ShardStep evictor_;
  std::vector<const std::byte*> kept_;  // its outputs: keys of each layer, then values
};

// The file of shard `shard` to load: on x86-64 (`simulator`) the plain context,
// or the normal one when the simulator can load it; elsewhere the normal one.
// kUnsupported says why there is none.
Result<std::string> ChooseContextFile(const PackageManifest& manifest, size_t shard,
                                      bool simulator);

// The options to load `manifest`'s package with: those that it was compiled with,
// then `run`. kCorruptData when the manifest's are none.
Result<HtpOptions> LoadOptions(const PackageManifest& manifest, const HtpRunOptions& run);

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_HTP_MODEL_EXECUTOR_H_
