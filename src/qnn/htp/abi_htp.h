// HTP's own structures behind the custom pointers of the ABI (qnn/api/abi.h).
// Sizes and offsets are checked in abi_htp_layout.cc.

#ifndef SPILLWAY_QNN_HTP_ABI_HTP_H_
#define SPILLWAY_QNN_HTP_ABI_HTP_H_

#include <cstddef>
#include <cstdint>

#include "qnn/api/abi.h"

namespace spillway::qnn::abi {

// ---- Device --------------------------------------------------------------

enum HtpDeviceOption : uint32_t {
  kHtpDeviceSoc = 0,
  kHtpDeviceArch = 1,
  kHtpDeviceSignedPd = 2,
  kHtpDeviceSecurePd = 3,
};

// Two layouts exist and the change between them is not monotonic in the version:
// the value begins at byte 4 (backend API up to 5.43, and 5.49) or at byte 8 (5.47,
// 5.48, 5.50, 5.51). All known releases read the right value when it is written
// at both places and the rest is zero.
struct HtpDeviceConfig {
  uint32_t words[16];
};

struct HtpOnChipDevice {
  uint64_t vtcm_mb;
  uint32_t soc_model;
  bool signed_pd, dlbc;
  uint32_t arch;
};

struct HtpDeviceInfo {
  uint32_t type;  // 0: on chip
  HtpOnChipDevice on_chip;
};

// ---- Performance ---------------------------------------------------------

enum HtpPowerOption : uint32_t {
  kHtpPowerDcvsV3 = 1,
  kHtpPowerRpcLatency = 2,
  kHtpPowerRpcPolling = 3,
  kHtpPowerHmxTimeout = 4,
  kHtpPowerHmxV2 = 5,
  kHtpPowerAdaptivePolling = 6,
  kHtpPowerDdrMode = 7,
};

enum HtpPowerMode : uint32_t {
  kHtpPowerAdjustUpDown = 1,
  kHtpPowerAdjustOnlyUp = 2,
  kHtpPowerSaver = 4,
  kHtpPowerSaverAggressive = 8,
  kHtpPowerPerformance = 16,
  kHtpPowerDutyCycle = 32,
};

enum HtpVoltage : uint32_t {
  kHtpVoltageDisable = 16,
  kHtpVoltageMin = 32,
  kHtpVoltageSvs2 = 48,
  kHtpVoltageSvs = 64,
  kHtpVoltageSvsPlus = 80,
  kHtpVoltageNominal = 96,
  kHtpVoltageNominalPlus = 112,
  kHtpVoltageTurbo = 128,
  kHtpVoltageTurboPlus = 144,
  kHtpVoltageMax = 160,
};

struct HtpDcvsV3 {
  uint32_t context_id;
  uint32_t set_dcvs_enable, dcvs_enable;
  uint32_t power_mode;
  uint32_t set_sleep_latency, sleep_latency;  // microseconds
  uint32_t set_sleep_disable, sleep_disable;
  uint32_t set_bus, bus_min, bus_target, bus_max;
  uint32_t set_core, core_min, core_target, core_max;
};

struct HtpHmxV2 {
  uint32_t pick_default, voltage_min, voltage_target, voltage_max, clock_mode;
};

struct HtpPowerConfig {
  uint32_t option;
  union {
    HtpDcvsV3 dcvs;
    uint32_t value;  // latency, polling time, time-out: microseconds
    HtpHmxV2 hmx;
  };
};

struct HtpMemoryConfig {
  uint32_t option;  // 1: grow size
  uint32_t grow_bytes;
};

struct HtpPerfFunctions {
  Error (*create_power_config)(uint32_t device_id, uint32_t core_id, uint32_t* id);
  Error (*destroy_power_config)(uint32_t id);
  Error (*set_power_config)(uint32_t id, const HtpPowerConfig**);
  Error (*set_memory_config)(uint32_t device_id, uint32_t core_id, const HtpMemoryConfig**);
};

struct HtpInfrastructure {
  uint32_t type;  // 0: performance
  HtpPerfFunctions perf;
};

// ---- Context -------------------------------------------------------------

enum HtpContextOption : uint32_t {
  kHtpContextWeightSharing = 1,
  kHtpContextGroup = 2,
  kHtpContextFileReadBudget = 3,
  kHtpContextDspMemoryProfiling = 4,
  kHtpContextShareResources = 5,
  kHtpContextIoMemEstimation = 6,
  kHtpContextPrepareOnly = 7,
  kHtpContextInitAcceleration = 8,
  kHtpContextUseExtendedUdma = 11,
};

struct HtpGroup {
  Handle first_context;  // null for the first context of the group
  uint64_t max_spill_fill_bytes;
};

struct HtpContextConfig {
  HtpContextOption option;
  union {
    bool flag;
    HtpGroup group;
    uint64_t megabytes;
  };
};

// ---- Graph ---------------------------------------------------------------

enum HtpGraphOption : uint32_t {
  kHtpGraphOptimization = 1,
  kHtpGraphPrecision = 2,
  kHtpGraphVtcmMb = 3,
  kHtpGraphFoldReluOff = 4,
  kHtpGraphConvHmxOff = 5,
  kHtpGraphHvxThreads = 6,
  kHtpGraphFinalizeConfig = 7,
};

enum HtpOptimization : uint32_t {
  kHtpScheduleThreshold = 1,
  kHtpFinalizeRetries = 2,
  kHtpFinalizeLevel = 3,
  kHtpDlbc = 4,
  kHtpDlbcWeights = 5,
  kHtpSparseWeights = 6,
  kHtpSlcAllocator = 7,
};

enum HtpPrecision : uint32_t { kHtpPrecisionFloat32 = 0, kHtpPrecisionFloat16 = 1 };

struct HtpOptimizationValue {
  HtpOptimization type;
  float value;
};

struct HtpFinalizeValue {
  const char* key;
  Scalar value;
};

struct HtpVtcm {
  uint32_t size, offset, total;
  uint32_t reserved[3];
};

struct HtpParallelGraphs {
  uint32_t concurrency;
  HtpVtcm vtcm;
  uint32_t reserved[4];
};

struct HtpGraphConfig {
  HtpGraphOption option;
  union {
    alignas(8) HtpOptimizationValue optimization;
    HtpPrecision precision;
    uint32_t megabytes;
    bool flag;
    uint64_t threads;
    HtpFinalizeValue finalize;
    HtpParallelGraphs parallel;
  };
};

// ---- Memory registration -------------------------------------------------

struct HtpSharedBuffer {
  int32_t fd;
  uint64_t offset;
};

struct HtpMemory {
  uint32_t type;  // 0 QuRT, 1 shared buffer, 2 weights, 3 shared spill-fill
  uint64_t size;
  union {
    uint32_t qurt_address;
    HtpSharedBuffer shared;
  };
};

}  // namespace spillway::qnn::abi

#endif  // SPILLWAY_QNN_HTP_ABI_HTP_H_
