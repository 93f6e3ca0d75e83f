#include "kvcache/kv_cache.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/float16.h"

namespace spillway {
namespace {

// Moves the first `used` bytes of each of `rows` rows from rows of `old_stride`
// bytes to rows of `new_stride` bytes in the same memory. Longer rows start with
// the last, shorter ones with the first, so that no row is overwritten before it
// has moved; one row may overlap itself.
void MoveRows(std::byte* data, size_t rows, size_t used, size_t old_stride, size_t new_stride) {
  if (used == 0 || old_stride == new_stride) return;
  if (new_stride > old_stride) {
    for (size_t row = rows; row-- > 1;) {
      std::memmove(data + row * new_stride, data + row * old_stride, used);
    }
  } else {
    for (size_t row = 1; row < rows; ++row) {
      std::memmove(data + row * new_stride, data + row * old_stride, used);
    }
  }
}

template <typename T>
void CopyStrided(const std::byte* from, std::byte* to, size_t rows, size_t count,
                 size_t from_stride, size_t to_stride) {
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  for (size_t row = 0; row < rows; ++row) {
    std::copy_n(source + row * from_stride, count, target + row * to_stride);
  }
}

// Copies `count` elements of each row; strides in elements. Rows are often one
// element long, hence the copies by type.
void CopyRows(size_t element, const std::byte* from, std::byte* to, size_t rows, size_t count,
              size_t from_stride, size_t to_stride) {
  switch (element) {
    case 1:
      return CopyStrided<uint8_t>(from, to, rows, count, from_stride, to_stride);
    case 2:
      return CopyStrided<uint16_t>(from, to, rows, count, from_stride, to_stride);
    default:
      return CopyStrided<uint32_t>(from, to, rows, count, from_stride, to_stride);
  }
}

template <typename T>
struct MaskValues {
  T sees, hidden;
};

// Calls `fill` with the values of the mask's type.
template <typename Fill>
void WithMaskType(DType dtype, const Fill& fill) {
  switch (dtype) {
    case DType::kU16:
      return fill(MaskValues<uint16_t>{65535, 0});
    case DType::kF16:
      return fill(MaskValues<uint16_t>{0, FloatToHalf(kHiddenMask)});
    case DType::kF32:
      return fill(MaskValues<float>{0.0f, kHiddenMask});
    default:
      assert(false && "a mask is u16, f16 or f32");
  }
}

template <typename T>
void FillMaskOf(MaskValues<T> values, uint32_t ar_len, uint32_t context_len, uint32_t past,
                uint32_t count, uint32_t rows, const uint8_t* sees, std::byte* mask) {
  T* row = reinterpret_cast<T*>(mask);
  const uint32_t own = context_len - ar_len;  // column of the step's first token
  for (uint32_t r = 0; r < rows; ++r, row += context_len) {
    std::fill_n(row, context_len, values.hidden);
    if (r >= count) {
      row[own + r] = values.sees;
      continue;
    }
    std::fill_n(row, past, values.sees);
    if (sees == nullptr) {
      std::fill_n(row + own, r + 1, values.sees);
      continue;
    }
    for (uint32_t c = 0; c < count; ++c) {
      if (sees[r * count + c] != 0) row[own + c] = values.sees;
    }
  }
}

}  // namespace

KvCache::KvCache(KvShape shape, std::vector<std::byte*> k, std::vector<std::byte*> v)
    : shape_(shape), k_(std::move(k)), v_(std::move(v)) {
  assert(k_.size() == shape_.layers && v_.size() == shape_.layers);
  full_k_.resize(shape_.layers * shape_.kv_heads * head_bytes());
  full_v_.resize(full_k_.size());
}

uint32_t KvCache::stored() const { return std::min(size_, shape_.context_len - 1); }

void KvCache::Rearrange(uint32_t ar_len) {
  const size_t element = DTypeSize(shape_.dtype);
  const size_t old_row = (shape_.context_len - ar_len_) * element;
  const size_t new_row = (shape_.context_len - ar_len) * element;
  const size_t used = stored() * element;
  const size_t dim = shape_.head_dim;
  for (uint32_t layer = 0; layer < shape_.layers && used > 0 && !shape_.packed; ++layer) {
    MoveRows(k_[layer], shape_.kv_heads * dim, used, old_row, new_row);
    MoveRows(v_[layer], shape_.kv_heads, used * dim, old_row * dim, new_row * dim);
  }
  ar_len_ = ar_len;
}

void KvCache::SetArLen(uint32_t ar_len) {
  assert(ar_len >= 1 && ar_len <= shape_.context_len && size_ <= shape_.context_len - ar_len);
  if (ar_len != ar_len_) Rearrange(ar_len);
}

void KvCache::Append(std::span<const std::byte* const> k_new,
                     std::span<const std::byte* const> v_new, uint32_t count) {
  assert(ar_len_ >= 1 && count <= ar_len_ && size_ + count <= shape_.context_len);
  const uint32_t ar = ar_len_;
  if (size_ + count > shape_.context_len - ar_len_ && ar_len_ != 1) Rearrange(1);
  Store(k_new, v_new, ar, 0, count);
}

void KvCache::AppendRows(std::span<const std::byte* const> k_new,
                         std::span<const std::byte* const> v_new, std::span<const uint32_t> rows) {
  assert(ar_len_ >= 1 && size_ + rows.size() <= shape_.context_len);
  const uint32_t ar = ar_len_;
  if (size_ + rows.size() > shape_.context_len - ar_len_ && ar_len_ != 1) Rearrange(1);
  for (const uint32_t row : rows) Store(k_new, v_new, ar, row, 1);
}

void KvCache::Store(std::span<const std::byte* const> k_new,
                    std::span<const std::byte* const> v_new, uint32_t ar, uint32_t row,
                    uint32_t count) {
  assert(k_new.size() == shape_.layers && v_new.size() == shape_.layers && row + count <= ar);
  const size_t element = DTypeSize(shape_.dtype);
  const size_t dim = shape_.head_dim, heads = shape_.kv_heads;
  const size_t begin = size_;
  size_ += count;
  const size_t kept = std::min<size_t>(size_, columns()) - std::min(begin, columns());
  const bool fills = size_ == shape_.context_len && count > 0;
  for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
    StoreKeys(k_new[layer], ar, row, kept, begin, k_[layer]);
    StoreValues(v_new[layer], ar, row, kept, begin, v_[layer]);
    if (fills) {
      const size_t at = layer * heads * head_bytes(), last = row + count - 1;
      CopyRows(element, k_new[layer] + last * element, full_k_.data() + at, heads * dim, 1, ar, 1);
      CopyRows(element, v_new[layer] + last * head_bytes(), full_v_.data() + at, heads, dim,
               ar * dim, dim);
    }
  }
}

void KvCache::StoreKeys(const std::byte* k_new, uint32_t ar, uint32_t row, size_t count, size_t to,
                        std::byte* k) const {
  if (shape_.packed) return shape_.packed_cache().PackKeys(k_new, ar, row, count, to, k);
  const size_t element = DTypeSize(shape_.dtype);
  CopyRows(element, k_new + row * element, k + to * element, shape_.kv_heads * shape_.head_dim,
           count, ar, columns());
}

void KvCache::StoreValues(const std::byte* v_new, uint32_t ar, uint32_t row, size_t count,
                          size_t to, std::byte* v) const {
  if (shape_.packed) return shape_.packed_cache().PackValues(v_new, ar, row, count, to, v);
  const size_t dim = shape_.head_dim;
  CopyRows(DTypeSize(shape_.dtype), v_new + row * head_bytes(), v + to * head_bytes(),
           shape_.kv_heads, count * dim, ar * dim, columns() * dim);
}

void KvCache::LoadPrefix(std::span<const std::byte* const> k, std::span<const std::byte* const> v,
                         uint32_t count) {
  assert(size_ == 0 && count < shape_.context_len);
  // A step of `count` tokens, stored as the rows of AR-1 want them.
  ar_len_ = 1;
  Store(k, v, count, 0, count);
}

void KvCache::Truncate(uint32_t size) {
  assert(size <= size_);
  size_ = size;
}

void FillMask(DType dtype, uint32_t ar_len, uint32_t context_len, uint32_t past, uint32_t count,
              std::byte* mask, uint32_t rows) {
  assert(ar_len <= context_len && past <= context_len - ar_len && count <= ar_len);
  WithMaskType(dtype, [&](auto values) {
    FillMaskOf(values, ar_len, context_len, past, count, std::min(rows, ar_len), nullptr, mask);
  });
}

void FillBranchMask(DType dtype, uint32_t ar_len, uint32_t context_len, uint32_t past,
                    uint32_t count, std::span<const uint8_t> sees, std::byte* mask) {
  assert(ar_len <= context_len && past <= context_len - ar_len && count <= ar_len);
  assert(sees.size() == size_t{count} * count);
  WithMaskType(dtype, [&](auto values) {
    FillMaskOf(values, ar_len, context_len, past, count, ar_len, sees.data(), mask);
  });
}

void FillPositions(uint32_t ar_len, uint32_t first, uint32_t count, int32_t* positions) {
  for (uint32_t r = 0; r < ar_len; ++r) {
    positions[r] = r < count ? static_cast<int32_t>(first + r) : 0;
  }
}

std::optional<StepPlan> PlanStep(uint32_t begin, uint32_t tokens, uint32_t past,
                                 const StepSizes& sizes) {
  const auto can_run = [&](uint32_t ar) {
    return ar != 0 && ar <= sizes.context_len && past <= sizes.context_len - ar;
  };
  const bool decode = can_run(sizes.decode_ar), prefill = can_run(sizes.prefill_ar);
  if (tokens == 0 || (!decode && !prefill)) return std::nullopt;
  StepPlan step;
  step.prefill = prefill && !(decode && tokens <= sizes.decode_ar);
  step.begin = begin;
  step.count = std::min(tokens, step.prefill ? sizes.prefill_ar : sizes.decode_ar);
  return step;
}

std::vector<StepPlan> PlanPrompt(uint32_t tokens, uint32_t past, uint32_t prefill_ar,
                                 uint32_t decode_ar, uint32_t context_len) {
  const StepSizes sizes = {prefill_ar, decode_ar, context_len};
  std::vector<StepPlan> plan;
  uint32_t begin = 0;
  while (const std::optional<StepPlan> step =
             PlanStep(begin, tokens - begin, past + begin, sizes)) {
    plan.push_back(*step);
    begin += step->count;
  }
  return plan;
}

}  // namespace spillway
