// Recipe: which types a quantised graph uses, by role of the tensor.

#ifndef SPILLWAY_QUANTIZE_RECIPE_H_
#define SPILLWAY_QUANTIZE_RECIPE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/types.h"
#include "spillway/status.h"

namespace spillway {

struct Recipe {
  std::string name = "16a8w";
  DType activation = DType::kU16;
  DType kv = DType::kU8;    // kU8 or kU16
  uint8_t weight_bits = 8;  // symmetric, per output channel
};

// The built-in recipe of that name; an unknown one lists those that exist.
Result<Recipe> FindRecipe(std::string_view name);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_RECIPE_H_
