#include "graph/packed_cache.h"

namespace spillway {

void PackedCache::PackKeys(const std::byte* rows, size_t stride, size_t from, size_t count,
                           size_t to, std::byte* packed) const {
  for (size_t head = 0; head < heads_; ++head) {
    for (size_t t = 0; t < count; ++t) {
      const std::byte* column = rows + head * head_dim_ * stride + from + t;
      std::byte* out = packed + KeyAt(head, 0, to + t);
      for (size_t d = 0; d < head_dim_; ++d) out[d / 4 * 64 + d % 4] = Flip(column[d * stride]);
    }
  }
}

void PackedCache::PackValues(const std::byte* rows, size_t stride, size_t from, size_t count,
                             size_t to, std::byte* packed) const {
  for (size_t head = 0; head < heads_; ++head) {
    for (size_t t = 0; t < count; ++t) {
      const std::byte* row = rows + (head * stride + from + t) * head_dim_;
      for (size_t d = 0; d < head_dim_; d += 16) {
        std::byte* out = packed + ValueAt(head, to + t, d);
        for (size_t i = 0; i < 16; ++i) out[i * 4] = Flip(row[d + i]);
      }
    }
  }
}

void PackedCache::UnpackKeys(const std::byte* packed, size_t count, std::byte* rows) const {
  for (size_t head = 0; head < heads_; ++head) {
    for (size_t d = 0; d < head_dim_; ++d) {
      std::byte* row = rows + (head * head_dim_ + d) * count;
      for (size_t t = 0; t < count; ++t) row[t] = Flip(packed[KeyAt(head, d, t)]);
    }
  }
}

void PackedCache::UnpackValues(const std::byte* packed, size_t count, std::byte* rows) const {
  for (size_t head = 0; head < heads_; ++head) {
    for (size_t t = 0; t < count; ++t) {
      std::byte* row = rows + (head * count + t) * head_dim_;
      for (size_t d = 0; d < head_dim_; ++d) row[d] = Flip(packed[ValueAt(head, t, d)]);
    }
  }
}

}  // namespace spillway
