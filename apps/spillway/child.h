// Runs a piece of work that may crash (the vendor's code on a foreign file) in a
// child process.

#ifndef SPILLWAY_APPS_SPILLWAY_CHILD_H_
#define SPILLWAY_APPS_SPILLWAY_CHILD_H_

#include <functional>
#include <string>

#include "spillway/status.h"

namespace spillway::cli {

// Calls `work` in a forked child and returns what it returned. What the child
// writes to standard output is dropped. kVendorCrash when it died, kTimeout when
// it took longer than `timeout_s`; both messages begin with `what`. The calling
// process must have one thread.
Result<std::string> RunInChild(const std::string& what, unsigned timeout_s,
                               const std::function<Result<std::string>()>& work);

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_CHILD_H_
