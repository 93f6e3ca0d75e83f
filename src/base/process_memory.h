// Memory figures of any process, and forgetting this one's peak, through /proc.

#ifndef SPILLWAY_BASE_PROCESS_MEMORY_H_
#define SPILLWAY_BASE_PROCESS_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace spillway {

// A field of /proc/<pid>/status in bytes: "VmRSS" (resident now), "VmHWM" (its
// peak). Nothing when the process or its memory is gone.
std::optional<uint64_t> ProcessMemoryBytes(int pid, std::string_view field);

// Makes the peak of this process what is resident now; false when the system does not
// allow it.
bool ResetPeakRss();

}  // namespace spillway

#endif  // SPILLWAY_BASE_PROCESS_MEMORY_H_
