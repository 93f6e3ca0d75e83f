// What the operating system said, as a Status.

#ifndef SPILLWAY_BASE_ERRNO_ERROR_H_
#define SPILLWAY_BASE_ERRNO_ERROR_H_

#include <string>
#include <string_view>

#include "spillway/status.h"

namespace spillway {

// "No such file or directory". Thread-safe, unlike strerror.
std::string ErrnoText(int error);

// "cannot <action>: <what the number means>". A full disk or quota and missing
// memory are kResourceExhausted, a missing path kNotFound, everything else kIo.
// `action` names the path: "open 'model.gguf'".
Status ErrnoError(std::string_view action, int error);

}  // namespace spillway

#endif  // SPILLWAY_BASE_ERRNO_ERROR_H_
