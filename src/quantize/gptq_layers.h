// Quantises the weights of a model layer by layer, on the activations that reach
// each layer through the quantised ones before it.

#ifndef SPILLWAY_QUANTIZE_GPTQ_LAYERS_H_
#define SPILLWAY_QUANTIZE_GPTQ_LAYERS_H_

#include <functional>
#include <map>
#include <string>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "decoder/decoder.h"
#include "quantize/calibrate.h"
#include "quantize/prefix.h"
#include "quantize/weights.h"
#include "spillway/status.h"

namespace spillway {

// By the name of the constant: "layers.0.q.weight".
using QuantizedWeights = std::map<std::string, QuantizedMatrix>;

// The scheme of a weight by its name; also "head.weight".
using WeightSchemes = std::function<WeightScheme(const std::string& weight)>;

// Quantises the weight of every Linear but a transform's key rotation. Runs the windows (as
// Calibrate() does: each after `prefix`, which may be empty) through one layer at a time, once with
// all weights in float and once behind the quantised layers. Linears that read the same tensor
// (q, k and v; o; gate and up; down) are quantised together, on the inputs that the weights
// quantised before them give, in the same layer, too. Those with kGptq start from weights that
// bring their output, or the residual stream that it is added to, near to its float values in
// spite of those inputs (gptq_target.h). Weights whose scheme has 16 bits stay floats and are not
// in the result. Linears with kRtn need no inputs; a model of nothing else runs no window. Memory:
// twice the hidden states of all windows, the float outputs of one layer's Linears for all
// windows, one layer's weights in f32, the moments of one tensor's Linears, and the result.
// kCorruptData names the weight or the input with a value that is not finite. Deterministic;
// independent of the number of threads.
Result<QuantizedWeights> QuantizeWeightsInOrder(Decoder& decoder, const TokenWindows& windows,
                                                const FloatPrefix& prefix,
                                                const WeightSchemes& schemes, ThreadPool* pool,
                                                Progress* progress);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_GPTQ_LAYERS_H_
