// Integer products with the vectors that every 64-bit ARM processor has.

#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstring>
#include <type_traits>

#include "host/kernel_table.h"

namespace spillway::host {
namespace neon {

struct Simd {
  using V = int32x4_t;
  static constexpr size_t kLanes = 4;
  static constexpr size_t kRows = 4;
  static V Zero() { return vdupq_n_s32(0); }
  static V Broadcast32(const void* p) {
    int32_t value;
    std::memcpy(&value, p, sizeof(value));
    return vdupq_n_s32(value);
  }
  static V Broadcast64(const void* p) {
    int64_t value;
    std::memcpy(&value, p, sizeof(value));
    return vreinterpretq_s32_s64(vdupq_n_s64(value));
  }
  static V WidenWeights(const int8_t* p) { return vreinterpretq_s32_s16(vmovl_s8(vld1_s8(p))); }
  static V WidenU8(const uint8_t* p) {
    const uint16x4_t words = vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(Load32(p)))));
    return vreinterpretq_s32_u32(vmovl_u16(words));
  }
  static V WidenS8(const int8_t* p) {
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(Load32(p))))));
  }
  static V WidenU16(const uint16_t* p) { return vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p))); }
  static V Pair(V a, V b) { return vsliq_n_s32(a, b, 16); }
  static V LowBytes(V v) { return vandq_s32(v, vdupq_n_s32(0x00ff00ff)); }
  static V HighBytes(V v) {
    return vreinterpretq_s32_u16(vshrq_n_u16(vreinterpretq_u16_s32(v), 8));
  }
  static V FlipSigns(V v) { return veorq_s32(v, vreinterpretq_s32_u32(vdupq_n_u32(0x80008000u))); }
  static V DotAdd(V sum, V a, V b) {
    const int16x8_t left = vreinterpretq_s16_s32(a);
    const int16x8_t right = vreinterpretq_s16_s32(b);
    const V low = vmull_s16(vget_low_s16(left), vget_low_s16(right));
    return vaddq_s32(sum, vpaddq_s32(low, vmull_high_s16(left, right)));
  }
  static void Store(int32_t* p, V v) { vst1q_s32(p, v); }
  static void AddToDoubles(double* sums, V v, double factor) {
    int32_t lanes[kLanes];
    vst1q_s32(lanes, v);
    for (size_t i = 0; i < kLanes; ++i) sums[i] += factor * lanes[i];
  }

 private:
  static uint32_t Load32(const void* p) {
    uint32_t value;
    std::memcpy(&value, p, sizeof(value));
    return value;
  }
};

#include "host/int_products-inl.h"

}  // namespace neon

const IntegerProducts& NeonProducts() {
  static constexpr IntegerProducts kProducts = {neon::LinearRowBytes, neon::LinearBase,
                                                neon::PrepareLinearRow, neon::Linear, neon::MatMul};
  return kProducts;
}

}  // namespace spillway::host

#endif  // defined(__aarch64__)
