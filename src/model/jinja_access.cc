// Attributes, items and slices.

#include <algorithm>
#include <charconv>

#include "model/jinja_builtins.h"
#include "model/jinja_string_ops.h"

namespace spillway::jinja {
namespace {

Result<Value> LoopAttribute(const LoopObject& loop, std::string_view name) {
  const auto index = static_cast<int64_t>(loop.index);
  const auto length = static_cast<int64_t>(loop.items->size());
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "revindex") return Value::Int(length - index);
  if (name == "revindex0") return Value::Int(length - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == length);
  if (name == "length") return Value::Int(length);
  // These count recursion of one loop, which is not supported, not loops in loops.
  if (name == "depth") return Value::Int(1);
  if (name == "depth0") return Value::Int(0);
  if (name == "previtem") {
    return index > 0 ? (*loop.items)[loop.index - 1] : Value::Undefined("previtem");
  }
  if (name == "nextitem") {
    return index + 1 < length ? (*loop.items)[loop.index + 1] : Value::Undefined("nextitem");
  }
  if (name == "changed") return UnsupportedError("'loop.changed' is not supported");
  return Value::Undefined(name);
}

// The element of a sequence; undefined when out of range.
Value Element(const Value& value, int64_t index) {
  const int64_t length = LengthOf(value);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return Value::Undefined(std::to_string(index));
  if (value.is_sequence()) return value.AsList()[static_cast<size_t>(index)];
  const MarkedText& text = value.AsText();
  const size_t begin = ByteOfCharacter(text.text(), static_cast<size_t>(index));
  return Value::String(text.Range(begin, begin + Utf8SizeAt(text.text(), begin)));
}

Status ErrorOfUndefined(const Value& value, const std::string& what) {
  return InvalidArgumentError("'" + value.UndefinedName() + "' is undefined, so it has no " + what);
}

// A bound of a slice in [low, high] (Python's rule for negative and absent ones).
Result<int64_t> Bound(const Value* bound, int64_t absent, int64_t length, int64_t low,
                      int64_t high) {
  if (bound == nullptr || bound->kind() == Kind::kNone) return absent;
  if (!bound->is_integral()) {
    return InvalidArgumentError("a slice needs integers, got " + std::string(TypeName(*bound)));
  }
  int64_t at = bound->AsInt();
  if (at < 0) at = at < -length ? -1 : at + length;
  return std::clamp(at, low, high);
}

}  // namespace

Result<Value> GetAttribute(Budget* budget, const Value& value, std::string_view name) {
  if (value.is_undefined()) return ErrorOfUndefined(value, "attribute '" + std::string(name) + "'");
  if (HasMethod(value, name)) {
    auto method = std::make_shared<CallableObject>();
    method->type = CallableObject::Type::kMethod;
    method->name = std::string(name);
    method->self = value;
    Value bound = Value::Callable(std::move(method));
    SPILLWAY_RETURN_IF_ERROR(budget->Check(bound));
    return bound;
  }
  const Value* found = nullptr;
  switch (value.kind()) {
    case Kind::kLoop:
      return LoopAttribute(value.AsLoop(), name);
    case Kind::kNamespace:
      found = value.AsNamespace()->Find(name);
      break;
    case Kind::kDict:
      SPILLWAY_RETURN_IF_ERROR(budget->Steps(value.AsDict().size() / 16));
      found = FindInDict(value, name);
      break;
    default:
      break;
  }
  return found != nullptr ? *found : Value::Undefined(name);
}

Result<Value> GetItem(Budget* budget, const Value& value, const Value& key) {
  if (value.is_undefined()) return ErrorOfUndefined(value, "items");
  if (value.kind() == Kind::kDict) {
    SPILLWAY_RETURN_IF_ERROR(budget->Steps(value.AsDict().size() * (1 + key.weight() / 64) / 8));
    const Value* found = FindInDict(value, key);
    if (found != nullptr) return *found;
  } else if (key.is_integral() && (value.is_string() || value.is_sequence())) {
    if (value.is_string()) SPILLWAY_RETURN_IF_ERROR(budget->Steps(value.AsText().size() / 256));
    return Element(value, key.AsInt());
  }
  if (key.is_string()) return GetAttribute(budget, value, key.AsString());
  return Value::Undefined(ToText(key).text());
}

Result<Value> GetSlice(Budget* budget, const Value& value, const Value* start, const Value* stop,
                       const Value* step) {
  if (value.is_undefined()) return ErrorOfUndefined(value, "items");
  if (!value.is_string() && !value.is_sequence()) {
    return Value::Undefined("slice");
  }
  int64_t stride = 1;
  if (step != nullptr && step->kind() != Kind::kNone) {
    if (!step->is_integral() || step->AsInt() == 0) {
      return InvalidArgumentError("the step of a slice is an integer other than 0");
    }
    stride = std::clamp<int64_t>(step->AsInt(), -(int64_t{1} << 40), int64_t{1} << 40);
  }
  const int64_t length = LengthOf(value);
  const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? length : length - 1;
  SPILLWAY_ASSIGN_OR_RETURN(const int64_t from,
                            Bound(start, stride > 0 ? low : high, length, low, high));
  SPILLWAY_ASSIGN_OR_RETURN(const int64_t to,
                            Bound(stop, stride > 0 ? high : low, length, low, high));
  if (value.is_string() && stride == 1) {
    const MarkedText& text = value.AsText();
    SPILLWAY_RETURN_IF_ERROR(budget->Steps(text.size() / 64));
    const size_t begin = ByteOfCharacter(text.text(), static_cast<size_t>(from));
    const size_t end = ByteOfCharacter(text.text(), static_cast<size_t>(std::max(from, to)));
    return NewString(budget, text.Range(begin, end));
  }
  if (value.is_string()) SPILLWAY_RETURN_IF_ERROR(budget->Bytes(value.AsText().size() * 64));
  SPILLWAY_ASSIGN_OR_RETURN(const ValueList items, Iterate(value));
  SPILLWAY_RETURN_IF_ERROR(budget->Steps(items.size() / 4));
  ValueList picked;
  for (int64_t i = from; stride > 0 ? i < to : i > to; i += stride) {
    picked.push_back(items[static_cast<size_t>(i)]);
  }
  if (value.kind() == Kind::kTuple) return Value::Tuple(std::move(picked));
  if (value.kind() == Kind::kList) return NewList(budget, std::move(picked));
  MarkedText text;
  for (const Value& item : picked) text.Append(item.AsText());
  return NewString(budget, std::move(text));
}

Result<Value> GetPath(Budget* budget, const Value& value, const Value& path) {
  if (!path.is_string()) return GetItem(budget, value, path);
  Value current = value;
  std::string_view rest = path.AsString();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = error == std::errc() && end == part.data() + part.size() && index >= 0;
    SPILLWAY_ASSIGN_OR_RETURN(
        current, GetItem(budget, current, is_index ? Value::Int(index) : Value::String(part)));
    if (dot == std::string_view::npos) return current;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace spillway::jinja
