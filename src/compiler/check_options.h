// Checks of CompileOptions that need no model, and those that do.

#ifndef SPILLWAY_COMPILER_CHECK_OPTIONS_H_
#define SPILLWAY_COMPILER_CHECK_OPTIONS_H_

#include <cstdint>
#include <vector>

#include "decoder/decoder.h"
#include "graph/graph.h"
#include "model/model.h"
#include "qnn/htp/options.h"
#include "qnn/htp/soc_table.h"
#include "quantize/recipe.h"
#include "spillway/compile.h"
#include "spillway/status.h"

namespace spillway {

struct CheckedOptions {
  const qnn::htp::Soc* soc = nullptr;
  IoProfile io = IoProfile::kSpillway;
  Recipe recipe;  // with the options' KV width
};

// kInvalidArgument (kNotFound for a SoC) names the option, its value and what is
// allowed.
Result<CheckedOptions> CheckCompileOptions(const CompileOptions& options);

// CompileOptions::calib_tokens, or what stands for 0.
uint32_t CalibrationTokens(const CompileOptions& options, const Recipe& recipe);

// CompileOptions::prefix_tokens as ids; empty for "auto" and "none".
// kInvalidArgument for anything else than ids of the vocabulary, for more tokens
// than half of the context, and for ids with the executorch profile.
Result<std::vector<uint32_t>> ParsePrefixTokens(const CompileOptions& options,
                                                const ModelConfig& config);

// kUnsupported names the tensor that is larger than the vendor's interface can say (its
// sizes have 32 bits), and what makes it so large.
Status CheckTensorSizes(const Graph& graph);

// Warns of a context longer than the model was trained for; refuses what the
// model cannot do.
Status CheckAgainstModel(const CompileOptions& options, const Model& model);

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_CHECK_OPTIONS_H_
