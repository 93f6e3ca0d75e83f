#include "graph/packed_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/random.h"

namespace spillway {
namespace {

using Bytes = std::vector<std::byte>;

Bytes RandomBytes(test::Random& random, size_t size) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
  return bytes;
}

TEST(PackedCacheTest, EveryElementHasAPlaceOfItsOwn) {
  const PackedCache cache(3, 32, 70);
  EXPECT_EQ(cache.columns(), 128u);
  EXPECT_EQ(cache.bytes(), 3u * 32 * 128);
  std::set<size_t> keys, values;
  for (size_t head = 0; head < 3; ++head) {
    for (size_t t = 0; t < cache.columns(); ++t) {
      for (size_t d = 0; d < 32; ++d) {
        keys.insert(cache.KeyAt(head, d, t));
        values.insert(cache.ValueAt(head, t, d));
      }
    }
  }
  EXPECT_EQ(keys.size(), cache.bytes());
  EXPECT_EQ(values.size(), cache.bytes());
  EXPECT_EQ(*keys.rbegin(), cache.bytes() - 1);
  EXPECT_EQ(*values.rbegin(), cache.bytes() - 1);
}

// The four neighbours that a product multiplies at once lie together.
TEST(PackedCacheTest, IsWhatTheProductsRead) {
  const PackedCache cache(2, 16, 64);
  Bytes keys(cache.bytes()), values(cache.bytes());
  const Bytes one(16, std::byte{130});
  const Bytes two = [&] {
    Bytes both(one);
    both.insert(both.end(), one.begin(), one.end());
    return both;
  }();
  cache.PackKeys(two.data(), 1, 0, 1, 21, keys.data());
  cache.PackValues(two.data(), 1, 0, 1, 21, values.data());
  for (size_t head = 0; head < 2; ++head) {
    for (size_t d = 0; d < 16; ++d) {
      // [columns / 16][head_dim / 4][16][4] and [head_dim / 16][columns / 4][16][4].
      EXPECT_EQ(keys[head * 1024 + 1 * 256 + d / 4 * 64 + 5 * 4 + d % 4], std::byte{2});
      EXPECT_EQ(values[head * 1024 + 5 * 64 + d * 4 + 1], std::byte{2});
    }
  }
  EXPECT_EQ(std::count(keys.begin(), keys.end(), std::byte{2}), 32);
  EXPECT_EQ(std::count(values.begin(), values.end(), std::byte{2}), 32);
}

TEST(PackedCacheTest, RowsComeBack) {
  test::Random random(3);
  for (int round = 0; round < 40; ++round) {
    const size_t heads = 1 + random.Below(3), dim = 16 * (1 + random.Below(4));
    const size_t tokens = 1 + random.Below(150), stride = 1 + random.Below(20);
    const size_t from = random.Below(stride), to = random.Below(tokens);
    const size_t count = std::min(1 + random.Below(stride - from), tokens - to);
    const PackedCache cache(heads, dim, tokens);
    const Bytes k = RandomBytes(random, heads * dim * stride);
    const Bytes v = RandomBytes(random, heads * dim * stride);
    Bytes keys(cache.bytes()), values(cache.bytes());
    cache.PackKeys(k.data(), stride, from, count, to, keys.data());
    cache.PackValues(v.data(), stride, from, count, to, values.data());
    Bytes k_rows(heads * dim * tokens), v_rows(heads * dim * tokens);
    cache.UnpackKeys(keys.data(), tokens, k_rows.data());
    cache.UnpackValues(values.data(), tokens, v_rows.data());
    for (size_t head = 0; head < heads; ++head) {
      for (size_t d = 0; d < dim; ++d) {
        for (size_t t = 0; t < tokens; ++t) {
          const bool written = t >= to && t < to + count;
          const size_t row = from + t - to;
          const std::byte key = written ? k[(head * dim + d) * stride + row] : std::byte{128};
          const std::byte value = written ? v[(head * stride + row) * dim + d] : std::byte{128};
          ASSERT_EQ(k_rows[(head * dim + d) * tokens + t], key) << round;
          ASSERT_EQ(v_rows[(head * tokens + t) * dim + d], value) << round;
        }
      }
    }
  }
}

}  // namespace
}  // namespace spillway
