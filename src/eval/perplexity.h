// Perplexity and the comparison of logits.

#ifndef SPILLWAY_EVAL_PERPLEXITY_H_
#define SPILLWAY_EVAL_PERPLEXITY_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "model/model.h"
#include "runtime/model_executor.h"
#include "spillway/status.h"

namespace spillway {

// An executor of the float graphs of a GGUF model on the host. `prefill_ar` may
// equal `context_len` (windows from an empty cache).
Result<std::unique_ptr<ModelExecutor>> MakeFloatExecutor(std::shared_ptr<const Model> model,
                                                         uint32_t prefill_ar, uint32_t context_len,
                                                         std::shared_ptr<ThreadPool> pool);

struct PerplexityOptions {
  uint32_t context_len = 128;  // tokens of a window
  uint32_t max_windows = 0;    // 0: all whole windows of the text
};

struct PerplexityResult {
  double perplexity = 0;
  double mean_nll = 0;
  uint64_t scored_tokens = 0;
  uint32_t windows = 0;
  std::vector<float> nll;  // of each scored token, in order
};

// Cuts `tokens` into windows of `context_len`, feeds each to the executor from
// an empty cache as in generation (chunks, then single tokens), and scores the
// tokens of the second half (llama.cpp's protocol): nll of token t given those
// before it. No BOS is
// added. kInvalidArgument when there is no whole window.
Result<PerplexityResult> MeasurePerplexity(ModelExecutor& executor,
                                           std::span<const uint32_t> tokens,
                                           const PerplexityOptions& options, Progress* progress);

// 10 log10(sum ref^2 / sum (ref - x)^2) over the raw values; infinity when equal.
double Sqnr(std::span<const float> reference, std::span<const float> values);

}  // namespace spillway

#endif  // SPILLWAY_EVAL_PERPLEXITY_H_
