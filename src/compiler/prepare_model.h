// From a model and a recipe to everything that quantising its graphs needs: transformed
// weights, the prefix, the ranges of activations, and the matrices that are chosen with
// activations at hand.

#ifndef SPILLWAY_COMPILER_PREPARE_MODEL_H_
#define SPILLWAY_COMPILER_PREPARE_MODEL_H_

#include <memory>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "compiler/check_options.h"
#include "decoder/decoder.h"
#include "model/tokenizer.h"
#include "quantize/calibrate.h"
#include "quantize/gptq_layers.h"
#include "quantize/prefix.h"
#include "spillway/compile.h"
#include "spillway/status.h"

namespace spillway {

struct PreparedModel {
  std::unique_ptr<Decoder> decoder;  // with the recipe's transformations
  FloatPrefix prefix;                // empty: none
  TensorRanges ranges;               // empty for a float recipe
  // Of the weights whose method is not round-to-nearest, when there is one: all.
  QuantizedWeights weights;
};

// Runs the calibration. `data` is of the same model.
Result<PreparedModel> PrepareModel(std::shared_ptr<const Model> model, const TokenizerData& data,
                                   const CompileOptions& options, const CheckedOptions& checked,
                                   ThreadPool* pool, Progress* progress);

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_PREPARE_MODEL_H_
