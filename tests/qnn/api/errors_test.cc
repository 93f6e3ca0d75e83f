#include "qnn/api/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::qnn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Errors, EveryNumberOfTheTableIsFound) {
  for (const uint32_t code : {1000, 1002, 1003, 1005, 1100, 3110, 4003,  4005,  5000,  5005,
                              5010, 6003, 6005, 6022, 7003, 7004, 14001, 30001, 30010, 60000}) {
    const ErrorInfo* info = FindError(code);
    ASSERT_NE(info, nullptr) << code;
    EXPECT_EQ(info->code, code);
    EXPECT_FALSE(info->words.empty()) << code;
  }
  EXPECT_EQ(FindError(0), nullptr);
  EXPECT_EQ(FindError(1001), nullptr);
  EXPECT_EQ(FindError(99999), nullptr);
}

// Every number of the vendor's interface has words and says what to do.
TEST(Errors, EveryNumberHasWordsAndAdvice) {
  struct Range {
    uint32_t first, last;
  };
  constexpr Range kRanges[] = {
      {1002, 1011},   {3000, 3002},   {3100, 3101},   {4002, 4012},   {5000, 5014},  {6000, 6007},
      {6020, 6025},   {6030, 6039},   {7000, 7007},   {8000, 8005},   {9000, 9005},  {10000, 10001},
      {11002, 11004}, {12000, 12002}, {13000, 13006}, {14000, 14003}, {30000, 30002}};
  std::vector<uint32_t> codes = {1000, 1100, 2000, 3110, 3200, 4000, 15000, 30010, 60000};
  for (const Range& range : kRanges) {
    for (uint32_t code = range.first; code <= range.last; ++code) codes.push_back(code);
  }
  for (const uint32_t code : codes) {
    const ErrorInfo* info = FindError(code);
    ASSERT_NE(info, nullptr) << code;
    EXPECT_EQ(info->code, code);
    EXPECT_FALSE(info->words.empty()) << code;
    EXPECT_FALSE(info->advice.empty()) << code;
    EXPECT_NE(info->advice.back(), '.') << code;  // VendorFailure puts it
  }
}

TEST(Errors, SaysNumberInBothBasesAndWords) {
  EXPECT_EQ(DescribeError(1002), "error 1002 (0x3ea), out of memory, or graph preparation failed");
  EXPECT_EQ(DescribeError(5555), "error 5555 (0x15b3), an unknown context error");
  EXPECT_EQ(DescribeError(20000), "error 20000 (0x4e20), an unknown number");
}

TEST(Errors, UsesTheLowSixteenBits) {
  EXPECT_THAT(DescribeError(0x100003eaULL), HasSubstr("error 1002 (0x3ea, full value 0x100003ea)"));
}

TEST(Errors, FailureHasStepAdviceAndLog) {
  const Status status = VendorFailure("loading x", 6003, {"first", "second"});
  EXPECT_EQ(status.code(), StatusCode::kVendor);
  EXPECT_THAT(status.message(), HasSubstr("loading x failed: vendor error 6003 (0x1773)"));
  EXPECT_THAT(status.message(), HasSubstr("SLC allocator"));
  EXPECT_THAT(status.message(), HasSubstr("Vendor's log: \"first\"; \"second\"."));
}

TEST(Errors, OwnAdviceReplacesTheTables) {
  const Status status = VendorFailure("loading x", 6003, {}, "try again");
  EXPECT_THAT(status.message(), HasSubstr("Likely: try again."));
  EXPECT_THAT(status.message(), Not(HasSubstr("SLC")));
  EXPECT_THAT(status.message(), Not(HasSubstr("log")));
}

TEST(Errors, LogIsCutAfterSixLines) {
  const Status status = VendorFailure("x", 1000, {"a1", "a2", "a3", "a4", "a5", "a6", "a7"});
  EXPECT_THAT(status.message(), HasSubstr("\"a6\""));
  EXPECT_THAT(status.message(), Not(HasSubstr("\"a7\"")));
}

}  // namespace
}  // namespace spillway::qnn
