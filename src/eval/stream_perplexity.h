// Perplexity of a text that is longer than the context, fed once from its start to its end
// while an attention sink makes room.

#ifndef SPILLWAY_EVAL_STREAM_PERPLEXITY_H_
#define SPILLWAY_EVAL_STREAM_PERPLEXITY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/progress.h"
#include "model/config.h"
#include "runtime/model_executor.h"
#include "spillway/decoding.h"
#include "spillway/status.h"

namespace spillway {

struct StreamPerplexity {
  AttentionSink sink;       // as used: a prefix is the sink
  bool by_evictor = false;  // the executor's evictor made room
  uint32_t evictions = 0;
  // Tokens that were scored, all but the text's first; and those that were scored before the
  // first eviction.
  uint32_t scored_tokens = 0, before_tokens = 0;
  // exp of the mean of -log p: of all, of those before the first eviction, of those after it.
  double perplexity = 0, before = 0, after = 0;
  // The same of the first running_step, 2 * running_step, ... scored tokens, then of all.
  std::vector<double> running;
  uint32_t running_step = 0;
  double seconds = 0;      // in the model
  std::vector<float> nll;  // of each scored token
};

// Feeds `tokens` from an empty cache. kInvalidArgument for less than two tokens or a sink
// that the model's context has no room for. `rope` is the model's.
Result<StreamPerplexity> MeasureStreamPerplexity(ModelExecutor& executor, const RopeConfig& rope,
                                                 std::span<const uint32_t> tokens,
                                                 const AttentionSink& sink, Progress* progress);

}  // namespace spillway

#endif  // SPILLWAY_EVAL_STREAM_PERPLEXITY_H_
