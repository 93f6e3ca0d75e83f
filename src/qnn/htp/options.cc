#include "qnn/htp/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/file.h"
#include "qnn/htp/abi_htp.h"
#include "qnn/htp/option_names.h"

namespace spillway::qnn::htp {
namespace {

Status OutOfRange(std::string_view name, uint64_t value, std::string_view allowed) {
  return InvalidArgumentError(
      fmt::format("HTP option {} is {}, expected {}", name, value, allowed));
}

Status CheckAgainstSoc(const HtpOptions& options, const Soc& soc) {
  if (!soc.prepares) {
    return UnsupportedError(fmt::format(
        "SoC {} (architecture v{}): the vendor's compiler knows it but cannot prepare graphs for "
        "it",
        soc.name, soc.arch));
  }
  if (options.vtcm_mb > soc.vtcm_mb) {
    return OutOfRange("vtcm_mb", options.vtcm_mb,
                      fmt::format("0 (all) to {}, the VTCM of {}", soc.vtcm_mb, soc.name));
  }
  if (options.precision == Precision::kFp16 && !soc.fp16) {
    return UnsupportedError(fmt::format(
        "HTP option precision is fp16, but {} has no 16-bit floats; use quantized", soc.name));
  }
  return OkStatus();
}

Status CheckCombinations(const HtpOptions& options) {
  if (options.online_prepare && !options.saver_dir.empty()) {
    return InvalidArgumentError(
        "HTP options online_prepare and saver_dir exclude each other: the one leaves the "
        "preparation to the device, the other records it here");
  }
  const bool says_enough =
      options.log_level == VendorLogLevel::kAuto || options.log_level >= VendorLogLevel::kVerbose;
  if (options.slc_allocator == SlcAllocator::kAuto && !says_enough) {
    return InvalidArgumentError(fmt::format(
        "HTP option slc_allocator is auto, which decides by the vendor's log, but log_level is {}; "
        "expected auto, verbose or debug",
        OptionName(options.log_level)));
  }
  return OkStatus();
}

template <typename T>
std::optional<T> ParseWhole(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

// `kept` is the text with the lifetime of the list.
abi::Scalar FinalizeScalar(const std::string& text, const char* kept) {
  abi::Scalar scalar = {};
  if (text == "true" || text == "false") {
    scalar.data_type = abi::DataType::kBool8;
    scalar.b8 = text == "true" ? 1 : 0;
  } else if (const auto unsigned_value = ParseWhole<uint32_t>(text)) {
    scalar.data_type = abi::DataType::kUint32;
    scalar.u32 = *unsigned_value;
  } else if (const auto signed_value = ParseWhole<int32_t>(text)) {
    scalar.data_type = abi::DataType::kInt32;
    scalar.i32 = *signed_value;
  } else if (const auto real = ParseWhole<float>(text)) {
    scalar.data_type = abi::DataType::kFloat32;
    scalar.f32 = *real;
  } else {
    scalar.data_type = abi::DataType::kString;
    scalar.text = kept;
  }
  return scalar;
}

abi::HtpGraphConfig& AddGraphOption(GraphConfigs& configs, abi::HtpGraphOption option) {
  auto& config = configs.AddCustom<abi::HtpGraphConfig>(abi::kGraphCustom);
  config.option = option;
  return config;
}

void AddOptimization(GraphConfigs& configs, abi::HtpOptimization type, float value) {
  AddGraphOption(configs, abi::kHtpGraphOptimization).optimization = {type, value};
}

}  // namespace

uint32_t ToVendor(ProfileLevel level) {
  switch (level) {
    case ProfileLevel::kOff:
      return 0;
    case ProfileLevel::kBasic:
      return abi::kProfileBasic;
    case ProfileLevel::kDetailed:
      return abi::kProfileDetailed;
    case ProfileLevel::kLinting:
      return abi::kProfileHtpLinting;
  }
  return 0;
}

abi::Priority ToVendor(GraphPriority priority) {
  switch (priority) {
    case GraphPriority::kLow:
      return abi::kPriorityLow;
    case GraphPriority::kNormal:
      return abi::kPriorityNormal;
    case GraphPriority::kNormalHigh:
      return abi::kPriorityNormalHigh;
    case GraphPriority::kHigh:
      return abi::kPriorityHigh;
  }
  return abi::kPriorityNormal;
}

abi::LogLevel ToVendor(VendorLogLevel level, abi::LogLevel automatic) {
  // Both count from errors (1) to debug (5).
  return level == VendorLogLevel::kAuto ? automatic : static_cast<abi::LogLevel>(level);
}

Result<const Soc*> CheckOptions(const HtpOptions& options) {
  SPILLWAY_ASSIGN_OR_RETURN(const Soc* soc, FindSoc(options.soc));
  SPILLWAY_RETURN_IF_ERROR(CheckAgainstSoc(options, *soc));
  if (options.optimization_level < 1 || options.optimization_level > 3) {
    return OutOfRange("optimization_level", options.optimization_level, "1 to 3");
  }
  if (options.decode_optimization_level &&
      (*options.decode_optimization_level < 1 || *options.decode_optimization_level > 3)) {
    return OutOfRange("decode_optimization_level", *options.decode_optimization_level, "1 to 3");
  }
  if (options.hvx_threads > kMostHvxThreads) {
    return OutOfRange("hvx_threads", options.hvx_threads,
                      fmt::format("0 (the vendor's default) to {}", kMostHvxThreads));
  }
  if (options.rpc_polling_us && *options.rpc_polling_us > kMostRpcPollingUs) {
    return OutOfRange("rpc_polling_us", *options.rpc_polling_us,
                      fmt::format("0 to {}", kMostRpcPollingUs));
  }
  if (options.sleep_latency_us &&
      (*options.sleep_latency_us < 1 || *options.sleep_latency_us > kMostSleepLatencyUs)) {
    return OutOfRange("sleep_latency_us", *options.sleep_latency_us,
                      fmt::format("1 to {}", kMostSleepLatencyUs));
  }
  SPILLWAY_RETURN_IF_ERROR(CheckCombinations(options));
  for (const OpPackage& package : options.op_packages) {
    if (package.path.empty() || package.interface_provider.empty()) {
      return InvalidArgumentError(
          fmt::format("HTP option op_packages has an entry with path '{}' and interface provider "
                      "'{}', expected both",
                      package.path, package.interface_provider));
    }
  }
  for (const auto& [key, value] : options.finalize_config) {
    if (key.empty()) {
      return InvalidArgumentError(
          fmt::format("HTP option finalize_config has an empty key for the value '{}'", value));
    }
  }
  return soc;
}

Status CheckOpPackageFiles(const HtpOptions& options) {
  for (const OpPackage& package : options.op_packages) {
    if (FileExists(package.path)) continue;
    return NotFoundError(
        fmt::format("HTP option op_packages: {} is not there (provider {}); give the path of the "
                    "op package's library for this machine",
                    package.path, package.interface_provider));
  }
  return OkStatus();
}

std::vector<std::string> OptionWarnings(const HtpOptions& options, const Soc& soc) {
  std::vector<std::string> warnings;
  if (options.dlbc || options.dlbc_weights) {
    warnings.push_back(fmt::format(
        "{}: the vendor's compiler takes it for every SoC; whether {} has the hardware for it is "
        "not known here, so measure on the device",
        options.dlbc ? "dlbc" : "dlbc_weights", soc.name));
  }
  if (options.weight_sharing.value_or(false) && !soc.weight_sharing()) {
    warnings.push_back(fmt::format(
        "weight_sharing: the vendor names architecture v73 and later for it, {} has v{}", soc.name,
        soc.arch));
  }
  const std::optional<uint32_t>& decode_level = options.decode_optimization_level;
  if (options.weight_sharing.value_or(true) && decode_level &&
      (*decode_level == 1) != (options.optimization_level == 1)) {
    warnings.push_back(fmt::format(
        "decode_optimization_level is {} and optimization_level {}: graphs of level 1 and of "
        "another level lay weights out differently and share none, so the context is twice as "
        "large",
        *decode_level, options.optimization_level));
  }
  if (options.dump_intermediates) {
    warnings.emplace_back(
        "dump_intermediates: every internal tensor is an output, so the graphs are slower, need "
        "more memory, and may differ in the last step of a value from those without it");
  }
  if (!options.saver_dir.empty()) {
    warnings.emplace_back(
        "saver_dir: the vendor's saver knows no options of HTP, so the record has none; they are "
        "in htp_options.json beside it");
  }
  return warnings;
}

Result<OpPackage> ParseOpPackage(std::string_view text) {
  // From the right, because a path may hold colons: a target has only capitals.
  OpPackage package;
  std::string_view rest = text;
  const auto take_last = [&rest]() {
    const size_t colon = rest.rfind(':');
    if (colon == std::string_view::npos) return std::string();
    const std::string part(rest.substr(colon + 1));
    rest = rest.substr(0, colon);
    return part;
  };
  package.interface_provider = take_last();
  const bool is_target = package.interface_provider == "CPU" || package.interface_provider == "HTP";
  if (is_target) package.target = std::exchange(package.interface_provider, take_last());
  package.path = rest;
  if (package.path.empty() || package.interface_provider.empty()) {
    return InvalidArgumentError(fmt::format(
        "op package '{}': expected PATH:PROVIDER or PATH:PROVIDER:TARGET with TARGET CPU or HTP",
        text));
  }
  return package;
}

Result<std::pair<std::string, std::string>> ParseFinalizeConfig(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return InvalidArgumentError(fmt::format("finalize config '{}': expected key=value", text));
  }
  return std::pair(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
}

DeviceConfigs MakeDeviceConfigs(const Soc& soc, PdSession pd_session,
                                const abi::Version& backend_api) {
  DeviceConfigs configs;
  auto& soc_config = configs.AddCustom<abi::HtpDeviceConfig>(0U);
  soc_config.words[0] = abi::kHtpDeviceSoc;
  soc_config.words[1] = soc.id;  // see abi_htp.h for the two places
  soc_config.words[2] = soc.id;
  if (pd_session == PdSession::kSigned) {
    // A device number (0) and a flag: written at both places they would collide,
    // so here the version decides.
    const bool early =
        backend_api.major == 5 && (backend_api.minor <= 43 || backend_api.minor == 49);
    auto& pd_config = configs.AddCustom<abi::HtpDeviceConfig>(0U);
    pd_config.words[0] = abi::kHtpDeviceSignedPd;
    pd_config.words[early ? 2 : 3] = 1;
  }
  return configs;
}

ContextConfigs MakeContextConfigs(const ContextOptions& options) {
  ContextConfigs configs;
  if (options.weight_sharing) {
    auto& config = configs.AddCustom<abi::HtpContextConfig>(abi::kContextCustom);
    config.option = abi::kHtpContextWeightSharing;
    config.flag = true;
  }
  if (options.group) {
    auto& config = configs.AddCustom<abi::HtpContextConfig>(abi::kContextCustom);
    config.option = abi::kHtpContextGroup;
    config.group = {options.group->first_context, options.group->max_spill_fill_bytes};
  }
  if (options.priority != GraphPriority::kNormal) {
    abi::ContextConfig& config = configs.Add();
    config.option = abi::kContextPriority;
    config.priority = ToVendor(options.priority);
  }
  return configs;
}

ContextConfigs MakeContextConfigs(const HtpOptions& options) {
  return MakeContextConfigs(
      ContextOptions{options.weight_sharing.value_or(false), options.priority, {}});
}

HtpOptions OptionsOfGraph(const HtpOptions& options, bool decode) {
  HtpOptions of_graph = options;
  if (!decode) return of_graph;
  const bool shared = options.weight_sharing.value_or(false);
  const uint32_t level = options.optimization_level;
  of_graph.optimization_level =
      options.decode_optimization_level.value_or(shared ? std::min(level, 2U) : level);
  return of_graph;
}

GraphConfigs MakeGraphConfigs(const HtpOptions& options, const Soc& soc) {
  GraphConfigs configs;
  AddOptimization(configs, abi::kHtpFinalizeLevel, static_cast<float>(options.optimization_level));
  AddOptimization(configs, abi::kHtpSlcAllocator,
                  options.slc_allocator == SlcAllocator::kOn ? 1.0F : 0.0F);
  if (options.dlbc) AddOptimization(configs, abi::kHtpDlbc, 1.0F);
  if (options.dlbc_weights) AddOptimization(configs, abi::kHtpDlbcWeights, 1.0F);
  if (options.precision == Precision::kFp16) {
    AddGraphOption(configs, abi::kHtpGraphPrecision).precision = abi::kHtpPrecisionFloat16;
  }
  // Sent also for "all": without it the compiler uses all but records the VTCM of
  // the library's default SoC in the binary.
  AddGraphOption(configs, abi::kHtpGraphVtcmMb).megabytes =
      options.vtcm_mb > 0 ? options.vtcm_mb : soc.vtcm_mb;
  // The vendor's flags turn the two off.
  if (options.fold_relu) {
    AddGraphOption(configs, abi::kHtpGraphFoldReluOff).flag = !*options.fold_relu;
  }
  if (options.conv_hmx) {
    AddGraphOption(configs, abi::kHtpGraphConvHmxOff).flag = !*options.conv_hmx;
  }
  if (options.hvx_threads > 0) {
    AddGraphOption(configs, abi::kHtpGraphHvxThreads).threads = options.hvx_threads;
  }
  for (const auto& [key, value] : options.finalize_config) {
    abi::HtpGraphConfig& config = AddGraphOption(configs, abi::kHtpGraphFinalizeConfig);
    config.finalize.key = configs.KeepText(key);
    config.finalize.value = FinalizeScalar(value, configs.KeepText(value));
  }
  if (options.priority != GraphPriority::kNormal) {
    abi::GraphConfig& config = configs.Add();
    config.option = abi::kGraphPriority;
    config.priority = ToVendor(options.priority);
  }
  return configs;
}

}  // namespace spillway::qnn::htp
