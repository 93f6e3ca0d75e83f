// How fast this machine reads memory: what a decode step, which reads every weight
// once, can reach at best.

#ifndef SPILLWAY_EVAL_READ_BANDWIDTH_H_
#define SPILLWAY_EVAL_READ_BANDWIDTH_H_

#include <cstddef>
#include <cstdint>

#include "spillway/status.h"

namespace spillway {

// Bytes of this machine's last cache before memory; 0 when the system does not say.
uint64_t LastLevelCacheBytes();

// kResourceExhausted when so much memory is not free.
Status CheckBandwidthBuffer(uint64_t bytes);

// Bytes a second at which `threads` threads (at least 1), each with its own part, sum up a
// buffer of `bytes` bytes from front to back: the best of `passes` after one that is not
// counted. The buffer is backed by huge pages where the system gives them.
// kResourceExhausted as CheckBandwidthBuffer.
Result<double> MeasureReadBandwidth(uint64_t bytes, size_t threads, uint32_t passes = 5);

}  // namespace spillway

#endif  // SPILLWAY_EVAL_READ_BANDWIDTH_H_
