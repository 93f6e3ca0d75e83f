#include "eval/read_bandwidth.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"

namespace spillway {
namespace {

constexpr size_t kLine = 64;

// Several sums at once, so that additions never wait for each other: what is measured is
// the memory.
uint64_t Sum(const std::byte* data, size_t size) {
  std::array<uint64_t, 16> sums = {};
  for (size_t i = 0; i + sizeof(sums) <= size; i += sizeof(sums)) {
    std::array<uint64_t, 16> values;
    std::memcpy(values.data(), data + i, sizeof(values));
    for (size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += values[lane];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

uint64_t LastLevelCacheBytes() {
  const long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return static_cast<uint64_t>(std::max({l3, l2, 0L}));
}

Status CheckBandwidthBuffer(uint64_t bytes) {
  const uint64_t free = AvailableMemoryBytes();
  if (free == 0 || bytes <= free) return OkStatus();
  return ResourceExhaustedError(
      fmt::format("read bandwidth: no memory for a buffer of {:.1f} GB ({:.1f} GB are free)",
                  static_cast<double>(bytes) / 1e9, static_cast<double>(free) / 1e9));
}

Result<double> MeasureReadBandwidth(uint64_t bytes, size_t threads, uint32_t passes) {
  ThreadPool pool(std::max<size_t>(threads, 1));
  const size_t part = (bytes / pool.threads() + kLine - 1) / kLine * kLine;
  const size_t size = part * pool.threads();
  if (size == 0) return InvalidArgumentError("read bandwidth: the buffer has no bytes");
  SPILLWAY_RETURN_IF_ERROR(CheckBandwidthBuffer(size));
  const AlignedBuffer buffer = AlignedBuffer::Zeroed(size);
  // An optimisation: not all systems have huge pages.
  (void)madvise(buffer.data(), size, MADV_HUGEPAGE);
  pool.ParallelFor(pool.threads(), 1, [&](size_t begin, size_t end, size_t) {
    std::memset(buffer.data() + begin * part, 1, (end - begin) * part);
  });
  std::vector<uint64_t> sums(pool.threads());
  double best = 0;
  for (uint32_t pass = 0; pass <= passes; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.ParallelFor(pool.threads(), 1, [&](size_t begin, size_t end, size_t) {
      for (size_t i = begin; i < end; ++i) sums[i] = Sum(buffer.data() + i * part, part);
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (pass > 0) best = std::max(best, static_cast<double>(size) / seconds.count());
  }
  // The compiler must not see the sums as unused.
  volatile uint64_t sink = 0;
  for (const uint64_t sum : sums) sink = sink + sum;
  return best;
}

}  // namespace spillway
