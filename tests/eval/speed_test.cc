#include "eval/speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/llama_cpp.h"
#include "eval/read_bandwidth.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SpreadTest, MediansOfOddAndEvenCounts) {
  const Spread odd = Spread::Of({3, 1, 10});
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.max, 10);
  EXPECT_EQ(Spread::Of({4, 1, 2, 9}).median, 3);
  EXPECT_EQ(Spread::Of({7}).median, 7);
}

TEST(SpeedTestTest, NamesAreThoseOfLlamaBench) {
  EXPECT_EQ((SpeedTest{.prompt = 128}).name(), "pp128");
  EXPECT_EQ((SpeedTest{.decode = 32}).name(), "tg32");
  EXPECT_EQ((SpeedTest{.decode = 32, .depth = 512}).name(), "tg32 @ d512");
}

TEST(ReadBandwidthTest, ReadsWithEveryNumberOfThreads) {
  for (const size_t threads : {1u, 2u, 3u}) {
    const auto bandwidth = MeasureReadBandwidth(1 << 20, threads, 2);
    ASSERT_TRUE(bandwidth.ok()) << bandwidth.status().ToString();
    EXPECT_GT(*bandwidth, 1e6);
  }
  EXPECT_EQ(MeasureReadBandwidth(0, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MeasureReadBandwidth(uint64_t{1} << 60, 1).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(ReadLlamaBenchTest, FindsItsFiguresBetweenOtherLines) {
  const SpeedTest tests[] = {{.prompt = 32}, {.prompt = 128}, {.decode = 128}};
  const auto rates = ReadLlamaBench(
      "warning: something\n"
      "{\"n_prompt\": 128, \"n_gen\": 0, \"n_depth\": 0, \"avg_ts\": 200.5}\n"
      "[1, 2]\n"
      "{\"n_prompt\": 0, \"n_gen\": 128, \"avg_ts\": 50}\n"
      "{\"n_prompt\": 32, \"n_gen\": 128, \"avg_ts\": 9}\n"
      "{\"n_prompt\": 32, \"n_gen\": 0, \"avg_ts\": 100}",
      tests);
  ASSERT_TRUE(rates.ok()) << rates.status().ToString();
  EXPECT_THAT(*rates, ElementsAre(100, 200.5, 50));
}

TEST(ReadLlamaBenchTest, NamesWhatIsNotThere) {
  const SpeedTest tests[] = {{.decode = 32, .depth = 512}};
  for (const char* output :
       {"", "{", "{\"n_prompt\": 0, \"n_gen\": 32, \"avg_ts\": 10}",
        "{\"n_prompt\": 0, \"n_gen\": 32, \"n_depth\": 512, \"avg_ts\": 0}",
        "{\"n_prompt\": 0, \"n_gen\": 32, \"n_depth\": 512, \"avg_ts\": \"10\"}"}) {
    const auto rates = ReadLlamaBench(output, tests);
    EXPECT_EQ(rates.status().code(), StatusCode::kCorruptData) << output;
    EXPECT_THAT(rates.status().message(), HasSubstr("tg32 @ d512"));
  }
}

}  // namespace
}  // namespace spillway
