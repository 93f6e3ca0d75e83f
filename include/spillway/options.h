// HtpOptions: what the vendor's compiler and runtime are asked for. One struct,
// from the command line through the package to the vendor's configuration.

#ifndef SPILLWAY_OPTIONS_H_
#define SPILLWAY_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spillway {

struct HtpOptions {
  std::string soc = "SM8750";       // a name or number of the SoC table
  uint32_t optimization_level = 3;  // 1..3: how hard the compiler tries
  uint32_t vtcm_mb = 0;             // 0: all that the SoC has
  uint32_t hvx_threads = 0;         // 0: the vendor's default
  // Keep transfers in the system-level cache where the compiler finds any.
  bool slc_allocator = false;
  // Store weights that several graphs use once. Unset: on when a context has
  // more than one graph.
  std::optional<bool> weight_sharing;
};

}  // namespace spillway

#endif  // SPILLWAY_OPTIONS_H_
