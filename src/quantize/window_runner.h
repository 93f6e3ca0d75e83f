// Runs the float graph of a model on windows of one length.

#ifndef SPILLWAY_QUANTIZE_WINDOW_RUNNER_H_
#define SPILLWAY_QUANTIZE_WINDOW_RUNNER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "decoder/decoder.h"
#include "host/executor.h"
#include "quantize/prefix.h"
#include "spillway/status.h"

namespace spillway {

// Fills everything but the hidden states of a float graph with AR = `length` whose cache is
// `prefix` (may be empty): the mask, the positions after it, and K and V of the graph's
// layers [first_layer, first_layer + num_layers).
void SetWindowInputs(uint32_t length, const FloatPrefix& prefix, uint32_t first_layer,
                     uint32_t num_layers, host::Executor& executor);

// Not thread-safe; the decoder and the pool must outlive it.
class WindowRunner {
 public:
  // The graph has AR = `length`; its cache holds exactly `prefix` (null or empty:
  // none), after which the windows' positions start.
  static Result<std::unique_ptr<WindowRunner>> Create(Decoder& decoder, uint32_t length,
                                                      const FloatPrefix* prefix, ThreadPool* pool);

  // `tokens` has `length` tokens.
  Status Run(const std::vector<uint32_t>& tokens, const host::TensorObserver& observer);

  // Output i of the graph: 0 logits, then K and V of each layer.
  std::span<const float> Output(size_t index);

 private:
  std::unique_ptr<host::Executor> executor_;
  std::shared_ptr<const ConstantData> embedding_;
  size_t hidden_dim_ = 0;
};

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_WINDOW_RUNNER_H_
