// The public HtpOptions, checked against the SoC table, and their translation into
// the vendor's configuration lists.

#ifndef SPILLWAY_QNN_HTP_OPTIONS_H_
#define SPILLWAY_QNN_HTP_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qnn/api/config_list.h"
#include "qnn/htp/soc_table.h"
#include "spillway/options.h"
#include "spillway/status.h"

namespace spillway::qnn::htp {

inline constexpr uint32_t kMostHvxThreads = 16;
inline constexpr uint32_t kMostRpcPollingUs = 9999;
inline constexpr uint32_t kMostSleepLatencyUs = 65535;

// In the vendor's numbers; 0 for kOff.
uint32_t ToVendor(ProfileLevel level);
abi::Priority ToVendor(GraphPriority priority);
// `automatic` stands for kAuto.
abi::LogLevel ToVendor(VendorLogLevel level, abi::LogLevel automatic);

// kInvalidArgument (kNotFound for the SoC, kUnsupported for what the SoC lacks)
// with the option's name, its value and the allowed ones; also for options that
// exclude each other. Touches no file. Returns the SoC.
Result<const Soc*> CheckOptions(const HtpOptions& options);
// kNotFound names the op package whose file is missing.
Status CheckOpPackageFiles(const HtpOptions& options);
// What is allowed but may not do what the user expects, a sentence each.
std::vector<std::string> OptionWarnings(const HtpOptions& options, const Soc& soc);

// "key=value" of the command line; kInvalidArgument without a key or "=".
Result<std::pair<std::string, std::string>> ParseFinalizeConfig(std::string_view text);
// "path:provider" or "path:provider:target"; the path may hold colons. kInvalidArgument
// when a part is empty or missing.
Result<OpPackage> ParseOpPackage(std::string_view text);

// The three lists below expect options that CheckOptions accepted.

// The SoC, and the signed process domain when asked. `backend_api` is
// Library::version().backend: the place of the domain's flag depends on it (the
// SoC is written so that every version finds it).
DeviceConfigs MakeDeviceConfigs(const Soc& soc, PdSession pd_session,
                                const abi::Version& backend_api);

// A group of contexts that use one spill-fill buffer on the device, one after the
// other. x86-64 refuses it (5010).
struct ContextGroup {
  abi::Handle first_context = nullptr;  // null for the first one
  uint64_t max_spill_fill_bytes = 0;    // the largest of all members
};
struct ContextOptions {
  bool weight_sharing = false;
  GraphPriority priority = GraphPriority::kNormal;
  std::optional<ContextGroup> group;
};
ContextConfigs MakeContextConfigs(const ContextOptions& options);
// Weight sharing is off when it is not set.
ContextConfigs MakeContextConfigs(const HtpOptions& options);

// The options as they are for one graph: `decode` (kv_forward) has a level of its own.
HtpOptions OptionsOfGraph(const HtpOptions& options, bool decode);

// Optimisation level, SLC allocator (sent always, 0 or 1, so that the vendor's
// log proves it; kAuto is for the caller to decide and goes as 0), VTCM size, and
// those of the others that differ from the vendor's default. `soc` is what
// CheckOptions returned.
GraphConfigs MakeGraphConfigs(const HtpOptions& options, const Soc& soc);

}  // namespace spillway::qnn::htp

#endif  // SPILLWAY_QNN_HTP_OPTIONS_H_
