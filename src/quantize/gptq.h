// GPTQ: rounds weights so that the error of a Linear's output, not that of each
// weight, is small.

#ifndef SPILLWAY_QUANTIZE_GPTQ_H_
#define SPILLWAY_QUANTIZE_GPTQ_H_

#include <cstddef>
#include <vector>

#include "quantize/hessian.h"

namespace spillway {

// Rows of weights that are rounded together, and the form that they have here: a
// column's values of all the rows lie together, [hessian.matrix().padded_dim()][64],
// columns in the Hessian's order, zeros beyond its dim and beyond the last row.
inline constexpr size_t kGptqRows = 64;

// Buffers of one thread, reused from group to group.
class GptqGroup {
 public:
  // `hessian` is factorised and outlives this.
  explicit GptqGroup(const InputHessian* hessian);

  // To be filled by the caller: weights, and the step of each weight (> 0).
  std::vector<float> weights, steps;
  // The result: integers in -limit..limit.
  std::vector<float> integers;

  // Rounds half to even, compensating in each column the errors of those before.
  void Round(float limit);

  // Coordinate descent: visits every weight in order, `sweeps` times, and moves
  // it to the integer that is best for the output while the others stay, which
  // never makes the error larger. Starts from `integers`. (Behdin et al., QuantEase, 2023.)
  void Descend(float limit, int sweeps);

  // For each row the factor for all its steps at once that is best for the output
  // with these integers; 1 where there is none between 0.5 and 2.
  void BestScales(float* factors);
  // (w - v) H (w - v)^T of each row.
  void Errors(double* errors);

 private:
  // residual_ = weights - steps * integers; gradient_ = H residual_.
  void Gradient();
  void Product(const std::vector<float>& in, std::vector<float>& out);

  const InputHessian& hessian_;
  std::vector<float> target_, residual_, gradient_, block_;
};

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_GPTQ_H_
