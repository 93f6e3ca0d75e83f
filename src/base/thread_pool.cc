// How a loop runs. Its chunks are handed out by `ticket`, which holds the number
// of the loop in its upper and the next chunk in its lower 32 bits. A thread
// reads the ticket, then the loop's description, and takes a chunk by a
// compare-and-swap on the ticket; when that succeeds, the description it read
// belongs to that loop, since the caller closes the ticket before it changes the
// description and never opens it with an old number. So the caller waits only
// for chunks that were taken, and a thread that still sleeps delays nobody.
//
// A thread without work spins, then sleeps on the futex `epoch`, the number of
// the last loop. The caller wakes only if somebody sleeps.

#include "base/thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace spillway {
namespace {

constexpr size_t kMaxThreads = 1024;
constexpr size_t kChunksPerThread = 4;  // evens out threads of unequal speed
constexpr std::chrono::microseconds kSpin(80);
constexpr uint32_t kClosed = UINT32_MAX;

using Word = std::atomic<uint32_t>;
static_assert(sizeof(Word) == sizeof(uint32_t) && Word::is_always_lock_free);

void FutexWait(Word& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

void FutexWake(Word& word, uint32_t count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr,
          nullptr, 0);
}

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Waits until `done()`, for at most `limit`. Returns whether it is done.
template <typename Done>
bool SpinUntil(const Done& done, std::chrono::microseconds limit) {
  if (done()) return true;
  if (limit.count() == 0) return false;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < 16; ++i) {
      Pause();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

uint64_t Ticket(uint32_t loop, uint32_t chunk) { return uint64_t{loop} << 32 | chunk; }
uint32_t LoopOf(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 32); }
uint32_t ChunkOf(uint64_t ticket) { return static_cast<uint32_t>(ticket); }

}  // namespace

struct ThreadPool::Impl {
  // Each on a cache line of its own: they change at different times.
  alignas(64) std::atomic<uint64_t> ticket{Ticket(0, kClosed)};
  alignas(64) Word finished{0};  // chunks of this loop that are done
  alignas(64) Word epoch{0};
  std::atomic<uint32_t> sleepers{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};

  // The loop's description. Atomic, because a late thread may read it while the
  // next loop is written; it then fails to take a chunk.
  alignas(64) std::atomic<RangeFunction> function{nullptr};
  std::atomic<const void*> context{nullptr};
  std::atomic<size_t> count{0};
  std::atomic<uint32_t> chunks{0};

  std::chrono::microseconds spin{0};
  std::vector<std::thread> workers;

  // Takes chunks of the open loop until none is left.
  void Work(size_t thread);
  void WorkerLoop(size_t thread);
  void FinishChunk(uint32_t chunks_of_loop);
  void WaitForEnd(uint32_t chunks_of_loop);
};

void ThreadPool::Impl::Work(size_t thread) {
  uint64_t seen = ticket.load(std::memory_order_acquire);
  while (true) {
    const RangeFunction run = function.load(std::memory_order_acquire);
    const void* const argument = context.load(std::memory_order_acquire);
    const size_t items = count.load(std::memory_order_acquire);
    const uint32_t total = chunks.load(std::memory_order_acquire);
    const uint32_t chunk = ChunkOf(seen);
    if (chunk >= total) return;  // also when closed
    if (!ticket.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      continue;
    }
    // The first items % total chunks have one item more.
    const size_t each = items / total;
    const size_t more = items % total;
    const size_t begin = chunk * each + std::min<size_t>(chunk, more);
    run(argument, begin, begin + each + (chunk < more ? 1 : 0), thread);
    FinishChunk(total);
    seen = ticket.load(std::memory_order_acquire);
  }
}

void ThreadPool::Impl::FinishChunk(uint32_t chunks_of_loop) {
  // With the counterpart in WaitForEnd: either this sees that the caller sleeps
  // or the caller sees the count, since all four are sequentially consistent.
  if (finished.fetch_add(1) + 1 == chunks_of_loop && caller_sleeps.load()) FutexWake(finished, 1);
}

void ThreadPool::Impl::WaitForEnd(uint32_t chunks_of_loop) {
  const auto done = [&] { return finished.load(std::memory_order_acquire) == chunks_of_loop; };
  if (SpinUntil(done, spin)) return;
  caller_sleeps.store(true);
  for (uint32_t now = finished.load(); now != chunks_of_loop; now = finished.load()) {
    FutexWait(finished, now);
  }
  caller_sleeps.store(false);
}

void ThreadPool::Impl::WorkerLoop(size_t thread) {
  uint32_t done_loop = 0;
  const auto news = [&] { return epoch.load(std::memory_order_acquire) != done_loop; };
  while (true) {
    if (!SpinUntil(news, spin)) {
      sleepers.fetch_add(1);
      while (epoch.load() == done_loop) FutexWait(epoch, done_loop);
      sleepers.fetch_sub(1);
    }
    if (stop.load()) return;
    done_loop = epoch.load(std::memory_order_acquire);
    Work(thread);
  }
}

ThreadPool::ThreadPool(size_t threads) : impl_(std::make_unique<Impl>()) {
  const size_t processors = AvailableProcessors();
  if (threads == 0) threads = processors;
  threads = std::min(threads, kMaxThreads);
  // Spinning takes the processor from the very thread that is waited for when
  // there are more threads than processors.
  if (threads <= processors) impl_->spin = kSpin;
  impl_->workers.reserve(threads - 1);
  try {
    for (size_t i = 1; i < threads; ++i) {
      impl_->workers.emplace_back([impl = impl_.get(), i] { impl->WorkerLoop(i); });
    }
  } catch (const std::system_error&) {
    // The system gives no more threads; those that started do the work.
  }
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true);
  impl_->epoch.fetch_add(1);
  FutexWake(impl_->epoch, INT32_MAX);
  for (std::thread& worker : impl_->workers) worker.join();
}

size_t ThreadPool::threads() const { return impl_->workers.size() + 1; }

void ThreadPool::Run(size_t count, size_t grain, RangeFunction function, const void* context) {
  if (count == 0) return;
  const size_t most = threads() * kChunksPerThread;
  const size_t chunks = std::clamp<size_t>(count / std::max<size_t>(grain, 1), 1, most);
  if (chunks == 1 || threads() == 1) {
    function(context, 0, count, 0);
    return;
  }
  Impl& impl = *impl_;
  const uint32_t total = static_cast<uint32_t>(chunks);
  const uint32_t loop = LoopOf(impl.ticket.load(std::memory_order_relaxed)) + 1;
  impl.ticket.store(Ticket(loop, kClosed));
  impl.function.store(function, std::memory_order_release);
  impl.context.store(context, std::memory_order_release);
  impl.count.store(count, std::memory_order_release);
  impl.chunks.store(total, std::memory_order_release);
  impl.finished.store(0, std::memory_order_relaxed);
  impl.ticket.store(Ticket(loop, 0), std::memory_order_release);
  impl.epoch.fetch_add(1);
  // Sequentially consistent with the sleepers' side: a thread that this does
  // not count sees the new epoch before it sleeps.
  const uint32_t asleep = impl.sleepers.load();
  if (asleep > 0) FutexWake(impl.epoch, std::min(asleep, total - 1));
  impl.Work(0);
  impl.WaitForEnd(total);
}

size_t AvailableProcessors() {
  // Room for 8192 processors; the plain cpu_set_t ends at 1024.
  std::array<cpu_set_t, 8> set{};
  if (sched_getaffinity(0, sizeof(set), set.data()) != 0) {
    return std::max(1u, std::thread::hardware_concurrency());
  }
  return static_cast<size_t>(std::max(1, CPU_COUNT_S(sizeof(set), set.data())));
}

}  // namespace spillway
