// KvCache::Evict: the tokens behind the evicted ones move to their place, and their
// keys turn back by as many positions.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "kvcache/kv_cache.h"

namespace spillway {
namespace {

// Columns that are turned at a time.
constexpr size_t kTile = 64;

struct Half {
  uint16_t bits;
};

// The keys of one head.
template <typename T>
struct HeadKeys {
  const T* from;  // [head_dim, from_columns]
  size_t from_columns;
  T* to;  // [head_dim, to_columns]
  size_t to_columns;
};

// The steps that 8-bit keys are turned in, as docs/architecture.md says.
template <typename T>
constexpr double kFine = std::is_same_v<T, uint8_t> ? 256.0 : 1.0;

// How the operations of the HTP turn integers: exact up to one rounding each.
template <typename T>
class IntegerTurner {
 public:
  using Element = T;
  using Real = double;

  IntegerTurner(const KeyShift& shift, const Encoding& encoding) : encoding_(encoding) {
    const Encoding angle = SymmetricEncoding(DType::kU16, 1.0f);
    for (size_t i = 0; i < shift.cos.size(); ++i) {
      cos_.push_back(QuantizeValue(shift.cos[i], angle, DType::kU16) + angle.offset);
      sin_.push_back(QuantizeValue(shift.sin[i], angle, DType::kU16) + angle.offset);
    }
    factor_ = static_cast<double>(encoding.scale) * angle.scale / encoding.scale;
  }

  double Load(T q) const { return kFine<T> * (int32_t{q} + encoding_.offset); }
  T Save(double value) const {
    value = std::nearbyint(value / kFine<T>) - encoding_.offset;
    return static_cast<T>(
        std::clamp(value, 0.0, static_cast<double>(std::numeric_limits<T>::max())));
  }
  void Turn(double* tile) const {
    const size_t pairs = cos_.size();
    for (size_t i = 0; i < pairs; ++i) {
      double* a = tile + i * kTile;
      double* b = tile + (i + pairs) * kTile;
      for (size_t t = 0; t < kTile; ++t) {
        const double was_a = a[t], was_b = b[t];
        a[t] = Round(factor_ * (was_a * cos_[i]) + factor_ * (was_b * sin_[i]));
        b[t] = Round(factor_ * (was_b * cos_[i]) - factor_ * (was_a * sin_[i]));
      }
    }
  }

 private:
  // To a u16.
  double Round(double value) const {
    const double offset = kFine<T> * encoding_.offset;
    return std::nearbyint(std::clamp(value, offset, offset + 65535.0));
  }

  const Encoding& encoding_;
  std::vector<double> cos_, sin_;  // in steps, centred
  double factor_ = 1;
};

// In float; the scale of an integer is the same before and after, so it cancels.
template <typename T>
class FloatTurner {
 public:
  using Element = T;
  using Real = float;

  FloatTurner(const KeyShift& shift, const Encoding& encoding, size_t dim)
      : rotation_(shift.rotation),
        cos_(shift.cos),
        sin_(shift.sin),
        offset_(encoding.offset),
        dim_(dim),
        scratch_(rotation_.empty() ? 0 : dim * kTile) {
    if (!std::is_same_v<T, Half> || !rotation_.empty()) return;
    for (float& value : cos_) value = HalfToFloat(FloatToHalf(value));
    for (float& value : sin_) value = HalfToFloat(FloatToHalf(value));
  }

  float Load(T value) const {
    if constexpr (std::is_same_v<T, Half>) {
      return HalfToFloat(value.bits);
    } else if constexpr (std::is_same_v<T, float>) {
      return value;
    } else {
      return static_cast<float>(int32_t{value} + offset_);
    }
  }
  T Save(float value) const {
    if constexpr (std::is_same_v<T, Half>) {
      return {FloatToHalf(value)};
    } else if constexpr (std::is_same_v<T, float>) {
      return value;
    } else {
      const float q = std::nearbyint(value - static_cast<float>(offset_));
      return static_cast<T>(std::clamp(q, 0.0f, static_cast<float>(std::numeric_limits<T>::max())));
    }
  }
  void Turn(float* tile) {
    if (!rotation_.empty()) Multiply(/*transposed=*/true, tile);
    const size_t pairs = cos_.size();
    for (size_t i = 0; i < pairs; ++i) {
      float* a = tile + i * kTile;
      float* b = tile + (i + pairs) * kTile;
      for (size_t t = 0; t < kTile; ++t) {
        const float was_a = a[t], was_b = b[t];
        a[t] = was_a * cos_[i] + was_b * sin_[i];
        b[t] = was_b * cos_[i] - was_a * sin_[i];
      }
    }
    if (!rotation_.empty()) Multiply(/*transposed=*/false, tile);
  }

 private:
  void Multiply(bool transposed, float* tile) {
    for (size_t n = 0; n < dim_; ++n) {
      float* out = &scratch_[n * kTile];
      std::fill_n(out, kTile, 0.0f);
      for (size_t d = 0; d < dim_; ++d) {
        const float factor = rotation_[transposed ? d * dim_ + n : n * dim_ + d];
        const float* in = tile + d * kTile;
        for (size_t t = 0; t < kTile; ++t) out[t] += factor * in[t];
      }
    }
    std::copy(scratch_.begin(), scratch_.end(), tile);
  }

  const std::vector<float>& rotation_;
  std::vector<float> cos_, sin_;
  int32_t offset_;
  size_t dim_;
  std::vector<float> scratch_;  // [head_dim, kTile]
};

// Columns [from, from + count) turn and become [to, to + count); in the same memory to
// is less than from, so no column is overwritten before its tile is read.
template <typename Turner>
void MoveColumns(Turner& turner, const HeadKeys<typename Turner::Element>& head, size_t dim,
                 size_t from, size_t to, size_t count, std::vector<typename Turner::Real>& tile) {
  for (size_t done = 0; done < count; done += kTile) {
    const size_t width = std::min(kTile, count - done);
    for (size_t d = 0; d < dim; ++d) {
      const auto* row = head.from + d * head.from_columns + from + done;
      for (size_t t = 0; t < width; ++t) tile[d * kTile + t] = turner.Load(row[t]);
    }
    turner.Turn(tile.data());
    for (size_t d = 0; d < dim; ++d) {
      auto* row = head.to + d * head.to_columns + to + done;
      for (size_t t = 0; t < width; ++t) row[t] = turner.Save(tile[d * kTile + t]);
    }
  }
}

// The keys of all heads of a layer.
struct LayerMove {
  const std::byte* from;  // [kv_heads, head_dim, from_columns]
  size_t from_columns;
  std::byte* to;  // [kv_heads, head_dim, to_columns]
  size_t to_columns;
  size_t first, target, count;  // columns [first, first + count) become [target, ...)
};

template <typename Turner>
void MoveHeads(const KvShape& shape, const LayerMove& move, Turner turner) {
  using T = typename Turner::Element;
  std::vector<typename Turner::Real> tile(shape.head_dim * kTile);
  for (size_t head = 0; head < shape.kv_heads; ++head) {
    const size_t row = head * shape.head_dim;
    const HeadKeys<T> one = {
        reinterpret_cast<const T*>(move.from) + row * move.from_columns, move.from_columns,
        reinterpret_cast<T*>(move.to) + row * move.to_columns, move.to_columns};
    MoveColumns(turner, one, shape.head_dim, move.first, move.target, move.count, tile);
  }
}

void MoveKeys(const KvShape& shape, const LayerMove& move, const KeyShift& shift,
              const Encoding& encoding) {
  const size_t dim = shape.head_dim;
  const bool rotated = !shift.rotation.empty();
  switch (shape.dtype) {
    case DType::kU8:
      return rotated ? MoveHeads(shape, move, FloatTurner<uint8_t>(shift, encoding, dim))
                     : MoveHeads(shape, move, IntegerTurner<uint8_t>(shift, encoding));
    case DType::kU16:
      return rotated ? MoveHeads(shape, move, FloatTurner<uint16_t>(shift, encoding, dim))
                     : MoveHeads(shape, move, IntegerTurner<uint16_t>(shift, encoding));
    case DType::kF16:
      return MoveHeads(shape, move, FloatTurner<Half>(shift, encoding, dim));
    case DType::kF32:
      return MoveHeads(shape, move, FloatTurner<float>(shift, encoding, dim));
    default:
      assert(false && "a cache is u8, u16, f16 or f32");
  }
}

Encoding EncodingOf(DType dtype, std::span<const Encoding> encodings, uint32_t layer) {
  return IsFixedPoint(dtype) ? encodings[layer] : Encoding();
}

}  // namespace

void KvCache::Evict(uint32_t sink, const KeyShift& shift, std::span<const Encoding> k_encodings) {
  const uint32_t batch = shift.positions;
  assert(batch >= 1 && sink + batch <= size_);
  assert(!IsFixedPoint(shape_.dtype) || k_encodings.size() == shape_.layers);
  assert(2 * shift.cos.size() <= shape_.head_dim && shift.sin.size() == shift.cos.size());
  const size_t columns = shape_.context_len - ar_len_;
  const size_t from = sink + batch;
  const size_t count = stored() > from ? stored() - from : 0;
  const size_t row = head_bytes();
  for (uint32_t layer = 0; layer < shape_.layers && count > 0; ++layer) {
    MoveKeys(shape_, {k_[layer], columns, k_[layer], columns, from, sink, count}, shift,
             EncodingOf(shape_.dtype, k_encodings, layer));
    for (size_t head = 0; head < shape_.kv_heads; ++head) {
      std::byte* v = v_[layer] + head * columns * row;
      std::memmove(v + sink * row, v + from * row, count * row);
    }
  }
  EvictFull(sink, shift, k_encodings);
  size_ -= batch;
}

Status KvCache::EvictBy(const std::function<Status()>& move, uint32_t sink, const KeyShift& shift,
                        std::span<const Encoding> k_encodings) {
  assert(shift.positions >= 1 && sink + shift.positions <= size_);
  if (ar_len_ != 1) Rearrange(1);
  SPILLWAY_RETURN_IF_ERROR(move());
  EvictFull(sink, shift, k_encodings);
  size_ -= shift.positions;
  return OkStatus();
}

void KvCache::EvictFull(uint32_t sink, const KeyShift& shift,
                        std::span<const Encoding> k_encodings) {
  if (stored() == size_ || sink + shift.positions == size_) return;
  const size_t columns = shape_.context_len - ar_len_;
  const size_t to = stored() - shift.positions, row = head_bytes();
  for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
    const size_t at = layer * shape_.kv_heads * row;
    MoveKeys(shape_, {full_k_.data() + at, 1, k_[layer], columns, 0, to, 1}, shift,
             EncodingOf(shape_.dtype, k_encodings, layer));
    for (size_t head = 0; head < shape_.kv_heads; ++head) {
      std::memcpy(v_[layer] + (head * columns + to) * row, full_v_.data() + at + head * row, row);
    }
  }
}

}  // namespace spillway
