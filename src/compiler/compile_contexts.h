// The vendor's part of a compile: from the graphs of a package in the making to its
// context binaries, and what they decide for all shards: the SLC allocator and the
// spill-fill buffer.

#ifndef SPILLWAY_COMPILER_COMPILE_CONTEXTS_H_
#define SPILLWAY_COMPILER_COMPILE_CONTEXTS_H_

#include <string>
#include <vector>

#include "package/package.h"
#include "qnn/htp/soc_table.h"
#include "spillway/compile.h"
#include "spillway/status.h"

namespace spillway {

struct ContextInputs {
  const qnn::htp::Soc* soc = nullptr;
  std::string library_dir;                // of the vendor
  std::vector<std::string> shard_hashes;  // HashGraphs() of each shard's graphs
};

// Compiles a context for every shard of `manifest` into the folder of `writer`, whose
// graphs are finished, and writes each shard's compile spec. `htp` comes with what the
// user asked for and leaves with what was done (SLC on or off, sharing set); files, sizes
// and the common spill-fill size go into `manifest` and `report`.
Status CompileContexts(const CompileOptions& options, const ContextInputs& inputs,
                       const ProgressCallback& progress, PackageWriter& writer, HtpOptions& htp,
                       PackageManifest& manifest, CompileReport& report);

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_COMPILE_CONTEXTS_H_
