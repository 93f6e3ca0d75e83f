// Orthogonal matrices that are cheap to apply and spread every coordinate over
// all others.

#ifndef SPILLWAY_QUANTIZE_ROTATION_H_
#define SPILLWAY_QUANTIZE_ROTATION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway {

// With dim = m * 2^p, m odd: Q = S (O x H), where S are random signs, O is a random orthogonal
// [m, m] matrix, H the Hadamard matrix of size 2^p over 2^(p/2), and x the Kronecker
// product. Immutable; the same for the same arguments on every machine.
class Rotation {
 public:
  Rotation(uint32_t dim, uint64_t seed);

  uint32_t dim() const { return dim_; }

  // x Q for `width` row vectors at once: element i of vector c is data[i * width + c].
  void Apply(float* data, size_t width) const;
  // Q as a row-major [dim, dim] matrix.
  std::vector<float> Matrix() const;

 private:
  uint32_t dim_, power_, odd_;  // dim = odd * power
  std::vector<float> signs_;    // [dim]
  std::vector<float> mix_;      // O, row-major; empty when m is 1
};

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_ROTATION_H_
