// The float graphs of a GGUF model as a ModelExecutor on the host.

#ifndef SPILLWAY_EVAL_FLOAT_EXECUTOR_H_
#define SPILLWAY_EVAL_FLOAT_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "decoder/weight_transform.h"
#include "model/model.h"
#include "runtime/host_model_executor.h"
#include "runtime/model_executor.h"
#include "spillway/status.h"

namespace spillway {

struct FloatExecutorOptions {
  uint32_t prefill_ar = 0;   // 0: no such graph; may equal context_len (no cache)
  uint32_t decode_ar = 1;    // 0: no such graph
  uint32_t context_len = 0;  // of both
  // Tokens whose keys and values, in float, start the cache as a package's prefix does.
  std::vector<uint32_t> prefix_tokens;
  // Weights that give the same logits; null: the model's own.
  std::shared_ptr<const WeightTransform> transform;
};

// Keeps the model's file mapped, and the pool.
class FloatExecutor : public ModelExecutor {
 public:
  static Result<std::unique_ptr<FloatExecutor>> Create(std::shared_ptr<const Model> model,
                                                       const FloatExecutorOptions& options,
                                                       std::shared_ptr<ThreadPool> pool);

  const ModelIo& io() const override { return inner_->io(); }
  const EmbeddingTable& embedding() const override { return inner_->embedding(); }
  StepBuffers& buffers(StepKind kind) override { return inner_->buffers(kind); }
  std::byte* k(uint32_t layer) override { return inner_->k(layer); }
  std::byte* v(uint32_t layer) override { return inner_->v(layer); }
  Status Run(StepKind kind, int logits_row) override { return inner_->Run(kind, logits_row); }
  std::string Describe() const override { return inner_->Describe(); }
  uint64_t weight_bytes() const override { return inner_->weight_bytes(); }

  // Sees every operation of the following runs; null stops it.
  void set_observer(host::TensorObserver observer) { inner_->set_observer(std::move(observer)); }

 private:
  FloatExecutor(std::unique_ptr<HostModelExecutor> inner, std::shared_ptr<ThreadPool> pool)
      : pool_(std::move(pool)), inner_(std::move(inner)) {}
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<HostModelExecutor> inner_;
};

}  // namespace spillway

#endif  // SPILLWAY_EVAL_FLOAT_EXECUTOR_H_
