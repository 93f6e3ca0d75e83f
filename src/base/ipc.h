// Talking to a child process: framed messages over a socket, with file
// descriptors, and memory that both sides see.

#ifndef SPILLWAY_BASE_IPC_H_
#define SPILLWAY_BASE_IPC_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/status.h"

namespace spillway {

// Anonymous shared memory (memfd) of a fixed size. Moving keeps the address.
// Zero-filled. Send fd() through a Channel to share it.
class SharedMemory {
 public:
  static Result<SharedMemory> Create(size_t size);
  // Maps what the other side created; takes ownership of `fd`, also on failure.
  // kCorruptData when it holds fewer than `size` bytes.
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
// kVendorCrash; a passed deadline is kTimeout, bytes that are no message
// kCorruptData (the channel is then unusable and says kFailedPrecondition, and
// the peer sees it closed). A message that is too large to send is
// kInvalidArgument and does no harm. Never raises SIGPIPE.
class Channel {
 public:
  // Two connected ends.
  static Result<std::pair<Channel, Channel>> Pair();

  Channel() = default;
  explicit Channel(int fd) : fd_(fd) {}  // takes ownership
  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&& other) noexcept;
  ~Channel();

  // `fds` stay the caller's. Waits at most `timeout_seconds` for the peer to
  // read; no value waits forever, here and below.
  Status Send(std::string_view text, std::span<const int> fds = {},
              std::optional<double> timeout_seconds = std::nullopt);
  Result<Message> Receive(std::optional<double> timeout_seconds = std::nullopt);
  int fd() const { return fd_; }

 private:
  Status CheckUsable() const;
  Status Break(Status status);

  int fd_ = -1;
  std::atomic<bool> broken_{false};
};

}  // namespace spillway

#endif  // SPILLWAY_BASE_IPC_H_
