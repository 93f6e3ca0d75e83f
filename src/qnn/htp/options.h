// The choices that a user has about HTP, checked against the SoC table, and
// their translation into the vendor's configuration lists.

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
#include "spillway/status.h"

namespace spillway::qnn::htp {

enum class Precision {
  kQuantized,  // the tensors' own types decide
  kFp16,       // float tensors are computed in 16 bits
};

enum class PerformanceMode {
  kDefault,  // nothing is set; the vendor's own behaviour
  kBurst,
  kSustainedHighPerformance,
  kHighPerformance,
  kBalanced,
  kLowBalanced,
  kHighPowerSaver,
  kPowerSaver,
  kLowPowerSaver,
  kExtremePowerSaver,
};

enum class PdSession {
  kUnsigned,  // the vendor's default: no option is sent
  kSigned,
};

// "burst", "high_performance", ...: the names of the command line.
std::string_view PerformanceModeName(PerformanceMode mode);
Result<PerformanceMode> ParsePerformanceMode(std::string_view name);
std::string_view PrecisionName(Precision precision);
Result<Precision> ParsePrecision(std::string_view name);

struct HtpOptions {
  std::string soc = "SM8750";       // a name or number of the SoC table
  uint32_t optimization_level = 3;  // 0..3
  uint32_t vtcm_mb = 0;             // 0: all that the SoC has
  uint32_t hvx_threads = 0;         // 0: the vendor's default; at most kMostHvxThreads
  bool slc_allocator = false;
  bool weight_sharing = false;  // graphs of a context share equal weights
  bool dlbc = false;            // bandwidth compression of activations
  bool dlbc_weights = false;
  // Not set: not sent, the vendor's own default.
  std::optional<bool> fold_relu;
  std::optional<bool> conv_hmx;
  Precision precision = Precision::kQuantized;
  abi::Priority priority = abi::kPriorityNormal;
  PdSession pd_session = PdSession::kUnsigned;
  PerformanceMode performance = PerformanceMode::kDefault;
  std::optional<uint32_t> rpc_polling_us;  // 0..kMostRpcPollingUs
  std::optional<uint32_t> rpc_control_latency_us;
  uint32_t profile_level = 0;  // 0, 1, 2 or 7001
  uint32_t log_level = 4;      // abi::LogLevel, 1..5
  // Switches of the compiler itself, passed on unseen. A value "true" or "false"
  // goes as a boolean, a whole number as a 32-bit integer, another number as a
  // float, anything else as text.
  std::vector<std::pair<std::string, std::string>> finalize_config;
};

inline constexpr uint32_t kMostHvxThreads = 16;
inline constexpr uint32_t kMostRpcPollingUs = 9999;

// kInvalidArgument (kNotFound for the SoC, kUnsupported for what the SoC lacks)
// with the option's name, its value and the allowed ones. Returns the SoC.
Result<const Soc*> CheckOptions(const HtpOptions& options);

// "key=value" of the command line; kInvalidArgument without a key or "=".
Result<std::pair<std::string, std::string>> ParseFinalizeConfig(std::string_view text);

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
  abi::Priority priority = abi::kPriorityNormal;
  std::optional<ContextGroup> group;
};
ContextConfigs MakeContextConfigs(const ContextOptions& options);
ContextConfigs MakeContextConfigs(const HtpOptions& options);

// Optimisation level, SLC allocator (sent always, 0 or 1, so that the vendor's
// log proves it), VTCM size, and those of the others that differ from the vendor's
// default. `soc` is what CheckOptions returned.
GraphConfigs MakeGraphConfigs(const HtpOptions& options, const Soc& soc);

}  // namespace spillway::qnn::htp

#endif  // SPILLWAY_QNN_HTP_OPTIONS_H_
