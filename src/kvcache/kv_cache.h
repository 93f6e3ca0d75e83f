// KvCache: the keys and values of past tokens, laid out as the graphs read them,
// and everything else that feeds a step: mask, positions, chunks.
//
// Layout (the graph contract): K transposed [kv_heads, head_dim, CL - AR], V
// [kv_heads, CL - AR, head_dim], for each layer. Cached token t is column (row)
// t. CL - AR depends on the graph, so changing from AR-N to AR-1 rearranges the
// rows once. Nothing else moves, except in an eviction (attention sink). For the host's
// executor the cache can be a PackedCache of CL - 1 tokens instead (u8 around 128), which
// is the same for all graphs.

#ifndef SPILLWAY_KVCACHE_KV_CACHE_H_
#define SPILLWAY_KVCACHE_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "graph/packed_cache.h"
#include "graph/types.h"
#include "spillway/status.h"

namespace spillway {

struct KvShape {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t context_len = 0;
  DType dtype = DType::kU8;  // kU8, kU16, kF16 or kF32
  bool packed = false;       // buffers are PackedCaches; kU8 only

  // Of a layer's keys in rows of AR-1; of its values as many.
  uint64_t row_bytes() const {
    return uint64_t{kv_heads} * head_dim * (context_len - 1) * DTypeSize(dtype);
  }
  PackedCache packed_cache() const { return {kv_heads, head_dim, context_len - 1}; }
};

// What becomes of a key whose token moves a fixed number of positions towards the
// start: the rotary embedding turns it back by that many positions. Coordinates i and
// i + cos.size() are a pair; those after the last pair stay.
struct KeyShift {
  uint32_t positions = 0;
  // [pairs]: of the angle positions * frequency_i.
  std::vector<float> cos, sin;
  // Not empty: the keys in the cache are rotary keys k times this orthogonal matrix O
  // [head_dim, head_dim], row-major: stored_n = sum_d O[n, d] k_d.
  std::vector<float> rotation;
};

// Works on buffers of the executor, which outlive it: k[layer] and v[layer] are
// the cache inputs of every graph, large enough for the largest CL - AR. Not
// thread-safe.
class KvCache {
 public:
  KvCache(KvShape shape, std::vector<std::byte*> k, std::vector<std::byte*> v);

  const KvShape& shape() const { return shape_; }
  // Tokens in the cache.
  uint32_t size() const { return size_; }
  uint32_t ar_len() const { return ar_len_; }

  // The next step runs a graph with this AR length: rearranges the rows when it
  // differs from the last. 1 <= ar_len <= CL and size() <= CL - ar_len.
  void SetArLen(uint32_t ar_len);

  // Appends the first `count` of the step's AR new tokens: k_new[layer]
  // [kv_heads, head_dim, AR], v_new[layer] [kv_heads, AR, head_dim], AR the
  // ar_len() of the step. Needs size() + count <= CL. When the current row length
  // has no room, the rows are rearranged for AR-1 first. A cache with size() == CL
  // is full: it feeds no further step before Evict() or Truncate().
  void Append(std::span<const std::byte* const> k_new, std::span<const std::byte* const> v_new,
              uint32_t count);
  // The same for the rows that are listed, in that order, each below AR.
  void AppendRows(std::span<const std::byte* const> k_new, std::span<const std::byte* const> v_new,
                  std::span<const uint32_t> rows);
  // Fills an empty cache with the constant prefix: k[layer] [kv_heads, head_dim,
  // count], v[layer] [kv_heads, count, head_dim]. Arranges the rows for AR-1.
  void LoadPrefix(std::span<const std::byte* const> k, std::span<const std::byte* const> v,
                  uint32_t count);
  // Forgets all tokens from `size` on; size <= size(). Nothing moves.
  void Truncate(uint32_t size);
  // Forgets the shift.positions tokens after the first `sink` and moves those behind them
  // into their place, their keys turned. Without a rotation keys turn as the operations of
  // the HTP turn them: cos and sin are rounded to SymmetricEncoding(kU16, 1) (kF16: to
  // halves), kU8 keys turn in 1/256 of a step, and each result is rounded half to even and
  // saturates. With one they turn in float and are rounded once. k_encodings[layer] (per
  // tensor) is read for kU8 and kU16 only. Needs sink + shift.positions <= size().
  void Evict(uint32_t sink, const KeyShift& shift, std::span<const Encoding> k_encodings);
  // The same, by `move`: called with the rows arranged for AR-1, it moves what is in
  // columns [sink + shift.positions, CL - 1) of the buffers as Evict would. (A token that
  // the buffers have no column for is moved here.) When it fails, nothing has changed.
  Status EvictBy(const std::function<Status()>& move, uint32_t sink, const KeyShift& shift,
                 std::span<const Encoding> k_encodings);

 private:
  // The token in full_k_, full_v_, if there is one, moves to its column.
  void EvictFull(uint32_t sink, const KeyShift& shift, std::span<const Encoding> k_encodings);
  // Tokens whose values are in the buffers: a full cache has its last in full_k_, full_v_.
  uint32_t stored() const;
  // Of a layer's buffers, as the graph with ar_len_ sees them.
  size_t columns() const { return shape_.context_len - (shape_.packed ? 1 : ar_len_); }
  void Rearrange(uint32_t ar_len);
  // Rows [row, row + count) of a step of `ar` tokens become the next tokens.
  void Store(std::span<const std::byte* const> k_new, std::span<const std::byte* const> v_new,
             uint32_t ar, uint32_t row, uint32_t count);
  // Rows [row, row + count) of new keys [kv_heads, head_dim, ar] (values [kv_heads, ar,
  // head_dim]) become tokens [to, to + count) of a layer's buffer.
  void StoreKeys(const std::byte* k_new, uint32_t ar, uint32_t row, size_t count, size_t to,
                 std::byte* k) const;
  void StoreValues(const std::byte* v_new, uint32_t ar, uint32_t row, size_t count, size_t to,
                   std::byte* v) const;
  size_t head_bytes() const { return shape_.head_dim * DTypeSize(shape_.dtype); }

  KvShape shape_;
  std::vector<std::byte*> k_, v_;
  // [layers, kv_heads, head_dim]: token CL - 1, for which the buffers have no column.
  std::vector<std::byte> full_k_, full_v_;
  uint32_t size_ = 0;
  uint32_t ar_len_ = 0;
};

// The mask [AR, CL] of a step with `past` cached tokens and `count` real rows:
// row r < count sees columns 0..past-1 and CL-AR..CL-AR+r; a padded row sees
// only its own column. kU16: 65535 sees, 0 hidden; kF32 and kF16: 0 sees,
// kHiddenMask hidden. Needs past <= CL - AR and count <= AR. Rows from `rows` on stay as
// they are.
inline constexpr float kHiddenMask = -255.0f;
void FillMask(DType dtype, uint32_t ar_len, uint32_t context_len, uint32_t past, uint32_t count,
              std::byte* mask, uint32_t rows = UINT32_MAX);
// The mask of a step whose rows follow several continuations: row r < count sees columns
// 0..past-1 and the column of row c where sees[r * count + c] is not 0; the rest as above.
void FillBranchMask(DType dtype, uint32_t ar_len, uint32_t context_len, uint32_t past,
                    uint32_t count, std::span<const uint8_t> sees, std::byte* mask);
// Position ids [AR]: first + r for real rows, 0 for padded ones.
void FillPositions(uint32_t ar_len, uint32_t first, uint32_t count, int32_t* positions);

// One call of a graph.
struct StepPlan {
  bool prefill = false;           // the AR-N graph; otherwise the decode graph
  uint32_t begin = 0, count = 0;  // tokens [begin, begin + count) of the prompt
};
// AR lengths of a model's graphs; 0 where it has no such graph.
struct StepSizes {
  uint32_t prefill_ar = 0, decode_ar = 0, context_len = 0;
};
// The first call for the tokens [begin, begin + tokens) with `past` tokens
// cached. A graph can run when past <= CL - AR. The decode graph takes what fits
// in one of its calls (cheaper than a padded chunk) and whatever the prefill
// graph has no room for; else a prefill chunk, padded when it is the last.
// No value when tokens is 0 or no graph can run: the context is full.
std::optional<StepPlan> PlanStep(uint32_t begin, uint32_t tokens, uint32_t past,
                                 const StepSizes& sizes);
// Splits a prompt of `tokens` tokens, with `past` tokens cached, into calls of
// PlanStep. Covers less than all tokens when the context has no room for them.
std::vector<StepPlan> PlanPrompt(uint32_t tokens, uint32_t past, uint32_t prefill_ar,
                                 uint32_t decode_ar, uint32_t context_len);

}  // namespace spillway

#endif  // SPILLWAY_KVCACHE_KV_CACHE_H_
