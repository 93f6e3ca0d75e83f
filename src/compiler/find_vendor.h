// Where the vendor's libraries are, for a compile that may do without them.

#ifndef SPILLWAY_COMPILER_FIND_VENDOR_H_
#define SPILLWAY_COMPILER_FIND_VENDOR_H_

#include <string>

#include "spillway/compile.h"
#include "spillway/status.h"

namespace spillway {

// The folder of the libraries. Empty when `build` can do without: then `left_out` says why
// no context is made, with a warning when they were looked for. `qnn_lib_dir` as in
// CompileOptions: a folder that is named must hold them.
Result<std::string> FindVendor(HtpBuild build, const std::string& qnn_lib_dir,
                               std::string& left_out);

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_FIND_VENDOR_H_
