// Loops of kernels: on the pool when there is enough to do.

#ifndef SPILLWAY_HOST_PARALLEL_H_
#define SPILLWAY_HOST_PARALLEL_H_

#include <algorithm>
#include <cstddef>

#include "base/thread_pool.h"

namespace spillway::host {

// Calls body(begin, end, thread) over [0, count). `cost` is the work of one item,
// in simple operations; starting the pool is worth some ten thousand of them.
template <typename Body>
void ParallelFor(ThreadPool& pool, size_t count, size_t cost, const Body& body) {
  constexpr size_t kMinCost = 32768;
  const size_t grain = std::max<size_t>(1, kMinCost / std::max<size_t>(cost, 1));
  if (count <= grain || pool.threads() == 1) {
    if (count > 0) body(size_t{0}, count, size_t{0});
    return;
  }
  pool.ParallelFor(count, grain, body);
}

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_PARALLEL_H_
