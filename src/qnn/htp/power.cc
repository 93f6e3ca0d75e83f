#include "qnn/htp/power.h"

#include <fmt/format.h>

#include <optional>

#include "base/log.h"
#include "qnn/api/errors.h"
#include "qnn/api/handle_counts.h"
#include "qnn/htp/option_names.h"

namespace spillway::qnn::htp {
namespace {

// What a mode means: voltage corners of bus and core, and how fast the DSP may
// fall asleep. `dcvs` lets the DSP move between the corners by itself.
struct ModeSettings {
  PerformanceMode mode;
  abi::HtpPowerMode power;
  bool dcvs;
  uint32_t sleep_latency_us;
  abi::HtpVoltage lowest, target, highest;
  bool fast() const { return power == abi::kHtpPowerPerformance; }
};
constexpr ModeSettings kModes[] = {
    {PerformanceMode::kBurst, abi::kHtpPowerPerformance, false, 40, abi::kHtpVoltageMax,
     abi::kHtpVoltageMax, abi::kHtpVoltageMax},
    {PerformanceMode::kSustainedHighPerformance, abi::kHtpPowerPerformance, false, 100,
     abi::kHtpVoltageTurbo, abi::kHtpVoltageTurbo, abi::kHtpVoltageTurbo},
    {PerformanceMode::kHighPerformance, abi::kHtpPowerPerformance, false, 100,
     abi::kHtpVoltageTurbo, abi::kHtpVoltageTurbo, abi::kHtpVoltageTurbo},
    {PerformanceMode::kBalanced, abi::kHtpPowerAdjustUpDown, true, 1000,
     abi::kHtpVoltageNominalPlus, abi::kHtpVoltageNominalPlus, abi::kHtpVoltageNominalPlus},
    {PerformanceMode::kLowBalanced, abi::kHtpPowerAdjustUpDown, true, 1000, abi::kHtpVoltageNominal,
     abi::kHtpVoltageNominal, abi::kHtpVoltageNominal},
    {PerformanceMode::kHighPowerSaver, abi::kHtpPowerAdjustUpDown, true, 1000,
     abi::kHtpVoltageSvsPlus, abi::kHtpVoltageSvsPlus, abi::kHtpVoltageSvsPlus},
    {PerformanceMode::kPowerSaver, abi::kHtpPowerAdjustUpDown, true, 1000, abi::kHtpVoltageSvs,
     abi::kHtpVoltageSvs, abi::kHtpVoltageSvs},
    {PerformanceMode::kLowPowerSaver, abi::kHtpPowerAdjustUpDown, true, 1000, abi::kHtpVoltageSvs2,
     abi::kHtpVoltageSvs2, abi::kHtpVoltageSvs2},
    {PerformanceMode::kExtremePowerSaver, abi::kHtpPowerAdjustUpDown, true, 1000,
     abi::kHtpVoltageDisable, abi::kHtpVoltageDisable, abi::kHtpVoltageDisable},
};

constexpr uint32_t kFastCallLatencyUs = 100;

abi::HtpPowerConfig DcvsConfig(uint32_t id, const ModeSettings* mode,
                               std::optional<uint32_t> sleep_latency_us) {
  abi::HtpPowerConfig config = {};
  config.option = abi::kHtpPowerDcvsV3;
  abi::HtpDcvsV3& dcvs = config.dcvs;
  dcvs.context_id = id;
  dcvs.set_sleep_latency = 1;
  if (sleep_latency_us) dcvs.sleep_latency = *sleep_latency_us;
  if (mode == nullptr) {
    dcvs.power_mode = abi::kHtpPowerAdjustUpDown;
    return config;
  }
  if (!sleep_latency_us) dcvs.sleep_latency = mode->sleep_latency_us;
  dcvs.set_dcvs_enable = 1;
  dcvs.dcvs_enable = mode->dcvs ? 1 : 0;
  dcvs.power_mode = mode->power;
  dcvs.set_bus = 1;
  dcvs.bus_min = mode->lowest;
  dcvs.bus_target = mode->target;
  dcvs.bus_max = mode->highest;
  dcvs.set_core = 1;
  dcvs.core_min = mode->lowest;
  dcvs.core_target = mode->target;
  dcvs.core_max = mode->highest;
  return config;
}

abi::HtpPowerConfig ValueConfig(abi::HtpPowerOption option, uint32_t value) {
  abi::HtpPowerConfig config = {};
  config.option = option;
  config.value = value;
  return config;
}

}  // namespace

std::vector<abi::HtpPowerConfig> PowerConfigs(uint32_t id, const HtpOptions& options) {
  const ModeSettings* mode = nullptr;
  for (const ModeSettings& settings : kModes) {
    if (settings.mode == options.performance) mode = &settings;
  }
  std::vector<abi::HtpPowerConfig> configs;
  if (mode != nullptr || options.sleep_latency_us) {
    configs.push_back(DcvsConfig(id, mode, options.sleep_latency_us));
  }
  std::optional<uint32_t> latency = options.rpc_control_latency_us;
  std::optional<uint32_t> polling = options.rpc_polling_us;
  if (mode != nullptr) {
    if (!latency && mode->fast()) latency = kFastCallLatencyUs;
    if (!polling) polling = mode->fast() ? kMostRpcPollingUs : 0;
  }
  if (latency) configs.push_back(ValueConfig(abi::kHtpPowerRpcLatency, *latency));
  if (polling) configs.push_back(ValueConfig(abi::kHtpPowerRpcPolling, *polling));
  return configs;
}

Result<std::unique_ptr<PowerVote>> PowerVote::Create(std::shared_ptr<Device> device) {
  std::unique_ptr<PowerVote> vote(new PowerVote(std::move(device)));
  VendorLog& log = *vote->device_->log();
  const uint64_t mark = log.Mark();
  const void* raw = nullptr;
  const abi::Error error = log.library().fn().device_get_infrastructure(&raw);
  if (error != 0) {
    return VendorFailure("asking for the HTP performance interface", error,
                         log.ProblemsSince(mark));
  }
  const auto* infrastructure = static_cast<const abi::HtpInfrastructure*>(raw);
  if (infrastructure == nullptr || infrastructure->type != 0) {
    return UnsupportedError(
        fmt::format("the vendor library's device interface has type {}, expected 0 (performance)",
                    infrastructure == nullptr ? -1 : static_cast<int>(infrastructure->type)));
  }
  vote->perf_ = &infrastructure->perf;
  constexpr uint32_t kDevice = 0;
  constexpr uint32_t kCore = 0;
  const abi::Error create_error = vote->perf_->create_power_config(kDevice, kCore, &vote->id_);
  if (create_error != 0) {
    return VendorFailure("creating an HTP power vote", create_error, log.ProblemsSince(mark));
  }
  vote->created_ = true;
  CountCreated(HandleKind::kPowerConfig);
  return vote;
}

PowerVote::~PowerVote() {
  if (!created_) return;
  const abi::Error error = perf_->destroy_power_config(id_);
  if (error == 0) {
    CountFreed(HandleKind::kPowerConfig);
  } else {
    Log(LogLevel::kWarning, "withdrawing an HTP power vote: {}", DescribeError(error));
  }
}

Status PowerVote::Set(const HtpOptions& options) {
  const std::vector<abi::HtpPowerConfig> configs = PowerConfigs(id_, options);
  if (configs.empty()) return OkStatus();
  std::vector<const abi::HtpPowerConfig*> list;
  list.reserve(configs.size() + 1);
  for (const abi::HtpPowerConfig& config : configs) list.push_back(&config);
  list.push_back(nullptr);
  VendorLog& log = *device_->log();
  const uint64_t mark = log.Mark();
  const abi::Error error = perf_->set_power_config(id_, list.data());
  if (error == 0) return OkStatus();
  return VendorFailure(
      fmt::format("setting HTP performance mode '{}'", OptionName(options.performance)), error,
      log.ProblemsSince(mark));
}

}  // namespace spillway::qnn::htp
