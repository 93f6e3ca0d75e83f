// The step that puts a finished folder in the place of an older one.

#ifndef SPILLWAY_BASE_REPLACE_FOLDER_H_
#define SPILLWAY_BASE_REPLACE_FOLDER_H_

#include <string>

#include "spillway/status.h"

namespace spillway {

// Moves the folder `fresh` to `place`, on the same file system. What was at
// `place` (a folder or nothing) is at `fresh` afterwards. On failure both are
// as before.
//
// One system call exchanges the two where the file system can; elsewhere (or
// without `may_exchange`) the old folder steps aside first, and for that moment
// `place` does not exist.
Status ReplaceFolder(const std::string& fresh, const std::string& place, bool may_exchange = true);

}  // namespace spillway

#endif  // SPILLWAY_BASE_REPLACE_FOLDER_H_
