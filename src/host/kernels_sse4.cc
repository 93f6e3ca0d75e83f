// Integer products with 128-bit vectors, the baseline of x86-64 builds.

#if defined(__x86_64__)

#include <hwy/base.h>
#include <immintrin.h>

#include <type_traits>

#include "host/kernel_table.h"

HWY_PUSH_ATTRIBUTES("sse4.1")
namespace spillway::host {
namespace sse4 {

struct Simd {
  using V = __m128i;
  static constexpr size_t kLanes = 4;
  static constexpr size_t kRows = 4;
  static V Zero() { return _mm_setzero_si128(); }
  static V Broadcast32(const void* p) {
    int32_t value;
    __builtin_memcpy(&value, p, sizeof(value));
    return _mm_set1_epi32(value);
  }
  static V Broadcast64(const void* p) {
    int64_t value;
    __builtin_memcpy(&value, p, sizeof(value));
    return _mm_set1_epi64x(value);
  }
  static V WidenWeights(const int8_t* p) { return _mm_cvtepi8_epi16(_mm_loadl_epi64(Cast(p))); }
  static V WidenU8(const uint8_t* p) { return _mm_cvtepu8_epi32(_mm_loadu_si32(p)); }
  static V WidenS8(const int8_t* p) { return _mm_cvtepi8_epi32(_mm_loadu_si32(p)); }
  static V WidenU16(const uint16_t* p) { return _mm_cvtepu16_epi32(_mm_loadl_epi64(Cast(p))); }
  static V Pair(V a, V b) {
    return _mm_or_si128(_mm_and_si128(a, _mm_set1_epi32(0xffff)), _mm_slli_epi32(b, 16));
  }
  static V LowBytes(V v) { return _mm_and_si128(v, _mm_set1_epi16(0xff)); }
  static V HighBytes(V v) { return _mm_srli_epi16(v, 8); }
  static V FlipSigns(V v) { return _mm_xor_si128(v, _mm_set1_epi16(-32768)); }
  static V DotAdd(V sum, V a, V b) { return _mm_add_epi32(sum, _mm_madd_epi16(a, b)); }
  static void Store(int32_t* p, V v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v); }
  static void AddToDoubles(double* sums, V v, double factor) {
    const __m128d by = _mm_set1_pd(factor);
    const __m128d low = _mm_mul_pd(_mm_cvtepi32_pd(v), by);
    const __m128d high = _mm_mul_pd(_mm_cvtepi32_pd(_mm_unpackhi_epi64(v, v)), by);
    _mm_storeu_pd(sums, _mm_add_pd(_mm_loadu_pd(sums), low));
    _mm_storeu_pd(sums + 2, _mm_add_pd(_mm_loadu_pd(sums + 2), high));
  }

 private:
  static const __m128i* Cast(const void* p) { return static_cast<const __m128i*>(p); }
};

#include "host/int_products-inl.h"

}  // namespace sse4

const IntegerProducts& Sse4Products() {
  static constexpr IntegerProducts kProducts = {sse4::LinearRowBytes, sse4::LinearBase,
                                                sse4::PrepareLinearRow, sse4::Linear, sse4::MatMul};
  return kProducts;
}

}  // namespace spillway::host
HWY_POP_ATTRIBUTES

#endif  // defined(__x86_64__)
