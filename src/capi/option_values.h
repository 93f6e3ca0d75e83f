// Options as text: what spillway_options_set() takes.

#ifndef SPILLWAY_CAPI_OPTION_VALUES_H_
#define SPILLWAY_CAPI_OPTION_VALUES_H_

#include <string_view>

#include "spillway/compile.h"
#include "spillway/session.h"
#include "spillway/status.h"

namespace spillway::capi {

struct Options {
  CompileOptions compile;
  SessionOptions session;
  RunOptions run;
};

// Sets the option `name`. kInvalidArgument: there is none (lists those that there are),
// or `value` is not of its kind.
Status SetOption(Options& options, std::string_view name, std::string_view value);

}  // namespace spillway::capi

#endif  // SPILLWAY_CAPI_OPTION_VALUES_H_
