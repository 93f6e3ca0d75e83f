// Perplexity of a text, and how far the logits of quantised models are from those
// of the float model on the same tokens.

#ifndef SPILLWAY_EVAL_PERPLEXITY_H_
#define SPILLWAY_EVAL_PERPLEXITY_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "runtime/model_executor.h"
#include "spillway/status.h"

namespace spillway {

// How a text is cut into windows; each is fed from an empty cache. No BOS is added.
struct PerplexityOptions {
  uint32_t context_len = 128;  // tokens of a window
  // 0: the protocol of llama.cpp's perplexity program. Whole windows follow each
  // other, and the tokens after the first of the second half are scored, so each has
  // half a window before it; a rest that fills no window is left out.
  // Else the usual sliding protocol: a window starts every `stride` tokens (at most
  // context_len), and scores the tokens that no window before it scored; all tokens
  // but the text's first are scored, the last window may be shorter.
  uint32_t stride = 0;
  uint32_t max_windows = 0;  // 0: all
};

// One window: tokens [begin, begin + length) of the text, of which those from
// `first_scored` (an index into the window, at least 1) on are scored.
struct PerplexityWindow {
  size_t begin = 0;
  uint32_t length = 0;
  uint32_t first_scored = 0;
};

// kInvalidArgument when the options make no sense or the text is too short for one
// window (sliding: for two tokens).
Result<std::vector<PerplexityWindow>> PlanWindows(size_t tokens, const PerplexityOptions& options);

// Logits of a model against those of a reference, over all scored positions.
struct LogitAgreement {
  double sqnr_db = 0;        // over the raw logits
  double kl_divergence = 0;  // KL(reference || model), mean of the positions, in nats
  double top1 = 0;           // share of positions whose best token is the same
};

struct PerplexityResult {
  double perplexity = 0;
  double mean_nll = 0;
  uint64_t scored_tokens = 0, fed_tokens = 0;
  uint32_t windows = 0;
  double seconds = 0;                       // in the model, without what is computed of its logits
  std::vector<float> nll;                   // of each scored token, in order
  std::optional<LogitAgreement> agreement;  // when there is a reference
};

// Scores the text with one model. Tokens are fed as in generation: chunks, then single
// tokens, K and V in the cache's type, a package's prefix in front.
// kInvalidArgument when a window does not fit into the model's context.
Result<PerplexityResult> MeasurePerplexity(ModelExecutor& executor,
                                           std::span<const uint32_t> tokens,
                                           const PerplexityOptions& options, Progress* progress);

// A model, and the index of the earlier one that its logits are compared with; -1: none.
struct ComparedModel {
  ModelExecutor* model = nullptr;
  int reference = -1;
};

// Scores the text with all models, in step with each other: at most the logits of one
// chunk (the longest of the models' calls) are kept of those that others refer to. Results
// are in the order of the models. kInvalidArgument when the vocabulary is not the reference's.
Result<std::vector<PerplexityResult>> ComparePerplexity(std::span<const ComparedModel> models,
                                                        std::span<const uint32_t> tokens,
                                                        const PerplexityOptions& options,
                                                        Progress* progress);

// The best token after `prompt`, the best after that, ... `count` of them, or fewer
// when the context is full. End tokens are tokens like others. As in generation, a
// prompt that starts with the package's prefix gives its tokens up.
Result<std::vector<uint32_t>> ContinueGreedily(ModelExecutor& executor,
                                               std::span<const uint32_t> prompt, uint32_t count,
                                               Progress* progress);

// How many tokens at the start of both are the same.
uint32_t CommonStart(std::span<const uint32_t> a, std::span<const uint32_t> b);

// 10 log10(sum ref^2 / sum (ref - x)^2) over the raw values; infinity when equal.
double Sqnr(std::span<const float> reference, std::span<const float> values);
double SqnrOf(double signal, double noise);

}  // namespace spillway

#endif  // SPILLWAY_EVAL_PERPLEXITY_H_
