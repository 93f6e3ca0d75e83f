// A file descriptor that closes itself, and whole writes.

#ifndef SPILLWAY_BASE_FILE_DESCRIPTOR_H_
#define SPILLWAY_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <cstddef>
#include <span>
#include <utility>

namespace spillway {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}  // takes ownership; -1 is none
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = other.Release();
    }
    return *this;
  }
  ~FileDescriptor() { Close(); }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // Gives up ownership.
  int Release() { return std::exchange(fd_, -1); }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

// Writes all of `bytes`, however often the system takes only a part. Returns 0
// or the errno of the failure.
int WriteAll(int fd, std::span<const std::byte> bytes);

}  // namespace spillway

#endif  // SPILLWAY_BASE_FILE_DESCRIPTOR_H_
