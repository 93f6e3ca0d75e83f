#include "runtime/ngram_pool.h"

#include <algorithm>
#include <cassert>

namespace spillway {

NgramPool::NgramPool(uint32_t ngram, uint32_t vocab_size, uint32_t capacity)
    : rest_(ngram - 1),
      capacity_(capacity),
      newest_(vocab_size),
      before_(capacity),
      tokens_(size_t{capacity} * rest_) {
  assert(ngram >= 2 && capacity >= 1);
}

std::span<const uint32_t> NgramPool::Rest(uint64_t number) const {
  return std::span(tokens_).subspan(number % capacity_ * rest_, rest_);
}

void NgramPool::Add(std::span<const uint32_t> ngram) {
  assert(ngram.size() == rest_ + 1 && ngram[0] < newest_.size());
  const uint64_t newest = newest_[ngram[0]];
  const std::span<const uint32_t> rest = ngram.subspan(1);
  for (uint64_t n = newest; Alive(n); n = before_[n % capacity_]) {
    if (!std::equal(rest.begin(), rest.end(), Rest(n).begin())) continue;
    // Both have the same first token, so they may change places.
    const auto found = tokens_.begin() + static_cast<std::ptrdiff_t>(n % capacity_ * rest_);
    const auto front = tokens_.begin() + static_cast<std::ptrdiff_t>(newest % capacity_ * rest_);
    if (n != newest) std::swap_ranges(found, found + rest_, front);
    return;
  }
  const uint64_t number = ++added_;
  std::copy(rest.begin(), rest.end(),
            tokens_.begin() + static_cast<std::ptrdiff_t>(number % capacity_ * rest_));
  before_[number % capacity_] = newest;
  newest_[ngram[0]] = number;
}

uint32_t NgramPool::Find(uint32_t first, uint32_t most, uint32_t* out) const {
  uint32_t found = 0;
  uint64_t n = first < newest_.size() ? newest_[first] : 0;
  for (; found < most && Alive(n); n = before_[n % capacity_], ++found) {
    std::ranges::copy(Rest(n), out + size_t{found} * rest_);
  }
  return found;
}

}  // namespace spillway
