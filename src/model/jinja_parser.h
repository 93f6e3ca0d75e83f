// Parser of the template language.

#ifndef SPILLWAY_MODEL_JINJA_PARSER_H_
#define SPILLWAY_MODEL_JINJA_PARSER_H_

#include <string_view>

#include "model/jinja_ast.h"
#include "spillway/status.h"

namespace spillway::jinja {

// Parses a whole template, valid UTF-8. A mistake in the syntax is
// kInvalidArgument; a tag, filter or test that the interpreter does not know is
// kUnsupported; nesting beyond a fixed depth is kResourceExhausted. Each message
// names the construct and its line.
Result<Body> ParseTemplate(std::string_view source);

}  // namespace spillway::jinja

#endif  // SPILLWAY_MODEL_JINJA_PARSER_H_
