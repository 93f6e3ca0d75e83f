// The processor-specific functions behind the kernels, one table a target.

#ifndef SPILLWAY_HOST_KERNEL_TABLE_H_
#define SPILLWAY_HOST_KERNEL_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "graph/types.h"
#include "host/dispatch.h"
#include "host/quant_math.h"

namespace spillway::host {

// What follows the sums of a product, for its columns c (quant_math.h):
//   out(r, c) = Quantize(factor[c] * (floor((sum + base[c]) * unit) + correction[c]))
struct ProductFinish {
  const double* base = nullptr;  // what the prepared rows' base leaves out
  const double* correction = nullptr;
  const double* factor = nullptr;
  double unit = 1.0;
  OutputSpec out;
};

// Columns of 4-bit weights (kPackedNibbles), K a multiple of 8. A value counts as itself
// times its multiplier: one for each column and `block_groups` groups of 8 rows.
struct NibbleColumns {
  const std::byte* data = nullptr;
  const uint8_t* multipliers = nullptr;  // [blocks of 16 columns][blocks of K][16]; null: 1
  size_t k_groups = 0, block_groups = 0, count = 0;
};

// Exact integer products. Activations are first rewritten to the form that the
// target multiplies ("prepared"): a prepared value is q - PreparedBase(dtype).
struct IntegerProducts {
  // Linear: bytes of one prepared row of k values.
  size_t (*linear_row_bytes)(DType dtype, size_t k);
  // Linear: what `prepare_linear_row` subtracts from each q.
  int32_t (*linear_base)(DType dtype);
  void (*prepare_linear_row)(const std::byte* x, DType dtype, size_t k, std::byte* prepared);
  // sums[r * blocks * 16 + c] = sum over k of prepared(r, k) * w(c, k), for `rows`
  // prepared rows, `row_bytes` apart, and `blocks` consecutive blocks of 16
  // channels in kPackedN16K4 (each k_groups * 64 bytes). k_groups = ceil(k / 4),
  // at most kMaxLinearGroups.
  void (*linear)(const std::byte* prepared, size_t row_bytes, size_t rows, DType dtype,
                 const int8_t* weights, size_t k_groups, size_t blocks, double* sums);
  // MatMul: sums[r * n + c] = sum over k of a[r * a_stride + k] * b(k, c) for
  // columns c in [0, n) of b, whose rows are `ldb` elements apart; b's values are
  // q - MatMulBase(dtype). a has an even a_stride >= k, zero-padded to an even
  // length. `scratch` holds MatMulScratchBytes(k).
  void (*matmul)(const int16_t* a, size_t a_stride, size_t rows, const std::byte* b, DType b_dtype,
                 size_t ldb, size_t k, size_t n, std::byte* scratch, double* sums);

  // `linear` for kU8 and kU16 and the first `columns` channels, finished: row r goes to
  // out + r * out_stride bytes. Null where a target has no function of its own; see
  // QuantizedProduct().
  void (*linear_quantized)(const std::byte* prepared, size_t row_bytes, size_t rows, DType dtype,
                           const int8_t* weights, size_t k_groups, size_t columns,
                           const ProductFinish& finish, std::byte* out,
                           size_t out_stride) = nullptr;
  // The same for one row and 4-bit weights. Null where a target has no such function: then
  // weights are unpacked first (PackedWeights::Unpack).
  void (*row_by_nibbles)(const std::byte* prepared, DType dtype, const NibbleColumns& columns,
                         const ProductFinish& finish, std::byte* out) = nullptr;
};

// 32-bit sums of 255 * 128 products cannot overflow up to here.
inline constexpr size_t kMaxLinearGroups = 16384;  // K = 65536

// Values that `matmul` gives a and b: a's rows are s16.
inline int32_t MatMulBaseA(DType dtype) { return dtype == DType::kU16 ? 32768 : 0; }
inline int32_t MatMulBaseB(DType dtype) { return dtype == DType::kS16 ? -32768 : 0; }
// Columns that the widest target takes at once.
inline constexpr size_t kMatMulMaxLanes = 16;
inline size_t MatMulScratchBytes(size_t k) { return k * kMatMulMaxLanes * sizeof(uint16_t); }

// Elementwise loops. The doubles hold exact integers or steps (quant_math.h); no
// function fuses a multiplication with an addition, so all targets agree.
struct VectorOps {
  // out[i] = q[i] + offset.
  void (*load)(const std::byte* in, DType dtype, size_t n, int32_t offset, double* out);
  // Quantises steps[i] and stores it.
  void (*store)(const double* steps, size_t n, const OutputSpec& spec, std::byte* out);
  // a[i] *= f.
  void (*scale)(double* a, double f, size_t n);
  // a[i] = f * (a[i] * b[i]).
  void (*multiply)(double* a, const double* b, double f, size_t n);
  // a[i] = fa * a[i] + fb * b[i].
  void (*add)(double* a, double fa, const double* b, double fb, size_t n);
  // out[i] = fc * (a[i] * c[i]) + fs * (b[i] * s[i]).
  void (*rotate)(const double* a, const double* b, const double* c, const double* s, double fc,
                 double fs, size_t n, double* out);
  // a[i] = (floor((a[i] + base[i]) * unit) + correction[i]) * factor[i].
  void (*finish_product)(double* a, const double* base, double unit, const double* correction,
                         const double* factor, size_t n);
  double (*sum_squares)(const double* a, size_t n);  // of exact integers
  double (*max)(const double* a, size_t n);          // n >= 1

  // a[i] becomes SiluOf(a[i] * in_scale) / out_scale (GeluTanhOf), or a value that rounds to
  // the same integer.
  void (*silu)(double* a, double in_scale, double out_scale, size_t n);
  void (*gelu_tanh)(double* a, double in_scale, double out_scale, size_t n);

  // u16. q[i] = Quantize(factor * (q[i] + offset)) in place; returns the largest, or 0.
  uint16_t (*rescale_u16)(uint16_t* q, size_t n, int32_t offset, double factor,
                          const OutputSpec& spec);
  // q[i] = min(floor(f * q[i]), 65535), f >= 0, in place.
  void (*cut_u16)(uint16_t* q, double f, size_t n);
  // q[i] = table[min(max - q[i], last)] in place, for q[i] <= max; returns the sum, which must
  // be less than 2^31. The table's values are at most 32768; table[last + 1] is read, too.
  uint32_t (*look_up_u16)(uint16_t* q, size_t n, uint16_t max, const uint16_t* table,
                          uint32_t last);
  // Packs k rows of n bytes, ldb apart, as columns of kPackedN16K4 with their top bits
  // flipped (u8 around 128 becomes s8): column c, row i goes to PackedN16K4Index(c, i) where
  // blocks of 16 columns are block_stride bytes apart. Writes whole groups of 4 rows and 16
  // columns; what is not there becomes 0.
  void (*pack_columns)(const uint8_t* b, size_t ldb, size_t k, size_t n, size_t block_stride,
                       int8_t* packed);

  // f32. Sums are in a fixed order of the target; results differ between targets
  // by rounding only.
  // out[r * ldo + c] = sum_i a[r * k + i] * b[c * k + i] for c in [0, n).
  void (*product_rows_f32)(const float* a, size_t rows, size_t k, const float* b, size_t n,
                           float* out, size_t ldo);
  // out[r * ldo + c] = sum_i a[r * k + i] * b[i * ldb + c] for c in [0, n).
  void (*product_columns_f32)(const float* a, size_t rows, size_t k, const float* b, size_t ldb,
                              size_t n, float* out, size_t ldo);
  void (*add_f32)(const float* a, const float* b, size_t n, float* out);
  void (*multiply_f32)(const float* a, const float* b, size_t n, float* out);
  void (*silu_f32)(const float* x, size_t n, float* out);
  void (*gelu_tanh_f32)(const float* x, size_t n, float* out);
  void (*rms_norm_f32)(const float* x, const float* gamma, float epsilon, size_t n, float* out);
  void (*softmax_f32)(const float* x, size_t n, float* out);
  // out = a * c + fs * (b * s), fs 1 or -1.
  void (*rotate_f32)(const float* a, const float* b, const float* c, const float* s, float fs,
                     size_t n, float* out);
};

struct KernelTable {
  CpuTarget target = CpuTarget::kScalar;
  const IntegerProducts* products = nullptr;
  const VectorOps* vectors = nullptr;
};

// The integer products of each target that the build has (kernels_*.cc).
const IntegerProducts& ScalarProducts();
#if defined(__x86_64__)
const IntegerProducts& Sse4Products();
const IntegerProducts& Avx2Products();
const IntegerProducts& Avx512Products();
const IntegerProducts& Avx512VnniProducts();
#elif defined(__aarch64__)
const IntegerProducts& NeonProducts();
const IntegerProducts& NeonDotprodProducts();
const IntegerProducts& NeonI8mmProducts();
#endif
// Plain loops for kScalar (vector_ops_scalar.cc), Highway for the others
// (vector_ops.cc).
const VectorOps& ScalarVectorOps();
const VectorOps& HighwayVectorOps(CpuTarget target);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_KERNEL_TABLE_H_
