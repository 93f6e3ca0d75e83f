// Lexer of the template language (Jinja2's syntax, with trim_blocks and
// lstrip_blocks as chat templates are written for).

#ifndef SPILLWAY_MODEL_JINJA_LEXER_H_
#define SPILLWAY_MODEL_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/status.h"

namespace spillway::jinja {

struct Token {
  enum class Type {
    kData,        // text between tags
    kPrintBegin,  // {{
    kPrintEnd,    // }}
    kBlockBegin,  // {%
    kBlockEnd,    // %}
    kName,
    kString,  // text is the value
    kInt,
    kFloat,
    kOperator,  // text is the operator
    kEnd,
  };
  Type type = Type::kEnd;
  int line = 1;
  std::string text;
  int64_t int_value = 0;
  double float_value = 0;
};

// `source` is valid UTF-8. Comments and white space are gone from the result,
// which ends with kEnd. Errors are kInvalidArgument with the line.
Result<std::vector<Token>> Lex(std::string_view source);

}  // namespace spillway::jinja

#endif  // SPILLWAY_MODEL_JINJA_LEXER_H_
