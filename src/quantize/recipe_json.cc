// Recipes as JSON; docs/recipes.md describes the format.

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "quantize/recipe.h"

namespace spillway {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMaxBytes = size_t{4} << 20;
constexpr size_t kMaxShown = 60;
constexpr json::error_handler_t kReplace = json::error_handler_t::replace;

template <typename T>
using Named = std::pair<std::string_view, T>;

constexpr std::array<Named<ObserverKind>, 5> kObservers = {{
    {"minmax", ObserverKind::kMinMax},
    {"moving_average", ObserverKind::kMovingAverage},
    {"percentile", ObserverKind::kPercentile},
    {"mse", ObserverKind::kMse},
    {"entropy", ObserverKind::kEntropy},
}};
constexpr std::array<Named<WeightMethod>, 3> kMethods = {{
    {"rtn", WeightMethod::kRtn},
    {"mse", WeightMethod::kMse},
    {"gptq", WeightMethod::kGptq},
}};
constexpr std::array<Named<DType>, 3> kTypes = {{
    {"u8", DType::kU8},
    {"u16", DType::kU16},
    {"f16", DType::kF16},
}};

template <typename T, size_t kCount>
std::string_view NameOf(const std::array<Named<T>, kCount>& names, T value) {
  for (const auto& [name, known] : names) {
    if (known == value) return name;
  }
  return "";
}

// One object of the file. Every read marks its key as known; Finish() refuses the
// others. The first error stays.
class Reader {
 public:
  Reader(const json& object, std::string where, Status& status)
      : object_(object), where_(std::move(where)), status_(status) {
    if (!object.is_object()) Fail(where_.empty() ? "the file" : where_, object, "an object");
  }

  void Text(const char* key, std::string& value) {
    const json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_string()) return Fail(Field(key), *found, "a string");
    value = found->get<std::string>();
  }
  void Number(const char* key, uint32_t& value) {
    const json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_number_unsigned() || found->get<uint64_t>() > 255) {
      return Fail(Field(key), *found, "a whole number from 0 to 255");
    }
    value = found->get<uint32_t>();
  }
  void Bytes(const char* key, uint64_t& value) {
    const json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_number_unsigned()) return Fail(Field(key), *found, "a whole number of bytes");
    value = found->get<uint64_t>();
  }
  void Real(const char* key, float& value) {
    const json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_number()) return Fail(Field(key), *found, "a number");
    value = found->get<float>();
  }
  void Real(const char* key, double& value) {
    const json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_number()) return Fail(Field(key), *found, "a number");
    value = found->get<double>();
  }
  void Bool(const char* key, bool& value) {
    const json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) return Fail(Field(key), *found, "true or false");
    value = found->get<bool>();
  }
  template <typename T, size_t kCount>
  void Choice(const char* key, const std::array<Named<T>, kCount>& names, T& value) {
    const json* found = Find(key);
    if (found == nullptr) return;
    std::string expected;
    for (const auto& [name, known] : names) {
      if (found->is_string() && found->get_ref<const std::string&>() == name) {
        value = known;
        return;
      }
      expected += (expected.empty() ? "one of " : ", ") + std::string(name);
    }
    Fail(Field(key), *found, expected);
  }
  template <typename Body>
  void Object(const char* key, const Body& body) {
    const json* found = Find(key);
    if (found == nullptr) return;
    Reader reader(*found, Field(key), status_);
    body(reader);
    reader.Finish();
  }
  // The scheme of a new rule starts as `otherwise`.
  template <typename Scheme, typename Body>
  void Rules(const char* key, std::vector<RecipeRule<Scheme>>& rules, const Scheme& otherwise,
             const Body& body) {
    const json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_array()) return Fail(Field(key), *found, "a list");
    rules.clear();
    for (size_t i = 0; i < found->size() && status_.ok(); ++i) {
      RecipeRule<Scheme> rule{"", otherwise};
      Reader reader((*found)[i], fmt::format("{}[{}]", Field(key), i), status_);
      reader.Text("match", rule.match);
      body(reader, rule.scheme);
      reader.Finish();
      rules.push_back(std::move(rule));
    }
  }
  void Texts(const char* key, std::vector<std::string>& values) {
    const json* found = Find(key);
    if (found == nullptr) return;
    values.clear();
    if (!found->is_array()) return Fail(Field(key), *found, "a list of strings");
    for (const json& item : *found) {
      if (!item.is_string()) return Fail(Field(key), item, "a list of strings");
      values.push_back(item.get<std::string>());
    }
  }
  bool Has(const char* key) const { return object_.is_object() && object_.contains(key); }

  void Finish() {
    if (!status_.ok()) return;
    for (const auto& item : object_.items()) {
      if (known_.contains(item.key())) continue;
      std::string expected;
      for (const std::string& key : known_) expected += (expected.empty() ? "" : ", ") + key;
      status_ = InvalidArgumentError(
          fmt::format("unknown field {}; expected some of {}", Field(item.key()), expected));
      return;
    }
  }

 private:
  std::string Field(const std::string& key) const {
    return where_.empty() ? key : where_ + "." + key;
  }
  const json* Find(const char* key) {
    known_.insert(key);
    if (!status_.ok()) return nullptr;
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  void Fail(const std::string& field, const json& found, std::string_view expected) {
    if (!status_.ok()) return;
    // Lists and objects are not printed: they may be nested without end.
    std::string text = found.is_object()  ? "an object"
                       : found.is_array() ? "a list"
                                          : found.dump(-1, ' ', true, kReplace);
    if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
    status_ = InvalidArgumentError(fmt::format("{}: found {}, expected {}", field, text, expected));
  }

  const json& object_;
  std::string where_;
  Status& status_;
  std::set<std::string> known_;
};

void ReadWeight(Reader& reader, WeightScheme& scheme) {
  // Blocks belong to their bits: other bits alone mean per channel.
  if (reader.Has("bits")) scheme.block = 0;
  uint32_t bits = scheme.bits;
  reader.Number("bits", bits);
  scheme.bits = static_cast<uint8_t>(bits);
  reader.Number("block", scheme.block);
  reader.Choice("method", kMethods, scheme.method);
}

void ReadObserver(Reader& reader, ObserverSpec& spec) {
  reader.Choice("type", kObservers, spec.kind);
  reader.Real("momentum", spec.momentum);
  reader.Real("percentile", spec.percentile);
}

void ReadActivation(Reader& reader, ActivationScheme& scheme) {
  reader.Choice("dtype", kTypes, scheme.dtype);
  reader.Bool("symmetric", scheme.symmetric);
}

void ReadRecipe(Reader& reader, Recipe& recipe) {
  recipe.description.clear();
  reader.Text("name", recipe.name);
  reader.Text("description", recipe.description);
  reader.Object("activations", [&](Reader& activations) {
    ReadActivation(activations, recipe.activation);
    activations.Rules("rules", recipe.activation_rules, recipe.activation, ReadActivation);
    activations.Object("observer",
                       [&](Reader& observer) { ReadObserver(observer, recipe.observer); });
    activations.Rules("observers", recipe.observer_rules, ObserverSpec{}, ReadObserver);
  });
  reader.Choice("kv", kTypes, recipe.kv);
  reader.Object("weights", [&](Reader& weights) {
    ReadWeight(weights, recipe.weights);
    weights.Rules("rules", recipe.weight_rules, recipe.weights, ReadWeight);
  });
  reader.Object("head", [&](Reader& head) { ReadWeight(head, recipe.head); });
  reader.Object("embedding", [&](Reader& table) { ReadWeight(table, recipe.embedding); });
  reader.Texts("transforms", recipe.transforms);
  reader.Object("mixed", [&](Reader& mixed) {
    recipe.mixed.emplace();
    ReadWeight(mixed, recipe.mixed->raised);
    mixed.Real("max_bits", recipe.mixed->max_bits);
    mixed.Real("target_sqnr_db", recipe.mixed->target_sqnr_db);
    mixed.Bytes("max_raised_bytes", recipe.mixed->max_raised_bytes);
  });
  reader.Finish();
}

// The shortest decimal number that reads back as `value`.
double ShortReal(float value) {
  const double shortest = std::strtod(fmt::format("{}", value).c_str(), nullptr);
  return static_cast<float>(shortest) == value ? shortest : static_cast<double>(value);
}

void Write(ordered_json& object, const WeightScheme& scheme) {
  object["bits"] = scheme.bits;
  object["block"] = scheme.block;
  object["method"] = NameOf(kMethods, scheme.method);
}

void Write(ordered_json& object, const ObserverSpec& spec) {
  object["type"] = NameOf(kObservers, spec.kind);
  if (spec.kind == ObserverKind::kMovingAverage) object["momentum"] = ShortReal(spec.momentum);
  if (spec.kind == ObserverKind::kPercentile) object["percentile"] = ShortReal(spec.percentile);
}

void Write(ordered_json& object, const ActivationScheme& scheme) {
  object["dtype"] = NameOf(kTypes, scheme.dtype);
  object["symmetric"] = scheme.symmetric;
}

template <typename Scheme>
ordered_json RulesJson(const std::vector<RecipeRule<Scheme>>& rules) {
  ordered_json list = ordered_json::array();
  for (const RecipeRule<Scheme>& rule : rules) {
    ordered_json& item = list.emplace_back();
    item["match"] = rule.match;
    Write(item, rule.scheme);
  }
  return list;
}

}  // namespace

std::string Recipe::ToJson() const {
  ordered_json object;
  object["name"] = name;
  object["description"] = description;
  ordered_json& activations = object["activations"];
  Write(activations, activation);
  activations["rules"] = RulesJson(activation_rules);
  Write(activations["observer"], observer);
  activations["observers"] = RulesJson(observer_rules);
  object["kv"] = NameOf(kTypes, kv);
  Write(object["weights"], weights);
  object["weights"]["rules"] = RulesJson(weight_rules);
  Write(object["head"], head);
  Write(object["embedding"], embedding);
  object["transforms"] = transforms;
  if (mixed) {
    Write(object["mixed"], mixed->raised);
    object["mixed"]["max_bits"] = mixed->max_bits;
    object["mixed"]["target_sqnr_db"] = mixed->target_sqnr_db;
    object["mixed"]["max_raised_bytes"] = mixed->max_raised_bytes;
  }
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Result<Recipe> Recipe::FromJson(std::string_view text, const std::string& path) {
  if (text.size() > kMaxBytes) {
    return InvalidArgumentError(
        fmt::format("{}: {} bytes; expected a recipe of at most {}", path, text.size(), kMaxBytes));
  }
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) return InvalidArgumentError(path + ": is not JSON");
  Recipe recipe;
  Status status;
  Reader reader(object, "", status);
  if (status.ok()) ReadRecipe(reader, recipe);
  if (status.ok()) status = recipe.Validate();
  if (!status.ok()) return status.WithContext(path);
  return recipe;
}

}  // namespace spillway
