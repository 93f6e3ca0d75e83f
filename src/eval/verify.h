// Verify: the same prompt through two executors of one package.

#ifndef SPILLWAY_EVAL_VERIFY_H_
#define SPILLWAY_EVAL_VERIFY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "package/package.h"
#include "runtime/model_executor.h"
#include "spillway/status.h"

namespace spillway {

// How one output of one step differs, in units of its last place (quantised).
struct OutputDifference {
  std::string graph, output;
  uint32_t step = 0;
  double max_lsb = 0, mean_lsb = 0;
  uint64_t elements = 0;
  double allowed_lsb = 0;  // from the table of allowed differences
};

struct VerifyReport {
  std::vector<OutputDifference> outputs;  // worst first
  double logits_sqnr_db = 0;              // all compared logits together
  uint32_t steps = 0;
  uint32_t equal_tokens = 0, generated_tokens = 0;
  double top1_agreement = 0;              // of compared positions, 0..1
  std::vector<uint32_t> host_tokens, htp_tokens;
  std::string ToJson() const;
  std::string ToText() const;
};

struct VerifyOptions {
  uint32_t max_new_tokens = 4;
};

// Feeds `tokens` and then greedy tokens of `reference` to both executors (each
// with its own KV cache, both fed the reference's tokens), and compares every
// output of every call.
Result<VerifyReport> VerifyExecutors(ModelExecutor& reference, ModelExecutor& tested,
                                     const std::vector<uint32_t>& tokens,
                                     const VerifyOptions& options, Progress* progress);

}  // namespace spillway

#endif  // SPILLWAY_EVAL_VERIFY_H_
