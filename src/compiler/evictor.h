// The evictor of a package: its graph, and the context of its own that holds it.

#ifndef SPILLWAY_COMPILER_EVICTOR_H_
#define SPILLWAY_COMPILER_EVICTOR_H_

#include <string>

#include "package/package.h"
#include "qnn/htp/soc_table.h"
#include "spillway/compile.h"
#include "spillway/status.h"

namespace spillway {

struct EvictorInputs {
  const qnn::htp::Soc* soc = nullptr;
  std::string library_dir;   // of the vendor; empty: no context
  HtpOptions htp;            // those of the package's contexts
  std::string htp_left_out;  // why there is no context
  bool in_process = false;
  double vendor_timeout_s = 3600;
};

// kInvalidArgument when a context of `context_len` tokens with calls of `decode_ar_len` has
// no room for it.
Status CheckAttentionSink(const AttentionSink& sink, uint32_t context_len, uint32_t decode_ar_len);

// Puts the graph and its context into the folder of `writer`, whose graphs are finished, and
// sets manifest.evictor. The context needs neither shared weights nor the SLC allocator, so
// that a device and the x86-64 simulator can load it.
Result<EvictorReport> MakeEvictor(const AttentionSink& sink, const EvictorInputs& inputs,
                                  const ProgressCallback& progress, PackageWriter& writer,
                                  PackageManifest& manifest);

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_EVICTOR_H_
