// Filters on lists, dictionaries and other sequences.

#include <algorithm>

#include "model/jinja_builtins.h"
#include "model/jinja_string_ops.h"

namespace spillway::jinja {
namespace {

bool IsGiven(const Value* value) { return value != nullptr && value->kind() != Kind::kNone; }
bool IsOn(const Value* value) { return value != nullptr && IsTrue(*value); }

// The items of a value, paid for.
Result<ValueList> Items(Budget* budget, const Value& input) {
  const auto count = static_cast<uint64_t>(std::max<int64_t>(LengthOf(input), 0));
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(count * (input.is_string() ? 128 : sizeof(Value))));
  return Iterate(input);
}

Result<Value> Length(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN([[maybe_unused]] const auto args, Bind(arguments, "length", {}));
  if (input.is_string()) SPILLWAY_RETURN_IF_ERROR(budget->Steps(input.AsText().size() / 256));
  const int64_t length = LengthOf(input);
  if (length >= 0) return Value::Int(length);
  return InvalidArgumentError("a value of type " + std::string(TypeName(input)) + " has no length");
}

Result<Value> First(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN([[maybe_unused]] const auto args, Bind(arguments, "first", {}));
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList items, Items(budget, input));
  return items.empty() ? Value::Undefined("first") : items.front();
}

Result<Value> Last(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN([[maybe_unused]] const auto args, Bind(arguments, "last", {}));
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList items, Items(budget, input));
  return items.empty() ? Value::Undefined("last") : items.back();
}

Result<Value> ToList(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN([[maybe_unused]] const auto args, Bind(arguments, "list", {}));
  SPILLWAY_ASSIGN_OR_RETURN(ValueList items, Items(budget, input));
  return NewList(budget, std::move(items));
}

Result<Value> ItemsFilter(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN([[maybe_unused]] const auto args, Bind(arguments, "items", {}));
  if (input.is_undefined()) return Value::List({});
  if (input.kind() != Kind::kDict) return InvalidArgumentError("'items' needs a mapping");
  return CallMethod(budget, input, "items", {});
}

Result<Value> Join(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, "join", {"d", "attribute"}));
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList items, Items(budget, input));
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(input.weight()));
  MarkedText separator;
  if (args[0] != nullptr) {
    SPILLWAY_RETURN_IF_ERROR(budget->Bytes(args[0]->weight() * (1 + items.size())));
    separator = ToText(*args[0]);
  }
  MarkedText text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text.Append(separator);
    Value item = items[i];
    if (IsGiven(args[1])) {
      SPILLWAY_ASSIGN_OR_RETURN(item, GetPath(budget, item, *args[1]));
    }
    text.Append(ToText(item));
  }
  return NewString(budget, std::move(text));
}

Result<Value> Reverse(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN([[maybe_unused]] const auto args, Bind(arguments, "reverse", {}));
  SPILLWAY_ASSIGN_OR_RETURN(ValueList items, Items(budget, input));
  std::reverse(items.begin(), items.end());
  if (!input.is_string()) return NewList(budget, std::move(items));
  MarkedText text;
  for (const Value& item : items) text.Append(item.AsText());
  return NewString(budget, std::move(text));
}

Result<Value> Map(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(ValueList items, Items(budget, input));
  if (arguments.positional.empty()) {
    SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, "map", {"attribute", "default"}, 1));
    for (Value& item : items) {
      SPILLWAY_ASSIGN_OR_RETURN(item, GetPath(budget, item, *args[0]));
      if (item.is_undefined() && args[1] != nullptr) item = *args[1];
    }
    return NewList(budget, std::move(items));
  }
  const Value& name = arguments.positional[0];
  const FilterDef* filter = name.is_string() ? FindFilter(name.AsString()) : nullptr;
  if (filter == nullptr) {
    return UnsupportedError("'map' with the filter '" + ToText(name).text() + "'");
  }
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (Value& item : items) {
    SPILLWAY_RETURN_IF_ERROR(budget->Steps(1));
    SPILLWAY_ASSIGN_OR_RETURN(item, filter->run(budget, item, rest));
  }
  return NewList(budget, std::move(items));
}

// select, reject, selectattr, rejectattr: keeps the items whose test is `kKeep`.
template <bool kKeep, bool kByAttribute>
Result<Value> Choose(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList items, Items(budget, input));
  Arguments rest = arguments;
  Value attribute;
  if (kByAttribute) {
    if (rest.positional.empty()) {
      return InvalidArgumentError("'selectattr' and 'rejectattr' need an attribute");
    }
    attribute = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  const TestDef* test = nullptr;
  if (!rest.positional.empty()) {
    const Value name = rest.positional[0];
    test = name.is_string() ? FindTest(name.AsString()) : nullptr;
    if (test == nullptr) {
      return UnsupportedError("selecting with the test '" + ToText(name).text() + "'");
    }
    rest.positional.erase(rest.positional.begin());
  }
  ValueList chosen;
  for (const Value& item : items) {
    SPILLWAY_RETURN_IF_ERROR(budget->Steps(1));
    Value subject = item;
    if (kByAttribute) {
      SPILLWAY_ASSIGN_OR_RETURN(subject, GetPath(budget, item, attribute));
    }
    bool passes = IsTrue(subject);
    if (test != nullptr) {
      SPILLWAY_ASSIGN_OR_RETURN(passes, test->run(budget, subject, rest));
    }
    if (passes == kKeep) chosen.push_back(item);
  }
  return NewList(budget, std::move(chosen));
}

// What items are ordered by: an attribute of each, without case unless asked.
Result<ValueList> Keys(Budget* budget, const ValueList& items, const Value* attribute,
                       bool case_sensitive) {
  ValueList keys;
  for (const Value& item : items) {
    Value key = item;
    if (attribute != nullptr && attribute->kind() != Kind::kNone) {
      SPILLWAY_ASSIGN_OR_RETURN(key, GetPath(budget, item, *attribute));
    }
    if (key.is_string() && !case_sensitive) {
      SPILLWAY_ASSIGN_OR_RETURN(key, NewString(budget, Lower(key.AsText())));
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

// A stable order of indices by their keys.
Result<std::vector<size_t>> Order(Budget* budget, const ValueList& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Values without an order would break the sort; Python fails as well.
  uint64_t weight = 0;
  for (const Value& key : keys) {
    weight += key.weight();
    SPILLWAY_RETURN_IF_ERROR(Compare(keys[0], key).status());
    if (key.is_sequence()) return UnsupportedError("sorting by lists");
  }
  SPILLWAY_RETURN_IF_ERROR(budget->Steps(weight / 4));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Result<int> compared = Compare(keys[a], keys[b]);
    return compared.ok() && (reverse ? *compared > 0 : *compared < 0);
  });
  return order;
}

Result<Value> Sort(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args,
                            Bind(arguments, "sort", {"reverse", "case_sensitive", "attribute"}));
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList items, Items(budget, input));
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList keys, Keys(budget, items, args[2], IsOn(args[1])));
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<size_t> order, Order(budget, keys, IsOn(args[0])));
  ValueList sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  return NewList(budget, std::move(sorted));
}

Result<Value> DictSort(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args,
                            Bind(arguments, "dictsort", {"case_sensitive", "by", "reverse"}));
  const std::string by = args[1] != nullptr ? ToText(*args[1]).text() : "key";
  if (by != "key" && by != "value") return InvalidArgumentError("'dictsort' is by key or value");
  SPILLWAY_ASSIGN_OR_RETURN(const Value items, ItemsFilter(budget, input, {}));
  const Value index = Value::Int(by == "key" ? 0 : 1);
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList keys,
                            Keys(budget, items.AsList(), &index, IsOn(args[0])));
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<size_t> order, Order(budget, keys, IsOn(args[2])));
  ValueList sorted;
  for (const size_t i : order) sorted.push_back(items.AsList()[i]);
  return NewList(budget, std::move(sorted));
}

template <bool kMax>
Result<Value> Extreme(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args,
                            Bind(arguments, kMax ? "max" : "min", {"case_sensitive", "attribute"}));
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList items, Items(budget, input));
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList keys, Keys(budget, items, args[1], IsOn(args[0])));
  if (items.empty()) return Value::Undefined("no item");
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    SPILLWAY_RETURN_IF_ERROR(budget->Steps(keys[i].weight() / 64));
    SPILLWAY_ASSIGN_OR_RETURN(const int order, Compare(keys[i], keys[best]));
    if (kMax ? order > 0 : order < 0) best = i;
  }
  return items[best];
}

Result<Value> Unique(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args,
                            Bind(arguments, "unique", {"case_sensitive", "attribute"}));
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList items, Items(budget, input));
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList keys, Keys(budget, items, args[1], IsOn(args[0])));
  ValueList kept, seen;
  for (size_t i = 0; i < items.size(); ++i) {
    SPILLWAY_RETURN_IF_ERROR(budget->Steps(seen.size() * (1 + keys[i].weight() / 64) / 4));
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&](const Value& key) { return Equals(key, keys[i]); });
    if (known) continue;
    seen.push_back(keys[i]);
    kept.push_back(items[i]);
  }
  return NewList(budget, std::move(kept));
}

Result<Value> Sum(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, "sum", {"attribute", "start"}));
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList items, Items(budget, input));
  Value sum = args[1] != nullptr ? *args[1] : Value::Int(0);
  if (sum.is_string()) return InvalidArgumentError("'sum' does not add strings");
  for (const Value& item : items) {
    Value part = item;
    if (IsGiven(args[0])) {
      SPILLWAY_ASSIGN_OR_RETURN(part, GetPath(budget, item, *args[0]));
    }
    SPILLWAY_ASSIGN_OR_RETURN(sum, Binary(budget, "+", sum, part));
  }
  return sum;
}

Result<Value> Attr(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, "attr", {"name"}, 1));
  if (!args[0]->is_string()) return InvalidArgumentError("'attr' needs a name");
  // Unlike a dot it does not look into mappings.
  if (input.kind() == Kind::kDict && !HasMethod(input, args[0]->AsString())) {
    return Value::Undefined(args[0]->AsString());
  }
  return GetAttribute(budget, input, args[0]->AsString());
}

constexpr FilterDef kFilters[] = {
    {"length", Length},
    {"count", Length},
    {"first", First},
    {"last", Last},
    {"list", ToList},
    {"items", ItemsFilter},
    {"join", Join},
    {"reverse", Reverse},
    {"map", Map},
    {"select", Choose<true, false>},
    {"reject", Choose<false, false>},
    {"selectattr", Choose<true, true>},
    {"rejectattr", Choose<false, true>},
    {"sort", Sort},
    {"dictsort", DictSort},
    {"min", Extreme<false>},
    {"max", Extreme<true>},
    {"unique", Unique},
    {"sum", Sum},
    {"attr", Attr},
};

}  // namespace

const FilterDef* FindSequenceFilter(std::string_view name) {
  const auto at = std::find_if(std::begin(kFilters), std::end(kFilters),
                               [name](const FilterDef& filter) { return filter.name == name; });
  return at == std::end(kFilters) ? nullptr : at;
}

}  // namespace spillway::jinja
