// The parsed form of a template.

#ifndef SPILLWAY_MODEL_JINJA_AST_H_
#define SPILLWAY_MODEL_JINJA_AST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja_value.h"

namespace spillway::jinja {

struct FilterDef;
struct TestDef;
struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Expr {
  enum class Type {
    kConst,      // value
    kName,       // name
    kList,       // operands
    kTuple,      // operands
    kDict,       // operands: key, value, key, value, ...
    kAttribute,  // operands[0] . name
    kItem,       // operands[0] [ operands[1] ]
    kSlice,      // operands[0] [ operands[1] : operands[2] : operands[3] ], null = absent
    kCall,       // operands[0] ( operands[1..], named )
    kFilter,     // operands[0] | filter ( operands[1..], named ); null operand = block text
    kTest,       // operands[0] is test ( operands[1..], named )
    kNot,        // operands[0]
    kNegate,     // operands[0]
    kPlus,       // operands[0]
    kBinary,     // operands[0] op operands[1]; op in name: + - * / // % ** ~
    kAnd,        // operands[0], operands[1]
    kOr,
    kCompare,    // operands[0] ops[0] operands[1] ops[1] ...; also "in", "not in"
    kCondition,  // operands[1] if operands[0] else operands[2] (null = undefined)
  };
  Type type = Type::kConst;
  int line = 0;
  uint32_t depth = 1;
  Value value;
  std::string name;
  std::vector<ExprPtr> operands;
  std::vector<std::pair<std::string, ExprPtr>> named;
  std::vector<std::string> ops;
  const FilterDef* filter = nullptr;
  const TestDef* test = nullptr;
};

// What `set` and `for` assign to.
struct Target {
  enum class Type { kName, kTuple, kAttribute } type = Type::kName;
  std::string name;       // kName; kAttribute: of the namespace
  std::string attribute;  // kAttribute
  std::vector<Target> parts;
};

struct MacroNode {
  std::string name;
  int line = 0;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
};

struct Stmt {
  enum class Type {
    kText,         // text
    kPrint,        // expr
    kIf,           // branches, else_body
    kFor,          // target in expr if condition: body, else_body
    kSet,          // target = expr
    kSetBlock,     // target = body, through expr (filters) when given
    kMacro,        // macro
    kCallBlock,    // expr (a kCall) with macro as caller
    kFilterBlock,  // body through expr
    kWith,         // assignments, body
    kScope,        // body with its own variables
    kBreak,
    kContinue,
  };
  struct Branch {
    ExprPtr condition;
    Body body;
  };
  Type type = Type::kText;
  int line = 0;
  MarkedText text;
  ExprPtr expr, condition;
  Target target;
  Body body, else_body;
  std::vector<Branch> branches;
  std::vector<std::pair<Target, ExprPtr>> assignments;
  MacroNode macro;
};

}  // namespace spillway::jinja

#endif  // SPILLWAY_MODEL_JINJA_AST_H_
