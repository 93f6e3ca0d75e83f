#include "base/subprocess.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/memory.h"
#include "base/process_memory.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Subprocess> Shell(const std::string& script) {
  Result<std::unique_ptr<Subprocess>> started = Subprocess::Start("/bin/sh", {"-c", script});
  EXPECT_TRUE(started.ok()) << started.status().ToString();
  return started.ok() ? std::move(started).value() : nullptr;
}

bool ProcessExists(int pid) { return kill(pid, 0) == 0; }

// A process that has ended but that nobody has waited for yet counts as gone.
bool GoneWithin(int pid, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (ProcessMemoryBytes(pid, "VmRSS").has_value()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

TEST(SubprocessTest, ExitCodeAndOutput) {
  const auto child = Shell("echo out; echo err >&2; exit 3");
  const Result<ExitInfo> exit = child->Wait(20.0);
  ASSERT_TRUE(exit.ok()) << exit.status().ToString();
  EXPECT_EQ(exit.value().exit_code, 3);
  EXPECT_EQ(exit.value().signal, 0);
  EXPECT_EQ(exit.value().ToString(), "exited with code 3");
  EXPECT_EQ(child->Output(), "out\nerr\n");
  EXPECT_EQ(child->Wait().value().exit_code, 3);  // again
  child->Kill();                                  // too late, and harmless
}

TEST(SubprocessTest, Crash) {
  const auto child = Shell("echo before; kill -SEGV $$");
  const Result<ExitInfo> exit = child->Wait(20.0);
  ASSERT_TRUE(exit.ok());
  EXPECT_EQ(exit.value().signal, SIGSEGV);
  EXPECT_EQ(exit.value().exit_code, -1);
  EXPECT_EQ(exit.value().ToString(), "was killed by signal 11 (Segmentation fault)");
  EXPECT_EQ(child->Output(), "before\n");
  EXPECT_EQ(child->channel().Receive(5.0).status().code(), StatusCode::kVendorCrash);
  EXPECT_EQ(child->channel().Send("x").code(), StatusCode::kVendorCrash);
}

TEST(SubprocessTest, HangsAndIsKilled) {
  const auto child = Shell("echo started; exec sleep 1000");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(child->Wait(0.1).status().code(), StatusCode::kTimeout);
  EXPECT_EQ(child->Wait(0.0).status().code(), StatusCode::kTimeout);
  child->Kill();
  const Result<ExitInfo> exit = child->Wait(20.0);
  ASSERT_TRUE(exit.ok());
  EXPECT_EQ(exit.value().ToString(), "was killed by signal 9 (Killed)");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(child->Output(), "started\n");
}

TEST(SubprocessTest, KillFromAnotherThreadEndsTheWait) {
  const auto child = Shell("exec sleep 1000");
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    child->Kill();
  });
  EXPECT_EQ(child->Wait().value().signal, SIGKILL);
  killer.join();
}

TEST(SubprocessTest, TheDestructorKills) {
  auto child = Shell("exec sleep 1000");
  const int pid = child->pid();
  EXPECT_TRUE(ProcessExists(pid));
  child.reset();
  EXPECT_FALSE(ProcessExists(pid));
}

TEST(SubprocessTest, KeepsTheTailOfLongOutput) {
  const auto child =
      Shell("i=0; while [ $i -lt 30000 ]; do echo line $i; i=$((i+1)); done; echo the end");
  ASSERT_TRUE(child->Wait(60.0).ok());
  const std::string output = child->Output();
  EXPECT_EQ(output.size(), size_t{64} << 10);
  EXPECT_EQ(output.substr(output.size() - 8), "the end\n");
  EXPECT_THAT(output, HasSubstr("line 29999\n"));
}

TEST(SubprocessTest, OutputOfADescendantThatStaysDoesNotBlockTheEnd) {
  const auto child = Shell("sleep 30 & echo $!; exit 0");
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(child->Wait(20.0).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  const int orphan = std::stoi(child->Output());
  EXPECT_EQ(kill(orphan, SIGKILL), 0);
}

TEST(SubprocessTest, MissingAndUnusablePrograms) {
  const test::TempFolder folder;
  const size_t before = ListFolder("/proc/self/fd").value().size();
  const Status missing = Subprocess::Start(folder.File("none"), {}).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(folder.File("none")));
  EXPECT_EQ(Subprocess::Start(folder.path(), {}).status().code(), StatusCode::kIo);
  ASSERT_TRUE(WriteFileAtomically(folder.File("text"), "no program").ok());
  EXPECT_EQ(Subprocess::Start(folder.File("text"), {}).status().code(), StatusCode::kIo);
  EXPECT_EQ(ListFolder("/proc/self/fd").value().size(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

TEST(SubprocessTest, ArgumentsArriveAsTheyAre) {
  Result<std::unique_ptr<Subprocess>> child =
      Subprocess::Start("/bin/sh", {"-c", "printf '<%s>' \"$@\"", "name", "a b", "", "$HOME'\""});
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE((*child)->Wait(20.0).ok());
  EXPECT_EQ((*child)->Output(), "<a b><><$HOME'\">");
}

TEST(SubprocessTest, OnlyTheFourDescriptors) {
  const int leaked = open("/dev/null", O_RDONLY);  // without close-on-exec
  ASSERT_GE(leaked, 0);
  // ls has one of its own, for the folder.
  const auto child = Shell("exec ls /proc/self/fd");
  ASSERT_TRUE(child->Wait(20.0).ok());
  EXPECT_EQ(child->Output(), "0\n1\n2\n3\n4\n");
  close(leaked);
  const auto reader = Shell("read line; echo \"got <$line>\"; readlink /proc/self/fd/0");
  ASSERT_TRUE(reader->Wait(20.0).ok());
  EXPECT_EQ(reader->Output(), "got <>\n/dev/null\n");
}

TEST(SubprocessTest, SignalsAreAsInAFreshProcess) {
  signal(SIGPIPE, SIG_IGN);
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto child = Shell("grep -E 'SigBlk|SigIgn' /proc/self/status");
  ASSERT_TRUE(child->Wait(20.0).ok());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  signal(SIGPIPE, SIG_DFL);
  EXPECT_EQ(child->Output(), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

// The shell sends back the bytes of a message and so speaks the format.
TEST(SubprocessTest, CtrlCOnTheTerminalIsForTheParent) {
  const auto child = Shell("sleep 20");
  // Start returns when the program runs, and the group is set before that.
  EXPECT_EQ(getpgid(child->pid()), child->pid());
  EXPECT_NE(getpgrp(), child->pid());
}

TEST(SubprocessTest, TheChannelReachesTheChild) {
  const auto child = Shell("dd bs=13 count=1 <&3 >&3 2>/dev/null; exit 0");
  ASSERT_TRUE(child->channel().Send("hello").ok());
  const Result<Message> echo = child->channel().Receive(20.0);
  ASSERT_TRUE(echo.ok()) << echo.status().ToString();
  EXPECT_EQ(echo.value().text, "hello");
  EXPECT_EQ(child->channel().Receive(20.0).status().code(), StatusCode::kVendorCrash);
}

TEST(SubprocessTest, SharedMemoryThroughTheChannel) {
  const auto child = Shell("exec sleep 1000");
  Result<SharedMemory> memory = SharedMemory::Create(4096);
  ASSERT_TRUE(memory.ok());
  std::memcpy(memory->bytes().data(), "shared", 6);
  const int fd = memory->fd();
  EXPECT_TRUE(child->channel().Send("take this", {&fd, 1}).ok());
}

// The child must not be killed because the thread that started it has ended.
TEST(SubprocessTest, OutlivesTheThreadThatStartedIt) {
  std::unique_ptr<Subprocess> child;
  std::thread([&] { child = Shell("sleep 0.2; exit 5"); }).join();
  EXPECT_EQ(child->Wait(20.0).value().ToString(), "exited with code 5");
}

TEST(SubprocessTest, DiesWithItsParent) {
  int numbers[2];
  ASSERT_EQ(pipe(numbers), 0);
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    const auto grandchild = Shell("exec sleep 1000");
    const int pid = grandchild->pid();
    if (write(numbers[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
    kill(getpid(), SIGKILL);
  }
  int grandchild = 0;
  ASSERT_EQ(read(numbers[0], &grandchild, sizeof(grandchild)),
            static_cast<ssize_t>(sizeof(grandchild)));
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  close(numbers[0]);
  close(numbers[1]);
  EXPECT_TRUE(GoneWithin(grandchild, std::chrono::seconds(10)));
}

// This process has more memory than its children: the figure is theirs.
TEST(SubprocessTest, PeakMemoryIsTheChilds) {
  const AlignedBuffer block(256 << 20);
  std::memset(block.data(), 1, block.size());
  const auto small = Shell("sleep 0.2");
  const uint64_t small_peak = small->Wait(20.0).value().peak_rss_bytes;
  EXPECT_GT(small_peak, 100u << 10);
  EXPECT_LT(small_peak, 50u << 20);
  const auto large = Shell("exec dd if=/dev/zero of=/dev/null bs=64M");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (ProcessMemoryBytes(large->pid(), "VmHWM").value_or(0) < 64u << 20) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  large->Kill();
  const uint64_t peak = large->Wait(20.0).value().peak_rss_bytes;
  EXPECT_GT(peak, 60u << 20);
  EXPECT_LT(peak, 100u << 20);
}

TEST(SubprocessTest, ManyAtOnce) {
  std::vector<std::unique_ptr<Subprocess>> children;
  for (int i = 0; i < 20; ++i) children.push_back(Shell("exit " + std::to_string(i)));
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(children[static_cast<size_t>(i)]->Wait().value().exit_code, i);
}

TEST(ExitInfoTest, Words) {
  EXPECT_EQ(ExitInfo().ToString(), "ended in an unknown way");
  EXPECT_EQ(ExitInfo{.exit_code = 0}.ToString(), "exited with code 0");
  EXPECT_EQ((ExitInfo{.exit_code = -1, .signal = 6}).ToString(),
            "was killed by signal 6 (Aborted)");
}

}  // namespace
}  // namespace spillway
