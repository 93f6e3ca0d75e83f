// The keys and values of past tokens as the host's products read them: who writes a cache
// keeps it so (kvcache), and attention packs nothing.

#ifndef SPILLWAY_GRAPH_PACKED_CACHE_H_
#define SPILLWAY_GRAPH_PACKED_CACHE_H_

#include <cstddef>

#include "graph/graph.h"

namespace spillway {

// One layer's cache of u8 values around 128, stored as s8 (q - 128):
//   keys of a head    kPackedN16K4 of [columns, head_dim]
//   values of a head  kPackedN16K4 of [head_dim, columns]
// heads one after the other. Token t is column t, whatever the length of a step. The first
// tokens are on few pages of memory, however long the context is. Bytes that nobody wrote
// are 0, the value 128. Needs a head_dim of whole 16.
class PackedCache {
 public:
  // Columns are attended to in blocks of so many; `columns` is rounded up to whole ones.
  static constexpr size_t kBlock = 64;

  PackedCache(size_t heads, size_t head_dim, size_t tokens)
      : heads_(heads), head_dim_(head_dim), columns_((tokens + kBlock - 1) / kBlock * kBlock) {}

  size_t columns() const { return columns_; }
  size_t head_bytes() const { return columns_ * head_dim_; }
  size_t bytes() const { return heads_ * head_bytes(); }  // of keys; of values as many

  size_t KeyAt(size_t head, size_t d, size_t token) const {
    return head * head_bytes() + PackedN16K4Index(token, d, head_dim_);
  }
  size_t ValueAt(size_t head, size_t token, size_t d) const {
    return head * head_bytes() + PackedN16K4Index(d, token, columns_);
  }

  // From a u8 around 128 to how it is stored, and back.
  static constexpr std::byte Flip(std::byte value) { return value ^ std::byte{0x80}; }

  // Columns [from, from + count) of keys [heads, head_dim, stride] (values [heads, stride,
  // head_dim]) of u8 become tokens [to, to + count).
  void PackKeys(const std::byte* rows, size_t stride, size_t from, size_t count, size_t to,
                std::byte* packed) const;
  void PackValues(const std::byte* rows, size_t stride, size_t from, size_t count, size_t to,
                  std::byte* packed) const;
  // Tokens [0, count) as keys [heads, head_dim, count] (values [heads, count, head_dim]).
  void UnpackKeys(const std::byte* packed, size_t count, std::byte* rows) const;
  void UnpackValues(const std::byte* packed, size_t count, std::byte* rows) const;

 private:
  size_t heads_, head_dim_, columns_;
};

}  // namespace spillway

#endif  // SPILLWAY_GRAPH_PACKED_CACHE_H_
