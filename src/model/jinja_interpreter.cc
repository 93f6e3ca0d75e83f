#include "model/jinja_interpreter.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>

#include "model/jinja_builtins.h"

namespace spillway::jinja {

// The variables of a block. A macro keeps the scope it was defined in.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> p) : parent(std::move(p)) {}
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;

  void Set(const std::string& name, Value value) {
    for (auto& [key, old] : variables) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    variables.emplace_back(name, std::move(value));
  }
};

namespace {

// Of nested evaluations; bounds the stack. Parsing bounds a template's own
// nesting, so only macros that call macros come near.
constexpr int kMaxDepth = 600;
constexpr int64_t kMaxRange = 100000;

class Interpreter {
 public:
  explicit Interpreter(const RunLimits& limits)
      : budget_(limits.steps, limits.working_bytes),
        output_bytes_(limits.output_bytes),
        scope_(std::make_shared<Scope>(nullptr)) {}

  ~Interpreter() {
    // Macros and the scopes they keep refer to each other.
    for (const auto& scope : kept_scopes_) scope->variables.clear();
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Result<MarkedText> Run(const Body& body, std::vector<std::pair<std::string, Value>> variables) {
    for (const char* name : {"range", "dict", "namespace", "raise_exception", "strftime_now"}) {
      auto function = std::make_shared<CallableObject>();
      function->name = name;
      scope_->Set(name, Value::Callable(std::move(function)));
    }
    for (auto& [name, value] : variables) scope_->Set(name, std::move(value));
    // The template's own variables are apart from the given ones.
    scope_ = std::make_shared<Scope>(scope_);
    MarkedText out;
    out_ = &out;
    SPILLWAY_RETURN_IF_ERROR(Exec(body));
    return out;
  }

 private:
  enum class Jump { kNone, kBreak, kContinue };

  struct DepthGuard {
    explicit DepthGuard(int* counter) : depth(counter) { ++*depth; }
    ~DepthGuard() { --*depth; }
    DepthGuard(const DepthGuard&) = delete;
    DepthGuard& operator=(const DepthGuard&) = delete;
    int* depth;
  };

  // Makes a new scope inside `parent` the current one while it lives.
  class ScopeGuard {
   public:
    ScopeGuard(Interpreter* owner, std::shared_ptr<Scope> parent)
        : owner_(owner), outer_(std::move(owner->scope_)) {
      owner_->scope_ = std::make_shared<Scope>(std::move(parent));
    }
    explicit ScopeGuard(Interpreter* owner) : ScopeGuard(owner, owner->scope_) {}
    ~ScopeGuard() { owner_->scope_ = std::move(outer_); }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Interpreter* owner_;
    std::shared_ptr<Scope> outer_;
  };

  Status Enter() {
    if (depth_ > kMaxDepth) {
      return ResourceExhaustedError("the template's calls are nested too deeply");
    }
    return budget_.Steps(1);
  }

  static Status AtLine(Status status, int line) {
    // The innermost place has been named already, and raise_exception() speaks
    // for itself.
    if (status.message().starts_with("line ")) return status;
    return Status(status.code(), "line " + std::to_string(line) + ": " + status.message());
  }

  // --- statements

  Status Exec(const Body& body) {
    for (const auto& stmt : body) {
      Status status = ExecOne(*stmt);
      if (!status.ok()) return raised_ ? status : AtLine(std::move(status), stmt->line);
      if (jump_ != Jump::kNone) break;
    }
    return OkStatus();
  }

  Status ExecOne(const Stmt& stmt) {
    const DepthGuard guard(&depth_);
    SPILLWAY_RETURN_IF_ERROR(Enter());
    switch (stmt.type) {
      case Stmt::Type::kText:
        return Write(stmt.text);
      case Stmt::Type::kPrint:
        return ExecPrint(stmt);
      case Stmt::Type::kIf:
        return ExecIf(stmt);
      case Stmt::Type::kFor:
        return ExecFor(stmt);
      case Stmt::Type::kSet:
        return ExecSet(stmt);
      case Stmt::Type::kSetBlock:
        return ExecSetBlock(stmt);
      case Stmt::Type::kMacro:
        scope_->Set(stmt.macro.name, MakeMacro(stmt.macro));
        return OkStatus();
      case Stmt::Type::kCallBlock:
        return ExecCallBlock(stmt);
      case Stmt::Type::kFilterBlock:
        return ExecFilterBlock(stmt);
      case Stmt::Type::kWith:
        return ExecWith(stmt);
      case Stmt::Type::kScope: {
        const ScopeGuard scope(this);
        return Exec(stmt.body);
      }
      case Stmt::Type::kBreak:
        jump_ = Jump::kBreak;
        return OkStatus();
      case Stmt::Type::kContinue:
        jump_ = Jump::kContinue;
        return OkStatus();
    }
    return OkStatus();
  }

  Status Write(const MarkedText& text) {
    if (text.size() > output_bytes_ - std::min<uint64_t>(output_bytes_, out_->size())) {
      return ResourceExhaustedError("the template's output is larger than " +
                                    std::to_string(output_bytes_ >> 20) + " MiB");
    }
    SPILLWAY_RETURN_IF_ERROR(budget_.Bytes(text.size()));
    out_->Append(text);
    return OkStatus();
  }

  Status ExecPrint(const Stmt& stmt) {
    SPILLWAY_ASSIGN_OR_RETURN(const Value value, Eval(*stmt.expr));
    if (value.is_string()) return Write(value.AsText());
    SPILLWAY_RETURN_IF_ERROR(budget_.Bytes(value.weight()));
    return Write(ToText(value));
  }

  Status ExecIf(const Stmt& stmt) {
    for (const Stmt::Branch& branch : stmt.branches) {
      SPILLWAY_ASSIGN_OR_RETURN(const Value condition, Eval(*branch.condition));
      if (IsTrue(condition)) return Exec(branch.body);
    }
    return Exec(stmt.else_body);
  }

  // The items of a loop that pass its condition.
  Result<ValueList> LoopItems(const Stmt& stmt) {
    SPILLWAY_ASSIGN_OR_RETURN(const Value value, Eval(*stmt.expr));
    const auto count = static_cast<uint64_t>(std::max<int64_t>(LengthOf(value), 0));
    SPILLWAY_RETURN_IF_ERROR(budget_.Bytes(count * (value.is_string() ? 128 : sizeof(Value))));
    SPILLWAY_ASSIGN_OR_RETURN(ValueList items, Iterate(value));
    if (stmt.condition == nullptr) return items;
    ValueList passed;
    for (Value& item : items) {
      const ScopeGuard scope(this);
      SPILLWAY_RETURN_IF_ERROR(Assign(stmt.target, item));
      SPILLWAY_ASSIGN_OR_RETURN(const Value passes, Eval(*stmt.condition));
      if (IsTrue(passes)) passed.push_back(std::move(item));
    }
    return passed;
  }

  Status ExecFor(const Stmt& stmt) {
    SPILLWAY_ASSIGN_OR_RETURN(ValueList made, LoopItems(stmt));
    const auto items = std::make_shared<const ValueList>(std::move(made));
    if (items->empty()) {
      const ScopeGuard scope(this);
      return Exec(stmt.else_body);
    }
    uint32_t value_depth = 0;
    for (const Value& item : *items) value_depth = std::max(value_depth, item.depth());
    Status status;
    for (size_t i = 0; i < items->size() && status.ok(); ++i) {
      const ScopeGuard scope(this);
      status = Iteration(stmt, {items, i, value_depth});
      if (std::exchange(jump_, Jump::kNone) == Jump::kBreak) break;
    }
    return status;
  }

  Status Iteration(const Stmt& stmt, LoopObject loop) {
    SPILLWAY_RETURN_IF_ERROR(budget_.Steps(1));
    Value item = (*loop.items)[loop.index];
    Value loop_value = Value::Loop(std::make_shared<const LoopObject>(std::move(loop)));
    SPILLWAY_RETURN_IF_ERROR(budget_.Check(loop_value));
    scope_->Set("loop", std::move(loop_value));
    SPILLWAY_RETURN_IF_ERROR(Assign(stmt.target, std::move(item)));
    return Exec(stmt.body);
  }

  Status Assign(const Target& target, Value value) {
    switch (target.type) {
      case Target::Type::kName:
        scope_->Set(target.name, std::move(value));
        return OkStatus();
      case Target::Type::kAttribute: {
        const Value space = Lookup(target.name);
        if (space.kind() != Kind::kNamespace) {
          return InvalidArgumentError("cannot assign attribute '" + target.attribute + "' of '" +
                                      target.name + "', which is no namespace");
        }
        space.AsNamespace()->Set(target.attribute, std::move(value));
        return OkStatus();
      }
      case Target::Type::kTuple:
        break;
    }
    SPILLWAY_RETURN_IF_ERROR(budget_.Steps(value.weight() / 64));
    SPILLWAY_ASSIGN_OR_RETURN(ValueList items, Iterate(value));
    if (items.size() != target.parts.size()) {
      return InvalidArgumentError("cannot assign " + std::to_string(items.size()) + " values to " +
                                  std::to_string(target.parts.size()) + " names");
    }
    for (size_t i = 0; i < items.size(); ++i) {
      SPILLWAY_RETURN_IF_ERROR(Assign(target.parts[i], std::move(items[i])));
    }
    return OkStatus();
  }

  Status ExecSet(const Stmt& stmt) {
    SPILLWAY_ASSIGN_OR_RETURN(Value value, Eval(*stmt.expr));
    return Assign(stmt.target, std::move(value));
  }

  // Runs `body` with its output into a string.
  Result<Value> Capture(const Body& body) {
    MarkedText text;
    MarkedText* const outer = std::exchange(out_, &text);
    const Status status = Exec(body);
    out_ = outer;
    SPILLWAY_RETURN_IF_ERROR(status);
    return Value::String(std::move(text));
  }

  // Runs `body` in a scope of its own; its text goes through `filters` if given.
  Result<Value> CaptureFiltered(const Body& body, const Expr* filters) {
    const ScopeGuard scope(this);
    SPILLWAY_ASSIGN_OR_RETURN(const Value text, Capture(body));
    if (filters == nullptr) return text;
    const Value* const outer = std::exchange(block_text_, &text);
    Result<Value> filtered = Eval(*filters);
    block_text_ = outer;
    return filtered;
  }

  Status ExecSetBlock(const Stmt& stmt) {
    SPILLWAY_ASSIGN_OR_RETURN(Value text, CaptureFiltered(stmt.body, stmt.expr.get()));
    return Assign(stmt.target, std::move(text));
  }

  Status ExecFilterBlock(const Stmt& stmt) {
    SPILLWAY_ASSIGN_OR_RETURN(const Value text, CaptureFiltered(stmt.body, stmt.expr.get()));
    return Write(ToText(text));
  }

  Status ExecWith(const Stmt& stmt) {
    ValueList values;  // all are evaluated outside
    for (const auto& assignment : stmt.assignments) {
      SPILLWAY_ASSIGN_OR_RETURN(Value value, Eval(*assignment.second));
      values.push_back(std::move(value));
    }
    const ScopeGuard scope(this);
    for (size_t i = 0; i < values.size(); ++i) {
      SPILLWAY_RETURN_IF_ERROR(Assign(stmt.assignments[i].first, std::move(values[i])));
    }
    return Exec(stmt.body);
  }

  // --- macros

  Value MakeMacro(const MacroNode& macro) {
    auto callable = std::make_shared<CallableObject>();
    callable->type = CallableObject::Type::kMacro;
    callable->name = macro.name;
    callable->macro = &macro;
    callable->scope = scope_.get();
    if (kept_scopes_.empty() || kept_scopes_.back() != scope_) kept_scopes_.push_back(scope_);
    return Value::Callable(std::move(callable));
  }

  std::shared_ptr<Scope> KeptScope(const Scope* scope) const {
    for (auto at = kept_scopes_.rbegin(); at != kept_scopes_.rend(); ++at) {
      if (at->get() == scope) return *at;
    }
    return nullptr;
  }

  Result<Value> CallMacro(const CallableObject& callable, const Arguments& arguments) {
    const MacroNode& macro = *callable.macro;
    const std::string prefix = "macro '" + macro.name + "' ";
    if (arguments.positional.size() > macro.parameters.size()) {
      return InvalidArgumentError(prefix + "takes at most " +
                                  std::to_string(macro.parameters.size()) + " arguments, got " +
                                  std::to_string(arguments.positional.size()));
    }
    SPILLWAY_RETURN_IF_ERROR(budget_.Steps(kept_scopes_.size() / 16));
    const ScopeGuard scope(this, KeptScope(callable.scope));
    std::vector<bool> given(macro.parameters.size(), false);
    for (size_t i = 0; i < arguments.positional.size(); ++i) {
      scope_->Set(macro.parameters[i], arguments.positional[i]);
      given[i] = true;
    }
    for (const auto& [name, value] : arguments.named) {
      const auto at = std::find(macro.parameters.begin(), macro.parameters.end(), name);
      const auto i = static_cast<size_t>(at - macro.parameters.begin());
      if (at != macro.parameters.end() ? given[i] : name != "caller") {
        return InvalidArgumentError(prefix + "cannot take the argument '" + name + "'");
      }
      if (at != macro.parameters.end()) given[i] = true;
      scope_->Set(name, value);
    }
    const size_t required = macro.parameters.size() - macro.defaults.size();
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i]) continue;
      Value value = Value::Undefined(macro.parameters[i]);
      if (i >= required) {
        SPILLWAY_ASSIGN_OR_RETURN(value, Eval(*macro.defaults[i - required]));
      }
      scope_->Set(macro.parameters[i], std::move(value));
    }
    return Capture(macro.body);
  }

  Status ExecCallBlock(const Stmt& stmt) {
    Value caller = MakeMacro(stmt.macro);
    SPILLWAY_ASSIGN_OR_RETURN(const Value text, EvalCall(*stmt.expr, &caller));
    return Write(ToText(text));
  }

  // --- expressions

  Value Lookup(const std::string& name) {
    for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
      for (const auto& [key, value] : scope->variables) {
        if (key == name) return value;
      }
    }
    return Value::Undefined(name);
  }

  Result<Value> Eval(const Expr& expr) {
    const DepthGuard guard(&depth_);
    SPILLWAY_RETURN_IF_ERROR(Enter());
    Result<Value> value = EvalByType(expr);
    if (!value.ok() && !raised_) return AtLine(value.status(), expr.line);
    return value;
  }

  Result<Value> EvalByType(const Expr& expr) {
    switch (expr.type) {
      case Expr::Type::kConst:
        return expr.value;
      case Expr::Type::kName:
        return Lookup(expr.name);
      case Expr::Type::kList:
      case Expr::Type::kTuple:
        return EvalList(expr);
      case Expr::Type::kDict:
        return EvalDict(expr);
      case Expr::Type::kAttribute:
      case Expr::Type::kItem:
        return EvalAccess(expr);
      case Expr::Type::kSlice:
        return EvalSlice(expr);
      case Expr::Type::kCall:
        return EvalCall(expr, nullptr);
      case Expr::Type::kFilter:
        return EvalFilter(expr);
      case Expr::Type::kTest:
        return EvalTest(expr);
      case Expr::Type::kNot:
      case Expr::Type::kNegate:
      case Expr::Type::kPlus:
        return EvalUnary(expr);
      case Expr::Type::kBinary:
        return EvalBinary(expr);
      case Expr::Type::kAnd:
      case Expr::Type::kOr:
        return EvalLogic(expr);
      case Expr::Type::kCompare:
        return EvalCompare(expr);
      case Expr::Type::kCondition:
        return EvalCondition(expr);
    }
    return InternalError("an unknown kind of expression");
  }

  Result<Value> EvalList(const Expr& expr) {
    ValueList items;
    for (const ExprPtr& operand : expr.operands) {
      SPILLWAY_ASSIGN_OR_RETURN(Value item, Eval(*operand));
      items.push_back(std::move(item));
    }
    SPILLWAY_RETURN_IF_ERROR(budget_.Bytes(items.size() * sizeof(Value)));
    Value list = expr.type == Expr::Type::kTuple ? Value::Tuple(std::move(items))
                                                 : Value::List(std::move(items));
    SPILLWAY_RETURN_IF_ERROR(budget_.Check(list));
    return list;
  }

  Status AddItem(Value key, Value value, ValueItems* items) {
    if (key.kind() == Kind::kList || key.kind() == Kind::kDict) {
      return InvalidArgumentError("a value of type " + std::string(TypeName(key)) +
                                  " cannot be a key");
    }
    SPILLWAY_RETURN_IF_ERROR(budget_.Steps(items->size() / 16));
    for (auto& [old_key, old_value] : *items) {
      if (Equals(old_key, key)) {
        old_value = std::move(value);
        return OkStatus();
      }
    }
    SPILLWAY_RETURN_IF_ERROR(budget_.Bytes(2 * sizeof(Value)));
    items->emplace_back(std::move(key), std::move(value));
    return OkStatus();
  }

  Result<Value> EvalDict(const Expr& expr) {
    ValueItems items;
    for (size_t i = 0; i + 1 < expr.operands.size(); i += 2) {
      SPILLWAY_ASSIGN_OR_RETURN(Value key, Eval(*expr.operands[i]));
      SPILLWAY_ASSIGN_OR_RETURN(Value value, Eval(*expr.operands[i + 1]));
      SPILLWAY_RETURN_IF_ERROR(AddItem(std::move(key), std::move(value), &items));
    }
    Value dict = Value::Dict(std::move(items));
    SPILLWAY_RETURN_IF_ERROR(budget_.Check(dict));
    return dict;
  }

  Result<Value> EvalAccess(const Expr& expr) {
    SPILLWAY_ASSIGN_OR_RETURN(const Value object, Eval(*expr.operands[0]));
    if (expr.type == Expr::Type::kAttribute) return GetAttribute(&budget_, object, expr.name);
    SPILLWAY_ASSIGN_OR_RETURN(const Value key, Eval(*expr.operands[1]));
    return GetItem(&budget_, object, key);
  }

  Result<Value> EvalSlice(const Expr& expr) {
    SPILLWAY_ASSIGN_OR_RETURN(const Value object, Eval(*expr.operands[0]));
    std::array<Value, 3> parts;
    std::array<const Value*, 3> given{};
    for (size_t i = 0; i < parts.size(); ++i) {
      const Expr* part = expr.operands[i + 1].get();
      if (part == nullptr) continue;
      SPILLWAY_ASSIGN_OR_RETURN(parts[i], Eval(*part));
      given[i] = &parts[i];
    }
    return GetSlice(&budget_, object, given[0], given[1], given[2]);
  }

  Result<Arguments> EvalArguments(const Expr& expr) {
    Arguments arguments;
    for (size_t i = 1; i < expr.operands.size(); ++i) {
      SPILLWAY_ASSIGN_OR_RETURN(Value value, Eval(*expr.operands[i]));
      arguments.positional.push_back(std::move(value));
    }
    for (const auto& [name, operand] : expr.named) {
      SPILLWAY_ASSIGN_OR_RETURN(Value value, Eval(*operand));
      arguments.named.emplace_back(name, std::move(value));
    }
    return arguments;
  }

  Result<Value> EvalCall(const Expr& expr, const Value* caller) {
    SPILLWAY_ASSIGN_OR_RETURN(const Value callee, Eval(*expr.operands[0]));
    if (callee.kind() != Kind::kCallable) return NotCallable(*expr.operands[0], callee);
    SPILLWAY_ASSIGN_OR_RETURN(Arguments arguments, EvalArguments(expr));
    if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
    const CallableObject& callable = callee.AsCallable();
    switch (callable.type) {
      case CallableObject::Type::kMethod:
        return CallMethod(&budget_, callable.self, callable.name, arguments);
      case CallableObject::Type::kMacro:
        return CallMacro(callable, arguments);
      case CallableObject::Type::kFunction:
        break;
    }
    return CallFunction(callable.name, arguments);
  }

  static Status NotCallable(const Expr& expr, const Value& callee) {
    if (expr.type == Expr::Type::kAttribute && callee.is_undefined()) {
      return UnsupportedError("the method '" + expr.name + "' is not there");
    }
    if (callee.is_undefined()) {
      return UnsupportedError("the function '" + callee.UndefinedName() + "' is not known");
    }
    return InvalidArgumentError("a value of type " + std::string(TypeName(callee)) +
                                " cannot be called");
  }

  Result<Value> EvalFilter(const Expr& expr) {
    Value input;
    if (expr.operands[0] == nullptr) {
      input = *block_text_;
    } else {
      SPILLWAY_ASSIGN_OR_RETURN(input, Eval(*expr.operands[0]));
    }
    SPILLWAY_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
    return expr.filter->run(&budget_, input, arguments);
  }

  Result<Value> EvalTest(const Expr& expr) {
    SPILLWAY_ASSIGN_OR_RETURN(const Value input, Eval(*expr.operands[0]));
    SPILLWAY_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
    SPILLWAY_ASSIGN_OR_RETURN(const bool passes, expr.test->run(&budget_, input, arguments));
    return Value::Bool(passes);
  }

  Result<Value> EvalUnary(const Expr& expr) {
    SPILLWAY_ASSIGN_OR_RETURN(const Value value, Eval(*expr.operands[0]));
    if (expr.type == Expr::Type::kNot) return Value::Bool(!IsTrue(value));
    if (expr.type == Expr::Type::kNegate) return Negate(value);
    return Binary(&budget_, "+", Value::Int(0), value);
  }

  Result<Value> EvalBinary(const Expr& expr) {
    SPILLWAY_ASSIGN_OR_RETURN(const Value left, Eval(*expr.operands[0]));
    SPILLWAY_ASSIGN_OR_RETURN(const Value right, Eval(*expr.operands[1]));
    return Binary(&budget_, expr.name, left, right);
  }

  Result<Value> EvalLogic(const Expr& expr) {
    SPILLWAY_ASSIGN_OR_RETURN(Value left, Eval(*expr.operands[0]));
    if (IsTrue(left) == (expr.type == Expr::Type::kOr)) return left;
    return Eval(*expr.operands[1]);
  }

  Result<Value> EvalCompare(const Expr& expr) {
    SPILLWAY_ASSIGN_OR_RETURN(Value left, Eval(*expr.operands[0]));
    for (size_t i = 0; i < expr.ops.size(); ++i) {
      SPILLWAY_ASSIGN_OR_RETURN(Value right, Eval(*expr.operands[i + 1]));
      SPILLWAY_ASSIGN_OR_RETURN(const bool holds, CompareWith(&budget_, expr.ops[i], left, right));
      if (!holds) return Value::Bool(false);
      left = std::move(right);
    }
    return Value::Bool(true);
  }

  Result<Value> EvalCondition(const Expr& expr) {
    SPILLWAY_ASSIGN_OR_RETURN(const Value condition, Eval(*expr.operands[0]));
    if (IsTrue(condition)) return Eval(*expr.operands[1]);
    if (expr.operands[2] != nullptr) return Eval(*expr.operands[2]);
    return Value::Undefined("the inline if without else");
  }

  // --- functions

  Result<Value> CallFunction(const std::string& name, const Arguments& arguments) {
    if (name == "range") return Range(arguments);
    if (name == "dict") return MakeDict(arguments);
    if (name == "namespace") return MakeNamespace(arguments);
    if (name == "strftime_now") return StrftimeNow(arguments);
    SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, name, {"message"}, 1));
    raised_ = true;
    return InvalidArgumentError(ToText(*args[0]).text());
  }

  Result<Value> Range(const Arguments& arguments) {
    SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, "range", {"a", "b", "step"}, 1));
    for (const Value* arg : args) {
      if (arg != nullptr && !arg->is_integral()) {
        return InvalidArgumentError("'range' needs integers, got " + std::string(TypeName(*arg)));
      }
    }
    const int64_t start = args[1] == nullptr ? 0 : args[0]->AsInt();
    const int64_t stop = args[1] == nullptr ? args[0]->AsInt() : args[1]->AsInt();
    const int64_t step = args[2] == nullptr ? 1 : args[2]->AsInt();
    if (step == 0) return InvalidArgumentError("'range' needs a step other than 0");
    ValueList items;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
      if (static_cast<int64_t>(items.size()) == kMaxRange) {
        return ResourceExhaustedError("'range' gives at most " + std::to_string(kMaxRange) +
                                      " numbers");
      }
      items.push_back(Value::Int(i));
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return NewList(&budget_, std::move(items));
  }

  Result<Value> MakeDict(const Arguments& arguments) {
    ValueItems items;
    if (arguments.positional.size() > 1) return InvalidArgumentError("'dict' takes one mapping");
    if (!arguments.positional.empty()) {
      const Value& from = arguments.positional[0];
      if (from.kind() == Kind::kDict) {
        SPILLWAY_RETURN_IF_ERROR(budget_.Bytes(from.AsDict().size() * 2 * sizeof(Value)));
        items = from.AsDict();
      } else {
        SPILLWAY_RETURN_IF_ERROR(AddPairs(from, &items));
      }
    }
    for (const auto& [name, value] : arguments.named) {
      SPILLWAY_RETURN_IF_ERROR(AddItem(Value::String(name), value, &items));
    }
    Value dict = Value::Dict(std::move(items));
    SPILLWAY_RETURN_IF_ERROR(budget_.Check(dict));
    return dict;
  }

  Status AddPairs(const Value& from, ValueItems* items) {
    SPILLWAY_RETURN_IF_ERROR(budget_.Bytes(from.weight()));
    SPILLWAY_ASSIGN_OR_RETURN(const ValueList pairs, Iterate(from));
    for (const Value& pair : pairs) {
      if (!pair.is_sequence() || pair.AsList().size() != 2) {
        return InvalidArgumentError("'dict' needs a mapping or pairs");
      }
      SPILLWAY_RETURN_IF_ERROR(AddItem(pair.AsList()[0], pair.AsList()[1], items));
    }
    return OkStatus();
  }

  Result<Value> MakeNamespace(const Arguments& arguments) {
    SPILLWAY_ASSIGN_OR_RETURN(const Value dict, MakeDict(arguments));
    SPILLWAY_RETURN_IF_ERROR(budget_.Bytes(sizeof(Namespace)));
    namespaces_.push_back(std::make_unique<Namespace>());
    for (const auto& [key, value] : dict.AsDict()) {
      namespaces_.back()->Set(ToText(key).text(), value);
    }
    return Value::OfNamespace(namespaces_.back().get());
  }

  Result<Value> StrftimeNow(const Arguments& arguments) {
    SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, "strftime_now", {"format"}, 1));
    if (!args[0]->is_string() || args[0]->AsText().size() > 256) {
      return InvalidArgumentError("'strftime_now' needs a format of at most 256 bytes");
    }
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    // The last character tells an empty result from one that did not fit.
    const std::string format = args[0]->AsString() + "|";
    std::array<char, 8192> buffer;
    const size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &local);
    return NewString(&budget_, MarkedText(std::string(buffer.data(), size > 0 ? size - 1 : 0),
                                          args[0]->AsText().AnyMarked()));
  }

  Budget budget_;
  const uint64_t output_bytes_;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> kept_scopes_;  // that macros refer to
  std::shared_ptr<Scope> scope_;
  MarkedText* out_ = nullptr;
  const Value* block_text_ = nullptr;  // what the filters of a block work on
  Jump jump_ = Jump::kNone;
  int depth_ = 0;
  bool raised_ = false;  // raise_exception() was called
};

}  // namespace

Result<MarkedText> RunTemplate(const Body& body,
                               std::vector<std::pair<std::string, Value>> variables,
                               const RunLimits& limits) {
  return Interpreter(limits).Run(body, std::move(variables));
}

}  // namespace spillway::jinja
