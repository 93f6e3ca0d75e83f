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

// Keys of a layer, [kv_heads, head_dim, columns]. Of a dimension, Together(c, n) of the n
// columns from c on are kStride apart.
template <typename T>
struct RowKeys {
  static constexpr size_t kStride = 1;
  T* data;
  size_t head_dim, columns;
  T* At(size_t head, size_t d, size_t column) const {
    return data + (head * head_dim + d) * columns + column;
  }
  static size_t Together(size_t /*column*/, size_t count) { return count; }
  static T Key(T stored) { return stored; }  // and back
};

struct PackedKeys {
  static constexpr size_t kStride = 4;
  uint8_t* data;
  PackedCache cache;
  uint8_t* At(size_t head, size_t d, size_t column) const {
    return data + cache.KeyAt(head, d, column);
  }
  static size_t Together(size_t column, size_t count) { return std::min(count, 16 - column % 16); }
  static uint8_t Key(uint8_t stored) {
    return std::to_integer<uint8_t>(PackedCache::Flip(std::byte{stored}));
  }
};

// Calls visit(t, place of column + t) for t in [0, count).
template <typename Keys, typename Visit>
void VisitColumns(const Keys& keys, size_t head, size_t d, size_t column, size_t count,
                  const Visit& visit) {
  for (size_t t = 0; t < count;) {
    auto* at = keys.At(head, d, column + t);
    const size_t together = Keys::Together(column + t, count - t);
    for (size_t i = 0; i < together; ++i) visit(t + i, at[i * Keys::kStride]);
    t += together;
  }
}

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

// Columns [first, first + count) become [target, target + count).
struct Move {
  size_t first, target, count;
};

// The columns turn on the way. In the same memory the target is before them, so no column is
// overwritten before its tile is read.
template <typename Turner, typename From, typename To>
void MoveColumns(const KvShape& shape, const Move& move, Turner turner, const From& from,
                 const To& to) {
  std::vector<typename Turner::Real> tile(shape.head_dim * kTile);
  for (size_t head = 0; head < shape.kv_heads; ++head) {
    for (size_t done = 0; done < move.count; done += kTile) {
      const size_t width = std::min(kTile, move.count - done);
      for (size_t d = 0; d < shape.head_dim; ++d) {
        VisitColumns(from, head, d, move.first + done, width, [&](size_t t, const auto& key) {
          tile[d * kTile + t] = turner.Load(From::Key(key));
        });
      }
      turner.Turn(tile.data());
      for (size_t d = 0; d < shape.head_dim; ++d) {
        VisitColumns(to, head, d, move.target + done, width,
                     [&](size_t t, auto& key) { key = To::Key(turner.Save(tile[d * kTile + t])); });
      }
    }
  }
}

// What moves from where to where. With `full` set, from keys [kv_heads, head_dim, 1].
struct LayerMove {
  const std::byte* full;
  std::byte* cache;
  size_t columns;  // of the cache, when it is not packed
  Move move;
};

template <typename Turner>
void MoveLayer(const KvShape& shape, const LayerMove& layer, const Turner& turner) {
  using T = typename Turner::Element;
  const RowKeys<const T> full = {reinterpret_cast<const T*>(layer.full), shape.head_dim, 1};
  const auto move_to = [&](const auto& cache) {
    if (layer.full != nullptr) {
      MoveColumns(shape, layer.move, turner, full, cache);
    } else {
      MoveColumns(shape, layer.move, turner, cache, cache);
    }
  };
  if constexpr (std::is_same_v<T, uint8_t>) {
    if (shape.packed) {
      return move_to(PackedKeys{reinterpret_cast<T*>(layer.cache), shape.packed_cache()});
    }
  }
  move_to(RowKeys<T>{reinterpret_cast<T*>(layer.cache), shape.head_dim, layer.columns});
}

// Packed values of a head in dimensions [d, d + 16), which have groups of four tokens: whole
// groups move together when both places are alike.
void MovePackedValues(const PackedCache& cache, size_t head, size_t d, const Move& move,
                      std::byte* v) {
  const auto move_tokens = [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      const std::byte* from = v + cache.ValueAt(head, move.first + t, d);
      std::byte* to = v + cache.ValueAt(head, move.target + t, d);
      for (size_t i = 0; i < 16; ++i) to[4 * i] = from[4 * i];
    }
  };
  if (move.first % 4 != move.target % 4) return move_tokens(0, move.count);
  const size_t begin = std::min(move.count, (4 - move.target % 4) % 4);
  const size_t groups = (move.count - begin) / 4;
  move_tokens(0, begin);
  std::memmove(v + cache.ValueAt(head, move.target + begin, d),
               v + cache.ValueAt(head, move.first + begin, d), groups * 64);
  move_tokens(begin + 4 * groups, move.count);
}

// The values of the same columns, as they are.
void MoveValues(const KvShape& shape, size_t columns, const Move& move, std::byte* v) {
  const size_t row = shape.head_dim * DTypeSize(shape.dtype);
  const PackedCache packed = shape.packed_cache();
  for (size_t head = 0; head < shape.kv_heads; ++head) {
    if (!shape.packed) {
      std::byte* rows = v + head * columns * row;
      std::memmove(rows + move.target * row, rows + move.first * row, move.count * row);
      continue;
    }
    for (size_t d = 0; d < shape.head_dim; d += 16) {
      MovePackedValues(packed, head, d, move, v);
    }
  }
}

void MoveKeys(const KvShape& shape, const LayerMove& move, const KeyShift& shift,
              const Encoding& encoding) {
  const size_t dim = shape.head_dim;
  const bool rotated = !shift.rotation.empty();
  switch (shape.dtype) {
    case DType::kU8:
      return rotated ? MoveLayer(shape, move, FloatTurner<uint8_t>(shift, encoding, dim))
                     : MoveLayer(shape, move, IntegerTurner<uint8_t>(shift, encoding));
    case DType::kU16:
      return rotated ? MoveLayer(shape, move, FloatTurner<uint16_t>(shift, encoding, dim))
                     : MoveLayer(shape, move, IntegerTurner<uint16_t>(shift, encoding));
    case DType::kF16:
      return MoveLayer(shape, move, FloatTurner<Half>(shift, encoding, dim));
    case DType::kF32:
      return MoveLayer(shape, move, FloatTurner<float>(shift, encoding, dim));
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
  const size_t from = sink + batch;
  const Move move = {from, sink, stored() > from ? stored() - from : 0};
  for (uint32_t layer = 0; layer < shape_.layers && move.count > 0; ++layer) {
    MoveKeys(shape_, {nullptr, k_[layer], columns(), move}, shift,
             EncodingOf(shape_.dtype, k_encodings, layer));
    MoveValues(shape_, columns(), move, v_[layer]);
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
  const size_t to = stored() - shift.positions, row = head_bytes();
  for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
    const std::byte* k = full_k_.data() + layer * shape_.kv_heads * row;
    MoveKeys(shape_, {k, k_[layer], columns(), {0, to, 1}}, shift,
             EncodingOf(shape_.dtype, k_encodings, layer));
    StoreValues(full_v_.data() + layer * shape_.kv_heads * row, 1, 0, 1, to, v_[layer]);
  }
}

}  // namespace spillway
