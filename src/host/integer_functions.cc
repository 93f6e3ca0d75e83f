#include "host/integer_functions.h"

#include <algorithm>

namespace spillway::host {

IntegerBinary::IntegerBinary(OpType type, const Tensor& a, const Tensor& b, const Tensor& out,
                             const VectorOps& vectors)
    : vectors_(vectors),
      add_(type == OpType::kAdd),
      a_dtype_(a.dtype),
      b_dtype_(b.dtype),
      a_offset_(a.encoding.offset),
      b_offset_(b.encoding.offset),
      sum_(MakeSumFactors(a.encoding.scale, b.encoding.scale, out.encoding.scale, out.dtype)),
      product_(ProductFactor(a.encoding.scale, b.encoding.scale, out.encoding.scale)),
      out_(out) {}

void IntegerBinary::Run(const std::byte* a, const std::byte* b, bool one_b, size_t n,
                        std::byte* out) const {
  double left[kMaxRun], right[kMaxRun];
  vectors_.load(a, a_dtype_, n, a_offset_, left);
  vectors_.load(b, b_dtype_, one_b ? 1 : n, b_offset_, right);
  if (one_b) std::fill_n(right + 1, n - 1, right[0]);
  if (add_) {
    vectors_.add(left, sum_.a, right, sum_.b, n);
  } else {
    vectors_.multiply(left, right, product_, n);
  }
  vectors_.store(left, n, out_, out);
}

IntegerActivation::IntegerActivation(OpType type, const Tensor& in, const Tensor& out,
                                     const VectorOps& vectors)
    : vectors_(vectors),
      function_(type == OpType::kSilu ? vectors.silu : vectors.gelu_tanh),
      in_dtype_(in.dtype),
      in_offset_(in.encoding.offset),
      in_scale_(in.encoding.scale),
      out_scale_(out.encoding.scale),
      out_(out) {}

void IntegerActivation::Run(const std::byte* in, size_t n, std::byte* out) const {
  double values[kMaxRun];
  vectors_.load(in, in_dtype_, n, in_offset_, values);
  function_(values, in_scale_, out_scale_, n);
  vectors_.store(values, n, out_, out);
}

}  // namespace spillway::host
