// One layer of the float graph, run on calibration windows with weights of the caller's.

#ifndef SPILLWAY_QUANTIZE_LAYER_PASS_H_
#define SPILLWAY_QUANTIZE_LAYER_PASS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "decoder/decoder.h"
#include "host/executor.h"
#include "quantize/calibration_data.h"
#include "quantize/prefix.h"
#include "spillway/status.h"

namespace spillway {

// By the name of the tensor.
using Constants = std::map<std::string, std::shared_ptr<const ConstantData>>;

// What windows are between two layers: of each window [tokens][hidden] f32.
using HiddenStates = std::vector<std::vector<float>>;

// The states before the first layer of the windows as they run after `prefix`.
HiddenStates EmbedWindows(Decoder& decoder, const TokenWindows& windows, const FloatPrefix& prefix);

// Not thread-safe; what it is made from must outlive it.
class LayerPass {
 public:
  LayerPass(Decoder& decoder, uint32_t layer, const FloatPrefix& prefix, ThreadPool* pool)
      : decoder_(decoder), layer_(layer), prefix_(prefix), pool_(pool) {}

  // The layer's graph for windows of `length` tokens.
  Result<Graph> BuildGraph(size_t length) const;

  // Runs the layer on each of the states, in order. `next` (null: not wanted; may be `states`)
  // has as many, and gets what the layer makes of them, but not behind the last layer, whose
  // result are logits. Constants in `weights` stand in for those of the same name. Of the logits
  // only one row is computed; all other tensors that `observer` sees are whole.
  Status Run(const Constants& weights, const HiddenStates& states, HiddenStates* next,
             const host::TensorObserver& observer) const;

  bool last() const { return layer_ + 1 == decoder_.model().config().num_layers; }

 private:
  Result<std::unique_ptr<host::Executor>> MakeExecutor(const Constants& weights,
                                                       size_t length) const;

  Decoder& decoder_;
  uint32_t layer_;
  const FloatPrefix& prefix_;
  ThreadPool* pool_;
};

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_LAYER_PASS_H_
