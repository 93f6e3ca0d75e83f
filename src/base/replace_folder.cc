#include "base/replace_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/errno_error.h"

namespace spillway {
namespace {

// The flags of renameat2, which not every C library names.
constexpr unsigned int kNoReplace = 1;
constexpr unsigned int kExchange = 2;

int RenameWithFlags(const std::string& from, const std::string& to, unsigned int flags) {
  return static_cast<int>(
      syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags));
}

bool NotSupported(int error) {
  return error == ENOSYS || error == EINVAL || error == EOPNOTSUPP || error == EPERM;
}

Status MoveError(const std::string& from, const std::string& to, int error) {
  return ErrnoError("move '" + from + "' to '" + to + "'", error);
}

Status StepAside(const std::string& fresh, const std::string& place) {
  const std::string aside = fresh + ".old";
  if (rename(place.c_str(), aside.c_str()) != 0) return MoveError(place, aside, errno);
  if (rename(fresh.c_str(), place.c_str()) != 0) {
    const int error = errno;
    if (rename(aside.c_str(), place.c_str()) != 0) {
      return IoError("cannot move '" + fresh + "' to '" + place + "': " + ErrnoText(error) +
                     "; the folder that was there is now at '" + aside + "'");
    }
    return MoveError(fresh, place, error);
  }
  if (rename(aside.c_str(), fresh.c_str()) != 0) return MoveError(aside, fresh, errno);
  return OkStatus();
}

}  // namespace

Status ReplaceFolder(const std::string& fresh, const std::string& place, bool may_exchange) {
  struct stat info;
  if (lstat(place.c_str(), &info) != 0) {
    if (errno != ENOENT) return ErrnoError("examine '" + place + "'", errno);
    // Never over something that has appeared since.
    if (RenameWithFlags(fresh, place, kNoReplace) == 0) return OkStatus();
    if (!NotSupported(errno)) return MoveError(fresh, place, errno);
    if (rename(fresh.c_str(), place.c_str()) == 0) return OkStatus();
    return MoveError(fresh, place, errno);
  }
  if (!S_ISDIR(info.st_mode)) {
    return IoError("cannot replace '" + place +
                   "': it is not a folder; move it away or choose another place");
  }
  if (may_exchange) {
    if (RenameWithFlags(fresh, place, kExchange) == 0) return OkStatus();
    if (!NotSupported(errno)) return MoveError(fresh, place, errno);
  }
  return StepAside(fresh, place);
}

}  // namespace spillway
