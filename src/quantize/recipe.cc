#include "quantize/recipe.h"

#include <fmt/format.h>

namespace spillway {

Result<Recipe> FindRecipe(std::string_view name) {
  if (name == "16a8w") return Recipe{};
  return InvalidArgumentError(fmt::format("unknown quantisation recipe '{}'; known: 16a8w", name));
}

}  // namespace spillway
