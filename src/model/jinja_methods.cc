// Methods of strings, dictionaries and lists. Those that would change a
// container are missing: templates run in a sandbox that forbids them.

#include <algorithm>
#include <utility>

#include "model/jinja_builtins.h"
#include "model/jinja_string_ops.h"

namespace spillway::jinja {
namespace {

using Method = Result<Value> (*)(Budget* budget, const Value& self, const std::string& name,
                                 const Arguments& arguments);
struct MethodDef {
  std::string_view name;
  Method run;
};

Status WrongType(std::string_view callee, std::string_view expected, const Value& got) {
  return InvalidArgumentError("'" + std::string(callee) + "' needs " + std::string(expected) +
                              ", got " + std::string(TypeName(got)));
}

bool IsAbsent(const Value* value) { return value == nullptr || value->kind() == Kind::kNone; }

// An optional string; null when absent or None.
Result<const std::string*> OptionalText(const std::string& callee, const Value* value) {
  const std::string* text = nullptr;
  if (IsAbsent(value)) return text;
  if (!value->is_string()) return WrongType(callee, "a string", *value);
  text = &value->AsString();
  return text;
}

Result<int64_t> IntOr(const std::string& callee, const Value* value, int64_t otherwise) {
  if (value == nullptr) return otherwise;
  if (!value->is_integral()) return WrongType(callee, "an integer", *value);
  return value->AsInt();
}

Result<Value> ListOfTexts(Budget* budget, std::vector<MarkedText> texts) {
  ValueList items;
  items.reserve(texts.size());
  for (MarkedText& text : texts) {
    SPILLWAY_ASSIGN_OR_RETURN(Value item, NewString(budget, std::move(text)));
    items.push_back(std::move(item));
  }
  return NewList(budget, std::move(items));
}

// --- strings

Result<Value> StartsOrEnds(Budget*, const Value& self, const std::string& name,
                           const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, name, {"prefix"}, 1));
  const bool starts = name == "startswith";
  const auto matches = [&](const Value& part) {
    return starts ? self.AsString().starts_with(part.AsString())
                  : self.AsString().ends_with(part.AsString());
  };
  ValueList parts = {*args[0]};
  if (args[0]->kind() == Kind::kTuple) parts = args[0]->AsList();
  for (const Value& part : parts) {
    if (!part.is_string()) return WrongType(name, "a string or a tuple of strings", part);
  }
  return Value::Bool(std::any_of(parts.begin(), parts.end(), matches));
}

Result<Value> SplitText(Budget* budget, const Value& self, const std::string& name,
                        const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, name, {"sep", "maxsplit"}));
  SPILLWAY_ASSIGN_OR_RETURN(const std::string* separator, OptionalText(name, args[0]));
  SPILLWAY_ASSIGN_OR_RETURN(const int64_t limit, IntOr(name, args[1], -1));
  if (separator != nullptr && separator->empty()) {
    return InvalidArgumentError("'" + name + "' needs a separator that is not empty");
  }
  // Each part costs more than its bytes.
  const uint64_t parts = separator == nullptr ? self.AsText().size() / 2
                                              : CountOccurrences(self.AsString(), *separator);
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(parts * 64));
  return ListOfTexts(budget, name == "split" ? Split(self.AsText(), separator, limit)
                                             : SplitFromRight(self.AsText(), separator, limit));
}

Result<Value> Partition(Budget* budget, const Value& self, const std::string& name,
                        const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, name, {"sep"}, 1));
  SPILLWAY_ASSIGN_OR_RETURN(const std::string* separator, OptionalText(name, args[0]));
  if (separator == nullptr || separator->empty()) {
    return InvalidArgumentError("'" + name + "' needs a separator that is not empty");
  }
  const MarkedText& text = self.AsText();
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(text.size()));
  const bool from_left = name == "partition";
  const size_t at = from_left ? text.text().find(*separator) : text.text().rfind(*separator);
  if (at == std::string::npos) {
    const Value nothing = Value::String("");
    return from_left ? Value::Tuple({self, nothing, nothing})
                     : Value::Tuple({nothing, nothing, self});
  }
  const size_t end = at + separator->size();
  return Value::Tuple({Value::String(text.Range(0, at)), Value::String(text.Range(at, end)),
                       Value::String(text.Range(end, text.size()))});
}

Result<Value> StripText(Budget* budget, const Value& self, const std::string& name,
                        const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, name, {"chars"}));
  SPILLWAY_ASSIGN_OR_RETURN(const std::string* chars, OptionalText(name, args[0]));
  if (chars != nullptr) {
    SPILLWAY_RETURN_IF_ERROR(budget->Steps(self.AsText().size() / 64 * chars->size() / 16));
  }
  return NewString(budget, Strip(self.AsText(), chars, name != "rstrip", name != "lstrip"));
}

Result<Value> ChangeCase(Budget* budget, const Value& self, const std::string& name,
                         const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN([[maybe_unused]] const auto args, Bind(arguments, name, {}));
  const MarkedText& text = self.AsText();
  if (name == "upper") return NewString(budget, Upper(text));
  if (name == "lower") return NewString(budget, Lower(text));
  if (name == "title") return NewString(budget, Title(text, TitleStyle::kMethod));
  return NewString(budget, Capitalize(text));
}

Result<Value> ReplaceText(Budget* budget, const Value& self, const std::string& name,
                          const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, name, {"old", "new", "count"}, 2));
  for (int i = 0; i < 2; ++i) {
    if (!args[i]->is_string()) return WrongType(name, "strings", *args[i]);
  }
  SPILLWAY_ASSIGN_OR_RETURN(const int64_t limit, IntOr(name, args[2], -1));
  const uint64_t count = CountOccurrences(self.AsString(), args[0]->AsString());
  SPILLWAY_RETURN_IF_ERROR(
      budget->Bytes(count * (args[1]->AsText().size() + 16 * args[1]->AsText().runs().size())));
  return NewString(budget, Replace(self.AsText(), args[0]->AsString(), args[1]->AsText(), limit));
}

Result<Value> FindText(Budget* budget, const Value& self, const std::string& name,
                       const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, name, {"sub"}, 1));
  if (!args[0]->is_string()) return WrongType(name, "a string", *args[0]);
  const std::string &text = self.AsString(), &part = args[0]->AsString();
  SPILLWAY_RETURN_IF_ERROR(budget->Steps(text.size() / 256));
  if (name == "count") return Value::Int(static_cast<int64_t>(CountOccurrences(text, part)));
  const bool from_right = name == "rfind" || name == "rindex";
  const size_t at = from_right ? text.rfind(part) : text.find(part);
  if (at != std::string::npos) {
    return Value::Int(static_cast<int64_t>(CountUtf8(std::string_view(text).substr(0, at))));
  }
  if (name.ends_with("index")) return InvalidArgumentError("'" + name + "' found nothing");
  return Value::Int(-1);
}

Result<Value> RemoveAffix(Budget* budget, const Value& self, const std::string& name,
                          const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, name, {"affix"}, 1));
  if (!args[0]->is_string()) return WrongType(name, "a string", *args[0]);
  const MarkedText& text = self.AsText();
  const std::string& affix = args[0]->AsString();
  if (name == "removeprefix" && text.text().starts_with(affix)) {
    return NewString(budget, text.Range(affix.size(), text.size()));
  }
  if (name == "removesuffix" && text.text().ends_with(affix)) {
    return NewString(budget, text.Range(0, text.size() - affix.size()));
  }
  return self;
}

Result<Value> Lines(Budget* budget, const Value& self, const std::string& name,
                    const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, name, {"keepends"}));
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(self.AsText().size()));
  return ListOfTexts(budget, SplitLines(self.AsText(), args[0] != nullptr && IsTrue(*args[0])));
}

Result<Value> JoinTexts(Budget* budget, const Value& self, const std::string& name,
                        const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, name, {"iterable"}, 1));
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(args[0]->weight()));
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList items, Iterate(*args[0]));
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(items.size() * self.weight()));
  MarkedText text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) return WrongType(name, "strings", items[i]);
    if (i > 0) text.Append(self.AsText());
    text.Append(items[i].AsText());
  }
  return NewString(budget, std::move(text));
}

Result<Value> IsOfClass(Budget* budget, const Value& self, const std::string& name,
                        const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN([[maybe_unused]] const auto args, Bind(arguments, name, {}));
  const std::string& text = self.AsString();
  SPILLWAY_RETURN_IF_ERROR(budget->Steps(text.size() / 64));
  const bool lower = name == "islower", upper = name == "isupper";
  bool all = !text.empty(), cased = false;
  for (size_t at = 0; at < text.size() && all;) {
    const Utf8Part part = NextUtf8Part(std::string_view(text).substr(at));
    const char32_t c = part.code_point;
    const bool digit = c >= '0' && c <= '9';
    const bool is_lower = ToUpperCodePoint(c) != c || c == 0xDF,
               is_upper = ToLowerCodePoint(c) != c;
    // Without tables of all scripts, characters beyond Latin-1 count as letters.
    const bool letter = is_lower || is_upper || c >= 0x100;
    cased = cased || is_lower || is_upper;
    if (name == "isdigit") all = digit;
    if (name == "isalpha") all = letter;
    if (name == "isalnum") all = digit || letter;
    if (name == "isspace") all = IsUnicodeSpace(c);
    if (lower) all = !is_upper;
    if (upper) all = !is_lower;
    at += part.size;
  }
  return Value::Bool(all && (cased || !(lower || upper)));
}

constexpr MethodDef kStringMethods[] = {
    {"startswith", StartsOrEnds}, {"endswith", StartsOrEnds},    {"split", SplitText},
    {"rsplit", SplitText},        {"partition", Partition},      {"rpartition", Partition},
    {"strip", StripText},         {"lstrip", StripText},         {"rstrip", StripText},
    {"upper", ChangeCase},        {"lower", ChangeCase},         {"title", ChangeCase},
    {"capitalize", ChangeCase},   {"replace", ReplaceText},      {"find", FindText},
    {"rfind", FindText},          {"index", FindText},           {"rindex", FindText},
    {"count", FindText},          {"removeprefix", RemoveAffix}, {"removesuffix", RemoveAffix},
    {"splitlines", Lines},        {"join", JoinTexts},           {"isdigit", IsOfClass},
    {"isalpha", IsOfClass},       {"isalnum", IsOfClass},        {"isspace", IsOfClass},
    {"islower", IsOfClass},       {"isupper", IsOfClass},
};

// --- dictionaries, lists, loops

Result<Value> DictGet(Budget* budget, const Value& self, const std::string& name,
                      const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, name, {"key", "default"}, 1));
  SPILLWAY_RETURN_IF_ERROR(budget->Steps(self.AsDict().size() / 16));
  const Value* found = FindInDict(self, *args[0]);
  if (found != nullptr) return *found;
  return args[1] != nullptr ? *args[1] : Value::None();
}

Result<Value> DictParts(Budget* budget, const Value& self, const std::string& name,
                        const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN([[maybe_unused]] const auto args, Bind(arguments, name, {}));
  ValueList parts;
  for (const auto& [key, value] : self.AsDict()) {
    parts.push_back(name == "items" ? Value::Tuple({key, value}) : name == "keys" ? key : value);
  }
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(parts.size() * 4 * sizeof(Value)));
  return NewList(budget, std::move(parts));
}

Result<Value> ListFind(Budget* budget, const Value& self, const std::string& name,
                       const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, name, {"value"}, 1));
  SPILLWAY_RETURN_IF_ERROR(budget->Steps(self.weight() / 64));
  const ValueList& items = self.AsList();
  const auto equal = [&args](const Value& item) { return Equals(item, *args[0]); };
  if (name == "count") return Value::Int(std::count_if(items.begin(), items.end(), equal));
  const auto at = std::find_if(items.begin(), items.end(), equal);
  if (at == items.end()) return InvalidArgumentError("'index' found nothing");
  return Value::Int(at - items.begin());
}

Result<Value> LoopCycle(Budget*, const Value& self, const std::string& name,
                        const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) {
    return InvalidArgumentError("'" + name + "' needs values to cycle through");
  }
  return arguments.positional[self.AsLoop().index % arguments.positional.size()];
}

constexpr MethodDef kDictMethods[] = {
    {"get", DictGet}, {"items", DictParts}, {"keys", DictParts}, {"values", DictParts}};
constexpr MethodDef kListMethods[] = {{"index", ListFind}, {"count", ListFind}};
constexpr MethodDef kLoopMethods[] = {{"cycle", LoopCycle}};

template <size_t N>
Method FindIn(const MethodDef (&methods)[N], std::string_view name) {
  for (const MethodDef& method : methods) {
    if (method.name == name) return method.run;
  }
  return nullptr;
}

Method FindMethod(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kString:
      return FindIn(kStringMethods, name);
    case Kind::kDict:
      return FindIn(kDictMethods, name);
    case Kind::kList:
    case Kind::kTuple:
      return FindIn(kListMethods, name);
    case Kind::kLoop:
      return FindIn(kLoopMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace

bool HasMethod(const Value& self, std::string_view name) {
  return FindMethod(self, name) != nullptr;
}

Result<Value> CallMethod(Budget* budget, const Value& self, const std::string& name,
                         const Arguments& arguments) {
  const Method method = FindMethod(self, name);
  if (method == nullptr) return InternalError("no method '" + name + "'");
  return method(budget, self, name, arguments);
}

}  // namespace spillway::jinja
