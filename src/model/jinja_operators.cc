// Arithmetic and comparison.

#include <algorithm>
#include <cmath>

#include "model/jinja_builtins.h"

namespace spillway::jinja {
namespace {

Status TypeError(std::string_view op, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right}) {
    if (value->is_undefined()) {
      return InvalidArgumentError("'" + value->UndefinedName() + "' is undefined, so '" +
                                  std::string(op) + "' cannot take it");
    }
  }
  return InvalidArgumentError("'" + std::string(op) + "' cannot take " +
                              std::string(TypeName(left)) + " and " + std::string(TypeName(right)));
}

Status Overflow() { return InvalidArgumentError("an integer does not fit into 64 bits"); }

Result<Value> IntPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return InvalidArgumentError("0 to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  if (base == 0 || base == 1) return Value::Int(exponent == 0 ? 1 : base);
  if (base == -1) return Value::Int(exponent % 2 == 0 ? 1 : -1);
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) return Overflow();
  }
  return Value::Int(result);
}

// Python rounds the quotient down and gives the remainder the divisor's sign.
Result<Value> IntDivision(std::string_view op, int64_t a, int64_t b) {
  if (b == 0) return InvalidArgumentError("division by zero");
  if (b == -1) {
    int64_t negated = 0;
    if (op == "%") return Value::Int(0);
    if (__builtin_sub_overflow(int64_t{0}, a, &negated)) return Overflow();
    return Value::Int(negated);
  }
  int64_t quotient = a / b, remainder = a % b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    --quotient;
    remainder += b;
  }
  return Value::Int(op == "%" ? remainder : quotient);
}

Result<Value> IntArithmetic(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") overflow = __builtin_add_overflow(a, b, &result);
  if (op == "-") overflow = __builtin_sub_overflow(a, b, &result);
  if (op == "*") overflow = __builtin_mul_overflow(a, b, &result);
  if (op == "//" || op == "%") return IntDivision(op, a, b);
  if (op == "**") return IntPower(a, b);
  if (op == "/") {
    if (b == 0) return InvalidArgumentError("division by zero");
    return Value::Float(static_cast<double>(a) / static_cast<double>(b));
  }
  if (overflow) return Overflow();
  return Value::Int(result);
}

Result<Value> FloatArithmetic(std::string_view op, double a, double b) {
  if (op == "+") return Value::Float(a + b);
  if (op == "-") return Value::Float(a - b);
  if (op == "*") return Value::Float(a * b);
  if (op == "**") return Value::Float(std::pow(a, b));
  if (b == 0) return InvalidArgumentError("division by zero");
  if (op == "/") return Value::Float(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == "%") return Value::Float(remainder == 0 ? std::copysign(0.0, b) : remainder);
  const double quotient = std::round((a - remainder) / b);
  return Value::Float(quotient == 0 ? std::copysign(0.0, a / b) : quotient);
}

Result<Value> Repeat(Budget* budget, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const uint64_t unit = value.is_string()
                            ? value.AsText().size() + 16 * value.AsText().runs().size()
                            : value.AsList().size() * sizeof(Value);
  uint64_t total = 0;
  if (__builtin_mul_overflow(unit, static_cast<uint64_t>(count), &total)) total = UINT64_MAX;
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(total));
  if (unit == 0) return value;
  if (value.is_string()) {
    MarkedText text;
    for (int64_t i = 0; i < count; ++i) text.Append(value.AsText());
    return Value::String(std::move(text));
  }
  ValueList items;
  for (int64_t i = 0; i < count; ++i) {
    items.insert(items.end(), value.AsList().begin(), value.AsList().end());
  }
  Value repeated =
      value.kind() == Kind::kTuple ? Value::Tuple(std::move(items)) : Value::List(std::move(items));
  SPILLWAY_RETURN_IF_ERROR(budget->Check(repeated));
  return repeated;
}

Result<Value> Concatenate(Budget* budget, const Value& left, const Value& right) {
  if (left.is_string()) {
    const MarkedText &a = left.AsText(), &b = right.AsText();
    SPILLWAY_RETURN_IF_ERROR(
        budget->Bytes(a.size() + b.size() + 16 * (a.runs().size() + b.runs().size())));
    MarkedText text = a;
    text.Append(b);
    return Value::String(std::move(text));
  }
  ValueList items = left.AsList();
  items.insert(items.end(), right.AsList().begin(), right.AsList().end());
  if (left.kind() == Kind::kTuple) {
    SPILLWAY_RETURN_IF_ERROR(budget->Bytes(items.size() * sizeof(Value)));
    Value tuple = Value::Tuple(std::move(items));
    SPILLWAY_RETURN_IF_ERROR(budget->Check(tuple));
    return tuple;
  }
  return NewList(budget, std::move(items));
}

Result<bool> Contains(Budget* budget, const Value& container, const Value& item) {
  SPILLWAY_RETURN_IF_ERROR(budget->Steps(container.weight() / 64));
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.is_string()) return TypeError("in", item, container);
      return container.AsString().find(item.AsString()) != std::string::npos;
    case Kind::kDict:
      return FindInDict(container, item) != nullptr;
    case Kind::kList:
    case Kind::kTuple:
      return std::any_of(container.AsList().begin(), container.AsList().end(),
                         [&item](const Value& other) { return Equals(other, item); });
    default:
      return TypeError("in", item, container);
  }
}

}  // namespace

Result<Value> Binary(Budget* budget, std::string_view op, const Value& left, const Value& right) {
  if (op == "~") {
    SPILLWAY_RETURN_IF_ERROR(budget->Bytes(left.weight() + right.weight()));
    MarkedText text = ToText(left);
    text.Append(ToText(right));
    return NewString(budget, std::move(text));
  }
  if (left.is_integral() && right.is_integral()) {
    return IntArithmetic(op, left.AsInt(), right.AsInt());
  }
  if (left.is_number() && right.is_number()) {
    return FloatArithmetic(op, left.AsDouble(), right.AsDouble());
  }
  if (op == "+" && left.kind() == right.kind() && (left.is_string() || left.is_sequence())) {
    return Concatenate(budget, left, right);
  }
  if (op == "*") {
    const Value& count = left.is_integral() ? left : right;
    const Value& what = left.is_integral() ? right : left;
    if (count.is_integral() && (what.is_string() || what.is_sequence())) {
      return Repeat(budget, what, count.AsInt());
    }
  }
  if (op == "%" && left.is_string()) return UnsupportedError("formatting a string with '%'");
  return TypeError(op, left, right);
}

Result<Value> Negate(const Value& value) {
  if (value.kind() == Kind::kFloat) return Value::Float(-value.AsDouble());
  if (!value.is_integral()) return TypeError("-", value, value);
  int64_t negated = 0;
  if (__builtin_sub_overflow(int64_t{0}, value.AsInt(), &negated)) return Overflow();
  return Value::Int(negated);
}

Result<bool> CompareWith(Budget* budget, std::string_view op, const Value& left,
                         const Value& right) {
  if (op == "in" || op == "not in") {
    SPILLWAY_ASSIGN_OR_RETURN(const bool contains, Contains(budget, right, left));
    return contains == (op == "in");
  }
  SPILLWAY_RETURN_IF_ERROR(budget->Steps(std::min(left.weight(), right.weight()) / 64));
  if (op == "==") return Equals(left, right);
  if (op == "!=") return !Equals(left, right);
  if (left.is_undefined() || right.is_undefined()) return TypeError(op, left, right);
  SPILLWAY_ASSIGN_OR_RETURN(const int order, Compare(left, right));
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

}  // namespace spillway::jinja
