// The float model as a chain of layers that can be run again from any layer on, with
// single weights or activations replaced by quantised ones.

#ifndef SPILLWAY_QUANTIZE_LAYER_CHAIN_H_
#define SPILLWAY_QUANTIZE_LAYER_CHAIN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "decoder/decoder.h"
#include "host/executor.h"
#include "quantize/calibration_data.h"
#include "quantize/prefix.h"
#include "quantize/weights.h"
#include "spillway/status.h"

namespace spillway {

// How far logits are from those of the float model, over all positions.
struct LogitDamage {
  double noise = 0;  // squared error over the squares of the float logits
  double kl = 0;     // KL(float || damaged), mean of the positions, in nats
};

// Not thread-safe; the decoder and the pool must outlive it.
class LayerChain {
 public:
  // A Linear of the model.
  struct Site {
    std::string operation;  // "layers.3.down", "head"
    uint32_t layer = 0;     // the head's is the last
    uint32_t rows = 0, cols = 0;
    std::shared_ptr<const ConstantData> weight;  // f32, read by rows
    uint64_t weights() const { return uint64_t{rows} * cols; }
  };
  // An operation whose output is computed, not copied.
  struct Activation {
    std::string operation;
    uint32_t layer = 0;
  };
  // Changes the values of a tensor.
  using Change = std::function<void(std::span<float> values)>;

  // Runs windows, at most `tokens` tokens of them (at least 2), each after `prefix` and with at
  // most half of the tokens, so that there are two where there can be, and keeps the hidden states
  // before every layer and the logits. All have the length of the shortest that is needed;
  // kInvalidArgument when there is none of 2 tokens.
  static Result<std::unique_ptr<LayerChain>> Create(Decoder& decoder, const TokenWindows& windows,
                                                    const FloatPrefix& prefix, uint32_t tokens,
                                                    ThreadPool* pool);

  // The Linears in the order of the graph; a transform's rotation of keys is not
  // among them.
  static Result<std::vector<Site>> SitesOf(Decoder& decoder);
  const std::vector<Site>& sites() const { return sites_; }
  std::vector<Activation> activations() const;

  // The Linear computes with the values that `matrix` stands for, until it is told
  // otherwise; null: its own. The matrix must stay.
  void Use(const std::string& operation, const QuantizedMatrix* matrix);

  // Runs the layers from `layer` on, those before being as in Create(), and compares the
  // logits with those of Create(). `change` is done to the output of `operation` when given.
  Result<LogitDamage> MeasureFrom(uint32_t layer, const std::string& operation = "",
                                  const Change& change = nullptr);

 private:
  class Weight;

  LayerChain() = default;
  Status AddLayer(Decoder& decoder, uint32_t layer, const FloatPrefix& prefix, ThreadPool* pool);
  // Runs a layer; what it gives is in output(0) of its executor.
  Status RunLayer(uint32_t layer, std::span<const float> hidden,
                  const host::TensorObserver& observer);
  std::span<const float> OutputOf(uint32_t layer);

  std::vector<Site> sites_;
  std::map<std::string, std::shared_ptr<Weight>> weights_;  // by operation
  std::vector<std::unique_ptr<host::Executor>> layers_;
  uint32_t length_ = 0;                                  // tokens of a window
  std::vector<std::vector<std::vector<float>>> states_;  // [window][layer], before it
  std::vector<std::vector<float>> logits_;               // [window]
  std::vector<std::vector<double>> log_sums_;            // [window][position], LogSumExp of logits
  double signal_ = 0;                                    // squares of all logits
};

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_LAYER_CHAIN_H_
