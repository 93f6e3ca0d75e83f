#include "model/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/utf8.h"

namespace spillway::jinja {
namespace {

// Stops growing where a value is refused, so that sums cannot overflow.
uint64_t AddWeight(uint64_t a, uint64_t b) { return std::min(a + b, 2 * kMaxValueWeight); }

}  // namespace

Value Value::Undefined(std::string_view name) {
  Value value;
  value.object_ = std::make_shared<const std::string>(name);
  return value;
}

Value Value::None() {
  Value value;
  value.kind_ = Kind::kNone;
  return value;
}

Value Value::Bool(bool b) {
  Value value;
  value.kind_ = Kind::kBool;
  value.int_ = b ? 1 : 0;
  return value;
}

Value Value::Int(int64_t i) {
  Value value;
  value.kind_ = Kind::kInt;
  value.int_ = i;
  return value;
}

Value Value::Float(double d) {
  Value value;
  value.kind_ = Kind::kFloat;
  value.double_ = d;
  return value;
}

Value Value::String(MarkedText text) {
  Value value;
  value.kind_ = Kind::kString;
  value.weight_ = AddWeight(8, text.size());
  value.object_ = std::make_shared<const MarkedText>(std::move(text));
  return value;
}

Value Value::List(ValueList items) {
  Value value;
  value.kind_ = Kind::kList;
  for (const Value& item : items) {
    value.depth_ = std::max(value.depth_, item.depth_);
    value.weight_ = AddWeight(value.weight_, item.weight_);
  }
  ++value.depth_;
  value.object_ = std::make_shared<const ValueList>(std::move(items));
  return value;
}

Value Value::Tuple(ValueList items) {
  Value value = List(std::move(items));
  value.kind_ = Kind::kTuple;
  return value;
}

Value Value::Dict(ValueItems items) {
  Value value;
  value.kind_ = Kind::kDict;
  for (const auto& [key, item] : items) {
    value.depth_ = std::max({value.depth_, key.depth_, item.depth_});
    value.weight_ = AddWeight(value.weight_, AddWeight(key.weight_, item.weight_));
  }
  ++value.depth_;
  value.object_ = std::make_shared<const ValueItems>(std::move(items));
  return value;
}

Value Value::OfNamespace(Namespace* space) {
  Value value;
  value.kind_ = Kind::kNamespace;
  value.namespace_ = space;
  return value;
}

Value Value::Loop(std::shared_ptr<const LoopObject> loop) {
  Value value;
  value.kind_ = Kind::kLoop;
  value.depth_ = loop->value_depth + 1;
  value.object_ = std::move(loop);
  return value;
}

Value Value::Callable(std::shared_ptr<const CallableObject> callable) {
  Value value;
  value.kind_ = Kind::kCallable;
  value.depth_ = callable->self.depth() + 1;
  value.object_ = std::move(callable);
  return value;
}

bool Value::is_number() const { return is_integral() || kind_ == Kind::kFloat; }
bool Value::is_integral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }

double Value::AsDouble() const {
  return kind_ == Kind::kFloat ? double_ : static_cast<double>(int_);
}

const MarkedText& Value::AsText() const { return *static_cast<const MarkedText*>(object_.get()); }
const ValueList& Value::AsList() const { return *static_cast<const ValueList*>(object_.get()); }
const ValueItems& Value::AsDict() const { return *static_cast<const ValueItems*>(object_.get()); }
const LoopObject& Value::AsLoop() const { return *static_cast<const LoopObject*>(object_.get()); }
const CallableObject& Value::AsCallable() const {
  return *static_cast<const CallableObject*>(object_.get());
}

const std::string& Value::UndefinedName() const {
  static const auto* const unnamed = new std::string("value");
  return object_ == nullptr ? *unnamed : *static_cast<const std::string*>(object_.get());
}

const Value* Namespace::Find(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::Set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(name, std::move(value));
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kLoop:
      return "loop";
    case Kind::kCallable:
      return "function";
  }
  return "value";
}

int64_t LengthOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(CountUtf8(value.AsString()));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.AsList().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.AsDict().size());
    case Kind::kLoop:
      return static_cast<int64_t>(value.AsLoop().items->size());
    default:
      return -1;
  }
}

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.AsInt() != 0;
    case Kind::kFloat:
      return value.AsDouble() != 0;
    case Kind::kString:
      return !value.AsText().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return LengthOf(value) != 0;
    default:
      return true;
  }
}

bool Equals(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.AsInt() == b.AsInt();
  if (a.is_number() && b.is_number()) return a.AsDouble() == b.AsDouble();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      return a.AsString() == b.AsString();
    case Kind::kList:
    case Kind::kTuple: {
      const ValueList &x = a.AsList(), &y = b.AsList();
      return std::equal(x.begin(), x.end(), y.begin(), y.end(), Equals);
    }
    case Kind::kDict: {
      if (a.AsDict().size() != b.AsDict().size()) return false;
      return std::all_of(a.AsDict().begin(), a.AsDict().end(), [&b](const auto& item) {
        const Value* other = FindInDict(b, item.first);
        return other != nullptr && Equals(item.second, *other);
      });
    }
    case Kind::kNamespace:
      return a.AsNamespace() == b.AsNamespace();
    case Kind::kLoop:
      return &a.AsLoop() == &b.AsLoop();
    case Kind::kCallable:
      return &a.AsCallable() == &b.AsCallable();
    default:
      return true;  // undefined, None
  }
}

Result<int> Compare(const Value& a, const Value& b) {
  const auto sign = [](auto x, auto y) { return x < y ? -1 : (y < x ? 1 : 0); };
  if (a.is_integral() && b.is_integral()) return sign(a.AsInt(), b.AsInt());
  if (a.is_number() && b.is_number()) return sign(a.AsDouble(), b.AsDouble());
  // Bytes of UTF-8 sort as their code points do.
  if (a.is_string() && b.is_string()) return sign(a.AsString(), b.AsString());
  if (a.is_sequence() && a.kind() == b.kind()) {
    const ValueList &x = a.AsList(), &y = b.AsList();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!Equals(x[i], y[i])) return Compare(x[i], y[i]);
    }
    return sign(x.size(), y.size());
  }
  return InvalidArgumentError("cannot order " + std::string(TypeName(a)) + " and " +
                              std::string(TypeName(b)));
}

const Value* FindInDict(const Value& dict, const Value& key) {
  for (const auto& [k, value] : dict.AsDict()) {
    if (Equals(k, key)) return &value;
  }
  return nullptr;
}

const Value* FindInDict(const Value& dict, std::string_view key) {
  for (const auto& [k, value] : dict.AsDict()) {
    if (k.is_string() && k.AsString() == key) return &value;
  }
  return nullptr;
}

Result<ValueList> Iterate(const Value& value) {
  ValueList items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kList:
    case Kind::kTuple:
      return value.AsList();
    case Kind::kDict:
      for (const auto& item : value.AsDict()) items.push_back(item.first);
      return items;
    case Kind::kString: {
      const MarkedText& text = value.AsText();
      for (size_t at = 0; at < text.size();) {
        const size_t size = Utf8SizeAt(text.text(), at);
        items.push_back(Value::String(text.Range(at, at + size)));
        at += size;
      }
      return items;
    }
    default:
      return InvalidArgumentError("a value of type " + std::string(TypeName(value)) +
                                  " cannot be iterated over");
  }
}

}  // namespace spillway::jinja
