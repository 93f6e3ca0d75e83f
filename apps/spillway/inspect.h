// What `spillway inspect` says of each kind of thing.

#ifndef SPILLWAY_APPS_SPILLWAY_INSPECT_H_
#define SPILLWAY_APPS_SPILLWAY_INSPECT_H_

#include <string>

#include "console.h"
#include "spillway/status.h"

namespace spillway::cli {

struct InspectOptions {
  std::string path;
  bool tensors = false;     // list every tensor
  bool graphs = false;      // list the inputs and outputs of graphs
  bool encodings = false;   // of a package: only types and encodings of its tensors
  std::string qnn_lib_dir;  // for context binaries
};

Status InspectGguf(const InspectOptions& options, Console& console);
Status InspectPackage(const InspectOptions& options, Console& console);
Status InspectEncodings(const InspectOptions& options, Console& console);
// A compile spec; told by its name, because the format has no mark.
Status InspectSpec(const InspectOptions& options, Console& console);
// Any other file is taken for a context binary; the vendor's system library says
// whether it is one. It runs in a child process: the file may be damaged.
Status InspectContext(const InspectOptions& options, Console& console);

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_INSPECT_H_
