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

// How one output differs over all steps, in units of its last place (quantised).
struct OutputDifference {
  std::string graph, output;
  double max_lsb = 0, mean_lsb = 0;
  uint64_t elements = 0;
};

// How one operation alone differs: the tested side got the reference's own
// inputs.
struct OperationDifference {
  std::string operation, type;
  std::string types;  // "u16 x s8 -> u16"
  double max_lsb = 0, mean_lsb = 0;
  double allowed_lsb = 0;  // eval/allowed_difference.h
  double sqnr_db = 0;      // of the tested output against the reference's; infinite when equal
};

struct VerifyReport {
  std::vector<OutputDifference> outputs;        // worst first
  std::vector<OperationDifference> operations;  // most beyond what is allowed first
  double logits_sqnr_db = 0;                    // all compared logits together
  uint32_t steps = 0;                           // calls compared
  uint32_t equal_tokens = 0, generated_tokens = 0;
  double top1_agreement = 0;  // of compared positions, 0..1
  std::vector<uint32_t> reference_tokens, tested_tokens;

  // Operations that differ by more than is allowed.
  std::vector<OperationDifference> BeyondAllowed() const;
  std::string ToJson() const;
  std::string ToText() const;
};

struct VerifyOptions {
  uint32_t max_new_tokens = 4;
};

// Feeds `tokens` and then greedy tokens of `reference` to both executors (each
// with its own KV cache, both fed the reference's tokens), and compares every
// output of every call: K and V of the real rows, the logits of the last one.
// Stops early when the context is full; kResourceExhausted when the prompt alone
// has no room.
Result<VerifyReport> VerifyExecutors(ModelExecutor& reference, ModelExecutor& tested,
                                     const std::vector<uint32_t>& tokens,
                                     const VerifyOptions& options, Progress* progress);

struct OperationOptions {
  // Operations of the first, middle and last of so many layers (all when larger),
  // and those outside layers.
  uint32_t layers = 3;
  std::string qnn_lib_dir;
  double timeout_s = 600;
};

// Runs the package's last graph (decode) on the host over `tokens`, then gives
// every chosen operation of the last step, with the inputs that the host had, to
// the vendor's library as a graph of its own, and compares. Reshapes are left
// out. Sorted: most beyond what is allowed first.
Result<std::vector<OperationDifference>> CompareOperations(std::shared_ptr<const Package> package,
                                                           const std::vector<uint32_t>& tokens,
                                                           const OperationOptions& options,
                                                           Progress* progress);

}  // namespace spillway

#endif  // SPILLWAY_EVAL_VERIFY_H_
