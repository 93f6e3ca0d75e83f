#include "host/dispatch.h"

#include <array>
#include <cstdlib>

#include "host/kernel_table.h"

namespace spillway::host {
namespace {

struct TargetName {
  CpuTarget target;
  std::string_view name;
};

// Best first.
constexpr std::array<TargetName, 6> kTargets = {{
    {CpuTarget::kAvx512Vnni, "avx512vnni"},
    {CpuTarget::kAvx512, "avx512"},
    {CpuTarget::kAvx2, "avx2"},
    {CpuTarget::kSse4, "sse4"},
    {CpuTarget::kNeon, "neon"},
    {CpuTarget::kScalar, "scalar"},
}};

}  // namespace

std::string_view CpuTargetName(CpuTarget target) {
  for (const TargetName& entry : kTargets) {
    if (entry.target == target) return entry.name;
  }
  return "unknown";
}

bool IsSupported(CpuTarget target) {
  if (target == CpuTarget::kScalar) return true;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512cd");
  switch (target) {
    case CpuTarget::kSse4:
      return true;  // the baseline of the build
    case CpuTarget::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("bmi2");
    case CpuTarget::kAvx512:
      return avx512;
    case CpuTarget::kAvx512Vnni:
      return avx512 && __builtin_cpu_supports("avx512vnni");
    default:
      return false;
  }
#elif defined(__aarch64__)
  return target == CpuTarget::kNeon;
#else
  return false;
#endif
}

CpuTarget SelectTarget() {
  const char* wanted = std::getenv("SPILLWAY_CPU");
  if (wanted != nullptr) {
    for (const TargetName& entry : kTargets) {
      if (entry.name == wanted && IsSupported(entry.target)) return entry.target;
    }
  }
  for (const TargetName& entry : kTargets) {
    if (IsSupported(entry.target)) return entry.target;
  }
  return CpuTarget::kScalar;
}

const KernelTable& KernelsFor(CpuTarget /*target*/) {
  static const KernelTable table;
  return table;
}

}  // namespace spillway::host
