#include "quantize/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/file.h"

namespace spillway {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// "[2-11]" or "[5]" at `at` of a pattern: its numbers and the place after it.
struct NumberRange {
  uint32_t low = 0, high = 0;
  size_t end = 0;
};
std::optional<NumberRange> ParseRange(std::string_view pattern, size_t at) {
  NumberRange range;
  const char* const end = pattern.data() + pattern.size();
  std::from_chars_result number = std::from_chars(pattern.data() + at + 1, end, range.low);
  range.high = range.low;
  if (number.ec == std::errc() && number.ptr != end && *number.ptr == '-') {
    number = std::from_chars(number.ptr + 1, end, range.high);
  }
  if (number.ec != std::errc() || number.ptr == end || *number.ptr != ']') return std::nullopt;
  if (range.high < range.low) return std::nullopt;
  range.end = static_cast<size_t>(number.ptr - pattern.data()) + 1;
  return range;
}

// Matches one item of the pattern that is no star; moves both places past it.
bool MatchItem(std::string_view pattern, size_t& p, std::string_view name, size_t& n) {
  if (p >= pattern.size() || n >= name.size()) return false;
  if (pattern[p] == '[') {
    const std::optional<NumberRange> range = ParseRange(pattern, p);
    uint32_t number = 0;
    const auto [next, error] = std::from_chars(name.data() + n, name.data() + name.size(), number);
    if (!range || error != std::errc() || number < range->low || number > range->high) return false;
    if (n > 0 && IsDigit(name[n - 1])) return false;  // the tail of a longer number
    p = range->end;
    n = static_cast<size_t>(next - name.data());
    return true;
  }
  if (pattern[p] != '?' && pattern[p] != name[n]) return false;
  ++p;
  ++n;
  return true;
}

template <typename Scheme>
Scheme LastMatch(const std::vector<RecipeRule<Scheme>>& rules, std::string_view name,
                 const Scheme& otherwise) {
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    if (MatchesPattern(rule->match, name)) return rule->scheme;
  }
  return otherwise;
}

Status CheckPattern(const std::string& field, const std::string& pattern) {
  for (size_t at = pattern.find('['); at != std::string::npos; at = pattern.find('[', at + 1)) {
    if (ParseRange(pattern, at)) continue;
    return InvalidArgumentError(
        fmt::format("{}: pattern '{}' has no range like [0-3] at its [", field, pattern));
  }
  if (!pattern.empty() && pattern.size() <= 256) return OkStatus();
  return InvalidArgumentError(
      fmt::format("{}: a pattern of {} characters; expected 1 to 256", field, pattern.size()));
}

Status CheckWeight(const std::string& field, const WeightScheme& scheme, bool is_float) {
  const bool fits = is_float ? scheme.bits == 16 : scheme.bits == 4 || scheme.bits == 8;
  if (!fits) {
    return InvalidArgumentError(fmt::format("{}.bits: found {}, expected {}", field, scheme.bits,
                                            is_float ? "16 with f16 activations" : "4 or 8"));
  }
  const bool block_size = scheme.block == 16 || scheme.block == 32 || scheme.block == 64;
  if (scheme.block == 0 || (block_size && scheme.bits == 4)) return OkStatus();
  return InvalidArgumentError(
      fmt::format("{}.block: found {} with {} bits, expected 0 (per channel), or 16, 32 or 64 "
                  "with 4 bits",
                  field, scheme.block, scheme.bits));
}

Status CheckActivation(const std::string& field, const ActivationScheme& scheme, bool is_float) {
  const bool fits = is_float ? scheme.dtype == DType::kF16
                             : scheme.dtype == DType::kU8 || scheme.dtype == DType::kU16;
  if (fits) return OkStatus();
  return InvalidArgumentError(
      fmt::format("{}.dtype: found {}, expected {}", field, DTypeName(scheme.dtype),
                  is_float ? "f16, as the others" : "u8 or u16 (f16 only for all)"));
}

Status CheckObserver(const std::string& field, const ObserverSpec& spec) {
  if (!(spec.momentum > 0.0f && spec.momentum <= 1.0f)) {
    return InvalidArgumentError(fmt::format(
        "{}.momentum: found {}, expected more than 0 and at most 1", field, spec.momentum));
  }
  if (!(spec.percentile >= 50.0f && spec.percentile <= 100.0f)) {
    return InvalidArgumentError(
        fmt::format("{}.percentile: found {}, expected 50 to 100", field, spec.percentile));
  }
  return OkStatus();
}

// Of a recipe that is not float.
Status CheckMixed(const MixedTarget& target) {
  SPILLWAY_RETURN_IF_ERROR(CheckWeight("mixed", target.raised, /*is_float=*/false));
  // More is a slip; decibels beyond 200 are more than floats have.
  constexpr double kMostBits = 16, kMostDecibels = 200;
  if (!(target.max_bits >= 0 && target.max_bits <= kMostBits)) {
    return InvalidArgumentError(fmt::format("mixed.max_bits: found {}, expected 0 (no limit) to {}",
                                            target.max_bits, kMostBits));
  }
  if (!(target.target_sqnr_db >= 0 && target.target_sqnr_db <= kMostDecibels)) {
    return InvalidArgumentError(
        fmt::format("mixed.target_sqnr_db: found {}, expected 0 (no target) to {}",
                    target.target_sqnr_db, kMostDecibels));
  }
  if (target.max_bits > 0 || target.target_sqnr_db > 0 || target.max_raised_bytes > 0) {
    return OkStatus();
  }
  return InvalidArgumentError(
      "mixed: found none of max_bits, max_raised_bytes and target_sqnr_db, expected one");
}

RecipeRule<ActivationScheme> Wide(std::string match) {
  return {std::move(match), {DType::kU16, false}};
}

Recipe WeightRecipe(std::string name, std::string description, uint32_t block) {
  Recipe recipe;
  recipe.name = std::move(name);
  recipe.description = std::move(description);
  recipe.weights = {4, block, WeightMethod::kGptq};
  return recipe;
}

Recipe MakeMixed() {
  Recipe recipe = WeightRecipe(
      "mixed",
      "16a4w-block16 with 8 bits for weights that do most damage, found on the model; 5 bits on "
      "average",
      16);
  recipe.mixed.emplace();
  recipe.mixed->max_bits = 5;
  return recipe;
}

Recipe Make8a8w() {
  Recipe recipe;
  recipe.name = "8a8w";
  recipe.description =
      "8-bit activations and weights; queries, scores, softmax, the head's input and the logits "
      "16 bit";
  recipe.activation.dtype = DType::kU8;
  // 256 steps hold a residual stream with outlier channels only when it is rotated, and
  // ranges that clip a few values beat those that hold all (SmolLM2: 15.7 x the float
  // perplexity without both, 1.15 x with).
  recipe.observer.kind = ObserverKind::kMse;
  recipe.transforms = {"norm_folding", "rotate_r1", "rotate_r2"};
  // Scores in 8 bits that must hold the mask, too, are useless, and the vendor has
  // no products of mixed types that give 8 bits.
  recipe.activation_rules = {Wide("layers.*.scores"),    Wide("layers.*.scores.masked"),
                             Wide("layers.*.attention"), Wide("layers.*.mixed"),
                             Wide("final_norm"),         Wide("head")};
  return recipe;
}

Recipe MakeFp16() {
  Recipe recipe;
  recipe.name = "fp16";
  recipe.description = "everything in 16-bit floats; needs no calibration";
  recipe.activation.dtype = DType::kF16;
  recipe.kv = DType::kF16;
  recipe.weights.bits = recipe.head.bits = recipe.embedding.bits = 16;
  return recipe;
}

}  // namespace

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0;
  size_t star = std::string_view::npos;  // the last star's place, and what it took so far
  size_t taken = 0;
  while (n < name.size() || p < pattern.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (!MatchItem(pattern, p, name, n)) {
      if (star == std::string_view::npos || taken >= name.size()) return false;
      p = star + 1;
      n = ++taken;
    }
  }
  return true;
}

ActivationScheme Recipe::ActivationOf(std::string_view operation) const {
  return LastMatch(activation_rules, operation, activation);
}

ObserverSpec Recipe::ObserverOf(std::string_view tensor) const {
  return LastMatch(observer_rules, tensor, observer);
}

WeightScheme Recipe::WeightOf(std::string_view operation) const {
  return LastMatch(weight_rules, operation, operation == "head" ? head : weights);
}

Status Recipe::Validate() const {
  if (name.empty() || name.size() > 64) {
    return InvalidArgumentError(
        fmt::format("name: found {} characters, expected 1 to 64", name.size()));
  }
  SPILLWAY_RETURN_IF_ERROR(CheckActivation("activations", activation, is_float()));
  SPILLWAY_RETURN_IF_ERROR(CheckObserver("activations.observer", observer));
  for (size_t i = 0; i < activation_rules.size(); ++i) {
    const std::string field = fmt::format("activations.rules[{}]", i);
    SPILLWAY_RETURN_IF_ERROR(CheckPattern(field + ".match", activation_rules[i].match));
    SPILLWAY_RETURN_IF_ERROR(CheckActivation(field, activation_rules[i].scheme, is_float()));
  }
  for (size_t i = 0; i < observer_rules.size(); ++i) {
    const std::string field = fmt::format("activations.observers[{}]", i);
    SPILLWAY_RETURN_IF_ERROR(CheckPattern(field + ".match", observer_rules[i].match));
    SPILLWAY_RETURN_IF_ERROR(CheckObserver(field, observer_rules[i].scheme));
  }
  if (is_float() != (kv == DType::kF16) || (kv != DType::kU8 && kv != DType::kU16 && !is_float())) {
    return InvalidArgumentError(fmt::format("kv: found {}, expected {}", DTypeName(kv),
                                            is_float() ? "f16 with f16 activations" : "u8 or u16"));
  }
  SPILLWAY_RETURN_IF_ERROR(CheckWeight("weights", weights, is_float()));
  SPILLWAY_RETURN_IF_ERROR(CheckWeight("head", head, is_float()));
  SPILLWAY_RETURN_IF_ERROR(CheckWeight("embedding", embedding, is_float()));
  if (embedding.block != 0) {
    return InvalidArgumentError(fmt::format(
        "embedding.block: found {}, expected 0: each token has one scale", embedding.block));
  }
  for (size_t i = 0; i < weight_rules.size(); ++i) {
    const std::string field = fmt::format("weights.rules[{}]", i);
    SPILLWAY_RETURN_IF_ERROR(CheckPattern(field + ".match", weight_rules[i].match));
    SPILLWAY_RETURN_IF_ERROR(CheckWeight(field, weight_rules[i].scheme, is_float()));
  }
  if (mixed && is_float()) {
    return InvalidArgumentError("mixed: found with f16 activations, expected u8 or u16 ones");
  }
  if (mixed) SPILLWAY_RETURN_IF_ERROR(CheckMixed(*mixed));
  for (const std::string& transform : transforms) {
    const std::vector<std::string>& known = KnownTransforms();
    if (std::find(known.begin(), known.end(), transform) != known.end()) continue;
    return InvalidArgumentError(fmt::format("transforms: found '{}', expected some of {}",
                                            transform, fmt::join(known, ", ")));
  }
  return OkStatus();
}

bool Recipe::HasTransform(std::string_view transform) const {
  return std::find(transforms.begin(), transforms.end(), transform) != transforms.end();
}

bool Recipe::NeedsActivations() const {
  const auto searched = [](const WeightScheme& scheme) {
    return scheme.method != WeightMethod::kRtn;
  };
  return searched(weights) || searched(head) || (mixed && searched(mixed->raised)) ||
         std::any_of(weight_rules.begin(), weight_rules.end(),
                     [&](const auto& rule) { return searched(rule.scheme); });
}

const std::vector<std::string>& KnownTransforms() {
  static const auto* const kNames = new std::vector<std::string>{
      "norm_folding", "smoothquant", "rotate_r1", "rotate_r2", "rotate_r3"};
  return *kNames;
}

const std::vector<Recipe>& BuiltInRecipes() {
  static const auto* const kRecipes = new std::vector<Recipe>{
      Recipe{},
      WeightRecipe("16a4w", "16-bit activations, 4-bit weights per channel, 8-bit head", 0),
      WeightRecipe("16a4w-block", "16-bit activations, 4-bit weights in blocks of 32, 8-bit head",
                   32),
      WeightRecipe("16a4w-block16", "16-bit activations, 4-bit weights in blocks of 16, 8-bit head",
                   16),
      WeightRecipe("16a4w-block64", "16-bit activations, 4-bit weights in blocks of 64, 8-bit head",
                   64),
      MakeMixed(),
      Make8a8w(),
      MakeFp16()};
  return *kRecipes;
}

Result<Recipe> FindRecipe(const std::string& name_or_path) {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : BuiltInRecipes()) {
    if (recipe.name == name_or_path) return recipe;
    names.push_back(recipe.name);
  }
  if (!FileExists(name_or_path)) {
    return NotFoundError(
        fmt::format("quantisation recipe '{}': neither built in nor a JSON file; built in are {}",
                    name_or_path, fmt::join(names, ", ")));
  }
  SPILLWAY_ASSIGN_OR_RETURN(const std::string text, ReadFile(name_or_path));
  return Recipe::FromJson(text, name_or_path);
}

}  // namespace spillway
