// KvCache::Evict: the tokens behind the evicted ones move to their place, and their
// keys turn back by as many positions.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "kvcache/kv_cache.h"

namespace spillway {
namespace {

// Columns that are in float at a time.
constexpr size_t kTile = 64;

struct Half {
  uint16_t bits;
};

// The scale is the same before and after, so it cancels: a value is q + offset.
template <typename T>
float Load(T q, int32_t offset) {
  return static_cast<float>(int32_t{q} + offset);
}
template <>
float Load<float>(float value, int32_t) {
  return value;
}
template <>
float Load<Half>(Half value, int32_t) {
  return HalfToFloat(value.bits);
}

template <typename T>
void Save(float value, int32_t offset, T* to) {
  const float q = std::nearbyint(value - static_cast<float>(offset));
  *to = static_cast<T>(std::clamp(q, 0.0f, static_cast<float>(std::numeric_limits<T>::max())));
}
template <>
void Save<float>(float value, int32_t, float* to) {
  *to = value;
}
template <>
void Save<Half>(float value, int32_t, Half* to) {
  to->bits = FloatToHalf(value);
}

// The keys of one head, [head_dim, columns], and the one column beside them.
template <typename T>
struct HeadKeys {
  T* rows;
  size_t columns;
  const T* last;  // [head_dim]: column `columns`
  size_t dim;
  int32_t offset;
};

// Turns keys in tiles [head_dim, kTile] of floats.
class KeyTurner {
 public:
  KeyTurner(const KeyShift& shift, size_t dim)
      : shift_(shift), dim_(dim), in_(dim * kTile), out_(dim * kTile) {}

  // Columns [from, from + count) turn and become [to, to + count); to < from, so no
  // column is overwritten before its tile is read.
  template <typename T>
  void Move(const HeadKeys<T>& head, size_t from, size_t to, size_t count) {
    for (size_t done = 0; done < count; done += kTile) {
      const size_t width = std::min(kTile, count - done);
      for (size_t d = 0; d < dim_; ++d) {
        for (size_t t = 0; t < width; ++t) {
          const size_t column = from + done + t;
          const T key = column < head.columns ? head.rows[d * head.columns + column] : head.last[d];
          in_[d * kTile + t] = Load(key, head.offset);
        }
      }
      Turn();
      for (size_t d = 0; d < dim_; ++d) {
        T* row = head.rows + d * head.columns + to + done;
        for (size_t t = 0; t < width; ++t) Save(in_[d * kTile + t], head.offset, row + t);
      }
    }
  }

 private:
  // in_ = the keys of in_ at their new positions.
  void Turn() {
    const bool rotated = !shift_.rotation.empty();
    if (rotated) Multiply(/*transposed=*/true);
    const size_t pairs = shift_.cos.size();
    for (size_t i = 0; i < pairs; ++i) {
      float* a = &in_[i * kTile];
      float* b = &in_[(i + pairs) * kTile];
      const float c = shift_.cos[i], s = shift_.sin[i];
      for (size_t t = 0; t < kTile; ++t) {
        const float was_a = a[t], was_b = b[t];
        a[t] = was_a * c + was_b * s;
        b[t] = was_b * c - was_a * s;
      }
    }
    if (rotated) Multiply(/*transposed=*/false);
  }

  void Multiply(bool transposed) {
    for (size_t n = 0; n < dim_; ++n) {
      float* out = &out_[n * kTile];
      std::fill_n(out, kTile, 0.0f);
      for (size_t d = 0; d < dim_; ++d) {
        const float factor = shift_.rotation[transposed ? d * dim_ + n : n * dim_ + d];
        const float* in = &in_[d * kTile];
        for (size_t t = 0; t < kTile; ++t) out[t] += factor * in[t];
      }
    }
    std::swap(in_, out_);
  }

  const KeyShift& shift_;
  size_t dim_;
  std::vector<float> in_, out_;  // [head_dim, kTile]
};

// Where the tokens that stay are and go.
struct Moved {
  size_t from, to, count;
};

template <typename T>
void MoveKeys(const KvShape& shape, size_t columns, const Moved& moved, int32_t offset,
              std::byte* keys, const std::byte* last, KeyTurner& turner) {
  for (size_t head = 0; head < shape.kv_heads; ++head) {
    const HeadKeys<T> one = {reinterpret_cast<T*>(keys) + head * shape.head_dim * columns, columns,
                             reinterpret_cast<const T*>(last) + head * shape.head_dim,
                             shape.head_dim, offset};
    turner.Move(one, moved.from, moved.to, moved.count);
  }
}

void MoveKeysOf(const KvShape& shape, size_t columns, const Moved& moved, int32_t offset,
                std::byte* keys, const std::byte* last, KeyTurner& turner) {
  switch (shape.dtype) {
    case DType::kU8:
      return MoveKeys<uint8_t>(shape, columns, moved, offset, keys, last, turner);
    case DType::kU16:
      return MoveKeys<uint16_t>(shape, columns, moved, offset, keys, last, turner);
    case DType::kF16:
      return MoveKeys<Half>(shape, columns, moved, 0, keys, last, turner);
    case DType::kF32:
      return MoveKeys<float>(shape, columns, moved, 0, keys, last, turner);
    default:
      assert(false && "a cache is u8, u16, f16 or f32");
  }
}

}  // namespace

void KvCache::Evict(uint32_t sink, const KeyShift& shift, std::span<const Encoding> k_encodings) {
  const uint32_t count = shift.positions;
  assert(count >= 1 && sink + count <= size_);
  assert(!IsFixedPoint(shape_.dtype) || k_encodings.size() == shape_.layers);
  assert(2 * shift.cos.size() <= shape_.head_dim && shift.sin.size() == shift.cos.size());
  const size_t columns = shape_.context_len - ar_len_;
  const Moved moved = {sink + count, sink, size_ - sink - count};
  // Of those, the ones that are in the buffers.
  const size_t inside = stored() > moved.from ? stored() - moved.from : 0;
  const size_t row = head_bytes();
  KeyTurner turner(shift, shape_.head_dim);
  for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
    const size_t at = layer * shape_.kv_heads * row;
    const int32_t offset = IsFixedPoint(shape_.dtype) ? k_encodings[layer].offset : 0;
    MoveKeysOf(shape_, columns, moved, offset, k_[layer], full_k_.data() + at, turner);
    for (size_t head = 0; head < shape_.kv_heads; ++head) {
      std::byte* v = v_[layer] + head * columns * row;
      std::memmove(v + moved.to * row, v + moved.from * row, inside * row);
      if (inside < moved.count) {
        std::memcpy(v + (moved.to + inside) * row, full_v_.data() + at + head * row, row);
      }
    }
  }
  size_ -= count;
}

}  // namespace spillway
