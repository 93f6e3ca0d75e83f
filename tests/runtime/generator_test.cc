#include "runtime/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <random>

#include "runtime/sampler.h"
#include "tests/runtime/allocation_counter.h"
#include "tests/runtime/fake_model_executor.h"

namespace spillway::test {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
}  // namespace spillway::test

// Not inlined: the compiler would complain about new next to free.
__attribute__((noinline)) void* operator new(std::size_t size) {
  if (spillway::test::counting) ++spillway::test::allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) std::abort();
  return memory;
}
__attribute__((noinline)) void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return operator new(size);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace spillway {
namespace {

using test::allocations;
using test::counting;
using test::FakeModelExecutor;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<uint32_t> RandomTokens(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(random() % FakeModelExecutor::kVocab);
  return tokens;
}

void ExpectLogits(const Generator& generator) {
  EXPECT_THAT(generator.logits(),
              ElementsAreArray(FakeModelExecutor::Expected(generator.tokens())));
}

TEST(GeneratorTest, PromptsAroundTheChunkLengthThenDecodeToTheEnd) {
  constexpr uint32_t kN = 8, kContext = 29;
  for (const uint32_t length :
       {1u, 2u, kN - 1, kN, kN + 1, 2 * kN - 1, 2 * kN, 2 * kN + 1, 25u, kContext - 1, kContext}) {
    FakeModelExecutor model(kN, 1, kContext);
    Generator generator(&model);
    const std::vector<uint32_t> tokens = RandomTokens(kContext, length);
    ASSERT_TRUE(generator.Feed(std::span(tokens).first(length)).ok());
    EXPECT_EQ(generator.n_past(), length);
    ExpectLogits(generator);
    for (uint32_t t = length; t < kContext; ++t) {
      ASSERT_TRUE(generator.Feed(std::span(tokens).subspan(t, 1)).ok());
      ExpectLogits(generator);
    }
    EXPECT_THAT(generator.tokens(), ElementsAreArray(tokens));
    const Status full = generator.Feed(std::span(tokens).first(1));
    EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(full.message(), HasSubstr("context of 30"));
    EXPECT_THAT(full.message(), HasSubstr("compiled for 29"));
  }
}

// Feeds of random lengths and truncations, with every pair of graphs.
TEST(GeneratorTest, RandomTurnsMatchTheWholeSequence) {
  std::mt19937 random(5);
  for (const auto& [prefill, decode] : std::vector<std::pair<uint32_t, uint32_t>>{
           {8, 1}, {16, 1}, {0, 1}, {5, 3}, {24, 1}, {8, 0}}) {
    for (int round = 0; round < 20; ++round) {
      constexpr uint32_t kContext = 24;
      FakeModelExecutor model(prefill, decode, kContext);
      Generator generator(&model);
      for (int turn = 0; turn < 12; ++turn) {
        if (generator.n_past() > 0 && random() % 3 == 0) {
          generator.Truncate(random() % (generator.n_past() + 1));
        }
        const uint32_t room = kContext - generator.n_past();
        if (room == 0) continue;
        const uint32_t before = generator.n_past();
        const std::vector<uint32_t> tokens = RandomTokens(1 + random() % room, random());
        uint32_t rows = 0;
        const Generator::RowCallback on_row = [&](uint32_t index, std::span<const float> logits) {
          EXPECT_EQ(index, rows++);
          std::vector<uint32_t> seen(generator.tokens().begin(),
                                     generator.tokens().begin() + before + index + 1);
          EXPECT_THAT(logits, ElementsAreArray(FakeModelExecutor::Expected(seen)));
        };
        const bool all_rows = random() % 2 == 0;
        const Status status = generator.Feed(tokens, all_rows ? on_row : nullptr);
        if (!status.ok()) {  // only graphs of AR > 1 leave columns unused at the end
          ASSERT_NE(decode, 1u) << status.ToString();
          ASSERT_EQ(status.code(), StatusCode::kResourceExhausted);
          EXPECT_TRUE(generator.logits().empty());
          continue;
        }
        EXPECT_EQ(rows, all_rows ? tokens.size() : 0);
        EXPECT_EQ(generator.n_past(), before + tokens.size());
        ExpectLogits(generator);
      }
    }
  }
}

TEST(GeneratorTest, AsksOnlyForTheLogitsItNeeds) {
  FakeModelExecutor model(8, 1, 32);
  Generator generator(&model);
  ASSERT_TRUE(generator.Feed(RandomTokens(13, 1)).ok());
  EXPECT_EQ(model.calls, "PP");
  EXPECT_EQ(model.last_logits_row, 4);
  ASSERT_TRUE(generator.Feed(RandomTokens(3, 1), [](uint32_t, std::span<const float>) {}).ok());
  EXPECT_EQ(model.last_logits_row, -1);
}

TEST(GeneratorTest, BadTokensRunNothing) {
  FakeModelExecutor model(8, 1, 32);
  Generator generator(&model);
  EXPECT_EQ(generator.Feed({}).code(), StatusCode::kInvalidArgument);
  const Status status = generator.Feed(std::vector<uint32_t>{3, 97});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("token 97 at index 1"));
  EXPECT_THAT(generator.Feed(RandomTokens(33, 1)).message(), HasSubstr("33 tokens after 0"));
  EXPECT_EQ(model.runs, 0);
  EXPECT_EQ(generator.n_past(), 0u);
}

TEST(GeneratorTest, AFailedCallKeepsWhatWasBefore) {
  FakeModelExecutor model(8, 1, 32);
  Generator generator(&model);
  model.fail_at_run = 2;
  EXPECT_EQ(generator.Feed(RandomTokens(20, 1)).code(), StatusCode::kVendor);
  EXPECT_EQ(generator.n_past(), 8u);
  EXPECT_TRUE(generator.logits().empty());
  ASSERT_TRUE(generator.Feed(RandomTokens(12, 2)).ok());
  ExpectLogits(generator);
}

TEST(GeneratorTest, DecodingDoesNotAllocate) {
  FakeModelExecutor model(8, 1, 64);
  Generator generator(&model);
  Result<Sampler> sampler = Sampler::Create({}, FakeModelExecutor::kVocab);
  ASSERT_TRUE(sampler.ok());
  ASSERT_TRUE(generator.Feed(RandomTokens(20, 1)).ok());
  model.calls.reserve(100);
  uint32_t token = sampler->Sample(generator.logits());
  allocations = 0;
  counting = true;
  bool ok = true;
  for (int i = 0; i < 30; ++i) {
    ok = ok && generator.Feed({&token, 1}).ok();
    token = sampler->Sample(generator.logits());
  }
  counting = false;
  EXPECT_TRUE(ok);
  EXPECT_EQ(allocations, 0);
  // The counter itself works.
  counting = true;
  std::vector<int>* probe = new std::vector<int>(10);
  counting = false;
  delete probe;
  EXPECT_GE(allocations, 1);
}

}  // namespace
}  // namespace spillway
