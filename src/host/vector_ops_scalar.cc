// VectorOps as plain loops: the target `scalar`.

#include <algorithm>
#include <cmath>

#include "host/kernel_table.h"

namespace spillway::host {
namespace {

void Load(const std::byte* in, DType dtype, size_t n, int32_t offset, double* out) {
  for (size_t i = 0; i < n; ++i) out[i] = LoadInt(in, dtype, i) + offset;
}

void Store(const double* steps, size_t n, const OutputSpec& spec, std::byte* out) {
  for (size_t i = 0; i < n; ++i) StoreInt(out, spec.dtype, i, spec.Quantize(steps[i]));
}

void Scale(double* a, double f, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] *= f;
}

void Multiply(double* a, const double* b, double f, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] = f * (a[i] * b[i]);
}

void Add(double* a, double fa, const double* b, double fb, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] = fa * a[i] + fb * b[i];
}

void Rotate(const double* a, const double* b, const double* c, const double* s, double fc,
            double fs, size_t n, double* out) {
  for (size_t i = 0; i < n; ++i) out[i] = fc * (a[i] * c[i]) + fs * (b[i] * s[i]);
}

void FinishProduct(double* a, const double* base, double unit, const double* correction,
                   const double* factor, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    a[i] = (std::floor((a[i] + base[i]) * unit) + correction[i]) * factor[i];
  }
}

double SumSquares(const double* a, size_t n) {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += a[i] * a[i];
  return sum;
}

double Max(const double* a, size_t n) { return *std::max_element(a, a + n); }

void Silu(double* a, double in_scale, double out_scale, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] = SiluOf(a[i] * in_scale) / out_scale;
}

void GeluTanh(double* a, double in_scale, double out_scale, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] = GeluTanhOf(a[i] * in_scale) / out_scale;
}

uint16_t RescaleU16(uint16_t* q, size_t n, int32_t offset, double factor, const OutputSpec& spec) {
  uint16_t max = 0;
  for (size_t i = 0; i < n; ++i) {
    q[i] = static_cast<uint16_t>(spec.Quantize(factor * (q[i] + offset)));
    max = std::max(max, q[i]);
  }
  return max;
}

void CutU16(uint16_t* q, double f, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    q[i] = static_cast<uint16_t>(std::min(std::floor(q[i] * f), 65535.0));
  }
}

uint32_t LookUpU16(uint16_t* q, size_t n, uint16_t max, const uint16_t* table, uint32_t last) {
  uint32_t sum = 0;
  for (size_t i = 0; i < n; ++i) {
    q[i] = table[std::min<uint32_t>(max - q[i], last)];
    sum += q[i];
  }
  return sum;
}

void PackColumns(const uint8_t* b, size_t ldb, size_t k, size_t n, size_t block_stride,
                 int8_t* packed) {
  for (size_t i = 0; i < (k + 3) / 4 * 4; ++i) {
    for (size_t c = 0; c < (n + 15) / 16 * 16; ++c) {
      const int32_t value = i < k && c < n ? b[i * ldb + c] - 128 : 0;
      packed[c / 16 * block_stride + i / 4 * 64 + c % 16 * 4 + i % 4] = static_cast<int8_t>(value);
    }
  }
}

void ProductRowsF32(const float* a, size_t rows, size_t k, const float* b, size_t n, float* out,
                    size_t ldo) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < n; ++c) {
      double sum = 0.0;
      for (size_t i = 0; i < k; ++i) sum += static_cast<double>(a[r * k + i]) * b[c * k + i];
      out[r * ldo + c] = static_cast<float>(sum);
    }
  }
}

void ProductColumnsF32(const float* a, size_t rows, size_t k, const float* b, size_t ldb, size_t n,
                       float* out, size_t ldo) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < n; ++c) {
      double sum = 0.0;
      for (size_t i = 0; i < k; ++i) sum += static_cast<double>(a[r * k + i]) * b[i * ldb + c];
      out[r * ldo + c] = static_cast<float>(sum);
    }
  }
}

void AddF32(const float* a, const float* b, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

void MultiplyF32(const float* a, const float* b, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}

void SiluF32(const float* x, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(SiluOf(x[i]));
}

void GeluTanhF32(const float* x, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(GeluTanhOf(x[i]));
}

void RmsNormF32(const float* x, const float* gamma, float epsilon, size_t n, float* out) {
  double squares = 0.0;
  for (size_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double inverse = RmsInverse(squares, 1.0, static_cast<double>(n), epsilon);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i] * inverse * gamma[i]);
}

void SoftmaxF32(const float* x, size_t n, float* out) {
  const float max = *std::max_element(x, x + n);
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) {
    out[i] = std::exp(x[i] - max);
    sum += out[i];
  }
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(out[i] / sum);
}

void RotateF32(const float* a, const float* b, const float* c, const float* s, float fs, size_t n,
               float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = a[i] * c[i] + fs * (b[i] * s[i]);
}

}  // namespace

const VectorOps& ScalarVectorOps() {
  static constexpr VectorOps kOps = {
      .load = Load,
      .store = Store,
      .scale = Scale,
      .multiply = Multiply,
      .add = Add,
      .rotate = Rotate,
      .finish_product = FinishProduct,
      .sum_squares = SumSquares,
      .max = Max,
      .silu = Silu,
      .gelu_tanh = GeluTanh,
      .rescale_u16 = RescaleU16,
      .cut_u16 = CutU16,
      .look_up_u16 = LookUpU16,
      .pack_columns = PackColumns,
      .product_rows_f32 = ProductRowsF32,
      .product_columns_f32 = ProductColumnsF32,
      .add_f32 = AddF32,
      .multiply_f32 = MultiplyF32,
      .silu_f32 = SiluF32,
      .gelu_tanh_f32 = GeluTanhF32,
      .rms_norm_f32 = RmsNormF32,
      .softmax_f32 = SoftmaxF32,
      .rotate_f32 = RotateF32,
  };
  return kOps;
}

}  // namespace spillway::host
