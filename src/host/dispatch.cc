#include "host/dispatch.h"

#include <hwy/targets.h>

#include <array>
#include <cstdint>
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
  const int64_t features = hwy::SupportedTargets();
  switch (target) {
    case CpuTarget::kScalar:
      return true;
#if defined(__x86_64__)
    case CpuTarget::kSse4:
      return (features & HWY_SSE4) != 0;
    case CpuTarget::kAvx2:
      return (features & HWY_AVX2) != 0;
    case CpuTarget::kAvx512:
      return (features & HWY_AVX3) != 0;
    case CpuTarget::kAvx512Vnni:
      return (features & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512vnni") != 0;
#elif defined(__aarch64__)
    case CpuTarget::kNeon:
      return (features & HWY_NEON) != 0;
#endif
    default:
      return false;
  }
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

namespace {

const IntegerProducts& ProductsFor(CpuTarget target) {
  switch (target) {
#if defined(__x86_64__)
    case CpuTarget::kSse4:
      return Sse4Products();
    case CpuTarget::kAvx2:
      return Avx2Products();
    case CpuTarget::kAvx512:
      return Avx512Products();
    case CpuTarget::kAvx512Vnni:
      return Avx512VnniProducts();
#elif defined(__aarch64__)
    case CpuTarget::kNeon:
      return NeonProducts();
#endif
    default:
      return ScalarProducts();
  }
}

KernelTable MakeTable(CpuTarget target) {
  return {target, &ProductsFor(target),
          target == CpuTarget::kScalar ? &ScalarVectorOps() : &HighwayVectorOps(target)};
}

}  // namespace

const KernelTable& KernelsFor(CpuTarget target) {
  static const std::array<KernelTable, 6> tables = {
      MakeTable(CpuTarget::kScalar),     MakeTable(CpuTarget::kSse4),
      MakeTable(CpuTarget::kAvx2),       MakeTable(CpuTarget::kAvx512),
      MakeTable(CpuTarget::kAvx512Vnni), MakeTable(CpuTarget::kNeon)};
  return tables[static_cast<size_t>(target)];
}

}  // namespace spillway::host
