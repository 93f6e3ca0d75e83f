// From a model and a recipe to everything that quantising its graphs needs: transformed
// weights, the prefix, the recipe of mixed precision, the ranges of activations, and the
// matrices that are chosen with activations at hand.

#ifndef SPILLWAY_COMPILER_PREPARE_MODEL_H_
#define SPILLWAY_COMPILER_PREPARE_MODEL_H_

#include <memory>
#include <optional>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "compiler/check_options.h"
#include "decoder/decoder.h"
#include "model/tokenizer.h"
#include "quantize/calibrate.h"
#include "quantize/calibration_data.h"
#include "quantize/gptq_layers.h"
#include "quantize/prefix.h"
#include "quantize/recipe.h"
#include "spillway/compile.h"
#include "spillway/status.h"

namespace spillway {

// What a calibration runs and on what.
struct CalibrationSetup {
  TokenWindows windows;
  std::unique_ptr<Decoder> decoder;  // with the recipe's transformations
  FloatPrefix prefix;                // of that decoder; empty: none
};

// Reads the calibration data, finds the prefix and transforms the weights. Of the options it
// takes those of calibration and prefix, and context_len, of `checked` recipe and io. `data` is of
// the same model. Warns of rules of the recipe that no name of the model matches.
Result<CalibrationSetup> SetUpCalibration(std::shared_ptr<const Model> model,
                                          const TokenizerData& data, const CompileOptions& options,
                                          const CheckedOptions& checked, ThreadPool* pool,
                                          Progress* progress);

struct PreparedModel {
  std::unique_ptr<Decoder> decoder;  // with the recipe's transformations
  FloatPrefix prefix;                // empty: none
  Recipe recipe;                     // the one found when `checked` has one of mixed precision
  std::optional<MixedReport> mixed;  // then
  TensorRanges ranges;               // empty for a float recipe
  // Of the weights whose method is not round-to-nearest, when there is one: all.
  QuantizedWeights weights;
};

// Runs the calibration, and the search for mixed precision where the recipe asks for it; a
// target that it cannot reach is a warning. `data` is of the same model.
Result<PreparedModel> PrepareModel(std::shared_ptr<const Model> model, const TokenizerData& data,
                                   const CompileOptions& options, const CheckedOptions& checked,
                                   ThreadPool* pool, Progress* progress);

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_PREPARE_MODEL_H_
