// How much memory processes use, and aligned blocks of it.

#ifndef SPILLWAY_BASE_MEMORY_H_
#define SPILLWAY_BASE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace spillway {

// The resident memory of this process, in bytes, now and at its highest; 0 when
// /proc cannot be read.
uint64_t CurrentRssBytes();
uint64_t PeakRssBytes();

// What the system can give to processes without swapping, in bytes; 0 when /proc
// cannot be read.
uint64_t AvailableMemoryBytes();

// Watches the resident memory of this process and all its descendants, summed,
// every 20 ms on a thread of its own, until destruction. Pages that processes
// share are counted once a process (as /proc reports them), so a sample is an
// upper bound; a peak between two samples is missed.
class MemoryWatch {
 public:
  MemoryWatch();
  ~MemoryWatch();
  // The highest sum seen so far, now included.
  uint64_t peak_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A block of bytes aligned to 64, not initialised unless Zeroed(). Move-only. Throws
// std::bad_alloc, as the standard containers do, when there is not enough memory. Of size 0,
// data() is null.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size);
  // Zeroed; pages of a large one take memory when they are first written.
  static AlignedBuffer Zeroed(size_t size);
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  ~AlignedBuffer();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool mapped_ = false;  // from mmap(), not from aligned_alloc()
};

}  // namespace spillway

#endif  // SPILLWAY_BASE_MEMORY_H_
