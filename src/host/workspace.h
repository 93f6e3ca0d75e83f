// Memory that the kernels of one executor take turns in.

#ifndef SPILLWAY_HOST_WORKSPACE_H_
#define SPILLWAY_HOST_WORKSPACE_H_

#include <algorithm>
#include <cstddef>

#include "base/memory.h"

namespace spillway::host {

// While an executor is built, each kernel takes what it needs and keeps the offsets: a part
// of each thread's own, and a part that threads share. All kernels begin at offset 0, so
// nothing stays from one run of a kernel to the next. Then Allocate(), then the addresses.
class Workspace {
 public:
  explicit Workspace(size_t threads) : threads_(threads) {}

  void BeginKernel() { of_thread_.at = shared_.at = 0; }
  // Offsets of `bytes` bytes, multiples of 64.
  size_t TakeOfThread(size_t bytes) { return of_thread_.Take(bytes); }
  size_t TakeShared(size_t bytes) { return shared_.Take(bytes); }

  void Allocate() {
    buffer_ =
        AlignedBuffer::Zeroed(std::max<size_t>(shared_.most + threads_ * of_thread_.most, 64));
  }
  std::byte* OfThread(size_t thread, size_t offset) const {
    return buffer_.data() + shared_.most + thread * of_thread_.most + offset;
  }
  std::byte* Shared(size_t offset) const { return buffer_.data() + offset; }

 private:
  struct Part {
    size_t at = 0, most = 0;
    size_t Take(size_t bytes) {
      const size_t offset = at;
      at += (bytes + 63) / 64 * 64;
      most = std::max(most, at);
      return offset;
    }
  };

  size_t threads_;
  Part of_thread_, shared_;
  AlignedBuffer buffer_;
};

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_WORKSPACE_H_
