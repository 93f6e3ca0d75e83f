// What templates can use without defining it: filters, tests, methods, the
// operators' meaning, and the budget that all of them draw on.

#ifndef SPILLWAY_MODEL_JINJA_BUILTINS_H_
#define SPILLWAY_MODEL_JINJA_BUILTINS_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja_value.h"
#include "spillway/status.h"

namespace spillway::jinja {

// Bounds what one rendering may take. Both calls are kResourceExhausted once
// their limit is passed.
class Budget {
 public:
  Budget(uint64_t steps, uint64_t bytes) : steps_left_(steps), bytes_left_(bytes) {}
  Status Steps(uint64_t count);
  // Bytes of new strings and containers; also costs steps.
  Status Bytes(uint64_t count);
  // A container just made: not too deep and not too large?
  Status Check(const Value& value);

 private:
  uint64_t steps_left_, bytes_left_;
};

struct Arguments {
  ValueList positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The arguments in the order of `names`; null where absent. Fails for one too
// many, an unknown name, or when one of the first `required` is absent.
Result<std::vector<const Value*>> Bind(const Arguments& arguments, std::string_view callee,
                                       std::initializer_list<const char*> names,
                                       size_t required = 0);

struct FilterDef {
  std::string_view name;
  Result<Value> (*run)(Budget* budget, const Value& input, const Arguments& arguments);
};
struct TestDef {
  std::string_view name;
  Result<bool> (*run)(Budget* budget, const Value& input, const Arguments& arguments);
};
// Null when there is none of this name.
const FilterDef* FindFilter(std::string_view name);
const TestDef* FindTest(std::string_view name);
// The two halves of FindFilter.
const FilterDef* FindTextFilter(std::string_view name);
const FilterDef* FindSequenceFilter(std::string_view name);

// Whether values of this kind have the method, and calling it.
bool HasMethod(const Value& self, std::string_view name);
Result<Value> CallMethod(Budget* budget, const Value& self, const std::string& name,
                         const Arguments& arguments);

// value.name and value[key]; what is not there is undefined. An attribute of an
// undefined value is an error.
Result<Value> GetAttribute(Budget* budget, const Value& value, std::string_view name);
Result<Value> GetItem(Budget* budget, const Value& value, const Value& key);
// value[start:stop:step]; null or None = absent.
Result<Value> GetSlice(Budget* budget, const Value& value, const Value* start, const Value* stop,
                       const Value* step);
// "a.b.0" as the filters' argument `attribute` has it.
Result<Value> GetPath(Budget* budget, const Value& value, const Value& path);

// + - * / // % ** ~
Result<Value> Binary(Budget* budget, std::string_view op, const Value& left, const Value& right);
Result<Value> Negate(const Value& value);
// == != < <= > >= in, not in
Result<bool> CompareWith(Budget* budget, std::string_view op, const Value& left,
                         const Value& right);

// A new string, paid for.
Result<Value> NewString(Budget* budget, MarkedText text);
Result<Value> NewList(Budget* budget, ValueList items);

}  // namespace spillway::jinja

#endif  // SPILLWAY_MODEL_JINJA_BUILTINS_H_
