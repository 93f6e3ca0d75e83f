// Element-wise operations in fixed point on a run of values, for the kernels of single
// operations and of groups.

#ifndef SPILLWAY_HOST_INTEGER_FUNCTIONS_H_
#define SPILLWAY_HOST_INTEGER_FUNCTIONS_H_

#include <cstddef>

#include "graph/graph.h"
#include "host/kernel_table.h"

namespace spillway::host {

// Values of one Run(): they are on the stack as doubles.
inline constexpr size_t kMaxRun = 512;

// Add, Mul. `a`, `b` and `out` say types and encodings.
class IntegerBinary {
 public:
  IntegerBinary(OpType type, const Tensor& a, const Tensor& b, const Tensor& out,
                const VectorOps& vectors);
  // n <= kMaxRun values; b has as many, or one for all when `one_b`. `out` may be a or b.
  void Run(const std::byte* a, const std::byte* b, bool one_b, size_t n, std::byte* out) const;

 private:
  const VectorOps& vectors_;
  bool add_;
  DType a_dtype_, b_dtype_;
  int32_t a_offset_, b_offset_;
  SumFactors sum_;
  double product_;
  OutputSpec out_;
};

// Silu, GeluTanh.
class IntegerActivation {
 public:
  IntegerActivation(OpType type, const Tensor& in, const Tensor& out, const VectorOps& vectors);
  // n <= kMaxRun values.
  void Run(const std::byte* in, size_t n, std::byte* out) const;

 private:
  const VectorOps& vectors_;
  void (*function_)(double* a, double in_scale, double out_scale, size_t n);
  DType in_dtype_;
  int32_t in_offset_;
  double in_scale_, out_scale_;
  OutputSpec out_;
};

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_INTEGER_FUNCTIONS_H_
