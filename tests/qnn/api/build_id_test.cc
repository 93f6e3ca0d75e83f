#include "qnn/api/build_id.h"

#include <gtest/gtest.h>

namespace spillway::qnn {
namespace {

TEST(BuildId, NumbersAreComparedFromTheLeft) {
  EXPECT_EQ(CompareBuildIds("v2.51.0.260929181845", "v2.51.0.260929181845"), 0);
  EXPECT_EQ(CompareBuildIds("v2.51.0.260929181845", "v2.47.0.270601114230"), 1);
  EXPECT_EQ(CompareBuildIds("v2.9.0.1", "v2.10.0.1"), -1);
  EXPECT_EQ(CompareBuildIds("v2.48.40.1", "v2.48.5.2"), 1);
  EXPECT_EQ(CompareBuildIds("v2.48.40.1", "v2.48.40.2"), -1);
  EXPECT_EQ(CompareBuildIds("2.51", "v2.51.0"), 0);
  EXPECT_EQ(CompareBuildIds("v2.51.0.260929181845_123-auto", "v2.51.0.260929181845"), 0);
}

TEST(BuildId, WhatIsNoneIsNotCompared) {
  for (const char* text : {"", "v", "fake.1", "v2", "v.2", "v99999999999999999999999.1"}) {
    EXPECT_EQ(CompareBuildIds(text, "v2.51.0"), std::nullopt) << text;
    EXPECT_EQ(CompareBuildIds("v2.51.0", text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace spillway::qnn
