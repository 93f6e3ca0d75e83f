#include "quantize/gptq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

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

TEST(CholeskyTest, WhatIsNotPositiveDefiniteHasNoFactor) {
  ThreadPool pool(1);
  TiledMatrix zeros(70);
  EXPECT_FALSE(Cholesky(zeros, &pool));
  for (size_t i = 0; i < zeros.padded_dim(); ++i) {
    zeros.At(i, i) = std::numeric_limits<float>::quiet_NaN();
  }
  EXPECT_FALSE(Cholesky(zeros, &pool));
}

}  // namespace
}  // namespace spillway
