// Talking to a child process: framed messages over a socket, with file
// descriptors, and memory that both sides see.

#ifndef SPILLWAY_BASE_IPC_H_
#define SPILLWAY_BASE_IPC_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/status.h"

namespace spillway {

// Anonymous shared memory (memfd). Moving keeps the address. Zero-filled.
class SharedMemory {
 public:
  static Result<SharedMemory> Create(size_t size);
  // Maps what the other side created; takes ownership of `fd`.
  static Result<SharedMemory> Map(int fd, size_t size);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return {data_, size_}; }
  int fd() const { return fd_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;
};

// One message: text (JSON by convention) and at most 8 descriptors, which the
// receiver owns.
struct Message {
  std::string text;
  std::vector<int> fds;
};

// One end of a socket pair. Messages of at most 64 MiB. Send and Receive may be
// used from different threads, each from one at a time. A peer that is gone is
// kVendorCrash; a passed deadline is kTimeout (the channel is then unusable).
// Never raises SIGPIPE.
class Channel {
 public:
  Channel() = default;
  explicit Channel(int fd) : fd_(fd) {}  // takes ownership
  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&& other) noexcept;
  ~Channel();

  Status Send(std::string_view text, std::span<const int> fds = {});
  // Waits at most `timeout_seconds`; no value waits forever.
  Result<Message> Receive(std::optional<double> timeout_seconds = std::nullopt);
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace spillway

#endif  // SPILLWAY_BASE_IPC_H_
