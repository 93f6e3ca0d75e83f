// spillway recipes: the quantisation recipes that are built in, and what is in one.

#include <CLI/CLI.hpp>
#include <string>

#include "command.h"
#include "json_text.h"
#include "quantize/recipe.h"
#include "text.h"

namespace spillway::cli {
namespace {

constexpr char kExamples[] =
    "A recipe is a JSON file: types and granularity by the names of operations. Start from a\n"
    "built-in one; docs/recipes.md explains the fields.\n\n"
    "Examples:\n"
    "  spillway recipes\n"
    "  spillway recipes 16a4w-block > mine.json\n"
    "  spillway compile model.gguf -o pkg/ --recipe mine.json\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

class RecipesCommand : public Command {
 public:
  explicit RecipesCommand(CLI::App& program) {
    CLI::App& app =
        *program.add_subcommand("recipes", "List the quantisation recipes, or print one as JSON");
    app.fallthrough();
    app.add_option("NAME", name_, "A built-in recipe, or a recipe's JSON file to check and print");
    app.footer(kExamples);
  }

  Status Run(Console& console) override {
    if (!name_.empty()) {
      SPILLWAY_ASSIGN_OR_RETURN(const Recipe recipe, FindRecipe(name_));
      return console.Print(recipe.ToJson());
    }
    if (console.json) {
      Json json = {{"kind", "recipes"}, {"recipes", Json::array()}};
      for (const Recipe& recipe : BuiltInRecipes()) {
        json["recipes"].push_back(Json::parse(recipe.ToJson(), nullptr, false));
      }
      return console.Print(JsonText(json));
    }
    TextTable table({"recipe", "what it does"});
    for (const Recipe& recipe : BuiltInRecipes()) table.AddRow({recipe.name, recipe.description});
    return console.Print(table.ToString());
  }

 private:
  std::string name_;
};

}  // namespace

std::unique_ptr<Command> AddRecipesCommand(CLI::App& program) {
  return std::make_unique<RecipesCommand>(program);
}

}  // namespace spillway::cli
