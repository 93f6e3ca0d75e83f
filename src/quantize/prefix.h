// Prefix KV: the keys and values of the leading token that becomes the attention
// sink, computed in float at compile time and kept in the cache as a constant, so
// that the quantised graph never has to hold that token's massive activations.

#ifndef SPILLWAY_QUANTIZE_PREFIX_H_
#define SPILLWAY_QUANTIZE_PREFIX_H_

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "decoder/decoder.h"
#include "spillway/status.h"

namespace spillway {

struct FloatPrefix {
  std::vector<uint32_t> tokens;  // P; empty: none
  // A layer: [1, kv_heads, head_dim, P] and [1, kv_heads, P, head_dim].
  std::vector<std::vector<float>> k, v;
};

// The window without the prefix's tokens when it starts with them (and has more).
std::vector<uint32_t> AfterPrefix(const std::vector<uint32_t>& window, const FloatPrefix& prefix);

// Runs the float graph on `tokens` from an empty cache and keeps K and V.
Result<FloatPrefix> ComputePrefix(Decoder& decoder, std::vector<uint32_t> tokens, ThreadPool* pool);

// How much larger than those of the other tokens the first token's activations
// get: the largest, over all layers, of the residual stream's largest magnitude at
// the first token over its median at the others. Ordinary models stay below 10;
// massive activations give hundreds. `window` has at least 8 tokens.
Result<double> FirstTokenDominance(Decoder& decoder, const std::vector<uint32_t>& window,
                                   ThreadPool* pool);

// From this dominance on a prefix pays.
inline constexpr double kMassiveDominance = 50.0;

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_PREFIX_H_
