#include "base/memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/process_memory.h"

namespace spillway {
namespace {

constexpr size_t kBlock = 64 << 20;

TEST(MemoryTest, ResidentMemoryFollowsUse) {
  const uint64_t before = CurrentRssBytes();
  EXPECT_GT(before, 0u);
  {
    const AlignedBuffer block(kBlock);
    std::memset(block.data(), 1, block.size());
    EXPECT_GE(CurrentRssBytes(), before + kBlock * 9 / 10);
  }
  EXPECT_GE(PeakRssBytes(), before + kBlock * 9 / 10);
}

TEST(MemoryTest, ThePeakCanBeForgotten) {
  const uint64_t before = CurrentRssBytes();
  {
    const AlignedBuffer block(kBlock);
    std::memset(block.data(), 1, block.size());
  }
  EXPECT_GE(PeakRssBytes(), before + kBlock * 9 / 10);
  if (!ResetPeakRss()) GTEST_SKIP() << "the system does not let a process forget its peak";
  EXPECT_LT(PeakRssBytes(), before + kBlock * 9 / 10);
}

TEST(MemoryTest, OtherProcessesAndOnesThatAreGone) {
  EXPECT_GT(ProcessMemoryBytes(getppid(), "VmRSS").value_or(0), 0u);
  EXPECT_EQ(ProcessMemoryBytes(getpid(), "VmNone"), std::nullopt);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(ProcessMemoryBytes(child, "VmRSS"), std::nullopt);  // a zombie has none
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(ProcessMemoryBytes(child, "VmRSS"), std::nullopt);
}

TEST(MemoryWatchTest, RemembersAPeakThatIsOver) {
  MemoryWatch watch;
  const uint64_t before = watch.peak_bytes();
  EXPECT_GE(before, CurrentRssBytes() / 2);
  {
    const AlignedBuffer block(kBlock);
    std::memset(block.data(), 1, block.size());
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  EXPECT_GE(watch.peak_bytes(), before + kBlock / 2);
}

// A grandchild that outlives nothing: both are gone when the test ends.
TEST(MemoryWatchTest, CountsDescendants) {
  MemoryWatch watch;
  const uint64_t before = watch.peak_bytes();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      const AlignedBuffer block(kBlock);
      std::memset(block.data(), 1, block.size());
      usleep(400000);
      _exit(0);
    }
    waitpid(grandchild, nullptr, 0);
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_GE(watch.peak_bytes(), before + kBlock * 9 / 10);
}

TEST(AlignedBufferTest, AlignmentAndMoves) {
  for (const size_t size : {1, 63, 64, 65, 100000}) {
    AlignedBuffer block(size);
    ASSERT_NE(block.data(), nullptr);
    EXPECT_EQ(block.size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % 64, 0u);
    std::memset(block.data(), 7, size);
    std::byte* const data = block.data();
    AlignedBuffer moved(std::move(block));
    EXPECT_EQ(moved.data(), data);
    AlignedBuffer assigned(3);
    assigned = std::move(moved);
    EXPECT_EQ(assigned.data(), data);
    EXPECT_EQ(assigned.size(), size);
  }
  EXPECT_EQ(AlignedBuffer(0).data(), nullptr);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the process
TEST(AlignedBufferTest, ZeroedBuffersAreZeroAndMove) {
  for (const size_t size : {size_t{1}, size_t{1000}, size_t{1} << 20}) {
    AlignedBuffer block = AlignedBuffer::Zeroed(size);
    ASSERT_EQ(block.size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % 64, 0u);
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(block.data()[i], std::byte{0}) << i;
    std::byte* const data = block.data();
    data[size - 1] = std::byte{7};
    AlignedBuffer moved(std::move(block));
    AlignedBuffer other(3);
    other = std::move(moved);
    EXPECT_EQ(other.data(), data);
    EXPECT_EQ(other.data()[size - 1], std::byte{7});
  }
  EXPECT_EQ(AlignedBuffer::Zeroed(0).data(), nullptr);
}

// A large block takes memory when it is written, not before.
TEST(AlignedBufferTest, PagesOfZeroedBuffersComeWhenTheyAreWritten) {
  constexpr size_t kSize = size_t{256} << 20;
  const uint64_t before = CurrentRssBytes();
  const AlignedBuffer block = AlignedBuffer::Zeroed(kSize);
  ASSERT_NE(block.data(), nullptr);
  EXPECT_LT(CurrentRssBytes(), before + kSize / 4);
}

TEST(AlignedBufferTest, NotEnoughMemory) {
  EXPECT_THROW(AlignedBuffer(SIZE_MAX / 2), std::bad_alloc);
  EXPECT_THROW(AlignedBuffer{SIZE_MAX}, std::bad_alloc);
  EXPECT_THROW(AlignedBuffer::Zeroed(SIZE_MAX / 2), std::bad_alloc);
}
#endif

}  // namespace
}  // namespace spillway
