// Values of the template interpreter: Python's, as far as templates see them.

#ifndef SPILLWAY_MODEL_JINJA_VALUE_H_
#define SPILLWAY_MODEL_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/marked_text.h"
#include "spillway/status.h"

namespace spillway::jinja {

class Value;
struct Namespace;
struct LoopObject;
struct CallableObject;
using ValueList = std::vector<Value>;
using ValueItems = std::vector<std::pair<Value, Value>>;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kLoop,
  kCallable,
};

// Copies are cheap: strings and containers are shared and never change, except
// namespaces, which the interpreter owns and which die with it.
class Value {
 public:
  Value() = default;  // undefined
  static Value Undefined(std::string_view name);
  static Value None();
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  static Value String(MarkedText text);
  static Value String(std::string_view text) { return String(MarkedText(std::string(text))); }
  static Value List(ValueList items);
  static Value Tuple(ValueList items);
  static Value Dict(ValueItems items);
  static Value OfNamespace(Namespace* space);
  static Value Loop(std::shared_ptr<const LoopObject> loop);
  static Value Callable(std::shared_ptr<const CallableObject> callable);

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_number() const;    // bool, int or float
  bool is_integral() const;  // bool or int
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  // Each only for its kind.
  int64_t AsInt() const { return int_; }                           // bool, int
  double AsDouble() const;                                         // bool, int, float
  const MarkedText& AsText() const;                                // string
  const std::string& AsString() const { return AsText().text(); }  // string
  const ValueList& AsList() const;                                 // list, tuple
  const ValueItems& AsDict() const;                                // dict
  Namespace* AsNamespace() const { return namespace_; }            // namespace
  const LoopObject& AsLoop() const;                                // loop
  const CallableObject& AsCallable() const;                        // callable
  const std::string& UndefinedName() const;                        // undefined

  // How deeply containers are nested in it. Recursion over values is safe up to
  // kMaxValueDepth, which the interpreter enforces.
  uint32_t depth() const { return depth_; }
  // About the bytes of its text, counting a shared part every time it is used.
  // Printing and comparing take that long; kMaxValueWeight bounds it.
  uint64_t weight() const { return weight_; }

 private:
  Kind kind_ = Kind::kUndefined;
  uint32_t depth_ = 0;
  uint64_t weight_ = 8;
  union {
    int64_t int_ = 0;
    double double_;
    Namespace* namespace_;
  };
  std::shared_ptr<const void> object_;
};

inline constexpr uint32_t kMaxValueDepth = 64;
inline constexpr uint64_t kMaxValueWeight = uint64_t{1} << 28;

// namespace(): the one value that templates can change.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
};

// The variable `loop` in one iteration.
struct LoopObject {
  std::shared_ptr<const ValueList> items;
  size_t index = 0;  // from 0
  uint32_t value_depth = 0;
};

struct MacroNode;
struct Scope;

// Something to call: a function of the interpreter, a method of `self`, or a macro.
struct CallableObject {
  enum class Type { kFunction, kMethod, kMacro };
  Type type = Type::kFunction;
  std::string name;
  Value self;                        // kMethod
  const MacroNode* macro = nullptr;  // kMacro
  Scope* scope = nullptr;            // kMacro: where it was defined
};

// "str", "int", "list", ... as Python says it.
std::string_view TypeName(const Value& value);
bool IsTrue(const Value& value);
bool Equals(const Value& a, const Value& b);
// -1, 0, 1 for a < b, a == b, a > b; kInvalidArgument for values without order.
Result<int> Compare(const Value& a, const Value& b);
const Value* FindInDict(const Value& dict, const Value& key);
const Value* FindInDict(const Value& dict, std::string_view key);
// The items that a loop over it gives; kInvalidArgument when it cannot be looped over.
Result<ValueList> Iterate(const Value& value);
// len(); -1 for a value without.
int64_t LengthOf(const Value& value);

// str(value) and repr(value).
MarkedText ToText(const Value& value);
MarkedText ToRepr(const Value& value);
std::string FloatText(double value);

// json.dumps(value, ensure_ascii=False) with the options of the filter tojson.
struct JsonOptions {
  bool pretty = false;  // one item a line
  std::string indent;   // of one level, when pretty
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
  bool ascii_only = false;
};
Result<MarkedText> ToJson(const Value& value, const JsonOptions& options);

}  // namespace spillway::jinja

#endif  // SPILLWAY_MODEL_JINJA_VALUE_H_
