// Proof at compile time that our structures lie in memory as the vendor's do.

#include <cstddef>

#include "qnn/htp/abi_htp.h"

namespace spillway::qnn::abi {
namespace {

#define CHECK_SIZE(type, size, align) \
  static_assert(sizeof(type) == (size) && alignof(type) == (align), #type)
#define CHECK_OFFSET(type, field, offset) \
  static_assert(offsetof(type, field) == (offset), #type "." #field)

CHECK_SIZE(HtpDeviceConfig, 64, 4);
CHECK_SIZE(HtpOnChipDevice, 24, 8);
CHECK_OFFSET(HtpOnChipDevice, soc_model, 8);
CHECK_OFFSET(HtpOnChipDevice, signed_pd, 12);
CHECK_OFFSET(HtpOnChipDevice, dlbc, 13);
CHECK_OFFSET(HtpOnChipDevice, arch, 16);
CHECK_SIZE(HtpDeviceInfo, 32, 8);
CHECK_OFFSET(HtpDeviceInfo, on_chip, 8);

CHECK_SIZE(HtpDcvsV3, 64, 4);
CHECK_OFFSET(HtpDcvsV3, set_dcvs_enable, 4);
CHECK_OFFSET(HtpDcvsV3, dcvs_enable, 8);
CHECK_OFFSET(HtpDcvsV3, power_mode, 12);
CHECK_OFFSET(HtpDcvsV3, set_sleep_latency, 16);
CHECK_OFFSET(HtpDcvsV3, sleep_latency, 20);
CHECK_OFFSET(HtpDcvsV3, set_sleep_disable, 24);
CHECK_OFFSET(HtpDcvsV3, sleep_disable, 28);
CHECK_OFFSET(HtpDcvsV3, set_bus, 32);
CHECK_OFFSET(HtpDcvsV3, bus_min, 36);
CHECK_OFFSET(HtpDcvsV3, bus_target, 40);
CHECK_OFFSET(HtpDcvsV3, bus_max, 44);
CHECK_OFFSET(HtpDcvsV3, set_core, 48);
CHECK_OFFSET(HtpDcvsV3, core_min, 52);
CHECK_OFFSET(HtpDcvsV3, core_target, 56);
CHECK_OFFSET(HtpDcvsV3, core_max, 60);
CHECK_SIZE(HtpHmxV2, 20, 4);
CHECK_SIZE(HtpPowerConfig, 68, 4);
CHECK_OFFSET(HtpPowerConfig, dcvs, 4);
CHECK_OFFSET(HtpPowerConfig, value, 4);
CHECK_OFFSET(HtpPowerConfig, hmx, 4);
CHECK_SIZE(HtpMemoryConfig, 8, 4);
CHECK_SIZE(HtpPerfFunctions, 32, 8);
CHECK_SIZE(HtpInfrastructure, 40, 8);
CHECK_OFFSET(HtpInfrastructure, perf, 8);

CHECK_SIZE(HtpGroup, 16, 8);
CHECK_OFFSET(HtpGroup, max_spill_fill_bytes, 8);
CHECK_SIZE(HtpContextConfig, 24, 8);
CHECK_OFFSET(HtpContextConfig, flag, 8);
CHECK_OFFSET(HtpContextConfig, group, 8);
CHECK_OFFSET(HtpContextConfig, megabytes, 8);

CHECK_SIZE(HtpOptimizationValue, 8, 4);
CHECK_SIZE(HtpFinalizeValue, 24, 8);
CHECK_OFFSET(HtpFinalizeValue, value, 8);
CHECK_SIZE(HtpVtcm, 24, 4);
CHECK_SIZE(HtpParallelGraphs, 44, 4);
CHECK_OFFSET(HtpParallelGraphs, vtcm, 4);
CHECK_SIZE(HtpGraphConfig, 56, 8);
CHECK_OFFSET(HtpGraphConfig, optimization, 8);
CHECK_OFFSET(HtpGraphConfig, precision, 8);
CHECK_OFFSET(HtpGraphConfig, megabytes, 8);
CHECK_OFFSET(HtpGraphConfig, flag, 8);
CHECK_OFFSET(HtpGraphConfig, threads, 8);
CHECK_OFFSET(HtpGraphConfig, finalize, 8);
CHECK_OFFSET(HtpGraphConfig, parallel, 8);

CHECK_SIZE(HtpSharedBuffer, 16, 8);
CHECK_OFFSET(HtpSharedBuffer, offset, 8);
CHECK_SIZE(HtpMemory, 32, 8);
CHECK_OFFSET(HtpMemory, size, 8);
CHECK_OFFSET(HtpMemory, shared, 16);

}  // namespace
}  // namespace spillway::qnn::abi
