#include "quantize/rotation.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/random.h"

namespace spillway {
namespace {

double Dot(const double* a, const double* b, size_t n) {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Gram-Schmidt on random rows, each made orthogonal twice for full precision.
std::vector<double> RandomOrthogonal(size_t n, SplitMix64& generator) {
  std::vector<double> matrix(n * n);
  for (double& value : matrix) value = generator.Gauss();
  for (size_t i = 0; i < n; ++i) {
    double* row = matrix.data() + i * n;
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t j = 0; j < i; ++j) {
        const double* other = matrix.data() + j * n;
        const double along = Dot(row, other, n);
        for (size_t k = 0; k < n; ++k) row[k] -= along * other[k];
      }
    }
    const double inverse = 1.0 / std::sqrt(Dot(row, row, n));
    for (size_t k = 0; k < n; ++k) row[k] *= inverse;
  }
  return matrix;
}

// a, b = a + b, a - b.
void Butterfly(float* a, float* b, size_t width) {
  for (size_t c = 0; c < width; ++c) {
    const float sum = a[c] + b[c];
    b[c] = a[c] - b[c];
    a[c] = sum;
  }
}

}  // namespace

Rotation::Rotation(uint32_t dim, uint64_t seed)
    : dim_(dim), power_(uint32_t{1} << std::countr_zero(dim)), odd_(dim / power_) {
  SplitMix64 generator(seed);
  const float unit = 1.0f / std::sqrt(static_cast<float>(power_));
  for (uint32_t i = 0; i < dim; ++i) signs_.push_back(generator.Next() >> 63 ? -unit : unit);
  if (odd_ == 1) return;
  for (const double value : RandomOrthogonal(odd_, generator)) {
    mix_.push_back(static_cast<float>(value));
  }
}

void Rotation::Apply(float* data, size_t width) const {
  for (uint32_t i = 0; i < dim_; ++i) {
    for (size_t c = 0; c < width; ++c) data[i * width + c] *= signs_[i];
  }
  for (uint32_t block = 0; block < dim_; block += power_) {
    float* values = data + block * width;
    for (uint32_t half = 1; half < power_; half *= 2) {
      for (uint32_t i = 0; i < power_; i += 2 * half) {
        Butterfly(values + i * width, values + (i + half) * width, half * width);
      }
    }
  }
  if (odd_ == 1) return;
  // Strips of the vectors, so that the sums stay in the first-level cache.
  constexpr size_t kStrip = 64;
  const size_t slice = power_ * width;
  std::vector<float> sums(odd_ * kStrip);
  for (size_t begin = 0; begin < slice; begin += kStrip) {
    const size_t count = std::min(kStrip, slice - begin);
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (uint32_t a = 0; a < odd_; ++a) {
      const float* from = data + a * slice + begin;
      for (uint32_t b = 0; b < odd_; ++b) {
        const float factor = mix_[a * odd_ + b];
        float* sum = sums.data() + b * kStrip;
        for (size_t i = 0; i < count; ++i) sum[i] += factor * from[i];
      }
    }
    for (uint32_t b = 0; b < odd_; ++b) {
      std::copy_n(sums.data() + b * kStrip, count, data + b * slice + begin);
    }
  }
}

std::vector<float> Rotation::Matrix() const {
  // Row i of Q is e_i Q, so the identity's rows all at once give the transpose of
  // what Apply() makes of columns.
  std::vector<float> columns(static_cast<size_t>(dim_) * dim_, 0.0f);
  for (uint32_t i = 0; i < dim_; ++i) columns[static_cast<size_t>(i) * dim_ + i] = 1.0f;
  Apply(columns.data(), dim_);
  std::vector<float> matrix(columns.size());
  for (uint32_t i = 0; i < dim_; ++i) {
    for (uint32_t j = 0; j < dim_; ++j) {
      matrix[static_cast<size_t>(i) * dim_ + j] = columns[static_cast<size_t>(j) * dim_ + i];
    }
  }
  return matrix;
}

}  // namespace spillway
