#include "compiler/make_compile_spec.h"

#include <string>
#include <string_view>

namespace spillway {
namespace {

SpecHtpPerformance ToSpec(PerformanceMode mode) {
  switch (mode) {
    case PerformanceMode::kDefault:
      return SpecHtpPerformance::kDefault;
    case PerformanceMode::kBurst:
      return SpecHtpPerformance::kBurst;
    case PerformanceMode::kSustainedHighPerformance:
      return SpecHtpPerformance::kSustainedHigh;
    case PerformanceMode::kHighPerformance:
      return SpecHtpPerformance::kHigh;
    case PerformanceMode::kBalanced:
      return SpecHtpPerformance::kBalanced;
    case PerformanceMode::kLowBalanced:
      return SpecHtpPerformance::kLowBalanced;
    case PerformanceMode::kHighPowerSaver:
      return SpecHtpPerformance::kHighPowerSaver;
    case PerformanceMode::kPowerSaver:
      return SpecHtpPerformance::kPowerSaver;
    case PerformanceMode::kLowPowerSaver:
    case PerformanceMode::kExtremePowerSaver:
      return SpecHtpPerformance::kLowPowerSaver;
  }
  return SpecHtpPerformance::kDefault;
}

SpecProfileLevel ToSpec(ProfileLevel level) {
  switch (level) {
    case ProfileLevel::kOff:
      return SpecProfileLevel::kOff;
    case ProfileLevel::kBasic:
      return SpecProfileLevel::kBasic;
    case ProfileLevel::kDetailed:
    case ProfileLevel::kLinting:
      return SpecProfileLevel::kDetailed;
  }
  return SpecProfileLevel::kOff;
}

SpecLogLevel ToSpec(VendorLogLevel level) {
  switch (level) {
    case VendorLogLevel::kAuto:  // a delegate makes no reports
    case VendorLogLevel::kError:
      return SpecLogLevel::kError;
    case VendorLogLevel::kWarning:
      return SpecLogLevel::kWarn;
    case VendorLogLevel::kInfo:
      return SpecLogLevel::kInfo;
    case VendorLogLevel::kVerbose:
      return SpecLogLevel::kVerbose;
    case VendorLogLevel::kDebug:
      return SpecLogLevel::kDebug;
  }
  return SpecLogLevel::kError;
}

// "libOurs.so" in any folder is the package "Ours".
std::string PackageName(std::string_view path) {
  if (const size_t slash = path.rfind('/'); slash != std::string_view::npos) {
    path.remove_prefix(slash + 1);
  }
  if (path.starts_with("lib")) path.remove_prefix(3);
  return std::string(path.substr(0, path.find('.')));
}

SpecOpPackage ToSpec(const OpPackage& package) {
  SpecOpPackage spec;
  spec.op_package_name = PackageName(package.path);
  spec.op_package_path = package.path;
  spec.interface_provider = package.interface_provider;
  spec.target = package.target == "CPU"   ? SpecOpPackageTarget::kCpu
                : package.target == "HTP" ? SpecOpPackageTarget::kHtp
                                          : SpecOpPackageTarget::kUnknown;
  return spec;
}

SpecHtpOptions HtpPart(const HtpOptions& options, uint64_t max_spill_fill_bytes) {
  SpecHtpOptions htp;
  htp.max_sf_buf_size = max_spill_fill_bytes;
  htp.performance_mode = ToSpec(options.performance);
  htp.precision = options.precision == Precision::kFp16 ? SpecHtpPrecision::kFp16
                                                        : SpecHtpPrecision::kQuantized;
  htp.pd_session =
      options.pd_session == PdSession::kSigned ? SpecPdSession::kSigned : SpecPdSession::kUnsigned;
  htp.use_conv_hmx = options.conv_hmx.value_or(false);
  htp.use_dlbc = options.dlbc;
  htp.use_fold_relu = options.fold_relu.value_or(false);
  htp.use_multi_contexts = options.multi_contexts.value_or(false);
  htp.use_weight_sharing = options.weight_sharing.value_or(false);
  htp.use_slc_allocator = options.slc_allocator == SlcAllocator::kOn;
  return htp;
}

}  // namespace

Result<CompileSpec> MakeCompileSpec(const HtpOptions& options, const qnn::htp::Soc& soc,
                                    uint64_t max_spill_fill_bytes, bool from_context_binary) {
  CompileSpec spec;
  spec.soc_model = soc.id;
  spec.htp_arch = soc.arch;
  spec.vtcm_size_in_mb = options.vtcm_mb == 0 ? soc.vtcm_mb : options.vtcm_mb;
  spec.backend_type = SpecBackend::kHtp;
  spec.htp = HtpPart(options, max_spill_fill_bytes);
  spec.log_level = ToSpec(options.log_level);
  spec.online_prepare = options.online_prepare;
  spec.dump_intermediate_outputs = options.dump_intermediates;
  spec.profile_level = ToSpec(options.profile_level);
  spec.is_from_context_binary = from_context_binary;
  spec.saver = !options.saver_dir.empty();
  spec.saver_output_dir = options.saver_dir;
  if (spec.saver) spec.library_path = "libQnnSaver.so";
  for (const OpPackage& package : options.op_packages) spec.op_packages.push_back(ToSpec(package));
  // Says what a file cannot hold here, before minutes of compiling are thrown away.
  SPILLWAY_RETURN_IF_ERROR(EncodeCompileSpec(spec).status());
  return spec;
}

}  // namespace spillway
