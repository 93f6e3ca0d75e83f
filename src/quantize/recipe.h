// Recipe: how a model is quantised, as data. Types and granularity by name, with
// ordered rules; read from and written to JSON.
//
// Names are those of operations (and so of their outputs): "layers.3.down",
// "layers.3.out", "final_norm", "head"; docs/recipes.md lists them. A rule's
// pattern has `*` for any run of characters, `?` for one, and `[2-11]` for a whole
// decimal number in that range. Of several rules that match, the last counts.

#ifndef SPILLWAY_QUANTIZE_RECIPE_H_
#define SPILLWAY_QUANTIZE_RECIPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/types.h"
#include "quantize/weights.h"
#include "spillway/status.h"

namespace spillway {

// How the range of a tensor is chosen from what calibration saw of it.
enum class ObserverKind : uint8_t {
  kMinMax,         // all of it
  kMovingAverage,  // average of the windows' minima and maxima, newer ones weigh more
  kPercentile,     // without the outermost values
  kMse,            // the range whose quantisation has the least squared error
  kEntropy,        // the range whose histogram is nearest to the real one (KL divergence)
};

struct ObserverSpec {
  ObserverKind kind = ObserverKind::kMinMax;
  float momentum = 0.1f;       // kMovingAverage: weight of the newest window, 0..1
  float percentile = 99.999f;  // kPercentile: of the values that stay inside, 50..100

  bool operator==(const ObserverSpec&) const = default;
};

// What a tensor made by an operation is.
struct ActivationScheme {
  DType dtype = DType::kU16;  // kU8, kU16; kF16 only when everything is
  bool symmetric = false;     // zero point in the middle

  bool operator==(const ActivationScheme&) const = default;
};

template <typename Scheme>
struct RecipeRule {
  std::string match;  // pattern
  Scheme scheme;

  bool operator==(const RecipeRule&) const = default;
};

// What a recipe of mixed precision is to reach. Which Linears of the layers get more bits is
// found on the model (sensitivity.h) and is then in the weight rules of the recipe found.
struct MixedTarget {
  WeightScheme raised = {8};  // of what is raised
  // Raise while the average of the decoder's weights stays at or below so many bits
  // (BitsOf(), the head apart); 0: no limit.
  double max_bits = 0;
  // Raise until the logits have this SQNR with all weights quantised, activations float;
  // 0: no such target. At least one of the limits and targets is given; whichever comes first
  // ends it.
  double target_sqnr_db = 0;
  uint64_t max_raised_bytes = 0;  // of all weights that are raised, as they are then; 0: no limit

  bool operator==(const MixedTarget&) const = default;
};

struct Recipe {
  std::string name = "16a8w";
  std::string description = "16-bit activations, 8-bit weights per channel, 8-bit KV cache";
  ActivationScheme activation;
  std::vector<RecipeRule<ActivationScheme>> activation_rules;
  ObserverSpec observer;
  std::vector<RecipeRule<ObserverSpec>> observer_rules;
  DType kv = DType::kU8;  // kU8, kU16; kF16 with f16 activations
  // Weights of Linear operations; `head` is the scheme of the one called "head".
  // 16 bits stand for f16 and go with f16 activations only.
  WeightScheme weights, head;
  std::vector<RecipeRule<WeightScheme>> weight_rules;
  // Of the table that tokens are looked up in; per channel, that is per token. A
  // model with one matrix for both stores it once when the head's is the same.
  WeightScheme embedding;
  // Equivalent transformations of the float weights, in this order.
  std::vector<std::string> transforms;
  // The recipe is a base that is still to be raised; a package holds the one found.
  std::optional<MixedTarget> mixed;

  bool operator==(const Recipe&) const = default;

  bool is_float() const { return activation.dtype == DType::kF16; }
  ActivationScheme ActivationOf(std::string_view operation) const;
  ObserverSpec ObserverOf(std::string_view tensor) const;
  WeightScheme WeightOf(std::string_view operation) const;
  bool HasTransform(std::string_view transform) const;
  // Whether a weight is chosen by what its input looks like: a method that searches.
  bool NeedsActivations() const;
  // Whether a model whose head is its embedding (`tied`) stores one matrix for both.
  bool SharesEmbedding(bool tied) const { return tied && embedding == WeightOf("head"); }

  // One JSON object, every field, the same text for the same recipe.
  std::string ToJson() const;
  // kInvalidArgument names `path`, the field, what was found and what is expected;
  // an unknown key is an error. Fields that are left out have the values of the
  // struct's defaults.
  static Result<Recipe> FromJson(std::string_view text, const std::string& path);
  // What no recipe can mean: f16 next to integers, blocks of 8-bit values, an
  // unknown transformation, mixed precision without a target.
  Status Validate() const;
};

// The transformations that a recipe may name.
const std::vector<std::string>& KnownTransforms();

// The recipes that are built in, in the order of their listing.
const std::vector<Recipe>& BuiltInRecipes();

// A built-in recipe by its name, or the recipe in the JSON file of that path.
// kNotFound lists the built-in ones.
Result<Recipe> FindRecipe(const std::string& name_or_path);

// Whether `name` fits the pattern. Takes time proportional to the product of
// their lengths at most.
bool MatchesPattern(std::string_view pattern, std::string_view name);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_RECIPE_H_
