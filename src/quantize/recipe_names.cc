#include "quantize/recipe_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace spillway {
namespace {

// Each in the order of the graphs, without repeats.
struct ModelNames {
  std::vector<std::string> weights;     // operations with a weight: Linears
  std::vector<std::string> operations;  // all
};

void AddNew(const std::string& name, std::vector<std::string>& names, std::set<std::string>& seen) {
  if (seen.insert(name).second) names.push_back(name);
}

Result<ModelNames> NamesOf(Decoder& decoder) {
  ModelNames names;
  std::set<std::string> weights, operations;
  // A layer at a time, as shards of one layer: a graph of all would be large.
  for (uint32_t layer = 0; layer < decoder.model().config().num_layers; ++layer) {
    DecoderOptions options;
    options.name = "names";
    options.ar_len = 1;
    options.context_len = 2;
    options.first_layer = layer;
    options.num_layers = 1;
    SPILLWAY_ASSIGN_OR_RETURN(const Graph graph, decoder.Build(options));
    for (const TensorId id : graph.inputs()) {
      AddNew(graph.tensor(id).name, names.operations, operations);
    }
    for (const Op& op : graph.ops()) {
      AddNew(op.name, names.operations, operations);
      if (op.type == OpType::kLinear) AddNew(op.name, names.weights, weights);
    }
  }
  return names;
}

// "layers.3.down" as "layers.N.down"; others as they are.
std::string WithoutNumber(const std::string& name) {
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return name;
  const size_t end = name.find('.', kLayers.size());
  return end == std::string::npos ? name : "layers.N" + name.substr(end);
}

std::string KindsOf(const std::vector<std::string>& names) {
  std::vector<std::string> kinds;
  std::set<std::string> seen;
  for (const std::string& name : names) AddNew(WithoutNumber(name), kinds, seen);
  return fmt::format("{}", fmt::join(kinds, ", "));
}

template <typename Scheme>
void Check(std::string_view field, const std::vector<RecipeRule<Scheme>>& rules,
           const std::vector<std::string>& names, std::vector<std::string>& unmatched) {
  for (size_t i = 0; i < rules.size(); ++i) {
    const std::string& pattern = rules[i].match;
    const bool matches = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return MatchesPattern(pattern, name);
    });
    if (matches) continue;
    unmatched.push_back(fmt::format("{}[{}] '{}' matches nothing in this model; there are {}",
                                    field, i, pattern, KindsOf(names)));
  }
}

}  // namespace

Result<std::vector<std::string>> RulesWithoutMatch(Decoder& decoder, const Recipe& recipe) {
  std::vector<std::string> unmatched;
  if (recipe.activation_rules.empty() && recipe.observer_rules.empty() &&
      recipe.weight_rules.empty()) {
    return unmatched;
  }
  SPILLWAY_ASSIGN_OR_RETURN(const ModelNames names, NamesOf(decoder));
  Check("activations.rules", recipe.activation_rules, names.operations, unmatched);
  Check("activations.observers", recipe.observer_rules, names.operations, unmatched);
  Check("weights.rules", recipe.weight_rules, names.weights, unmatched);
  return unmatched;
}

}  // namespace spillway
