// Which processor functions the kernels use, chosen once an executor.

#ifndef SPILLWAY_HOST_DISPATCH_H_
#define SPILLWAY_HOST_DISPATCH_H_

#include <string_view>

namespace spillway::host {

// Instruction sets, each including the ones before it on its architecture.
enum class CpuTarget {
  kScalar,
  kSse4,
  kAvx2,
  kAvx512,
  kAvx512Vnni,
  kNeon,
  kNeonDotprod,
  kNeonI8mm,
};
inline constexpr CpuTarget kAllCpuTargets[] = {
    CpuTarget::kScalar,     CpuTarget::kSse4, CpuTarget::kAvx2,        CpuTarget::kAvx512,
    CpuTarget::kAvx512Vnni, CpuTarget::kNeon, CpuTarget::kNeonDotprod, CpuTarget::kNeonI8mm};

std::string_view CpuTargetName(CpuTarget target);  // "avx512vnni"

// True when this build has code for the target and this processor can run it.
bool IsSupported(CpuTarget target);

// The best supported target, or the one that the environment variable
// SPILLWAY_CPU names (scalar, sse4, avx2, avx512, avx512vnni, neon, neon-dotprod,
// neon-i8mm) when it is supported; an unknown or unsupported name is ignored. Reads the variable
// anew at every call.
CpuTarget SelectTarget();

// The functions of one target (kernel_table.h).
struct KernelTable;
const KernelTable& KernelsFor(CpuTarget target);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_DISPATCH_H_
