// Weights that make up for what the quantised layers before them changed.

#ifndef SPILLWAY_QUANTIZE_GPTQ_TARGET_H_
#define SPILLWAY_QUANTIZE_GPTQ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "graph/graph.h"
#include "quantize/hessian.h"

namespace spillway {

// Full strength fits the calibration text and loses on other text (bench/README.md).
inline constexpr float kTargetStrength = 0.5f;
inline constexpr float kTargetRidge = 1.0f;

// A Linear behind quantised layers gets inputs x' instead of x. With its own weights W its
// output is off by e = W x - W x' (or what else it should make up for, like the error that the
// residual stream has already). The weights
//   W' = W + strength * E X'^T (X' X'^T + ridge)^-1
// come as near to the float output as they can on x'. Rounding starts from W'.
// (In the manner of Arai and Ichikawa, QEP, 2025, and Li et al., GPTAQ, 2025.)
//
// Collects E X'^T: memory rows * cols floats, each padded to whole 64.
class OutputErrors {
 public:
  OutputErrors(uint32_t rows, uint32_t cols);

  // Of `count` tokens: the Linear's inputs x' [count][cols] and errors e [count][rows].
  // The result does not depend on the number of threads.
  void Add(const float* inputs, const float* errors, size_t count, ThreadPool* pool);

  // W' for weights [rows][cols] in memory. `hessian` has the same inputs and is factorised; the
  // ridge, added to its diagonal, is in units of the diagonal's mean. W where the system has no
  // solution or W' would not be finite.
  std::shared_ptr<const ConstantData> Correct(const ConstantData& weights,
                                              const InputHessian& hessian, ThreadPool* pool,
                                              float strength = kTargetStrength,
                                              float ridge = kTargetRidge) const;

 private:
  uint32_t rows_, cols_;
  size_t row_tiles_, col_tiles_;
  AlignedBuffer sums_;  // [row tile][padded cols][64 rows]
};

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_GPTQ_TARGET_H_
