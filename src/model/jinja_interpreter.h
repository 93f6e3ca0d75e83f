// Runs a parsed template.

#ifndef SPILLWAY_MODEL_JINJA_INTERPRETER_H_
#define SPILLWAY_MODEL_JINJA_INTERPRETER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja_ast.h"
#include "model/marked_text.h"
#include "spillway/status.h"

namespace spillway::jinja {

struct RunLimits {
  uint64_t steps = 10'000'000;
  uint64_t output_bytes = uint64_t{64} << 20;
  // All strings and lists made on the way.
  uint64_t working_bytes = uint64_t{768} << 20;
};

// The text that `body` renders to with these variables. Also known to it are
// range, dict, namespace, raise_exception and strftime_now. What
// raise_exception() says is the message of a kInvalidArgument; other mistakes of
// the template are kInvalidArgument with the line, what the interpreter lacks
// kUnsupported, a limit passed kResourceExhausted.
Result<MarkedText> RunTemplate(const Body& body,
                               std::vector<std::pair<std::string, Value>> variables,
                               const RunLimits& limits = {});

}  // namespace spillway::jinja

#endif  // SPILLWAY_MODEL_JINJA_INTERPRETER_H_
