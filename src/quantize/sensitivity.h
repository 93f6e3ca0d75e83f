// Sensitivity: how much damage each operation's quantisation does alone, measured
// on the logits, and the search for a recipe of mixed precision that follows from it.

#ifndef SPILLWAY_QUANTIZE_SENSITIVITY_H_
#define SPILLWAY_QUANTIZE_SENSITIVITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "decoder/decoder.h"
#include "quantize/calibrate.h"
#include "quantize/calibration_data.h"
#include "quantize/prefix.h"
#include "quantize/recipe.h"
#include "spillway/status.h"

namespace spillway {

// What one operation does to the logits when everything else stays float.
struct OperationDamage {
  std::string operation;  // "layers.3.down"
  double sqnr_db = 0;     // of the logits; infinite when they do not change
  double noise = 0;       // squared error of the logits over their squares: 10^(-sqnr_db / 10)
  double kl = 0;          // KL(float || damaged) of the predictions, mean of the positions, nats
  uint64_t weights = 0;   // numbers in its weight matrix; 0 for activations
};

struct SensitivityOptions {
  // Tokens of the windows that the logits are measured on; more are steadier and cost
  // more. The logits of all are kept in memory.
  uint32_t tokens = 128;
};

// Quantises the weight of one Linear at a time as `recipe` says (but rounds by `mse` in place of
// `gptq`, which makes up for errors of layers before, and those are float here), runs `windows`
// (each after `prefix`, which may be empty) in float with the values that it stands for, and
// measures the logits. Only layers from the operation's on are run again. Weights whose scheme has
// 16 bits are left out. Worst first; deterministic. Memory: logits and hidden states of
// options.tokens, and the quantised weights (QuantizeWeightsInOrder() makes them, on all windows).
Result<std::vector<OperationDamage>> RankWeights(Decoder& decoder, const TokenWindows& windows,
                                                 const FloatPrefix& prefix, const Recipe& recipe,
                                                 const SensitivityOptions& options,
                                                 ThreadPool* pool, Progress* progress);

// The same for activations: rounds the output of one operation at a time to the type and
// encoding that `recipe` and `ranges` (of Calibrate() with the same decoder) give it.
// Operations that only copy values are left out.
Result<std::vector<OperationDamage>> RankActivations(Decoder& decoder, const TokenWindows& windows,
                                                     const FloatPrefix& prefix,
                                                     const Recipe& recipe,
                                                     const TensorRanges& ranges,
                                                     const SensitivityOptions& options,
                                                     ThreadPool* pool, Progress* progress);

struct MixedResult {
  Recipe recipe;                    // the base with a rule for each raised operation; not `mixed`
  double bits = 0;                  // average over the decoder's weights, see AverageBits
  double sqnr_db = 0;               // of the logits with the weights of `recipe`, activations float
  double base_sqnr_db = 0;          // the same with those of `base`
  std::vector<std::string> raised;  // in the order in which they were
  std::vector<OperationDamage> damage;  // as RankWeights gives it
  bool target_met = true;               // of target_sqnr_db
};

// Raises the Linears of layers whose weights do most damage for the bits that raising
// them costs, until the target in `base.mixed` is met. Damages of single operations are taken to
// add up; the result is measured. The head has a scheme of its own and is not raised.
// kInvalidArgument when `base` is not valid or has no target, or max_bits is less than what it
// has without raising.
Result<MixedResult> FindMixedRecipe(Decoder& decoder, const TokenWindows& windows,
                                    const FloatPrefix& prefix, const Recipe& base,
                                    const SensitivityOptions& options, ThreadPool* pool,
                                    Progress* progress);

// `base` with that target; named "mixed" unless it had one before.
Recipe WithMixedTarget(Recipe base, const MixedTarget& target);

// Bits of a weight: its own and its share of the block's 4-bit multiplier. (The f32 scale of
// a row is the same in all schemes and not counted.)
double BitsOf(const WeightScheme& scheme);

// Average of BitsOf over the weights of the Linears in the model's layers: no head, no
// embedding, no rotation.
Result<double> AverageBits(Decoder& decoder, const Recipe& recipe);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_SENSITIVITY_H_
