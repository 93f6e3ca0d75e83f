// A pool of threads that split one loop at a time.

#ifndef SPILLWAY_BASE_THREAD_POOL_H_
#define SPILLWAY_BASE_THREAD_POOL_H_

#include <cstddef>
#include <memory>

namespace spillway {

// Threads spin for a short while after a loop and then sleep, so that loops in
// quick succession start within microseconds. ParallelFor may be called from
// one thread at a time; it must not be called from inside a loop body.
class ThreadPool {
 public:
  // `threads` >= 1 counts the caller; 0 means the number of processors that
  // this process may use. At most 1024, and fewer when the system gives no more.
  explicit ThreadPool(size_t threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const;

  // Splits [0, count) into ranges of at least `grain` items (one range when
  // count < grain) and calls body(begin, end, thread) for each, thread in
  // [0, threads()), 0 for the caller. Which thread takes which range varies; the
  // ranges depend on count, grain and threads() only. Returns when all are done.
  // `body` must not throw. No heap allocation.
  template <typename Body>
  void ParallelFor(size_t count, size_t grain, const Body& body) {
    Run(
        count, grain,
        [](const void* context, size_t begin, size_t end, size_t thread) {
          (*static_cast<const Body*>(context))(begin, end, thread);
        },
        &body);
  }

 private:
  using RangeFunction = void (*)(const void* context, size_t begin, size_t end, size_t thread);
  void Run(size_t count, size_t grain, RangeFunction function, const void* context);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The number of processors that this process may run on, at least 1.
size_t AvailableProcessors();

}  // namespace spillway

#endif  // SPILLWAY_BASE_THREAD_POOL_H_
