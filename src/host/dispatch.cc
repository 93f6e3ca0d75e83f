#include "host/dispatch.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <array>
#include <cstdint>
#include <cstdlib>
#include <iterator>

#include "host/kernel_table.h"

namespace spillway::host {
namespace {

struct TargetName {
  CpuTarget target;
  std::string_view name;
};

// Best first.
constexpr std::array<TargetName, std::size(kAllCpuTargets)> kTargets = {{
    {CpuTarget::kAvx512Vnni, "avx512vnni"},
    {CpuTarget::kAvx512, "avx512"},
    {CpuTarget::kAvx2, "avx2"},
    {CpuTarget::kSse4, "sse4"},
    {CpuTarget::kNeonI8mm, "neon-i8mm"},
    {CpuTarget::kNeonDotprod, "neon-dotprod"},
    {CpuTarget::kNeon, "neon"},
    {CpuTarget::kScalar, "scalar"},
}};

// The processor is asked here rather than by Highway, whose library takes milliseconds to
// load: it measures a clock.
#if defined(__x86_64__)
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}
bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#elif defined(__aarch64__)
// Bits of the kernel's interface, which headers older than they lack.
constexpr unsigned long kHwcapAsimd = 1UL << 1;
constexpr unsigned long kHwcapDotprod = 1UL << 20;
constexpr unsigned long kHwcap2I8mm = 1UL << 13;

bool HasDotprod() { return (getauxval(AT_HWCAP) & kHwcapDotprod) != 0; }
#endif

}  // namespace

std::string_view CpuTargetName(CpuTarget target) {
  for (const TargetName& entry : kTargets) {
    if (entry.target == target) return entry.name;
  }
  return "unknown";
}

bool IsSupported(CpuTarget target) {
  switch (target) {
    case CpuTarget::kScalar:
      return true;
#if defined(__x86_64__)
    case CpuTarget::kSse4:
      return __builtin_cpu_supports("sse4.2") != 0;
    case CpuTarget::kAvx2:
      return HasAvx2();
    case CpuTarget::kAvx512:
      return HasAvx512();
    case CpuTarget::kAvx512Vnni:
      return HasAvx512() && __builtin_cpu_supports("avx512vnni") != 0;
#elif defined(__aarch64__)
    case CpuTarget::kNeon:
      return (getauxval(AT_HWCAP) & kHwcapAsimd) != 0;
    case CpuTarget::kNeonDotprod:
      return HasDotprod();
    case CpuTarget::kNeonI8mm:
      return HasDotprod() && (getauxval(AT_HWCAP2) & kHwcap2I8mm) != 0;
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
    case CpuTarget::kNeonDotprod:
      return NeonDotprodProducts();
    case CpuTarget::kNeonI8mm:
      return NeonI8mmProducts();
#endif
    default:
      return ScalarProducts();
  }
}

const VectorOps& VectorsFor(CpuTarget target) {
  switch (target) {
    case CpuTarget::kScalar:
      return ScalarVectorOps();
    case CpuTarget::kNeonDotprod:  // they add integer products only
    case CpuTarget::kNeonI8mm:
      return HighwayVectorOps(CpuTarget::kNeon);
    default:
      return HighwayVectorOps(target);
  }
}

}  // namespace

const KernelTable& KernelsFor(CpuTarget target) {
  static const auto tables = [] {
    std::array<KernelTable, std::size(kAllCpuTargets)> made;
    for (const CpuTarget each : kAllCpuTargets) {
      made[static_cast<size_t>(each)] = {each, &ProductsFor(each), &VectorsFor(each)};
    }
    return made;
  }();
  return tables[static_cast<size_t>(target)];
}

}  // namespace spillway::host
