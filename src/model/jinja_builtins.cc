#include "model/jinja_builtins.h"

#include <algorithm>

namespace spillway::jinja {

Status Budget::Steps(uint64_t count) {
  if (count > steps_left_) {
    steps_left_ = 0;
    return ResourceExhaustedError("the template takes too many steps");
  }
  steps_left_ -= count;
  return OkStatus();
}

Status Budget::Bytes(uint64_t count) {
  if (count > bytes_left_) {
    bytes_left_ = 0;
    return ResourceExhaustedError("the template makes too much text");
  }
  bytes_left_ -= count;
  return Steps(count / 256);
}

Status Budget::Check(const Value& value) {
  if (value.depth() > kMaxValueDepth) {
    return ResourceExhaustedError("the template nests values more than " +
                                  std::to_string(kMaxValueDepth) + " deep");
  }
  if (value.weight() > kMaxValueWeight) {
    return ResourceExhaustedError("the template makes a value that is too large");
  }
  return OkStatus();
}

Result<std::vector<const Value*>> Bind(const Arguments& arguments, std::string_view callee,
                                       std::initializer_list<const char*> names, size_t required) {
  std::vector<const Value*> bound(names.size(), nullptr);
  const std::string prefix = "'" + std::string(callee) + "' ";
  if (arguments.positional.size() > names.size()) {
    return InvalidArgumentError(prefix + "takes at most " + std::to_string(names.size()) +
                                " arguments, got " + std::to_string(arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) {
      return InvalidArgumentError(prefix + "has no argument '" + name + "'");
    }
    const Value*& slot = bound[static_cast<size_t>(at - names.begin())];
    if (slot != nullptr) return InvalidArgumentError(prefix + "got '" + name + "' twice");
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) {
      return InvalidArgumentError(prefix + "needs its argument '" + *(names.begin() + i) + "'");
    }
  }
  return bound;
}

Result<Value> NewString(Budget* budget, MarkedText text) {
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(text.size() + 16 * text.runs().size()));
  return Value::String(std::move(text));
}

Result<Value> NewList(Budget* budget, ValueList items) {
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(items.size() * sizeof(Value)));
  Value value = Value::List(std::move(items));
  SPILLWAY_RETURN_IF_ERROR(budget->Check(value));
  return value;
}

const FilterDef* FindFilter(std::string_view name) {
  const FilterDef* filter = FindTextFilter(name);
  return filter != nullptr ? filter : FindSequenceFilter(name);
}

}  // namespace spillway::jinja
