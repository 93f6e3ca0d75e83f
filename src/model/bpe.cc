#include "model/bpe.h"

#include <algorithm>
#include <bit>

#include "model/byte_alphabet.h"

namespace spillway {
namespace {

// Below this many symbols scanning for the best pair beats keeping a heap.
constexpr size_t kShort = 48;
constexpr uint32_t kEnd = UINT32_MAX;

}  // namespace

BpeMerges::BpeMerges(std::span<const TokenMerge> merges, const TokenIndex& index) {
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = index.Find(AlphabetTextOf(static_cast<uint8_t>(byte))).value_or(kNone);
  }
  const size_t capacity = std::bit_ceil(merges.size() * 2 + 2);
  slots_.resize(capacity);
  shift_ = 64 - std::countr_zero(capacity);
  for (size_t i = 0; i < merges.size(); ++i) Insert(merges[i], static_cast<uint32_t>(i));
}

size_t BpeMerges::HashOf(uint32_t left, uint32_t right) const {
  const uint64_t key = uint64_t{left} << 32 | right;
  return static_cast<size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15u >> shift_);
}

const BpeMerges::Slot* BpeMerges::Find(uint32_t left, uint32_t right) const {
  const size_t mask = slots_.size() - 1;
  for (size_t at = HashOf(left, right); slots_[at].left != kNone; at = (at + 1) & mask) {
    if (slots_[at].left == left && slots_[at].right == right) return &slots_[at];
  }
  return nullptr;
}

uint32_t BpeMerges::RankOf(uint32_t left, uint32_t right) const {
  const Slot* slot = Find(left, right);
  return slot == nullptr ? kNone : slot->rank;
}

void BpeMerges::Insert(const TokenMerge& merge, uint32_t rank) {
  const size_t mask = slots_.size() - 1;
  size_t at = HashOf(merge.left, merge.right);
  for (; slots_[at].left != kNone; at = (at + 1) & mask) {
    if (slots_[at].left == merge.left && slots_[at].right == merge.right) return;
  }
  slots_[at] = {merge.left, merge.right, rank, merge.merged};
}

void BpeMerges::Encode(std::string_view bytes, Scratch* scratch, std::vector<uint32_t>* out) const {
  std::vector<uint32_t>& ids = scratch->ids;
  ids.clear();
  for (const char c : bytes) {
    const uint32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id != kNone) ids.push_back(id);
  }
  if (ids.size() < kShort) {
    MergeShort(scratch, out);
  } else {
    MergeLong(scratch, out);
  }
}

void BpeMerges::MergeShort(Scratch* scratch, std::vector<uint32_t>* out) const {
  std::vector<uint32_t>& ids = scratch->ids;
  std::vector<uint32_t>& ranks = scratch->ranks;  // ranks[i] is that of ids[i], ids[i + 1]
  ranks.clear();
  for (size_t i = 0; i + 1 < ids.size(); ++i) ranks.push_back(RankOf(ids[i], ids[i + 1]));
  while (!ranks.empty()) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == kNone) break;
    const auto i = static_cast<size_t>(best - ranks.begin());
    ids[i] = Find(ids[i], ids[i + 1])->merged;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(i) + 1);
    ranks.erase(best);
    if (i > 0) ranks[i - 1] = RankOf(ids[i - 1], ids[i]);
    if (i < ranks.size()) ranks[i] = RankOf(ids[i], ids[i + 1]);
  }
  out->insert(out->end(), ids.begin(), ids.end());
}

void BpeMerges::PushCandidate(uint32_t position, Scratch* scratch) const {
  const std::vector<Scratch::Symbol>& symbols = scratch->symbols;
  const uint32_t next = symbols[position].next;
  if (next == kEnd) return;
  const uint32_t left = symbols[position].id, right = symbols[next].id;
  const uint32_t rank = RankOf(left, right);
  if (rank != kNone) scratch->heap.push_back({rank, position, left, right});
}

void BpeMerges::MergeLong(Scratch* scratch, std::vector<uint32_t>* out) const {
  using Candidate = Scratch::Candidate;
  const auto worse = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  std::vector<Scratch::Symbol>& symbols = scratch->symbols;
  std::vector<Candidate>& heap = scratch->heap;
  const auto count = static_cast<uint32_t>(scratch->ids.size());
  symbols.clear();
  for (uint32_t i = 0; i < count; ++i) {
    symbols.push_back({scratch->ids[i], i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1});
  }
  heap.clear();
  for (uint32_t i = 0; i < count; ++i) PushCandidate(i, scratch);
  std::make_heap(heap.begin(), heap.end(), worse);

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& symbol = symbols[best.position];
    // A symbol that was joined to its left neighbour has id kNone.
    if (symbol.id != best.left || symbol.next == kEnd || symbols[symbol.next].id != best.right) {
      continue;
    }
    Scratch::Symbol& gone = symbols[symbol.next];
    symbol.id = Find(best.left, best.right)->merged;
    symbol.next = gone.next;
    gone.id = kNone;
    if (symbol.next != kEnd) symbols[symbol.next].previous = best.position;
    for (const uint32_t position : {symbol.previous, best.position}) {
      if (position == kEnd) continue;
      const size_t before = heap.size();
      PushCandidate(position, scratch);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), worse);
    }
  }
  for (uint32_t i = 0; i != kEnd; i = symbols[i].next) out->push_back(symbols[i].id);
}

}  // namespace spillway
