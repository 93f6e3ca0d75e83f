// Checks of arguments that several commands share. They exist so that a wrong
// argument is told as one (exit code 2) and a missing vendor library as that
// (exit code 4), before any work starts.

#ifndef SPILLWAY_APPS_SPILLWAY_CHECKS_H_
#define SPILLWAY_APPS_SPILLWAY_CHECKS_H_

#include <string>

#include "spillway/status.h"

namespace spillway::cli {

// kInvalidArgument, with the known names, unless `soc` is in the SoC table.
Status CheckSoc(const std::string& soc);

// kVendor, with the places looked at, when the vendor's library `name` (by default
// libQnnHtp.so) is not there.
Status CheckVendorLibrary(const std::string& qnn_lib_dir, const char* name = nullptr);

// kInvalidArgument when `path` is something whose loss would surprise: a folder
// that is neither empty nor a package, or no folder.
Status CheckReplaceable(const std::string& path);

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_CHECKS_H_
