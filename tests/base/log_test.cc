#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/progress.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override {
    SetLogSink({});
    SetLogLevel(LogLevel::kWarning);
  }
};

TEST_F(LogTest, WarningIsTheDefault) { EXPECT_EQ(GetLogLevel(), LogLevel::kWarning); }

TEST_F(LogTest, NamesGoBothWays) {
  for (const LogLevel level : {LogLevel::kTrace, LogLevel::kDebug, LogLevel::kInfo,
                               LogLevel::kWarning, LogLevel::kError, LogLevel::kOff}) {
    EXPECT_EQ(ParseLogLevel(LogLevelName(level)), level);
  }
  EXPECT_EQ(ParseLogLevel("warning"), LogLevel::kWarning);
  EXPECT_EQ(ParseLogLevel("Warning"), std::nullopt);
  EXPECT_EQ(ParseLogLevel(""), std::nullopt);
}

TEST_F(LogTest, TheSinkGetsWhatPassesTheLevel) {
  std::vector<std::pair<LogLevel, std::string>> got;
  SetLogSink([&](LogLevel level, std::string_view text) { got.emplace_back(level, text); });
  SetLogLevel(LogLevel::kInfo);
  Log(LogLevel::kDebug, "no {}", 1);
  Log(LogLevel::kInfo, "yes {}", 2);
  LogMessage(LogLevel::kDebug, "no");
  LogMessage(LogLevel::kError, "{} stays as it is");
  SetLogLevel(LogLevel::kOff);
  Log(LogLevel::kError, "no");
  Log(LogLevel::kOff, "no");
  EXPECT_THAT(got, ElementsAre(Pair(LogLevel::kInfo, "yes 2"),
                               Pair(LogLevel::kError, "{} stays as it is")));
}

TEST_F(LogTest, StandardErrorOnly) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  Log(LogLevel::kWarning, "careful with {}", "this");
  Log(LogLevel::kInfo, "too much detail");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("warning: careful with this\n"));
  EXPECT_THAT(text, Not(HasSubstr("detail")));
}

TEST_F(LogTest, ThreadsDoNotMix) {
  std::vector<std::string> got;
  SetLogSink([&](LogLevel, std::string_view text) { got.emplace_back(text); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) Log(LogLevel::kError, "{}", t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got.size(), 400u);
}

TEST(ProgressTest, NobodyListens) { ReportProgress(nullptr, "stage", 0.5); }

TEST(ProgressTest, WithoutATerminalALineForEachStage) {
  testing::internal::CaptureStderr();
  {
    const std::unique_ptr<Progress> progress = MakeTerminalProgress();
    ReportProgress(progress.get(), "read", 0);
    ReportProgress(progress.get(), "read", 0.5);
    ReportProgress(progress.get(), "finalise", -1);
    ReportProgress(progress.get(), "finalise", 1);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "read\nfinalise\n");
}

// What `body` writes to a terminal of 40 columns as standard error.
template <typename Body>
std::string OnATerminal(const Body& body) {
  int master = -1;
  int slave = -1;
  winsize size{};
  size.ws_col = 40;
  if (openpty(&master, &slave, nullptr, nullptr, &size) != 0) return "no terminal";
  const FileDescriptor ours(master);
  const FileDescriptor before(dup(STDERR_FILENO));
  dup2(slave, STDERR_FILENO);
  close(slave);
  body();
  dup2(before.get(), STDERR_FILENO);
  // Nobody else has the terminal open now, so its text has an end (an error).
  std::string text;
  std::array<char, 4096> block;
  ssize_t got;
  while ((got = read(master, block.data(), block.size())) > 0) {
    text.append(block.data(), static_cast<size_t>(got));
  }
  return text;
}

TEST(ProgressTest, OnATerminalOneLineThatGoesAway) {
  const std::string text = OnATerminal([] {
    const std::unique_ptr<Progress> progress = MakeTerminalProgress();
    progress->Update("calibrate", 0.25);
    for (int i = 0; i < 1000; ++i) progress->Update("calibrate", 0.5);  // too soon to draw
    progress->Update(std::string(100, 'z'), -1);
  });
  EXPECT_EQ(text.find("\r\x1b[Kcalibrate 25%"), 0u) << text;
  EXPECT_THAT(text, Not(HasSubstr(std::string(40, 'z'))));
  EXPECT_THAT(text, HasSubstr(std::string(39, 'z')));
  EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K");
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 4);
}

TEST(ProgressTest, ALogMessageTakesTheLineAway) {
  const std::string text = OnATerminal([] {
    const std::unique_ptr<Progress> progress = MakeTerminalProgress();
    progress->Update("calibrate", 0.25);
    Log(LogLevel::kError, "bad");
  });
  EXPECT_EQ(text.find("\r\x1b[Kcalibrate 25%\r\x1b[K"), 0u) << text;
  EXPECT_THAT(text, HasSubstr("bad"));
}

}  // namespace
}  // namespace spillway
