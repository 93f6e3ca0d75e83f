// The 512-bit vectors of int_products-inl.h; included inside a target's namespace.
// SPILLWAY_DOT_ADD(sum, a, b) is that target's multiply-add of s16 pairs.

struct Simd {
  using V = __m512i;
  static constexpr size_t kLanes = 16;
  static constexpr size_t kRows = 8;
  static V Zero() { return _mm512_setzero_si512(); }
  static V Broadcast32(const void* p) {
    int32_t value;
    __builtin_memcpy(&value, p, sizeof(value));
    return _mm512_set1_epi32(value);
  }
  static V Broadcast64(const void* p) {
    int64_t value;
    __builtin_memcpy(&value, p, sizeof(value));
    return _mm512_set1_epi64(value);
  }
  static V WidenWeights(const int8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static V WidenU8(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static V WidenS8(const int8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static V WidenU16(const uint16_t* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static V Pair(V a, V b) { return _mm512_mask_mov_epi16(a, 0xaaaaaaaa, _mm512_slli_epi32(b, 16)); }
  static V LowBytes(V v) { return _mm512_and_si512(v, _mm512_set1_epi16(0xff)); }
  static V HighBytes(V v) { return _mm512_srli_epi16(v, 8); }
  static V FlipSigns(V v) { return _mm512_xor_si512(v, _mm512_set1_epi16(-32768)); }
  static V DotAdd(V sum, V a, V b) { return SPILLWAY_DOT_ADD(sum, a, b); }
  static void Store(int32_t* p, V v) { _mm512_storeu_si512(p, v); }
  static void AddToDoubles(double* sums, V v, double factor) {
    const __m512d by = _mm512_set1_pd(factor);
    const __m512d low = _mm512_mul_pd(_mm512_cvtepi32_pd(_mm512_castsi512_si256(v)), by);
    const __m512d high = _mm512_mul_pd(_mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(v, 1)), by);
    _mm512_storeu_pd(sums, _mm512_add_pd(_mm512_loadu_pd(sums), low));
    _mm512_storeu_pd(sums + 8, _mm512_add_pd(_mm512_loadu_pd(sums + 8), high));
  }
};
