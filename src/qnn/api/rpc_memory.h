// Memory that this processor and the DSP both see: no copy on the way to the HTP and back.

#ifndef SPILLWAY_QNN_API_RPC_MEMORY_H_
#define SPILLWAY_QNN_API_RPC_MEMORY_H_

#include <cstddef>
#include <memory>
#include <span>

#include "spillway/status.h"

namespace spillway::qnn {

inline constexpr char kRpcLibraryName[] = "libcdsprpc.so";

// A block from the device's own allocator, libcdsprpc.so. Page-aligned and zero-filled.
class RpcMemory {
 public:
  // Loads the library when it is first needed: the one that the environment variable
  // SPILLWAY_CDSPRPC_LIB names, else where the system's loader finds it. kNotFound when there
  // is none (every x86-64 machine) or the variable says "off"; kUnsupported when it lacks a
  // function; kResourceExhausted when it has no memory.
  static Result<std::unique_ptr<RpcMemory>> Allocate(size_t bytes);
  ~RpcMemory();
  RpcMemory(const RpcMemory&) = delete;
  RpcMemory& operator=(const RpcMemory&) = delete;

  std::span<std::byte> bytes() const { return {data_, size_}; }
  // A descriptor of it, which can be mapped and sent to other processes. Stays the library's.
  int fd() const { return fd_; }

 private:
  RpcMemory(void (*release)(void*), std::byte* data, size_t size, int fd)
      : release_(release), data_(data), size_(size), fd_(fd) {}
  void (*release_)(void*);
  std::byte* data_;
  size_t size_;
  int fd_;
};

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_RPC_MEMORY_H_
