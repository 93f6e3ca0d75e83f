// Integer products with 256-bit vectors.

#if defined(__x86_64__)

#include <hwy/base.h>
#include <immintrin.h>

#include <type_traits>

#include "host/kernel_table.h"

HWY_PUSH_ATTRIBUTES("avx2")
namespace spillway::host {
namespace avx2 {

struct Simd {
  using V = __m256i;
  static constexpr size_t kLanes = 8;
  static constexpr size_t kRows = 4;
  static V Zero() { return _mm256_setzero_si256(); }
  static V Broadcast32(const void* p) {
    int32_t value;
    __builtin_memcpy(&value, p, sizeof(value));
    return _mm256_set1_epi32(value);
  }
  static V Broadcast64(const void* p) {
    int64_t value;
    __builtin_memcpy(&value, p, sizeof(value));
    return _mm256_set1_epi64x(value);
  }
  static V WidenWeights(const int8_t* p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128(Cast(p))); }
  static V WidenU8(const uint8_t* p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(Cast(p))); }
  static V WidenS8(const int8_t* p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(Cast(p))); }
  static V WidenU16(const uint16_t* p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128(Cast(p))); }
  static V Pair(V a, V b) { return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa); }
  static V LowBytes(V v) { return _mm256_and_si256(v, _mm256_set1_epi16(0xff)); }
  static V HighBytes(V v) { return _mm256_srli_epi16(v, 8); }
  static V FlipSigns(V v) { return _mm256_xor_si256(v, _mm256_set1_epi16(-32768)); }
  static V DotAdd(V sum, V a, V b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
  static void Store(int32_t* p, V v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  static void AddToDoubles(double* sums, V v, double factor) {
    const __m256d by = _mm256_set1_pd(factor);
    const __m256d low = _mm256_mul_pd(_mm256_cvtepi32_pd(_mm256_castsi256_si128(v)), by);
    const __m256d high = _mm256_mul_pd(_mm256_cvtepi32_pd(_mm256_extracti128_si256(v, 1)), by);
    _mm256_storeu_pd(sums, _mm256_add_pd(_mm256_loadu_pd(sums), low));
    _mm256_storeu_pd(sums + 4, _mm256_add_pd(_mm256_loadu_pd(sums + 4), high));
  }

 private:
  static const __m128i* Cast(const void* p) { return static_cast<const __m128i*>(p); }
};

#include "host/int_products-inl.h"

}  // namespace avx2

const IntegerProducts& Avx2Products() {
  static constexpr IntegerProducts kProducts = {avx2::LinearRowBytes, avx2::LinearBase,
                                                avx2::PrepareLinearRow, avx2::Linear, avx2::MatMul};
  return kProducts;
}

}  // namespace spillway::host
HWY_POP_ATTRIBUTES

#endif  // defined(__x86_64__)
