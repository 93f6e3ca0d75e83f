// Byte-pair encoding of one pre-token: of all neighbouring pairs that a merge
// rule joins, the one with the best (lowest) rank is joined first, the leftmost
// of equals, until no rule applies.

#ifndef SPILLWAY_MODEL_BPE_H_
#define SPILLWAY_MODEL_BPE_H_

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/token_index.h"
#include "model/tokenizer.h"

namespace spillway {

class BpeMerges {
 public:
  // Buffers that Encode uses again from call to call. One a thread.
  struct Scratch {
    struct Symbol {
      uint32_t id;
      uint32_t previous, next;  // indices; kEnd at the ends
    };
    // A pair that may be joined; stale when its symbols have changed since.
    struct Candidate {
      uint32_t rank, position;
      uint32_t left, right;  // ids
    };
    std::vector<uint32_t> ids, ranks;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // `merges`: best first; of equal pairs the first counts.
  BpeMerges(std::span<const TokenMerge> merges, const TokenIndex& index);

  // Appends the ids of `bytes`. Bytes without a token are left out beforehand.
  // O(n log n) for long pieces.
  void Encode(std::string_view bytes, Scratch* scratch, std::vector<uint32_t>* out) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Slot {
    uint32_t left = kNone, right = kNone;  // kNone = empty
    uint32_t rank = 0, merged = 0;
  };
  size_t HashOf(uint32_t left, uint32_t right) const;
  // Null when no rule joins them.
  const Slot* Find(uint32_t left, uint32_t right) const;
  uint32_t RankOf(uint32_t left, uint32_t right) const;
  void Insert(const TokenMerge& merge, uint32_t rank);
  void MergeShort(Scratch* scratch, std::vector<uint32_t>* out) const;
  void MergeLong(Scratch* scratch, std::vector<uint32_t>* out) const;
  void PushCandidate(uint32_t position, Scratch* scratch) const;

  std::array<uint32_t, 256> byte_ids_{};  // kNone when the vocabulary lacks it
  std::vector<Slot> slots_;               // a power of two, at most half full
  int shift_ = 0;
};

}  // namespace spillway

#endif  // SPILLWAY_MODEL_BPE_H_
