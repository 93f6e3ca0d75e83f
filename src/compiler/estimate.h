// What the vendor's compiler needs, from what was measured.

#ifndef SPILLWAY_COMPILER_ESTIMATE_H_
#define SPILLWAY_COMPILER_ESTIMATE_H_

#include <cstddef>
#include <cstdint>

namespace spillway {

// Peak memory of the vendor's process for a context whose graphs share
// `weight_bytes` of constants (one byte for each weight, however few bits it has).
uint64_t VendorPeakBytes(uint64_t weight_bytes, size_t graphs);

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_ESTIMATE_H_
