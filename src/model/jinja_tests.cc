// The tests: what may follow "is".

#include <algorithm>

#include "model/jinja_builtins.h"
#include "model/jinja_string_ops.h"

namespace spillway::jinja {
namespace {

template <bool (*kPredicate)(const Value&)>
Result<bool> Simple(Budget*, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN([[maybe_unused]] const auto args, Bind(arguments, "is", {}));
  return kPredicate(input);
}

bool IsDefined(const Value& v) { return !v.is_undefined(); }
bool IsUndefined(const Value& v) { return v.is_undefined(); }
bool IsNone(const Value& v) { return v.kind() == Kind::kNone; }
bool IsBoolean(const Value& v) { return v.kind() == Kind::kBool; }
bool IsTheTrue(const Value& v) { return IsBoolean(v) && v.AsInt() != 0; }
bool IsTheFalse(const Value& v) { return IsBoolean(v) && v.AsInt() == 0; }
bool IsInteger(const Value& v) { return v.kind() == Kind::kInt; }
bool IsFloat(const Value& v) { return v.kind() == Kind::kFloat; }
bool IsNumber(const Value& v) { return v.is_number(); }
bool IsString(const Value& v) { return v.is_string(); }
bool IsMapping(const Value& v) { return v.kind() == Kind::kDict; }
bool IsCallable(const Value& v) { return v.kind() == Kind::kCallable; }
bool IsSequence(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_sequence() || IsMapping(v);
}
bool IsIterable(const Value& v) { return IsSequence(v) || v.kind() == Kind::kLoop; }
bool IsLower(const Value& v) {
  const MarkedText text = ToText(v);
  return Lower(text).text() == text.text() && Upper(text).text() != text.text();
}
bool IsUpper(const Value& v) {
  const MarkedText text = ToText(v);
  return Upper(text).text() == text.text() && Lower(text).text() != text.text();
}

template <int kRemainder>
Result<bool> Parity(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN([[maybe_unused]] const auto args, Bind(arguments, "is", {}));
  SPILLWAY_ASSIGN_OR_RETURN(const Value rest, Binary(budget, "%", input, Value::Int(2)));
  return Equals(rest, Value::Int(kRemainder));
}

Result<bool> DivisibleBy(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, "divisibleby", {"num"}, 1));
  SPILLWAY_ASSIGN_OR_RETURN(const Value rest, Binary(budget, "%", input, *args[0]));
  return !IsTrue(rest);
}

constexpr char kEq[] = "==", kNe[] = "!=", kLt[] = "<", kLe[] = "<=", kGt[] = ">",
               kGe[] = ">=", kIn[] = "in";

template <const char* kOp>
Result<bool> Comparison(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, kOp, {"other"}, 1));
  return CompareWith(budget, kOp, input, *args[0]);
}

// Identity: only for what has one value of its kind is that the same as equality.
Result<bool> SameAs(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, "sameas", {"other"}, 1));
  if (input.kind() != args[0]->kind()) return false;
  return CompareWith(budget, "==", input, *args[0]);
}

constexpr TestDef kTests[] = {
    {"defined", Simple<IsDefined>},
    {"undefined", Simple<IsUndefined>},
    {"none", Simple<IsNone>},
    {"boolean", Simple<IsBoolean>},
    {"true", Simple<IsTheTrue>},
    {"false", Simple<IsTheFalse>},
    {"integer", Simple<IsInteger>},
    {"float", Simple<IsFloat>},
    {"number", Simple<IsNumber>},
    {"string", Simple<IsString>},
    {"mapping", Simple<IsMapping>},
    {"callable", Simple<IsCallable>},
    {"sequence", Simple<IsSequence>},
    {"iterable", Simple<IsIterable>},
    {"lower", Simple<IsLower>},
    {"upper", Simple<IsUpper>},
    {"even", Parity<0>},
    {"odd", Parity<1>},
    {"divisibleby", DivisibleBy},
    {"sameas", SameAs},
    {"in", Comparison<kIn>},
    {"eq", Comparison<kEq>},
    {"equalto", Comparison<kEq>},
    {"==", Comparison<kEq>},
    {"ne", Comparison<kNe>},
    {"!=", Comparison<kNe>},
    {"lt", Comparison<kLt>},
    {"lessthan", Comparison<kLt>},
    {"<", Comparison<kLt>},
    {"le", Comparison<kLe>},
    {"<=", Comparison<kLe>},
    {"gt", Comparison<kGt>},
    {"greaterthan", Comparison<kGt>},
    {">", Comparison<kGt>},
    {"ge", Comparison<kGe>},
    {">=", Comparison<kGe>},
};

}  // namespace

const TestDef* FindTest(std::string_view name) {
  const auto at = std::find_if(std::begin(kTests), std::end(kTests),
                               [name](const TestDef& test) { return test.name == name; });
  return at == std::end(kTests) ? nullptr : at;
}

}  // namespace spillway::jinja
