// SmoothQuant: moves outliers of activations into the weights that read them.

#ifndef SPILLWAY_QUANTIZE_SMOOTH_H_
#define SPILLWAY_QUANTIZE_SMOOTH_H_

#include "base/thread_pool.h"
#include "decoder/decoder.h"
#include "quantize/calibrate.h"
#include "quantize/prefix.h"
#include "quantize/transform.h"
#include "spillway/status.h"

namespace spillway {

struct SmoothOptions {
  // A channel j is divided by max|x_j|^strength / max|w_j|^(1 - strength), w_j being the
  // columns of all Linears that read it (Xiao et al., 2022); 0..1.
  float strength = 0.5f;
  bool norms = true;   // attention and MLP norms; not together with a rotated residual stream
  bool gated = true;   // up to down projection
  bool mixed = false;  // V to output projection
};

// Factors for MakeTransform() from the activations of `decoder` (without a transform) on the
// windows, each after `prefix` (may be empty). Factors lie within 1/1024..1024 and are 1 for
// channels that are always zero. kInvalidArgument on a strength outside 0..1 or no windows.
Result<SmoothFactors> ComputeSmoothFactors(Decoder& decoder, const TokenWindows& windows,
                                           const FloatPrefix& prefix, const SmoothOptions& options,
                                           ThreadPool* pool);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_SMOOTH_H_
