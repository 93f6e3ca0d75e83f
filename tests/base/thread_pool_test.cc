#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace spillway {
namespace {

using Ranges = std::set<std::pair<size_t, size_t>>;

// The ranges that one loop runs; fails when they overlap, leave a gap or name a
// thread that does not exist.
Ranges RangesOf(ThreadPool& pool, size_t count, size_t grain) {
  std::mutex mutex;
  Ranges ranges;
  pool.ParallelFor(count, grain, [&](size_t begin, size_t end, size_t thread) {
    const std::lock_guard lock(mutex);
    EXPECT_LT(thread, pool.threads());
    EXPECT_TRUE(ranges.emplace(begin, end).second);
  });
  size_t next = 0;
  for (const auto& [begin, end] : ranges) {
    EXPECT_EQ(begin, next);
    EXPECT_LT(begin, end);
    next = end;
  }
  EXPECT_EQ(next, count);
  return ranges;
}

TEST(ThreadPoolTest, EverySizeIsCoveredOnceInRangesOfAtLeastTheGrain) {
  for (const size_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    for (const size_t grain : {size_t{0}, size_t{1}, size_t{7}, size_t{64}, SIZE_MAX}) {
      for (size_t count = 0; count <= 1000; count += count < 40 ? 1 : 37) {
        for (const auto& [begin, end] : RangesOf(pool, count, grain)) {
          EXPECT_GE(end - begin, std::min(count, grain));
        }
      }
    }
  }
}

TEST(ThreadPoolTest, TheRangesDoNotVary) {
  ThreadPool pool(4);
  const Ranges first = RangesOf(pool, 12345, 10);
  EXPECT_GT(first.size(), 4u);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(RangesOf(pool, 12345, 10), first);
}

// Plain memory written by the caller is seen by the bodies and the other way.
TEST(ThreadPoolTest, ManyLoopsInQuickSuccession) {
  for (const size_t threads : {2, 4}) {
    ThreadPool pool(threads);
    std::vector<uint64_t> values(1000);
    uint64_t round = 0;
    for (; round < 5000; ++round) {
      const size_t count = 1 + round % values.size();
      pool.ParallelFor(count, 1, [&](size_t begin, size_t end, size_t) {
        for (size_t i = begin; i < end; ++i) values[i] += round;
      });
      values[0] += 1;
    }
    uint64_t expected_first = 0;
    for (uint64_t i = 0; i < round; ++i) expected_first += i + 1;
    EXPECT_EQ(values[0], expected_first);
    uint64_t expected_last = 0;
    for (uint64_t i = 999; i < round; i += 1000) expected_last += i;
    EXPECT_EQ(values[999], expected_last);
  }
}

TEST(ThreadPoolTest, LoopsAfterSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 30; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 3));
    std::atomic<size_t> sum{0};
    pool.ParallelFor(100, 1, [&](size_t begin, size_t end, size_t) {
      for (size_t i = begin; i < end; ++i) sum += i;
    });
    ASSERT_EQ(sum, 4950u);
  }
}

// The caller sleeps too while a body takes long.
TEST(ThreadPoolTest, LongBodies) {
  ThreadPool pool(4);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> done{0};
    pool.ParallelFor(4, 1, [&](size_t begin, size_t end, size_t thread) {
      std::this_thread::sleep_for(std::chrono::milliseconds(thread == 0 ? 1 : 5));
      done += static_cast<int>(end - begin);
    });
    ASSERT_EQ(done, 4);
  }
}

TEST(ThreadPoolTest, SeveralThreadsWorkAtOnce) {
  ThreadPool pool(2);
  std::atomic<int> here{0};
  // Each half waits for the other, so one thread alone could not finish.
  pool.ParallelFor(2, 1, [&](size_t, size_t, size_t) {
    ++here;
    while (here < 2) std::this_thread::yield();
  });
  EXPECT_EQ(here, 2);
}

TEST(ThreadPoolTest, OneThreadRunsInTheCaller) {
  ThreadPool pool(1);
  const std::thread::id self = std::this_thread::get_id();
  int calls = 0;
  pool.ParallelFor(1000, 1, [&](size_t begin, size_t end, size_t thread) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    EXPECT_EQ(end - begin, 1000u);
    EXPECT_EQ(thread, 0u);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

TEST(ThreadPoolTest, CallersMayTakeTurns) {
  ThreadPool pool(2);
  std::atomic<size_t> sum{0};
  for (int i = 0; i < 20; ++i) {
    std::thread([&] {
      pool.ParallelFor(10, 1, [&](size_t begin, size_t end, size_t) { sum += end - begin; });
    }).join();
  }
  EXPECT_EQ(sum, 200u);
}

TEST(ThreadPoolTest, AnotherPoolInsideABody) {
  ThreadPool outer(2);
  std::atomic<size_t> sum{0};
  outer.ParallelFor(8, 1, [&](size_t begin, size_t end, size_t) {
    ThreadPool inner(2);
    inner.ParallelFor(10 * (end - begin), 1, [&](size_t b, size_t e, size_t) { sum += e - b; });
  });
  EXPECT_EQ(sum, 80u);
}

TEST(ThreadPoolTest, StartAndStopWithoutWork) {
  for (int i = 0; i < 50; ++i) const ThreadPool pool(static_cast<size_t>(1 + i % 5));
}

TEST(ThreadPoolTest, DefaultIsTheProcessorsOfThisProcess) {
  EXPECT_GE(AvailableProcessors(), 1u);
  EXPECT_EQ(ThreadPool().threads(), AvailableProcessors());
  std::thread([] {
    cpu_set_t old;
    CPU_ZERO(&old);
    ASSERT_EQ(sched_getaffinity(0, sizeof(old), &old), 0);
    int first = 0;
    while (!CPU_ISSET(first, &old)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(AvailableProcessors(), 1u);
  }).join();
}

}  // namespace
}  // namespace spillway
