#include "model/jinja_parser.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "model/jinja_builtins.h"
#include "model/jinja_lexer.h"

namespace spillway::jinja {
namespace {

using TokenType = Token::Type;
using Names = std::vector<std::string_view>;

// Bounds the stack that parsing, running and freeing a template take.
constexpr int kMaxNesting = 160;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Body> Run() {
    Body body;
    SPILLWAY_RETURN_IF_ERROR(ParseBody({}, &body));
    return body;
  }

 private:
  // --- tokens

  const Token& Current() const { return tokens_[at_]; }
  const Token& Take() {
    const Token& token = tokens_[at_];
    if (token.type != TokenType::kEnd) ++at_;
    return token;
  }
  bool IsOp(std::string_view op) const {
    return Current().type == TokenType::kOperator && Current().text == op;
  }
  bool IsName(std::string_view name) const {
    return Current().type == TokenType::kName && Current().text == name;
  }
  bool SkipOp(std::string_view op) {
    const bool is = IsOp(op);
    if (is) Take();
    return is;
  }
  bool SkipName(std::string_view name) {
    const bool is = IsName(name);
    if (is) Take();
    return is;
  }

  static std::string Describe(const Token& token) {
    if (token.type == TokenType::kEnd) return "the end of the template";
    if (token.type == TokenType::kData) return "text";
    return "'" + token.text + "'";
  }
  static Status ErrorAt(int line, const std::string& what) {
    return InvalidArgumentError("line " + std::to_string(line) + ": " + what);
  }
  static Status UnsupportedAt(int line, const std::string& what) {
    return UnsupportedError("line " + std::to_string(line) + ": " + what +
                            " is not supported in a chat template");
  }
  Status Unexpected(const std::string& expected) const {
    return ErrorAt(Current().line, "found " + Describe(Current()) + ", expected " + expected);
  }
  Status ExpectOp(std::string_view op) {
    return SkipOp(op) ? OkStatus() : Unexpected("'" + std::string(op) + "'");
  }
  Status ExpectBlockEnd() {
    if (Current().type != TokenType::kBlockEnd) return Unexpected("'%}'");
    Take();
    return OkStatus();
  }
  Result<std::string> ExpectName(const std::string& what) {
    if (Current().type != TokenType::kName) return Unexpected(what);
    return Take().text;
  }

  // --- nesting

  struct Nesting {
    explicit Nesting(int* counter) : depth(counter) { ++*depth; }
    ~Nesting() { --*depth; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    int* depth;
  };
  Status CheckNesting(int depth) const {
    if (depth <= kMaxNesting) return OkStatus();
    return ResourceExhaustedError("line " + std::to_string(Current().line) +
                                  ": the template is nested more than " +
                                  std::to_string(kMaxNesting) + " deep");
  }

  ExprPtr New(Expr::Type type) const {
    auto expr = std::make_unique<Expr>();
    expr->type = type;
    expr->line = Current().line;
    return expr;
  }
  // Adds an operand (null allowed) and keeps count of the depth.
  static void AddOperand(Expr* expr, ExprPtr operand) {
    if (operand != nullptr) expr->depth = std::max(expr->depth, operand->depth + 1);
    expr->operands.push_back(std::move(operand));
  }
  // A long chain (a + b + c + ...) is as deep as it is long.
  Result<ExprPtr> Checked(ExprPtr expr) const {
    SPILLWAY_RETURN_IF_ERROR(CheckNesting(static_cast<int>(expr->depth)));
    return expr;
  }

  // --- expressions, weakest binding first

  Result<ExprPtr> ParseExpression(bool with_condition = true) {
    const Nesting nesting(&depth_);
    SPILLWAY_RETURN_IF_ERROR(CheckNesting(depth_));
    SPILLWAY_ASSIGN_OR_RETURN(ExprPtr expr, ParseLogic(false));
    while (with_condition && IsName("if")) {
      ExprPtr choice = New(Expr::Type::kCondition);
      Take();
      SPILLWAY_ASSIGN_OR_RETURN(ExprPtr condition, ParseLogic(false));
      ExprPtr otherwise;
      if (SkipName("else")) {
        SPILLWAY_ASSIGN_OR_RETURN(otherwise, ParseExpression());
      }
      AddOperand(choice.get(), std::move(condition));
      AddOperand(choice.get(), std::move(expr));
      AddOperand(choice.get(), std::move(otherwise));
      SPILLWAY_ASSIGN_OR_RETURN(expr, Checked(std::move(choice)));
    }
    return expr;
  }

  // a or b, a and b
  Result<ExprPtr> ParseLogic(bool is_and) {
    const auto operand = [&] { return is_and ? ParseNot() : ParseLogic(true); };
    SPILLWAY_ASSIGN_OR_RETURN(ExprPtr left, operand());
    while (IsName(is_and ? "and" : "or")) {
      ExprPtr expr = New(is_and ? Expr::Type::kAnd : Expr::Type::kOr);
      Take();
      SPILLWAY_ASSIGN_OR_RETURN(ExprPtr right, operand());
      AddOperand(expr.get(), std::move(left));
      AddOperand(expr.get(), std::move(right));
      SPILLWAY_ASSIGN_OR_RETURN(left, Checked(std::move(expr)));
    }
    return left;
  }

  Result<ExprPtr> ParseNot() {
    if (!IsName("not")) return ParseCompare();
    const Nesting nesting(&depth_);
    SPILLWAY_RETURN_IF_ERROR(CheckNesting(depth_));
    ExprPtr expr = New(Expr::Type::kNot);
    Take();
    SPILLWAY_ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
    AddOperand(expr.get(), std::move(operand));
    return Checked(std::move(expr));
  }

  // The comparison operator here, taken; empty when there is none.
  std::string TakeComparison() {
    static constexpr std::array<std::string_view, 6> kOps = {"==", "!=", "<", "<=", ">", ">="};
    const Token& token = Current();
    if (token.type == TokenType::kOperator &&
        std::find(kOps.begin(), kOps.end(), token.text) != kOps.end()) {
      return Take().text;
    }
    if (SkipName("in")) return "in";
    const bool next_is_in =
        IsName("not") && tokens_[at_ + 1].type == TokenType::kName && tokens_[at_ + 1].text == "in";
    if (!next_is_in) return "";
    Take();
    Take();
    return "not in";
  }

  Result<ExprPtr> ParseCompare() {
    SPILLWAY_ASSIGN_OR_RETURN(ExprPtr first, ParseBinary(0));
    ExprPtr expr = New(Expr::Type::kCompare);
    for (std::string op = TakeComparison(); !op.empty(); op = TakeComparison()) {
      SPILLWAY_ASSIGN_OR_RETURN(ExprPtr operand, ParseBinary(0));
      if (expr->ops.empty()) AddOperand(expr.get(), std::move(first));
      AddOperand(expr.get(), std::move(operand));
      expr->ops.push_back(std::move(op));
    }
    if (expr->ops.empty()) return first;
    return Checked(std::move(expr));
  }

  Result<ExprPtr> ParseBinary(size_t level) {
    static const std::vector<Names> kLevels = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
    if (level == kLevels.size()) return ParseUnary(true);
    SPILLWAY_ASSIGN_OR_RETURN(ExprPtr left, ParseBinary(level + 1));
    const Names& ops = kLevels[level];
    while (Current().type == TokenType::kOperator &&
           std::find(ops.begin(), ops.end(), Current().text) != ops.end()) {
      ExprPtr expr = New(Expr::Type::kBinary);
      expr->name = Take().text;
      SPILLWAY_ASSIGN_OR_RETURN(ExprPtr right, ParseBinary(level + 1));
      AddOperand(expr.get(), std::move(left));
      AddOperand(expr.get(), std::move(right));
      SPILLWAY_ASSIGN_OR_RETURN(left, Checked(std::move(expr)));
    }
    return left;
  }

  Result<ExprPtr> ParseUnary(bool with_filters) {
    const Nesting nesting(&depth_);
    SPILLWAY_RETURN_IF_ERROR(CheckNesting(depth_));
    ExprPtr expr;
    if (IsOp("-") || IsOp("+")) {
      expr = New(IsOp("-") ? Expr::Type::kNegate : Expr::Type::kPlus);
      Take();
      SPILLWAY_ASSIGN_OR_RETURN(ExprPtr operand, ParseUnary(false));
      AddOperand(expr.get(), std::move(operand));
      SPILLWAY_ASSIGN_OR_RETURN(expr, Checked(std::move(expr)));
    } else {
      SPILLWAY_ASSIGN_OR_RETURN(expr, ParsePrimary());
    }
    SPILLWAY_ASSIGN_OR_RETURN(expr, ParsePostfix(std::move(expr)));
    if (!with_filters) return expr;
    return ParseFilters(std::move(expr));
  }

  Result<ExprPtr> ParsePrimary() {
    const Token& token = Current();
    ExprPtr expr = New(Expr::Type::kConst);
    switch (token.type) {
      case TokenType::kName:
        return ParseName();
      case TokenType::kInt:
        expr->value = Value::Int(Take().int_value);
        return expr;
      case TokenType::kFloat:
        expr->value = Value::Float(Take().float_value);
        return expr;
      case TokenType::kString: {
        std::string text;
        while (Current().type == TokenType::kString) text += Take().text;
        expr->value = Value::String(text);
        return expr;
      }
      default:
        break;
    }
    if (SkipOp("(")) {
      SPILLWAY_ASSIGN_OR_RETURN(expr, ParseTuple(true, true));
      SPILLWAY_RETURN_IF_ERROR(ExpectOp(")"));
      return expr;
    }
    if (SkipOp("[")) {
      expr->type = Expr::Type::kList;
      return ParseItems(std::move(expr), "]");
    }
    if (SkipOp("{")) {
      expr->type = Expr::Type::kDict;
      return ParseItems(std::move(expr), "}");
    }
    return Unexpected("an expression");
  }

  Result<ExprPtr> ParseName() {
    ExprPtr expr = New(Expr::Type::kConst);
    const std::string& name = Take().text;
    if (name == "true" || name == "True") {
      expr->value = Value::Bool(true);
    } else if (name == "false" || name == "False") {
      expr->value = Value::Bool(false);
    } else if (name == "none" || name == "None") {
      expr->value = Value::None();
    } else {
      expr->type = Expr::Type::kName;
      expr->name = name;
    }
    return expr;
  }

  // The rest of a list or dict up to `close`.
  Result<ExprPtr> ParseItems(ExprPtr expr, std::string_view close) {
    while (!IsOp(close)) {
      if (!expr->operands.empty()) {
        SPILLWAY_RETURN_IF_ERROR(ExpectOp(","));
        if (IsOp(close)) break;
      }
      SPILLWAY_ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
      AddOperand(expr.get(), std::move(item));
      if (expr->type == Expr::Type::kDict) {
        SPILLWAY_RETURN_IF_ERROR(ExpectOp(":"));
        SPILLWAY_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
        AddOperand(expr.get(), std::move(value));
      }
    }
    Take();
    return Checked(std::move(expr));
  }

  bool AtTupleEnd() const {
    return Current().type == TokenType::kPrintEnd || Current().type == TokenType::kBlockEnd ||
           IsOp(")") || IsName("recursive");
  }

  // An expression or, with commas, a tuple.
  Result<ExprPtr> ParseTuple(bool with_condition, bool may_be_empty) {
    ExprPtr tuple = New(Expr::Type::kTuple);
    bool has_comma = false;
    while (!AtTupleEnd()) {
      SPILLWAY_ASSIGN_OR_RETURN(ExprPtr item, ParseExpression(with_condition));
      if (!has_comma && !IsOp(",")) return item;
      AddOperand(tuple.get(), std::move(item));
      if (!SkipOp(",")) break;
      has_comma = true;
    }
    if (tuple->operands.empty() && !may_be_empty) return Unexpected("an expression");
    return Checked(std::move(tuple));
  }

  Result<ExprPtr> ParsePostfix(ExprPtr expr) {
    while (true) {
      if (IsOp(".")) {
        SPILLWAY_ASSIGN_OR_RETURN(expr, ParseAttribute(std::move(expr)));
      } else if (IsOp("[")) {
        SPILLWAY_ASSIGN_OR_RETURN(expr, ParseSubscript(std::move(expr)));
      } else if (IsOp("(")) {
        SPILLWAY_ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
      } else {
        return expr;
      }
    }
  }

  Result<ExprPtr> ParseAttribute(ExprPtr object) {
    ExprPtr expr = New(Expr::Type::kAttribute);
    Take();
    AddOperand(expr.get(), std::move(object));
    if (Current().type == TokenType::kInt) {
      ExprPtr index = New(Expr::Type::kConst);
      index->value = Value::Int(Take().int_value);
      expr->type = Expr::Type::kItem;
      AddOperand(expr.get(), std::move(index));
    } else {
      SPILLWAY_ASSIGN_OR_RETURN(expr->name, ExpectName("the name of an attribute"));
    }
    return Checked(std::move(expr));
  }

  Result<ExprPtr> ParseSubscript(ExprPtr object) {
    ExprPtr expr = New(Expr::Type::kItem);
    Take();
    AddOperand(expr.get(), std::move(object));
    ExprPtr part;
    if (!IsOp(":")) {
      SPILLWAY_ASSIGN_OR_RETURN(part, ParseExpression());
    }
    AddOperand(expr.get(), std::move(part));
    if (IsOp(":")) {
      expr->type = Expr::Type::kSlice;
      for (int i = 0; i < 2; ++i) {
        part.reset();
        if (SkipOp(":") && !IsOp(":") && !IsOp("]")) {
          SPILLWAY_ASSIGN_OR_RETURN(part, ParseExpression());
        }
        AddOperand(expr.get(), std::move(part));
      }
    }
    if (IsOp(",")) return UnsupportedAt(Current().line, "a subscript with several parts");
    SPILLWAY_RETURN_IF_ERROR(ExpectOp("]"));
    return Checked(std::move(expr));
  }

  // "(", arguments, ")" into operands and named.
  Status ParseArguments(Expr* expr) {
    SPILLWAY_RETURN_IF_ERROR(ExpectOp("("));
    bool first = true;
    while (!IsOp(")")) {
      if (!first) {
        SPILLWAY_RETURN_IF_ERROR(ExpectOp(","));
        if (IsOp(")")) break;
      }
      first = false;
      if (IsOp("*") || IsOp("**")) {
        return UnsupportedAt(Current().line, "an argument list with '*' or '**'");
      }
      const bool is_named = Current().type == TokenType::kName &&
                            tokens_[at_ + 1].type == TokenType::kOperator &&
                            tokens_[at_ + 1].text == "=";
      std::string name;
      if (is_named) {
        name = Take().text;
        Take();
      } else if (!expr->named.empty()) {
        return Unexpected("an argument with a name, as the one before has");
      }
      SPILLWAY_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      if (is_named) {
        expr->depth = std::max(expr->depth, value->depth + 1);
        expr->named.emplace_back(std::move(name), std::move(value));
      } else {
        AddOperand(expr, std::move(value));
      }
    }
    Take();
    return OkStatus();
  }

  Result<ExprPtr> ParseCall(ExprPtr callee) {
    ExprPtr expr = New(Expr::Type::kCall);
    AddOperand(expr.get(), std::move(callee));
    SPILLWAY_RETURN_IF_ERROR(ParseArguments(expr.get()));
    return Checked(std::move(expr));
  }

  Result<ExprPtr> ParseFilters(ExprPtr expr) {
    while (true) {
      if (IsOp("|")) {
        Take();
        SPILLWAY_ASSIGN_OR_RETURN(expr, ParseFilter(std::move(expr)));
      } else if (IsName("is")) {
        SPILLWAY_ASSIGN_OR_RETURN(expr, ParseTest(std::move(expr)));
      } else if (IsOp("(")) {
        SPILLWAY_ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
      } else {
        return expr;
      }
    }
  }

  // A name with dots, as filters and tests have.
  Result<std::string> ParseDottedName(const std::string& what) {
    SPILLWAY_ASSIGN_OR_RETURN(std::string name, ExpectName(what));
    while (SkipOp(".")) {
      SPILLWAY_ASSIGN_OR_RETURN(const std::string part, ExpectName(what));
      name += "." + part;
    }
    return name;
  }

  // After "|". A null `input` stands for the text of a block.
  Result<ExprPtr> ParseFilter(ExprPtr input) {
    ExprPtr expr = New(Expr::Type::kFilter);
    AddOperand(expr.get(), std::move(input));
    SPILLWAY_ASSIGN_OR_RETURN(expr->name, ParseDottedName("the name of a filter"));
    expr->filter = FindFilter(expr->name);
    if (expr->filter == nullptr) {
      return UnsupportedAt(expr->line, "the filter '" + expr->name + "'");
    }
    if (IsOp("(")) SPILLWAY_RETURN_IF_ERROR(ParseArguments(expr.get()));
    return Checked(std::move(expr));
  }

  bool AtTestOperand() const {
    switch (Current().type) {
      case TokenType::kString:
      case TokenType::kInt:
      case TokenType::kFloat:
        return true;
      case TokenType::kOperator:
        return IsOp("[") || IsOp("{");
      case TokenType::kName: {
        static constexpr std::array<std::string_view, 6> kEnds = {"else", "or", "and",
                                                                  "if",   "in", "not"};
        return std::find(kEnds.begin(), kEnds.end(), Current().text) == kEnds.end();
      }
      default:
        return false;
    }
  }

  Result<ExprPtr> ParseTest(ExprPtr input) {
    ExprPtr expr = New(Expr::Type::kTest);
    Take();
    const bool negated = SkipName("not");
    AddOperand(expr.get(), std::move(input));
    SPILLWAY_ASSIGN_OR_RETURN(expr->name, ParseDottedName("the name of a test"));
    expr->test = FindTest(expr->name);
    if (expr->test == nullptr) return UnsupportedAt(expr->line, "the test '" + expr->name + "'");
    if (IsOp("(")) {
      SPILLWAY_RETURN_IF_ERROR(ParseArguments(expr.get()));
    } else if (AtTestOperand()) {
      if (IsName("is")) return ErrorAt(Current().line, "tests with 'is' cannot be chained");
      SPILLWAY_ASSIGN_OR_RETURN(ExprPtr operand, ParsePrimary());
      SPILLWAY_ASSIGN_OR_RETURN(operand, ParsePostfix(std::move(operand)));
      AddOperand(expr.get(), std::move(operand));
    }
    if (negated) {
      ExprPtr negation = New(Expr::Type::kNot);
      AddOperand(negation.get(), std::move(expr));
      expr = std::move(negation);
    }
    return Checked(std::move(expr));
  }

  // --- statements

  // Statements up to a tag that one of `ends` starts, or the template's end when
  // there are none. The end tag's name is the current token then.
  Status ParseBody(const Names& ends, Body* body) {
    const Nesting nesting(&depth_);
    SPILLWAY_RETURN_IF_ERROR(CheckNesting(depth_));
    while (Current().type != TokenType::kEnd) {
      const Token& token = Take();
      if (token.type == TokenType::kData) {
        auto text = NewStmt(Stmt::Type::kText, token.line);
        text->text = MarkedText(token.text);
        body->push_back(std::move(text));
      } else if (token.type == TokenType::kPrintBegin) {
        auto print = NewStmt(Stmt::Type::kPrint, token.line);
        SPILLWAY_ASSIGN_OR_RETURN(print->expr, ParseTuple(true, false));
        if (Current().type != TokenType::kPrintEnd) return Unexpected("'}}'");
        Take();
        body->push_back(std::move(print));
      } else {
        if (Current().type != TokenType::kName) return Unexpected("the name of a tag");
        if (std::find(ends.begin(), ends.end(), Current().text) != ends.end()) return OkStatus();
        SPILLWAY_RETURN_IF_ERROR(ParseStatement(ends, body));
      }
    }
    if (ends.empty()) return OkStatus();
    return Unexpected("'" + std::string(ends.back()) + "'");
  }

  // Statements up to the tag `end`, which is taken.
  Status ParseBodyAndEnd(std::string_view end, Body* body) {
    SPILLWAY_RETURN_IF_ERROR(ExpectBlockEnd());
    SPILLWAY_RETURN_IF_ERROR(ParseBody({end}, body));
    Take();
    return ExpectBlockEnd();
  }

  static std::unique_ptr<Stmt> NewStmt(Stmt::Type type, int line) {
    auto stmt = std::make_unique<Stmt>();
    stmt->type = type;
    stmt->line = line;
    return stmt;
  }

  Status ParseStatement(const Names& ends, Body* body) {
    static const std::vector<std::pair<std::string_view, Status (Parser::*)(Stmt*)>> kTags = {
        {"if", &Parser::ParseIf},          {"for", &Parser::ParseFor},
        {"set", &Parser::ParseSet},        {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCallBlock}, {"filter", &Parser::ParseFilterBlock},
        {"with", &Parser::ParseWith},      {"generation", &Parser::ParseGeneration},
        {"break", &Parser::ParseJump},     {"continue", &Parser::ParseJump},
        {"print", &Parser::ParsePrint},
    };
    const Token& name = Current();
    for (const auto& [tag, parse] : kTags) {
      if (name.text != tag) continue;
      auto stmt = NewStmt(Stmt::Type::kText, name.line);
      SPILLWAY_RETURN_IF_ERROR((this->*parse)(stmt.get()));
      body->push_back(std::move(stmt));
      return OkStatus();
    }
    const bool is_end = name.text.starts_with("end") || name.text == "else" || name.text == "elif";
    if (!is_end) return UnsupportedAt(name.line, "the tag '" + name.text + "'");
    return ErrorAt(name.line, "found '" + name.text + "', expected " +
                                  (ends.empty() ? "no end of a block here"
                                                : "'" + std::string(ends.back()) + "'"));
  }

  Status ParseIf(Stmt* stmt) {
    stmt->type = Stmt::Type::kIf;
    while (true) {
      const std::string keyword = Take().text;
      if (keyword == "endif") return ExpectBlockEnd();
      Body* body = &stmt->else_body;
      if (keyword != "else") {
        stmt->branches.emplace_back();
        SPILLWAY_ASSIGN_OR_RETURN(stmt->branches.back().condition, ParseTuple(false, false));
        body = &stmt->branches.back().body;
      }
      SPILLWAY_RETURN_IF_ERROR(ExpectBlockEnd());
      const Names ends = keyword == "else" ? Names{"endif"} : Names{"elif", "else", "endif"};
      SPILLWAY_RETURN_IF_ERROR(ParseBody(ends, body));
    }
  }

  Status ParseFor(Stmt* stmt) {
    stmt->type = Stmt::Type::kFor;
    Take();
    SPILLWAY_RETURN_IF_ERROR(ParseTarget(false, &stmt->target));
    if (!SkipName("in")) return Unexpected("'in'");
    SPILLWAY_ASSIGN_OR_RETURN(stmt->expr, ParseTuple(false, false));
    if (SkipName("if")) {
      SPILLWAY_ASSIGN_OR_RETURN(stmt->condition, ParseExpression());
    }
    if (IsName("recursive")) return UnsupportedAt(Current().line, "a loop with 'recursive'");
    SPILLWAY_RETURN_IF_ERROR(ExpectBlockEnd());
    ++loops_;
    SPILLWAY_RETURN_IF_ERROR(ParseBody({"else", "endfor"}, &stmt->body));
    --loops_;
    if (Take().text == "else") return ParseBodyAndEnd("endfor", &stmt->else_body);
    return ExpectBlockEnd();
  }

  Status ParseTarget(bool may_be_attribute, Target* target) {
    std::vector<Target> parts;
    bool is_tuple = false;
    do {
      if (!parts.empty() && Current().type != TokenType::kName && !IsOp("(")) break;
      parts.emplace_back();
      SPILLWAY_RETURN_IF_ERROR(ParseOneTarget(may_be_attribute, &parts.back()));
      is_tuple = is_tuple || IsOp(",");
    } while (SkipOp(","));
    if (is_tuple) {
      target->type = Target::Type::kTuple;
      target->parts = std::move(parts);
    } else {
      *target = std::move(parts[0]);
    }
    return OkStatus();
  }

  Status ParseOneTarget(bool may_be_attribute, Target* target) {
    const Nesting nesting(&depth_);
    SPILLWAY_RETURN_IF_ERROR(CheckNesting(depth_));
    if (SkipOp("(")) {
      SPILLWAY_RETURN_IF_ERROR(ParseTarget(false, target));
      return ExpectOp(")");
    }
    static constexpr std::array<std::string_view, 6> kFixed = {"true", "false", "none",
                                                               "True", "False", "None"};
    if (std::find(kFixed.begin(), kFixed.end(), Current().text) != kFixed.end()) {
      return Unexpected("a name that can be assigned to");
    }
    SPILLWAY_ASSIGN_OR_RETURN(target->name, ExpectName("a name to assign to"));
    if (may_be_attribute && SkipOp(".")) {
      target->type = Target::Type::kAttribute;
      SPILLWAY_ASSIGN_OR_RETURN(target->attribute, ExpectName("the name of an attribute"));
    }
    return OkStatus();
  }

  Status ParseSet(Stmt* stmt) {
    Take();
    SPILLWAY_RETURN_IF_ERROR(ParseTarget(true, &stmt->target));
    if (SkipOp("=")) {
      stmt->type = Stmt::Type::kSet;
      SPILLWAY_ASSIGN_OR_RETURN(stmt->expr, ParseTuple(true, false));
      return ExpectBlockEnd();
    }
    stmt->type = Stmt::Type::kSetBlock;
    if (SkipOp("|")) SPILLWAY_RETURN_IF_ERROR(ParseBlockFilters(stmt));
    return ParseBodyAndEnd("endset", &stmt->body);
  }

  // Filters that a block's text goes through.
  Status ParseBlockFilters(Stmt* stmt) {
    SPILLWAY_ASSIGN_OR_RETURN(stmt->expr, ParseFilter(nullptr));
    while (SkipOp("|")) {
      SPILLWAY_ASSIGN_OR_RETURN(stmt->expr, ParseFilter(std::move(stmt->expr)));
    }
    return OkStatus();
  }

  Status ParseSignature(MacroNode* macro) {
    SPILLWAY_RETURN_IF_ERROR(ExpectOp("("));
    while (!IsOp(")")) {
      if (!macro->parameters.empty()) SPILLWAY_RETURN_IF_ERROR(ExpectOp(","));
      SPILLWAY_ASSIGN_OR_RETURN(std::string name, ExpectName("the name of a parameter"));
      macro->parameters.push_back(std::move(name));
      if (SkipOp("=")) {
        SPILLWAY_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
        macro->defaults.push_back(std::move(value));
      } else if (!macro->defaults.empty()) {
        return Unexpected("'=', as the parameter before has a default");
      }
    }
    Take();
    return OkStatus();
  }

  Status ParseMacroBody(std::string_view end, MacroNode* macro) {
    const int loops = std::exchange(loops_, 0);
    SPILLWAY_RETURN_IF_ERROR(ParseBodyAndEnd(end, &macro->body));
    loops_ = loops;
    return OkStatus();
  }

  Status ParseMacro(Stmt* stmt) {
    stmt->type = Stmt::Type::kMacro;
    Take();
    stmt->macro.line = stmt->line;
    SPILLWAY_ASSIGN_OR_RETURN(stmt->macro.name, ExpectName("the name of a macro"));
    SPILLWAY_RETURN_IF_ERROR(ParseSignature(&stmt->macro));
    return ParseMacroBody("endmacro", &stmt->macro);
  }

  Status ParseCallBlock(Stmt* stmt) {
    stmt->type = Stmt::Type::kCallBlock;
    Take();
    stmt->macro.line = stmt->line;
    stmt->macro.name = "caller";
    if (IsOp("(")) SPILLWAY_RETURN_IF_ERROR(ParseSignature(&stmt->macro));
    SPILLWAY_ASSIGN_OR_RETURN(stmt->expr, ParseExpression());
    if (stmt->expr->type != Expr::Type::kCall) return ErrorAt(stmt->line, "'call' needs a call");
    return ParseMacroBody("endcall", &stmt->macro);
  }

  Status ParseFilterBlock(Stmt* stmt) {
    stmt->type = Stmt::Type::kFilterBlock;
    Take();
    SPILLWAY_RETURN_IF_ERROR(ParseBlockFilters(stmt));
    return ParseBodyAndEnd("endfilter", &stmt->body);
  }

  Status ParseWith(Stmt* stmt) {
    stmt->type = Stmt::Type::kWith;
    Take();
    while (Current().type != TokenType::kBlockEnd) {
      if (!stmt->assignments.empty()) SPILLWAY_RETURN_IF_ERROR(ExpectOp(","));
      Target target;
      SPILLWAY_RETURN_IF_ERROR(ParseOneTarget(false, &target));
      SPILLWAY_RETURN_IF_ERROR(ExpectOp("="));
      SPILLWAY_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      stmt->assignments.emplace_back(std::move(target), std::move(value));
    }
    return ParseBodyAndEnd("endwith", &stmt->body);
  }

  // Marks the assistant's text for training; rendering ignores it.
  Status ParseGeneration(Stmt* stmt) {
    stmt->type = Stmt::Type::kScope;
    Take();
    MacroNode block;  // no loop of outside can be left from within
    SPILLWAY_RETURN_IF_ERROR(ParseMacroBody("endgeneration", &block));
    stmt->body = std::move(block.body);
    return OkStatus();
  }

  Status ParseJump(Stmt* stmt) {
    const std::string& keyword = Take().text;
    stmt->type = keyword == "break" ? Stmt::Type::kBreak : Stmt::Type::kContinue;
    if (loops_ == 0) return ErrorAt(stmt->line, "'" + keyword + "' is not in a loop");
    return ExpectBlockEnd();
  }

  Status ParsePrint(Stmt* stmt) {
    stmt->type = Stmt::Type::kPrint;
    Take();
    SPILLWAY_ASSIGN_OR_RETURN(stmt->expr, ParseTuple(true, false));
    return ExpectBlockEnd();
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // around the current place, within the current macro
};

}  // namespace

Result<Body> ParseTemplate(std::string_view source) {
  SPILLWAY_ASSIGN_OR_RETURN(std::vector<Token> tokens, Lex(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace spillway::jinja
