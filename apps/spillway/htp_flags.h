// HtpOptions on the command line.

#ifndef SPILLWAY_APPS_SPILLWAY_HTP_FLAGS_H_
#define SPILLWAY_APPS_SPILLWAY_HTP_FLAGS_H_

#include "spillway/options.h"
#include "spillway/session.h"

namespace CLI {
class App;
}

namespace spillway::cli {

// Adds an option for every field of HtpOptions, in groups of the help. Parsing writes to
// `options`, which must outlive it, and whose values are the defaults. Names that are
// not known are an error that lists those that are; what depends on the SoC is left to
// qnn::htp::CheckOptions. Paths become absolute.
void AddHtpFlags(CLI::App& app, HtpOptions& options);

// The options that can be chosen anew for a run; without one it is as the package says.
void AddHtpRunFlags(CLI::App& app, HtpRunOptions& options);

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_HTP_FLAGS_H_
