// The options of one context in the form in which ExecuTorch's QNN delegate
// stores and reads them: a FlatBuffers table, `shard_<i>.spec` of a package. The
// schema is compile_spec.fbs; values and meaning are those of ExecuTorch of
// August 2026. Programs of its older versions with the fields skel_library_dir
// or graph_name have another field order and are not this format.
//
// Field names below are ExecuTorch's, so that they can be found there.

#ifndef SPILLWAY_PACKAGE_COMPILE_SPEC_H_
#define SPILLWAY_PACKAGE_COMPILE_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/status.h"

namespace spillway {

inline constexpr char kCompileSpecSuffix[] = ".spec";
// "shard_0.spec"
std::string CompileSpecFileName(uint32_t shard);

enum class SpecLpaiHardware : int32_t { kNone = 0, kV6 = 6, kV7 = 7 };
enum class SpecGpuPerformance : int32_t { kHigh = 0, kNormal = 1, kLow = 2 };
enum class SpecGpuPrecision : int32_t { kFp32 = 0, kFp16 = 1, kHybrid = 2, kUserProvided = 3 };
enum class SpecHtpPerformance : int32_t {
  kDefault = 0,
  kSustainedHigh = 1,
  kBurst = 2,
  kHigh = 3,
  kPowerSaver = 4,
  kLowPowerSaver = 5,
  kHighPowerSaver = 6,
  kLowBalanced = 7,
  kBalanced = 8,
};
enum class SpecHtpPrecision : int32_t { kQuantized = 0, kFp16 = 1 };
enum class SpecPdSession : int32_t { kUnsigned = 0, kSigned = 1 };
enum class SpecBackend : int32_t { kUndefined = 0, kGpu = 1, kHtp = 2, kDsp = 3, kLpai = 4 };
enum class SpecLpaiClient : int32_t { kUndefined = 0, kRealTime = 1, kNonRealTime = 2 };
enum class SpecLpaiAffinity : int32_t { kUndefined = 0, kSoft = 1, kHard = 2 };
enum class SpecLpaiTarget : int32_t { kX86 = 0, kArm = 1, kAdsp = 2 };
enum class SpecLogLevel : int32_t {
  kOff = 0,
  kError = 1,
  kWarn = 2,
  kInfo = 3,
  kVerbose = 4,
  kDebug = 5,
};
enum class SpecProfileLevel : int32_t { kOff = 0, kBasic = 1, kDetailed = 2, kOptrace = 3 };
enum class SpecOpPackageTarget : int32_t { kUnknown = 0, kCpu = 1, kHtp = 2 };
enum class SpecOpPackagePlatform : int32_t { kUnknown = 0, kX86_64 = 1, kAarch64Android = 2 };

// The name of a value, like "burst"; empty for a number that the format does not have.
std::string_view SpecValueName(SpecLpaiHardware value);
std::string_view SpecValueName(SpecGpuPerformance value);
std::string_view SpecValueName(SpecGpuPrecision value);
std::string_view SpecValueName(SpecHtpPerformance value);
std::string_view SpecValueName(SpecHtpPrecision value);
std::string_view SpecValueName(SpecPdSession value);
std::string_view SpecValueName(SpecBackend value);
std::string_view SpecValueName(SpecLpaiClient value);
std::string_view SpecValueName(SpecLpaiAffinity value);
std::string_view SpecValueName(SpecLpaiTarget value);
std::string_view SpecValueName(SpecLogLevel value);
std::string_view SpecValueName(SpecProfileLevel value);
std::string_view SpecValueName(SpecOpPackageTarget value);
std::string_view SpecValueName(SpecOpPackagePlatform value);

struct SpecHtpOptions {
  // Bytes of the spill-fill buffer that all contexts of the model share: the
  // largest of all their graphs. The file has 32 bits with a sign for it.
  uint64_t max_sf_buf_size = 0;
  SpecHtpPerformance performance_mode = SpecHtpPerformance::kDefault;
  SpecHtpPrecision precision = SpecHtpPrecision::kQuantized;
  SpecPdSession pd_session = SpecPdSession::kUnsigned;
  bool use_conv_hmx = false;
  bool use_dlbc = false;
  bool use_fold_relu = false;
  bool use_multi_contexts = false;
  bool use_weight_sharing = false;
  bool use_slc_allocator = false;
  bool operator==(const SpecHtpOptions&) const = default;
};

struct SpecGpuOptions {
  SpecGpuPerformance performance_mode = SpecGpuPerformance::kHigh;
  SpecGpuPrecision precision = SpecGpuPrecision::kFp32;
  bool use_memory_optimizations = false;
  bool use_node_optimizations = false;
  bool use_queue_recording = false;
  bool use_weight_sharing = false;
  bool operator==(const SpecGpuOptions&) const = default;
};

struct SpecLpaiOptions {
  int32_t fps = 0;
  int32_t ftrt_ratio = 0;
  SpecLpaiClient client_perf_type = SpecLpaiClient::kUndefined;
  SpecLpaiAffinity affinity = SpecLpaiAffinity::kUndefined;
  uint32_t core_selection = 0;
  SpecLpaiTarget target_env = SpecLpaiTarget::kX86;
  bool operator==(const SpecLpaiOptions&) const = default;
};

struct SpecOpPackage {
  std::string op_package_name, op_package_path, interface_provider;
  SpecOpPackageTarget target = SpecOpPackageTarget::kUnknown;
  std::string custom_op_name, qnn_op_type_name;
  SpecOpPackagePlatform platform = SpecOpPackagePlatform::kUnknown;
  bool operator==(const SpecOpPackage&) const = default;
};

struct CompileSpec {
  // The vendor's numbers, those too that ExecuTorch has no name for. 0: not said.
  uint32_t soc_model = 0;
  uint32_t htp_arch = 0;
  uint32_t vtcm_size_in_mb = 0;
  SpecLpaiHardware lpai_hardware_version = SpecLpaiHardware::kNone;
  SpecBackend backend_type = SpecBackend::kUndefined;
  std::optional<SpecHtpOptions> htp;
  std::optional<SpecGpuOptions> gpu;
  std::optional<SpecLpaiOptions> lpai;
  std::string library_path;
  SpecLogLevel log_level = SpecLogLevel::kOff;
  bool online_prepare = false;
  bool dump_intermediate_outputs = false;
  SpecProfileLevel profile_level = SpecProfileLevel::kOff;
  bool shared_buffer = false;
  bool is_from_context_binary = false;
  bool saver = false;
  std::string saver_output_dir;
  std::vector<SpecOpPackage> op_packages;
  bool use_mha2sha = false;
  bool operator==(const CompileSpec&) const = default;
};

// The bytes of the file; equal specs give equal bytes. kInvalidArgument names
// the field whose value the file cannot hold, and the limit.
Result<std::vector<std::byte>> EncodeCompileSpec(const CompileSpec& spec);

// A field that is absent (files of an older writer) has its default above.
// Whatever the bytes are, the result is a spec or an error: kCorruptData for
// damage, kUnsupported for a number that a field does not have; the message names
// the field.
Result<CompileSpec> DecodeCompileSpec(std::span<const std::byte> bytes);
// From a file; errors name it.
Result<CompileSpec> ReadCompileSpec(const std::string& path);

}  // namespace spillway

#endif  // SPILLWAY_PACKAGE_COMPILE_SPEC_H_
