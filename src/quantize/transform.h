// Equivalent transformations: weights that give the same logits and are easier to
// quantise. All fold into weights but the rotation of queries and keys, which adds
// two small products a layer to the graph.

#ifndef SPILLWAY_QUANTIZE_TRANSFORM_H_
#define SPILLWAY_QUANTIZE_TRANSFORM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decoder/weight_transform.h"
#include "model/config.h"
#include "model/model.h"
#include "quantize/recipe.h"
#include "spillway/status.h"

namespace spillway {

struct TransformOptions {
  // Multiplies the norms' weights into the Linears that follow them. The final norm's
  // goes into the head, so the head and the embedding of a tied model part.
  bool fold_norms = false;
  // SpinQuant's R1: rotates the residual stream (needs fold_norms). Spreads massive
  // activations over all channels.
  bool rotate_residual = false;
  // R2: rotates each head of V and, back, the columns of the output projection.
  bool rotate_values = false;
  // R3: rotates queries and keys after the rotary embedding, in the graph.
  bool rotate_keys = false;
  uint64_t seed = 1;

  bool any() const { return fold_norms || rotate_residual || rotate_values || rotate_keys; }
};

// What a recipe asks for; rotating the residual stream folds the norms, too.
TransformOptions TransformsOf(const Recipe& recipe);

// SmoothQuant: by the name of a tensor, the factor by which each of its channels is
// divided, and the columns of the Linears that read it multiplied (smooth.h computes
// them). Keys: "layers.N.attn_norm", "layers.N.ffn_norm", "layers.N.gated" (from the up
// projection to the down projection) and "layers.N.mixed" (from V to the output projection;
// a factor for each channel of each KV head).
using SmoothFactors = std::map<std::string, std::vector<float>>;

// For this model, whose norms are read now; keeps nothing of it. kInvalidArgument
// when rotate_residual comes without fold_norms or with factors on norms (a rotated
// stream has no channels to divide), or when factors have another size than their tensor, an
// unknown key, or a value that is not a positive normal number.
Result<std::shared_ptr<const WeightTransform>> MakeTransform(const Model& model,
                                                             const TransformOptions& options,
                                                             SmoothFactors factors = {});

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_TRANSFORM_H_
