// NgramPool: the n-grams seen last, by their first token.

#ifndef SPILLWAY_RUNTIME_NGRAM_POOL_H_
#define SPILLWAY_RUNTIME_NGRAM_POOL_H_

#include <cstdint>
#include <span>
#include <vector>

namespace spillway {

// Memory is taken at construction only. Not thread-safe.
class NgramPool {
 public:
  // Keeps the last `capacity` (at least 1) n-grams of `ngram` (at least 2) tokens, all
  // below `vocab_size`.
  NgramPool(uint32_t ngram, uint32_t vocab_size, uint32_t capacity);

  // An n-gram [ngram] that is there already becomes the newest of its first token.
  void Add(std::span<const uint32_t> ngram);
  // What followed `first`, newest first: writes at most `most` different continuations of
  // ngram - 1 tokens each to `out`, and returns how many.
  uint32_t Find(uint32_t first, uint32_t most, uint32_t* out) const;

 private:
  // Numbers of n-grams count from 1 in the order of Add; number s is in slot s % capacity
  // until number s + capacity takes it.
  bool Alive(uint64_t number) const { return number > 0 && number + capacity_ > added_; }
  std::span<const uint32_t> Rest(uint64_t number) const;

  uint32_t rest_;  // ngram - 1
  uint32_t capacity_;
  uint64_t added_ = 0;
  std::vector<uint64_t> newest_;  // [vocab]: number of the last n-gram, 0: none
  std::vector<uint64_t> before_;  // [capacity]: number of the one before with that token
  std::vector<uint32_t> tokens_;  // [capacity, ngram - 1]
};

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_NGRAM_POOL_H_
