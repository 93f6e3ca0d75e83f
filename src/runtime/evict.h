// Attention sink: how a context that is full goes on. The first tokens (the sink, to
// which attention heads give what they need nowhere else) stay, a batch of the oldest
// after them is forgotten, and the rest moves up: positions are relative to what is
// there. (Xiao et al., 2023, "Efficient Streaming Language Models with Attention Sinks".)

#ifndef SPILLWAY_RUNTIME_EVICT_H_
#define SPILLWAY_RUNTIME_EVICT_H_

#include <cstdint>
#include <vector>

#include "kvcache/kv_cache.h"
#include "model/config.h"
#include "spillway/decoding.h"

namespace spillway {

// How keys turn when their tokens move `positions` towards the start. `rotation`: see
// KeyShift. YaRN's attention factor is in the keys already and stays as it is.
KeyShift MakeKeyShift(const RopeConfig& rope, uint32_t positions, std::vector<float> rotation);

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_EVICT_H_
