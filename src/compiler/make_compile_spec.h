// From our options to the compile spec of a context.

#ifndef SPILLWAY_COMPILER_MAKE_COMPILE_SPEC_H_
#define SPILLWAY_COMPILER_MAKE_COMPILE_SPEC_H_

#include <cstdint>

#include "package/compile_spec.h"
#include "qnn/htp/soc_table.h"
#include "spillway/options.h"
#include "spillway/status.h"

namespace spillway {

// The spec of one context. `options` must be resolved: what auto or unset means
// for this package (SLC allocator, weight sharing, multi-contexts) is written into
// it; unset counts as off, as does kAuto.
//   max_spill_fill_bytes   the largest spill-fill buffer over all graphs of all
//                          shards, the same in every shard's spec
//   from_context_binary    the delegate gets a context binary that was made
//                          before, as all of ours are
// What the spec has no field for (optimisation level, HVX threads, priority,
// latencies, compression of weights, the compiler's own switches) is in the context
// binary already or in the package's manifest. The nearest value stands for what
// the format has no number for: low_power_saver for extreme_power_saver, detailed
// for linting. kInvalidArgument when `max_spill_fill_bytes` needs more than 31 bits.
Result<CompileSpec> MakeCompileSpec(const HtpOptions& options, const qnn::htp::Soc& soc,
                                    uint64_t max_spill_fill_bytes, bool from_context_binary);

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_MAKE_COMPILE_SPEC_H_
