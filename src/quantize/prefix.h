// Prefix KV: the keys and values of the leading tokens that become the attention
// sink, computed in float at compile time and kept in the cache as a constant, so
// that the quantised graph never has to hold that token's massive activations.

#ifndef SPILLWAY_QUANTIZE_PREFIX_H_
#define SPILLWAY_QUANTIZE_PREFIX_H_

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "decoder/decoder.h"
#include "quantize/calibration_data.h"
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

// How much larger than those of the other tokens each token's activations get: the
// largest, over all layers, of the residual stream's largest magnitude at the token
// over its median over the window. Ordinary tokens stay below 10; massive activations
// have hundreds. `window` has at least 8 tokens.
Result<std::vector<double>> TokenDominance(Decoder& decoder, const std::vector<uint32_t>& window,
                                           ThreadPool* pool);

// From this dominance on a token is worth a place in the prefix.
inline constexpr double kMassiveDominance = 50.0;
// More leading tokens than this are no attention sink.
inline constexpr size_t kMostPrefixTokens = 4;

// The tokens that all `windows` start with, as far as each is massive in the first
// window, up to kMostPrefixTokens. `dominance` is of windows[0]. Never all of a window.
std::vector<uint32_t> MassivePrefix(const TokenWindows& windows,
                                    const std::vector<double>& dominance);

// The tokens of the prefix that the activations ask for; none for an ordinary model, or one
// that has neither a conversation first nor BOS.
Result<std::vector<uint32_t>> FindPrefixTokens(Decoder& decoder, const CalibrationWindows& data,
                                               ThreadPool* pool);

// The windows as they run: each AfterPrefix(), the longest first, so that windows of one
// length share a graph.
TokenWindows WindowsAfterPrefix(const TokenWindows& windows, const FloatPrefix& prefix);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_PREFIX_H_
