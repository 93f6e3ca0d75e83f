// Prompts for tests.

#ifndef SPILLWAY_TESTS_SUPPORT_RANDOM_TOKENS_H_
#define SPILLWAY_TESTS_SUPPORT_RANDOM_TOKENS_H_

#include <cstdint>
#include <vector>

#include "tests/support/random.h"

namespace spillway::test {

// `count` token ids below `vocab`; the same for the same arguments.
inline std::vector<uint32_t> RandomTokens(size_t count, uint32_t vocab, uint64_t seed) {
  Random random(seed);
  std::vector<uint32_t> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<uint32_t>(random.Below(vocab)));
  return tokens;
}

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_SUPPORT_RANDOM_TOKENS_H_
