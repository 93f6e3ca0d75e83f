#include "kvcache/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "tests/kvcache/stored.h"

namespace spillway {
namespace {

using test::Stored;

using ::testing::ElementsAre;

// Value of (token serial, layer, head, d): distinct enough to notice any mix-up.
uint32_t Value(uint32_t serial, uint32_t layer, uint32_t head, uint32_t d, bool is_v) {
  uint32_t x = serial * 2654435761u + layer * 40503u + head * 977u + d * 31u + (is_v ? 7u : 0u);
  x ^= x >> 15;
  return x * 2246822519u;
}

// A KvCache and, kept the simple way, what it must hold: the serial numbers of
// its tokens, from which every K and V follows.
class CacheTester {
 public:
  explicit CacheTester(KvShape shape) : shape_(shape) {
    element_ = DTypeSize(shape.dtype);
    // Exactly the documented size, so that a sanitizer sees a write past it.
    const size_t bytes =
        shape.packed ? shape.packed_cache().bytes()
                     : size_t{shape.kv_heads} * shape.head_dim * (shape.context_len - 1) * element_;
    std::vector<std::byte*> k, v;
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      k_.emplace_back(bytes);
      v_.emplace_back(bytes);
    }
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      k.push_back(k_[layer].data());
      v.push_back(v_[layer].data());
    }
    cache_ = std::make_unique<KvCache>(shape, k, v);
  }

  KvCache& cache() { return *cache_; }

  void SetArLen(uint32_t ar_len) {
    cache_->SetArLen(ar_len);
    ASSERT_EQ(cache_->ar_len(), ar_len);
  }

  void Append(uint32_t count) {
    const uint32_t ar = cache_->ar_len();
    std::vector<std::vector<std::byte>> k_new, v_new;
    std::vector<const std::byte*> k, v;
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
      k_new.emplace_back(size_t{shape_.kv_heads} * shape_.head_dim * ar * element_);
      v_new.emplace_back(k_new.back().size());
      for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
        for (uint32_t d = 0; d < shape_.head_dim; ++d) {
          for (uint32_t t = 0; t < ar; ++t) {
            const uint32_t kv = Value(next_ + t, layer, h, d, false);
            const uint32_t vv = Value(next_ + t, layer, h, d, true);
            std::memcpy(&k_new[layer][((h * shape_.head_dim + d) * ar + t) * element_], &kv,
                        element_);
            std::memcpy(&v_new[layer][((h * ar + t) * shape_.head_dim + d) * element_], &vv,
                        element_);
          }
        }
      }
    }
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
      k.push_back(k_new[layer].data());
      v.push_back(v_new[layer].data());
    }
    cache_->Append(k, v, count);
    for (uint32_t t = 0; t < count; ++t) serials_.push_back(next_ + t);
    next_ += ar;
  }

  void Truncate(uint32_t size) {
    cache_->Truncate(size);
    serials_.resize(size);
  }

  // Compares every stored element with the naive model.
  void Check() const {
    ASSERT_EQ(cache_->size(), serials_.size());
    const uint32_t stored = std::min(cache_->size(), shape_.context_len - 1);
    const uint32_t columns = shape_.packed ? stored : shape_.context_len - cache_->ar_len();
    ASSERT_LE(stored, columns);
    std::vector<std::vector<std::byte>> k_rows = k_, v_rows = v_;
    for (uint32_t layer = 0; layer < shape_.layers && shape_.packed; ++layer) {
      shape_.packed_cache().UnpackKeys(k_[layer].data(), stored, k_rows[layer].data());
      shape_.packed_cache().UnpackValues(v_[layer].data(), stored, v_rows[layer].data());
    }
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
      for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
        for (uint32_t d = 0; d < shape_.head_dim; ++d) {
          for (uint32_t t = 0; t < stored; ++t) {
            const uint32_t kv = Value(serials_[t], layer, h, d, false);
            const uint32_t vv = Value(serials_[t], layer, h, d, true);
            ASSERT_EQ(
                std::memcmp(&k_rows[layer][((h * shape_.head_dim + d) * columns + t) * element_],
                            &kv, element_),
                0)
                << "k of token " << t << " layer " << layer << " head " << h << " d " << d;
            ASSERT_EQ(
                std::memcmp(&v_rows[layer][((h * columns + t) * shape_.head_dim + d) * element_],
                            &vv, element_),
                0)
                << "v of token " << t << " layer " << layer << " head " << h << " d " << d;
          }
        }
      }
    }
  }

 private:
  KvShape shape_;
  std::vector<uint32_t> serials_;
  size_t element_ = 0;
  uint32_t next_ = 1;
  std::vector<std::vector<std::byte>> k_, v_;
  std::unique_ptr<KvCache> cache_;
};

class KvCacheTest : public ::testing::TestWithParam<Stored> {};

TEST_P(KvCacheTest, RandomSequencesMatchNaiveModel) {
  std::mt19937 random(11);
  const auto pick = [&](uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(random);
  };
  for (int round = 0; round < 150; ++round) {
    KvShape shape;
    shape.layers = pick(1, 3);
    shape.kv_heads = pick(1, 4);
    shape.packed = GetParam().packed;
    shape.head_dim = shape.packed ? 16 * pick(1, 3) : pick(1, 9);
    shape.context_len = shape.packed ? pick(2, 150) : pick(2, 40);
    shape.dtype = GetParam().dtype;
    CacheTester tester(shape);
    for (int op = 0; op < 40; ++op) {
      const uint32_t size = tester.cache().size();
      if (size == shape.context_len || pick(0, 5) == 0) {
        tester.Truncate(pick(0, size == shape.context_len ? size - 1 : size));
      } else {
        const uint32_t room = shape.context_len - size;
        const uint32_t ar = pick(0, 2) == 0 ? 1 : pick(1, room);
        tester.SetArLen(ar);
        tester.Check();
        tester.Append(pick(0, ar));
      }
      tester.Check();
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Elements, KvCacheTest,
                         ::testing::Values(Stored{DType::kU8, false}, Stored{DType::kU8, true},
                                           Stored{DType::kU16, false}, Stored{DType::kF32, false}));

TEST(KvCacheTest, AppendMakesRoomByItself) {
  CacheTester tester({2, 2, 4, 10, DType::kU8});
  tester.SetArLen(4);
  tester.Append(4);
  tester.SetArLen(4);
  tester.Append(2);
  EXPECT_EQ(tester.cache().ar_len(), 4u);
  tester.SetArLen(4);
  tester.Append(3);  // 9 tokens do not fit in rows of 6
  EXPECT_EQ(tester.cache().ar_len(), 1u);
  tester.Check();
  tester.Append(1);  // full: the last token is counted, not stored
  EXPECT_EQ(tester.cache().size(), 10u);
  tester.Check();
  tester.Truncate(9);
  tester.Check();
}

TEST(KvCacheTest, WholeContextInOneCall) {
  CacheTester tester({1, 2, 3, 8, DType::kF32});
  tester.SetArLen(8);
  tester.Append(8);
  EXPECT_EQ(tester.cache().size(), 8u);
  tester.Check();
  tester.Truncate(5);
  tester.SetArLen(2);
  tester.Append(2);
  tester.Check();
}

// mask[row][column] as the contract says, one element at a time.
bool Sees(uint32_t row, uint32_t column, uint32_t ar, uint32_t cl, uint32_t past, uint32_t count) {
  const uint32_t own = cl - ar;
  if (row >= count) return column == own + row;
  return column < own ? column < past : column - own <= row;
}

TEST(FillMaskTest, EveryElementForAllSmallSteps) {
  for (uint32_t cl = 1; cl <= 9; ++cl) {
    for (uint32_t ar = 1; ar <= cl; ++ar) {
      for (uint32_t past = 0; past + ar <= cl; ++past) {
        for (uint32_t count = 0; count <= ar; ++count) {
          std::vector<uint16_t> u16(ar * cl, 77), f16(ar * cl, 77);
          std::vector<float> f32(ar * cl, 77.0f);
          FillMask(DType::kU16, ar, cl, past, count, reinterpret_cast<std::byte*>(u16.data()));
          FillMask(DType::kF16, ar, cl, past, count, reinterpret_cast<std::byte*>(f16.data()));
          FillMask(DType::kF32, ar, cl, past, count, reinterpret_cast<std::byte*>(f32.data()));
          for (uint32_t i = 0; i < ar * cl; ++i) {
            const bool sees = Sees(i / cl, i % cl, ar, cl, past, count);
            ASSERT_EQ(u16[i], sees ? 65535 : 0) << cl << " " << ar << " " << past << " " << i;
            ASSERT_EQ(f32[i], sees ? 0.0f : -255.0f);
            ASSERT_EQ(HalfToFloat(f16[i]), sees ? 0.0f : -255.0f);
          }
        }
      }
    }
  }
}

TEST(FillMaskTest, RowsBehindStay) {
  std::vector<uint16_t> mask(4 * 6, 77);
  FillMask(DType::kU16, 4, 6, 1, 2, reinterpret_cast<std::byte*>(mask.data()), 3);
  for (uint32_t i = 0; i < mask.size(); ++i) {
    const uint16_t expected = Sees(i / 6, i % 6, 4, 6, 1, 2) ? 65535 : 0;
    EXPECT_EQ(mask[i], i < 18 ? expected : 77) << i;
  }
}

TEST(FillPositionsTest, PaddedRowsAreZero) {
  std::vector<int32_t> positions(5, -1);
  FillPositions(5, 7, 3, positions.data());
  EXPECT_THAT(positions, ElementsAre(7, 8, 9, 0, 0));
}

TEST(PlanPromptTest, CoversEveryTokenOnceAndFits) {
  for (const uint32_t cl : {8u, 32u, 33u, 50u}) {
    for (const uint32_t n : {0u, 1u, 2u, 7u, 8u, 16u, 32u}) {
      if (n > cl) continue;
      for (uint32_t past = 0; past < cl; ++past) {
        for (uint32_t tokens = 1; past + tokens <= cl; ++tokens) {
          uint32_t next = 0;
          bool decoded = false;
          for (const StepPlan& step : PlanPrompt(tokens, past, n, 1, cl)) {
            const uint32_t ar = step.prefill ? n : 1;
            ASSERT_EQ(step.begin, next);
            ASSERT_GE(step.count, 1u);
            ASSERT_LE(step.count, ar);
            ASSERT_LE(past + step.begin, cl - ar);
            // Only the last chunk is padded, and prefill never follows decode.
            if (step.prefill && step.count < ar) {
              ASSERT_EQ(step.begin + step.count, tokens);
            }
            ASSERT_FALSE(step.prefill && decoded);
            decoded = !step.prefill;
            next += step.count;
            // A decode call only where the prefill graph could not run or one
            // token was left.
            if (!step.prefill && n > 1) {
              ASSERT_TRUE(past + step.begin > cl - n || next == tokens);
            }
          }
          ASSERT_EQ(next, tokens) << "cl " << cl << " n " << n << " past " << past;
        }
      }
    }
  }
}

// Calls as "P8" (prefill, 8 tokens) and "D1".
std::string PlanText(const std::vector<StepPlan>& plan) {
  std::string text;
  for (const StepPlan& step : plan) {
    text += (text.empty() ? "" : " ") + std::string(step.prefill ? "P" : "D") +
            std::to_string(step.count);
  }
  return text;
}

TEST(PlanPromptTest, ChunksAroundN) {
  const auto plan = [](uint32_t tokens, uint32_t past) {
    return PlanText(PlanPrompt(tokens, past, 8, 1, 30));
  };
  EXPECT_EQ(plan(1, 0), "D1");
  EXPECT_EQ(plan(2, 0), "P2");
  EXPECT_EQ(plan(7, 0), "P7");
  EXPECT_EQ(plan(8, 0), "P8");
  EXPECT_EQ(plan(9, 0), "P8 D1");
  EXPECT_EQ(plan(15, 0), "P8 P7");
  EXPECT_EQ(plan(16, 0), "P8 P8");
  EXPECT_EQ(plan(17, 0), "P8 P8 D1");
  EXPECT_EQ(plan(29, 0), "P8 P8 P8 D1 D1 D1 D1 D1");
  EXPECT_EQ(plan(3, 22), "P3");
  EXPECT_EQ(plan(3, 23), "D1 D1 D1");
}

TEST(PlanPromptTest, MissingGraphsAndFullContext) {
  EXPECT_EQ(PlanText(PlanPrompt(3, 0, 0, 1, 8)), "D1 D1 D1");
  EXPECT_EQ(PlanText(PlanPrompt(8, 0, 8, 0, 8)), "P8");
  EXPECT_EQ(PlanText(PlanPrompt(6, 0, 4, 0, 8)), "P4 P2");
  EXPECT_EQ(PlanText(PlanPrompt(6, 3, 4, 0, 8)), "P4") << "the second chunk has no room";
  EXPECT_EQ(PlanText(PlanPrompt(4, 6, 4, 1, 8)), "D1 D1") << "two columns are left";
  EXPECT_EQ(PlanText(PlanPrompt(1, 8, 4, 1, 8)), "");
  EXPECT_EQ(PlanText(PlanPrompt(0, 0, 4, 1, 8)), "");
  EXPECT_EQ(PlanText(PlanPrompt(7, 0, 8, 3, 16)), "P7");
  EXPECT_EQ(PlanText(PlanPrompt(7, 9, 8, 3, 16)), "D3 D3") << "no room for a third call of 3";
}

}  // namespace
}  // namespace spillway
