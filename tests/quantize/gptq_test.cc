#include "quantize/gptq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "quantize/gptq_target.h"
#include "quantize/hessian.h"
#include "quantize/weights.h"
#include "tests/support/random.h"

namespace spillway {
namespace {

std::vector<float> RandomValues(size_t count, uint64_t seed) {
  test::Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.Gauss());
  return values;
}

// Rows whose columns have few common causes, as activations do, and sizes from 0.1 to 10.
std::vector<float> CorrelatedRows(size_t rows, size_t cols, uint64_t seed) {
  const size_t causes = std::max<size_t>(2, cols / 4);
  const std::vector<float> mix = RandomValues(causes * cols, seed);
  const std::vector<float> own = RandomValues(rows * cols, seed + 1);
  const std::vector<float> cause = RandomValues(rows * causes, seed + 2);
  std::vector<float> x(rows * cols);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t k = 0; k < cols; ++k) {
      float sum = 0.3f * own[r * cols + k];
      for (size_t c = 0; c < causes; ++c) sum += cause[r * causes + c] * mix[c * cols + k];
      x[r * cols + k] =
          sum * std::pow(10.0f, static_cast<float>(k * 7 % cols) / cols * 2.0f - 1.0f);
    }
  }
  return x;
}

// The naive second moments, in double.
std::vector<double> SecondMoments(const std::vector<float>& x, size_t cols) {
  std::vector<double> h(cols * cols);
  const size_t rows = x.size() / cols;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < cols; ++i) {
      for (size_t j = 0; j < cols; ++j) {
        h[i * cols + j] += double{x[r * cols + i]} * x[r * cols + j] / static_cast<double>(rows);
      }
    }
  }
  return h;
}

// sum over rows of (w - v) H (w - v)^T.
double OutputError(const std::vector<float>& w, const std::vector<float>& v,
                   const std::vector<double>& h, size_t cols) {
  double error = 0.0;
  for (size_t n = 0; n < w.size() / cols; ++n) {
    for (size_t i = 0; i < cols; ++i) {
      const double left = double{w[n * cols + i]} - v[n * cols + i];
      double sum = 0.0;
      for (size_t j = 0; j < cols; ++j) {
        sum += h[i * cols + j] * (double{w[n * cols + j]} - v[n * cols + j]);
      }
      error += left * sum;
    }
  }
  return error;
}

std::vector<float> Values(const ConstantData& data) {
  std::vector<float> values(data.bytes().size() / sizeof(float));
  std::memcpy(values.data(), data.bytes().data(), data.bytes().size());
  return values;
}

TEST(InputHessianTest, EqualsTheNaiveSums) {
  ThreadPool pool(2);
  for (const size_t cols : {1u, 5u, 64u, 130u}) {
    const size_t rows = 300;
    const std::vector<float> x = CorrelatedRows(rows, cols, 3);
    const std::vector<double> expected = SecondMoments(x, cols);
    InputHessian hessian(static_cast<uint32_t>(cols));
    hessian.Add(x.data(), 100, &pool);
    hessian.Add(x.data() + 100 * cols, rows - 100, &pool);
    ASSERT_TRUE(hessian.Finish(&pool).ok());
    EXPECT_EQ(hessian.rows(), rows);
    ASSERT_EQ(hessian.order().size(), cols);
    for (size_t i = 0; i < cols; ++i) {
      const size_t at = hessian.order()[i];
      EXPECT_NEAR(hessian.second_moments()[at], expected[at * cols + at],
                  1e-5 * expected[at * cols + at]);
      if (i > 0) {
        EXPECT_LE(hessian.second_moments()[at], hessian.second_moments()[hessian.order()[i - 1]]);
      }
      for (size_t j = 0; j < cols; ++j) {
        const size_t to = hessian.order()[j];
        const double kept = i == j ? 1.0 : static_cast<double>(rows) / (rows + cols);
        EXPECT_NEAR(hessian.matrix().At(i, j), kept * expected[at * cols + to],
                    1e-5 * std::sqrt(expected[at * cols + at] * expected[to * cols + to]));
      }
    }
  }
}

// U U^T = H + damping, with U_jj from the sum of the errors' definition.
TEST(InputHessianTest, TheFactorIsThatOfTheDampedMatrix) {
  ThreadPool pool(2);
  const size_t cols = 150;
  const std::vector<float> x = CorrelatedRows(400, cols, 5);
  InputHessian hessian(cols);
  hessian.Add(x.data(), 400, &pool);
  ASSERT_TRUE(hessian.Finish(&pool, true, 0.02f).ok());
  double damping = 0.0;
  for (const float moment : hessian.second_moments()) damping += 0.02 * moment / cols;
  // D = U_jj^2 solves H_jj = sum over k >= j of V_jk^2 D_k with V_jk = factor(k, j).
  std::vector<double> d(cols);
  for (size_t j = cols; j-- > 0;) {
    d[j] = hessian.matrix().At(j, j) + damping;
    for (size_t k = j + 1; k < cols; ++k) {
      d[j] -= std::pow(double{hessian.factor().At(k, j)}, 2) * d[k];
    }
    EXPECT_GT(d[j], 0.0);
  }
  for (size_t i = 0; i < cols; ++i) {
    for (size_t j = i + 1; j < cols; ++j) {
      double sum = hessian.factor().At(j, i) * d[j];
      for (size_t k = j + 1; k < cols; ++k) {
        sum += double{hessian.factor().At(k, i)} * hessian.factor().At(k, j) * d[k];
      }
      EXPECT_NEAR(sum, hessian.matrix().At(i, j),
                  2e-4 * std::sqrt(hessian.matrix().At(i, i) * hessian.matrix().At(j, j)))
          << i << " " << j;
    }
  }
}

TEST(GptqTest, IsNotWorseThanRoundingInTheOutput) {
  ThreadPool pool(2);
  const uint32_t rows = 70;
  for (const uint32_t cols : {30u, 64u, 200u}) {
    for (const bool correlated : {false, true}) {
      const std::vector<float> w = RandomValues(size_t{rows} * cols, 7);
      const std::vector<float> x =
          correlated ? CorrelatedRows(2000, cols, 8) : RandomValues(size_t{2000} * cols, 8);
      const std::vector<double> h = SecondMoments(x, cols);
      InputHessian hessian(cols);
      hessian.Add(x.data(), 2000, &pool);
      ASSERT_TRUE(hessian.Finish(&pool).ok());
      for (const auto& [bits, block] :
           {std::pair{8u, 0u}, std::pair{4u, 0u}, std::pair{4u, 16u}, std::pair{4u, 32u}}) {
        const auto error = [&](WeightMethod method) {
          const WeightScheme scheme{static_cast<uint8_t>(bits), block, method};
          const QuantizedMatrix matrix =
              QuantizeMatrix(*MakeConstantOf(w), rows, cols, scheme, &hessian, &pool);
          return OutputError(w, Values(*DequantizeMatrix(matrix, rows, cols, &pool)), h, cols);
        };
        const double nearest = error(WeightMethod::kRtn);
        const double best = error(WeightMethod::kMse);
        const double gptq = error(WeightMethod::kGptq);
        EXPECT_LE(best, 1.02 * nearest);
        EXPECT_LE(gptq, 1.02 * best);
        if (correlated) {
          EXPECT_LT(gptq, 0.8 * nearest);
        }
      }
    }
  }
}

// x of a x = b, a [n][n], by elimination in double with pivots.
std::vector<double> DenseSolve(std::vector<double> a, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t k = 0; k < n; ++k) {
    size_t pivot = k;
    for (size_t i = k + 1; i < n; ++i) {
      if (std::abs(a[i * n + k]) > std::abs(a[pivot * n + k])) pivot = i;
    }
    std::swap(b[k], b[pivot]);
    for (size_t j = 0; j < n; ++j) std::swap(a[k * n + j], a[pivot * n + j]);
    for (size_t i = k + 1; i < n; ++i) {
      const double factor = a[i * n + k] / a[k * n + k];
      for (size_t j = k; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
      b[i] -= factor * b[k];
    }
  }
  for (size_t k = n; k-- > 0;) {
    for (size_t j = k + 1; j < n; ++j) b[k] -= a[k * n + j] * b[j];
    b[k] /= a[k * n + k];
  }
  return b;
}

TEST(SymmetricSolverTest, EqualsADenseSolve) {
  ThreadPool pool(2);
  const size_t dim = 150;
  std::vector<double> h = SecondMoments(CorrelatedRows(400, dim, 5), dim);
  TiledMatrix matrix(dim);
  for (size_t i = 0; i < matrix.padded_dim(); ++i) matrix.At(i, i) = 1.0f;
  for (size_t i = 0; i < dim; ++i) {
    h[i * dim + i] += 0.1;
    for (size_t j = 0; j <= i; ++j) matrix.At(i, j) = static_cast<float>(h[i * dim + j]);
  }
  ASSERT_TRUE(Cholesky(matrix, &pool));
  const SymmetricSolver solver(std::move(matrix));
  constexpr size_t kVectors = TiledMatrix::kTile;
  const std::vector<float> right = RandomValues(dim * kVectors, 6);
  std::vector<float> found(solver.padded_dim() * kVectors, 0.0f);
  std::copy(right.begin(), right.end(), found.begin());
  solver.Solve(found.data());
  for (const size_t vector : {0u, 17u, 63u}) {
    std::vector<double> b(dim);
    for (size_t i = 0; i < dim; ++i) b[i] = right[i * kVectors + vector];
    const std::vector<double> expected = DenseSolve(h, b);
    double size = 0.0;
    for (const double value : expected) size = std::max(size, std::abs(value));
    for (size_t i = 0; i < dim; ++i) {
      EXPECT_NEAR(found[i * kVectors + vector], expected[i], 1e-3 * size) << i;
    }
  }
}

TEST(SymmetricSolverTest, WhatIsNotPositiveDefiniteHasNoFactor) {
  ThreadPool pool(1);
  TiledMatrix zeros(70);
  EXPECT_FALSE(Cholesky(zeros, &pool));
  for (size_t i = 0; i < zeros.padded_dim(); ++i) {
    zeros.At(i, i) = std::numeric_limits<float>::quiet_NaN();
  }
  EXPECT_FALSE(Cholesky(zeros, &pool));
}

// A Linear whose inputs were changed by quantised layers: part of the change depends on the
// inputs, part does not.
struct ChangedLinear {
  ChangedLinear(size_t row_count, size_t col_count, size_t token_count)
      : rows(row_count), cols(col_count), tokens(token_count) {
    w = RandomValues(rows * cols, 21);
    x = CorrelatedRows(tokens, cols, 22);
    const std::vector<float> noise = RandomValues(tokens * cols, 23);
    changed = x;
    for (size_t i = 0; i < x.size(); ++i) {
      // The channel beside takes part of each, in another size for every token.
      changed[i] = 0.9f * x[i] + 0.05f * x[i % cols == 0 ? i : i - 1] + 0.02f * noise[i];
    }
    errors.assign(tokens * rows, 0.0f);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t n = 0; n < rows; ++n) {
        double sum = 0.0;
        for (size_t k = 0; k < cols; ++k) {
          sum += double{w[n * cols + k]} * (double{x[t * cols + k]} - changed[t * cols + k]);
        }
        errors[t * rows + n] = static_cast<float>(sum);
      }
    }
  }

  InputHessian Hessian(ThreadPool* pool) const {
    InputHessian hessian(static_cast<uint32_t>(cols));
    hessian.Add(changed.data(), tokens, pool);
    EXPECT_TRUE(hessian.Finish(pool).ok());
    return hessian;
  }
  OutputErrors Errors(ThreadPool* pool) const {
    OutputErrors sums(static_cast<uint32_t>(rows), static_cast<uint32_t>(cols));
    // More than a chunk, and less.
    const size_t first = std::min<size_t>(tokens, 300);
    sums.Add(changed.data(), errors.data(), first, pool);
    sums.Add(changed.data() + first * cols, errors.data() + first * rows, tokens - first, pool);
    return sums;
  }
  // Squared distance of v x' from w x.
  double Distance(const std::vector<float>& v) const {
    double distance = 0.0;
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t n = 0; n < rows; ++n) {
        double sum = errors[t * rows + n];
        for (size_t k = 0; k < cols; ++k) {
          sum += (double{w[n * cols + k]} - v[n * cols + k]) * changed[t * cols + k];
        }
        distance += sum * sum;
      }
    }
    return distance;
  }

  size_t rows, cols, tokens;
  std::vector<float> w, x, changed, errors;
};

TEST(OutputErrorsTest, TheTargetIsThatOfTheFormula) {
  ThreadPool pool(2);
  for (const auto& [rows, cols] : {std::pair{70u, 100u}, std::pair{5u, 64u}, std::pair{64u, 3u}}) {
    const ChangedLinear linear(rows, cols, 500);
    const float strength = 0.7f, ridge = 0.05f;
    const auto found = Values(*linear.Errors(&pool).Correct(
        *MakeConstantOf(linear.w), linear.Hessian(&pool), &pool, strength, ridge));
    std::vector<double> h = SecondMoments(linear.changed, cols);
    double mean = 0.0;
    for (size_t k = 0; k < cols; ++k) mean += h[k * cols + k] / cols;
    for (size_t k = 0; k < cols; ++k) h[k * cols + k] += ridge * mean;
    for (size_t n = 0; n < rows; ++n) {
      std::vector<double> moments(cols);
      for (size_t t = 0; t < linear.tokens; ++t) {
        for (size_t k = 0; k < cols; ++k) {
          moments[k] += double{linear.errors[t * rows + n]} * linear.changed[t * cols + k] /
                        static_cast<double>(linear.tokens);
        }
      }
      const std::vector<double> change = DenseSolve(h, moments);
      for (size_t k = 0; k < cols; ++k) {
        EXPECT_NEAR(found[n * cols + k], linear.w[n * cols + k] + strength * change[k], 1e-3)
            << n << " " << k;
      }
    }
  }
}

TEST(OutputErrorsTest, RoundingFromTheTargetComesNearerToTheFloatOutput) {
  ThreadPool pool(2);
  const ChangedLinear linear(70, 100, 500);
  const InputHessian hessian = linear.Hessian(&pool);
  const auto weights = MakeConstantOf(linear.w);
  double before = linear.Distance(linear.w);
  for (const float strength : {0.5f, 1.0f}) {
    const auto target = linear.Errors(&pool).Correct(*weights, hessian, &pool, strength, 0.01f);
    const double after = linear.Distance(Values(*target));
    EXPECT_LT(after, before) << strength;
    before = after;
  }
  const auto rounded = [&](const ConstantData& from) {
    const QuantizedMatrix matrix =
        QuantizeMatrix(from, 70, 100, {4, 0, WeightMethod::kGptq}, &hessian, &pool);
    return linear.Distance(Values(*DequantizeMatrix(matrix, 70, 100, &pool)));
  };
  const auto target = linear.Errors(&pool).Correct(*weights, hessian, &pool, 1.0f, 0.01f);
  EXPECT_LT(rounded(*target), 0.9 * rounded(*weights));
}

TEST(OutputErrorsTest, ThreadsMakeNoDifference) {
  ThreadPool one(1), two(2);
  const ChangedLinear linear(70, 130, 400);
  const auto correct = [&](ThreadPool* pool) {
    return Values(
        *linear.Errors(pool).Correct(*MakeConstantOf(linear.w), linear.Hessian(pool), pool));
  };
  EXPECT_EQ(correct(&one), correct(&two));
}

TEST(OutputErrorsTest, InputsOfZerosAndErrorsThatAreNotFiniteChangeNothing) {
  ThreadPool pool(1);
  ChangedLinear linear(10, 70, 100);
  std::fill(linear.changed.begin(), linear.changed.end(), 0.0f);
  const auto correct = [&] {
    return Values(
        *linear.Errors(&pool).Correct(*MakeConstantOf(linear.w), linear.Hessian(&pool), &pool));
  };
  EXPECT_EQ(correct(), linear.w);
  // One input that depends on another fully, and some that are always zero.
  for (size_t t = 0; t < linear.tokens; ++t) {
    linear.changed[t * 70] = linear.x[t * 70];
    linear.changed[t * 70 + 1] = 2.0f * linear.x[t * 70];
  }
  const double distance = linear.Distance(linear.w);
  EXPECT_LT(linear.Distance(correct()), distance);
  linear.errors[5] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(correct(), linear.w);
}

}  // namespace
}  // namespace spillway
