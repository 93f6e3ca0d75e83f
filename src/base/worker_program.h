// Where the child program that loads the vendor library is.

#ifndef SPILLWAY_BASE_WORKER_PROGRAM_H_
#define SPILLWAY_BASE_WORKER_PROGRAM_H_

#include <string>

#include "spillway/status.h"

namespace spillway {

// The path of `spillway-worker`: the environment variable SPILLWAY_WORKER when
// set (nothing else is tried then), beside the running program, or where an
// installed library keeps it (../bin and ../libexec/spillway of the library's
// folder). kNotFound lists the places tried.
Result<std::string> FindWorkerProgram();

}  // namespace spillway

#endif  // SPILLWAY_BASE_WORKER_PROGRAM_H_
