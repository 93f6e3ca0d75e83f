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

enum class Precision {
  kQuantized,  // the tensors' own types decide
  kFp16,       // float tensors are computed in 16 bits
};

// How fast the HTP runs, and what it costs in power.
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

// The process domain on the DSP that graphs run in.
enum class PdSession {
  kUnsigned,  // the vendor's default: no option is sent
  kSigned,
};

// Whose turn it is when several graphs wait for the HTP.
enum class GraphPriority { kLow, kNormal, kNormalHigh, kHigh };

// What the vendor records while it prepares and executes a graph.
enum class ProfileLevel { kOff, kBasic, kDetailed, kLinting };

// Whether transfers are kept in the system-level cache where the compiler finds any.
enum class SlcAllocator {
  kOff,
  kOn,
  kAuto,  // where the SoC is known to profit and a graph has something to keep
};

// What the vendor writes to its log.
enum class VendorLogLevel {
  kAuto,  // what the reports need: verbose while compiling
  kError,
  kWarning,
  kInfo,
  kVerbose,
  kDebug,
};

// A library of operations that the vendor's does not have.
struct OpPackage {
  std::string path;
  std::string interface_provider;  // the function that it exports
  std::string target;              // where it runs: "CPU", "HTP"; empty: the vendor decides
  friend bool operator==(const OpPackage&, const OpPackage&) = default;
};

struct HtpOptions {
  // ---- What the compiler makes.
  std::string soc = "SM8750";       // a name or number of the SoC table
  uint32_t optimization_level = 3;  // 1..3: how hard the compiler tries
  // The same for kv_forward. Unset: 2 where optimization_level is 3 and the graphs share
  // their weights, because there the compiler's estimates of a decode step are a tenth
  // lower at 2 than at 3; otherwise optimization_level.
  std::optional<uint32_t> decode_optimization_level;
  uint32_t vtcm_mb = 0;             // 0: all that the SoC has
  uint32_t hvx_threads = 0;         // 0: the vendor's default
  SlcAllocator slc_allocator = SlcAllocator::kOff;
  // Store weights that several graphs use once. Unset: on when a context has
  // more than one graph.
  std::optional<bool> weight_sharing;
  // One spill-fill buffer for the contexts of all shards. Unset: on when a package
  // has more than one shard.
  std::optional<bool> multi_contexts;
  bool dlbc = false;          // DDR bandwidth compression of activations
  bool dlbc_weights = false;  // and of weights
  // Unset: not sent, the vendor's own default.
  std::optional<bool> fold_relu;  // ReLU becomes a part of the convolution before it
  std::optional<bool> conv_hmx;   // convolutions of short depth on the matrix unit
  Precision precision = Precision::kQuantized;
  // Switches of the compiler itself, passed on unseen. A value "true" or "false"
  // goes as a boolean, a whole number as a 32-bit integer, another number as a
  // float, anything else as text.
  std::vector<std::pair<std::string, std::string>> finalize_config;
  std::vector<OpPackage> op_packages;
  // No context binary: the graphs stay in the package and are built on the device.
  bool online_prepare = false;
  // Internal tensors become outputs of the graphs, behind the contract's own.
  bool dump_intermediates = false;
  // Where to put a record of the API calls instead of a context binary; empty: off.
  std::string saver_dir;

  // ---- How it runs.
  GraphPriority priority = GraphPriority::kNormal;
  PdSession pd_session = PdSession::kUnsigned;
  PerformanceMode performance = PerformanceMode::kDefault;
  // Unset: what the performance mode says. Microseconds.
  std::optional<uint32_t> rpc_polling_us;  // at most 9999
  std::optional<uint32_t> rpc_control_latency_us;
  std::optional<uint32_t> sleep_latency_us;  // 1..65535

  // ---- What is said about it.
  ProfileLevel profile_level = ProfileLevel::kOff;
  VendorLogLevel log_level = VendorLogLevel::kAuto;

  friend bool operator==(const HtpOptions&, const HtpOptions&) = default;
};

}  // namespace spillway

#endif  // SPILLWAY_OPTIONS_H_
