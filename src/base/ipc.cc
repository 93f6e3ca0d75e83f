// A message on the socket: a header of 8 bytes, two unsigned 32-bit numbers in
// the byte order of this machine (both ends run on it): the magic number and
// the length of the text; then the text. Descriptors travel with the header.

#include "base/ipc.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "base/errno_error.h"
#include "base/file_descriptor.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kMagic = 0x4c505753;  // "SWPL"
constexpr size_t kMaxText = size_t{64} << 20;
constexpr size_t kMaxFds = 8;
// The text grows as it arrives: a header alone must not cost 64 MiB.
constexpr size_t kBlock = size_t{1} << 20;

struct Header {
  uint32_t magic = kMagic;
  uint32_t length = 0;
};
static_assert(sizeof(Header) == 8);

class Deadline {
 public:
  explicit Deadline(std::optional<double> seconds) {
    constexpr double kFar = 1e9;  // 30 years, which the clock can still add
    if (!seconds.has_value() || !(*seconds < kFar)) return;
    at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                             std::chrono::duration<double>(std::max(*seconds, 0.0)));
  }

  // For poll(): -1 waits forever.
  int Milliseconds() const {
    if (!at_.has_value()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
  }
  bool Passed() const { return at_.has_value() && Clock::now() >= *at_; }

 private:
  std::optional<Clock::time_point> at_;
};

Status PeerGone() { return VendorCrashError("the other process closed the channel"); }

Status SocketError(std::string_view action, int error) {
  if (error == EPIPE || error == ECONNRESET || error == ENOTCONN) return PeerGone();
  return ErrnoError(action, error);
}

// Waits until the socket can be read or written, or its peer is gone.
Status WaitFor(int fd, short events, const Deadline& deadline, std::string_view what) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, deadline.Milliseconds());
    if (ready > 0) return OkStatus();
    if (ready < 0 && errno != EINTR) return ErrnoError("wait for the channel", errno);
    if (deadline.Passed()) {
      return TimeoutError("the other process " + std::string(what) + " in time");
    }
  }
}

union ControlBuffer {
  cmsghdr alignment;
  std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> bytes;
};

// Fills the control part of `message` so that `fds` travel with it.
void AttachFds(std::span<const int> fds, ControlBuffer& control, msghdr& message) {
  if (fds.empty()) return;
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
}

void CollectFds(msghdr& message, std::vector<FileDescriptor>& fds) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

// Reads exactly `size` bytes. `fds` receives the descriptors that come along;
// where it is null, the system drops them.
Status ReadExactly(int socket, std::byte* data, size_t size, const Deadline& deadline,
                   std::vector<FileDescriptor>* fds) {
  while (size > 0) {
    SPILLWAY_RETURN_IF_ERROR(WaitFor(socket, POLLIN, deadline, "did not send its message"));
    iovec piece{data, size};
    ControlBuffer control;
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (fds != nullptr) {
      message.msg_control = control.bytes.data();
      message.msg_controllen = sizeof(control.bytes);
    }
    const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) continue;
    if (got < 0) return SocketError("receive from the channel", errno);
    if (fds != nullptr) CollectFds(message, *fds);
    if ((message.msg_flags & MSG_CTRUNC) != 0 || (fds != nullptr && fds->size() > kMaxFds)) {
      return CorruptDataError(
          "a message on the channel carries descriptors that cannot be received; at most " +
          std::to_string(kMaxFds) +
          " may come, with its start, and this process needs room for them");
    }
    if (got == 0) return PeerGone();
    data += got;
    size -= static_cast<size_t>(got);
  }
  return OkStatus();
}

Status ReadText(int socket, size_t length, const Deadline& deadline, std::string& text) {
  while (text.size() < length) {
    const size_t used = text.size();
    const size_t block = std::min(length - used, std::max(kBlock, used));
    try {
      text.resize(used + block);
    } catch (const std::bad_alloc&) {
      return ResourceExhaustedError("not enough memory for a message of " + std::to_string(length) +
                                    " bytes");
    }
    auto* const at = reinterpret_cast<std::byte*>(text.data() + used);
    SPILLWAY_RETURN_IF_ERROR(ReadExactly(socket, at, block, deadline, nullptr));
  }
  return OkStatus();
}

Result<Message> ReadMessage(int socket, const Deadline& deadline) {
  Header header;
  std::vector<FileDescriptor> fds;
  SPILLWAY_RETURN_IF_ERROR(
      ReadExactly(socket, reinterpret_cast<std::byte*>(&header), sizeof(header), deadline, &fds));
  if (header.magic != kMagic) {
    return CorruptDataError("a message on the channel starts with " + std::to_string(header.magic) +
                            " instead of " + std::to_string(kMagic) +
                            "; the other process is another version?");
  }
  if (header.length > kMaxText) {
    return CorruptDataError("a message on the channel claims " + std::to_string(header.length) +
                            " bytes; at most " + std::to_string(kMaxText) + " are allowed");
  }
  Message message;
  SPILLWAY_RETURN_IF_ERROR(ReadText(socket, header.length, deadline, message.text));
  for (FileDescriptor& fd : fds) message.fds.push_back(fd.Release());
  return message;
}

Status WriteMessage(int socket, std::string_view text, std::span<const int> fds,
                    const Deadline& deadline) {
  Header header;
  header.length = static_cast<uint32_t>(text.size());
  std::array<iovec, 2> pieces = {iovec{&header, sizeof(header)},
                                 iovec{const_cast<char*>(text.data()), text.size()}};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  AttachFds(fds, control, message);
  size_t left = sizeof(header) + text.size();
  while (left > 0) {
    const ssize_t sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      SPILLWAY_RETURN_IF_ERROR(WaitFor(socket, POLLOUT, deadline, "did not read its messages"));
      continue;
    }
    if (sent < 0) return SocketError("send on the channel", errno);
    // The descriptors went with the first byte.
    message.msg_control = nullptr;
    message.msg_controllen = 0;
    left -= static_cast<size_t>(sent);
    size_t skip = static_cast<size_t>(sent);
    for (iovec& piece : pieces) {
      const size_t part = std::min(skip, piece.iov_len);
      piece.iov_base = static_cast<char*>(piece.iov_base) + part;
      piece.iov_len -= part;
      skip -= part;
    }
  }
  return OkStatus();
}

}  // namespace

Result<SharedMemory> SharedMemory::Create(size_t size) {
  if (size == 0) return InvalidArgumentError("cannot share memory of 0 bytes");
  FileDescriptor fd(memfd_create("spillway", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoError("create shared memory", errno);
  const std::string action = "create shared memory of " + std::to_string(size) + " bytes";
  if (size > static_cast<size_t>(INT64_MAX)) return ErrnoError(action, ENOMEM);
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return ErrnoError(action, errno);
  // A side that shrank it would crash the other one.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return ErrnoError("fix the size of shared memory", errno);
  }
  return Map(fd.Release(), size);
}

Result<SharedMemory> SharedMemory::Map(int fd, size_t size) {
  FileDescriptor owned(fd);
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoError("examine shared memory", errno);
  if (size == 0 || info.st_size < 0 || static_cast<uint64_t>(info.st_size) < size) {
    return CorruptDataError("shared memory has " + std::to_string(info.st_size) + " bytes where " +
                            std::to_string(size) + " are to be mapped");
  }
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    return ErrnoError("map shared memory of " + std::to_string(size) + " bytes", errno);
  }
  SharedMemory memory;
  memory.data_ = static_cast<std::byte*>(address);
  memory.size_ = size;
  memory.fd_ = owned.Release();
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
  if (fd_ >= 0) close(fd_);
}

Channel::Channel(Channel&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), broken_(other.broken_.load()) {}

Channel& Channel::operator=(Channel&& other) noexcept {
  std::swap(fd_, other.fd_);
  broken_ = other.broken_.exchange(broken_);
  return *this;
}

Channel::~Channel() {
  if (fd_ >= 0) close(fd_);
}

Status Channel::CheckUsable() const {
  if (fd_ < 0) return FailedPreconditionError("the channel is not open");
  if (broken_) {
    return FailedPreconditionError(
        "the channel is unusable since an earlier failure; start the other process again");
  }
  return OkStatus();
}

// After a message that is only partly through, nothing that follows has meaning.
// Shutting down tells the other side.
Status Channel::Break(Status status) {
  broken_ = true;
  shutdown(fd_, SHUT_RDWR);
  return status;
}

Status Channel::Send(std::string_view text, std::span<const int> fds,
                     std::optional<double> timeout_seconds) {
  SPILLWAY_RETURN_IF_ERROR(CheckUsable());
  if (text.size() > kMaxText || fds.size() > kMaxFds) {
    return InvalidArgumentError("a message of " + std::to_string(text.size()) + " bytes and " +
                                std::to_string(fds.size()) + " descriptors is too large; at most " +
                                std::to_string(kMaxText) + " bytes and " + std::to_string(kMaxFds) +
                                " descriptors go through the channel");
  }
  Status status = WriteMessage(fd_, text, fds, Deadline(timeout_seconds));
  if (status.ok() || status.code() == StatusCode::kVendorCrash) return status;
  return Break(std::move(status));
}

Result<Message> Channel::Receive(std::optional<double> timeout_seconds) {
  SPILLWAY_RETURN_IF_ERROR(CheckUsable());
  Result<Message> message = ReadMessage(fd_, Deadline(timeout_seconds));
  if (message.ok() || message.status().code() == StatusCode::kVendorCrash) return message;
  return Break(message.status());
}

Result<std::pair<Channel, Channel>> Channel::Pair() {
  std::array<int, 2> fds{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return ErrnoError("create a channel", errno);
  }
  return std::pair(Channel(fds[0]), Channel(fds[1]));
}

}  // namespace spillway
