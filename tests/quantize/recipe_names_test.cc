#include "quantize/recipe_names.h"

#include <gmock/gmock.h>

#include "tests/quantize/tiny.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class RecipeNamesTest : public ::testing::Test {
 protected:
  std::vector<std::string> Unmatched(const Recipe& recipe) {
    auto rules = RulesWithoutMatch(*tiny_.decoder, recipe);
    EXPECT_TRUE(rules.ok()) << rules.status().ToString();
    return rules.ok() ? *rules : std::vector<std::string>();
  }
  test::TinyDecoder tiny_{test::TinyModelSpec{}};
};

TEST_F(RecipeNamesTest, BuiltInRulesAllMatch) {
  for (const Recipe& recipe : BuiltInRecipes()) {
    EXPECT_THAT(Unmatched(recipe), IsEmpty()) << recipe.name;
  }
}

TEST_F(RecipeNamesTest, NamesTheRuleAndWhatThereIs) {
  Recipe recipe;
  recipe.weight_rules = {
      {"layers.[0-9].down", {4}}, {"layers.7.down", {4}}, {"layers.*.mixed", {4}}};
  recipe.activation_rules = {{"layers.*.mixed", {DType::kU8}}, {"layers.*.scors", {DType::kU8}}};
  recipe.observer_rules = {{"hidden_in", {ObserverKind::kMse}}, {"*.ouput", {ObserverKind::kMse}}};
  EXPECT_THAT(
      Unmatched(recipe),
      ElementsAre(
          AllOf(HasSubstr("activations.rules[1] 'layers.*.scors'"), HasSubstr("layers.N.scores")),
          AllOf(HasSubstr("activations.observers[1] '*.ouput'"), HasSubstr("hidden_in")),
          // Two layers, each with the same names.
          AllOf(HasSubstr("weights.rules[1] 'layers.7.down'"), HasSubstr("layers.N.down, "),
                Not(HasSubstr("layers.0")), Not(HasSubstr("scores"))),
          AllOf(HasSubstr("weights.rules[2] 'layers.*.mixed'"), HasSubstr("head"))));
}

}  // namespace
}  // namespace spillway
