#include "base/errno_error.h"

#include <cerrno>
#include <system_error>

namespace spillway {

std::string ErrnoText(int error) { return std::generic_category().message(error); }

Status ErrnoError(std::string_view action, int error) {
  std::string message = "cannot " + std::string(action) + ": " + ErrnoText(error);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return ResourceExhaustedError(message + "; free some disk space and try again");
    case ENOMEM:
      return ResourceExhaustedError(std::move(message));
    case ENOENT:
      return NotFoundError(std::move(message));
    default:
      return IoError(std::move(message));
  }
}

}  // namespace spillway
