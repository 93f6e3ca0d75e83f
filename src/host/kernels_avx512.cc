// Integer products with 512-bit vectors, without a dot-product instruction.

#if defined(__x86_64__)

// GCC 12's own headers leave undefined vectors uninitialised and then warn about it.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <hwy/base.h>
#include <immintrin.h>

#include <type_traits>

#include "host/kernel_table.h"

#define SPILLWAY_DOT_ADD(sum, a, b) _mm512_add_epi32(sum, _mm512_madd_epi16(a, b))

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq")
namespace spillway::host {
namespace avx512 {

#include "host/avx512_simd-inl.h"
#include "host/int_products-inl.h"

}  // namespace avx512

const IntegerProducts& Avx512Products() {
  static constexpr IntegerProducts kProducts = {avx512::LinearRowBytes, avx512::LinearBase,
                                                avx512::PrepareLinearRow, avx512::Linear,
                                                avx512::MatMul};
  return kProducts;
}

}  // namespace spillway::host
HWY_POP_ATTRIBUTES

#endif  // defined(__x86_64__)
