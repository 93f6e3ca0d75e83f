// The names that a recipe's rules can match in a model, and rules that match none.

#ifndef SPILLWAY_QUANTIZE_RECIPE_NAMES_H_
#define SPILLWAY_QUANTIZE_RECIPE_NAMES_H_

#include <string>
#include <vector>

#include "decoder/decoder.h"
#include "quantize/recipe.h"
#include "spillway/status.h"

namespace spillway {

// A sentence for each rule of `recipe` whose pattern matches no name in the model's graphs: a
// slip of the pen, or a recipe for another model. Names the rule, its pattern and the names that
// there are ("layers.N.down" stands for those of all layers).
Result<std::vector<std::string>> RulesWithoutMatch(Decoder& decoder, const Recipe& recipe);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_RECIPE_NAMES_H_
