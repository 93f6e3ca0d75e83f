#include "qnn/api/stdout_capture.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/support/paths.h"

namespace spillway::qnn {
namespace {

using ::testing::ElementsAre;

// Standard output leads to a file for the test.
class StdoutCaptureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::fflush(stdout);
    saved_ = dup(STDOUT_FILENO);
    const int file = open(folder_.File("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ASSERT_GE(file, 0);
    dup2(file, STDOUT_FILENO);
    close(file);
  }
  void TearDown() override {
    std::fflush(stdout);
    dup2(saved_, STDOUT_FILENO);
    close(saved_);
  }
  std::string Printed() {
    std::fflush(stdout);
    return ReadFile(folder_.File("out")).value();
  }

  test::TempFolder folder_;
  int saved_ = -1;
};

TEST_F(StdoutCaptureTest, GivesLinesAndTheDescriptorBack) {
  std::vector<std::string> lines;
  std::printf("before ");
  {
    const auto capture =
        StdoutCapture::Start([&](std::string_view line) { lines.emplace_back(line); });
    ASSERT_TRUE(capture.ok()) << capture.status().ToString();
    std::printf("one\n\n[##] 10%%\r[####] 20%%\rtwo\r\n");
    std::fflush(stdout);
    std::printf("no end");
  }
  std::printf("after");
  EXPECT_THAT(lines, ElementsAre("one", "[##] 10%", "[####] 20%", "two", "no end"));
  EXPECT_EQ(Printed(), "before after");
}

TEST_F(StdoutCaptureTest, MoreThanAPipeHolds) {
  size_t lines = 0, bytes = 0;
  {
    const auto capture = StdoutCapture::Start([&](std::string_view line) {
      ++lines;
      bytes += line.size();
    });
    ASSERT_TRUE(capture.ok());
    for (int i = 0; i < 5000; ++i) std::printf("%0199d\n", i);
  }
  EXPECT_EQ(lines, 5000U);
  EXPECT_EQ(bytes, 5000U * 199);
  EXPECT_EQ(Printed(), "");
}

TEST_F(StdoutCaptureTest, OneAfterTheOther) {
  for (int i = 0; i < 3; ++i) {
    std::string seen;
    {
      const auto capture = StdoutCapture::Start([&](std::string_view line) { seen = line; });
      ASSERT_TRUE(capture.ok());
      std::printf("round %d\n", i);
    }
    EXPECT_EQ(seen, "round " + std::to_string(i));
  }
  EXPECT_EQ(Printed(), "");
}

}  // namespace
}  // namespace spillway::qnn
