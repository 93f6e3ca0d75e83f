#include "qnn/api/rpc_memory.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

namespace spillway::qnn {
namespace {

constexpr char kLibraryVariable[] = "SPILLWAY_CDSPRPC_LIB";
// Heap and flags of ordinary memory, cached, of the system's own heap.
constexpr int kSystemHeap = 25;
constexpr uint32_t kDefaultFlags = 1;

struct RpcFunctions {
  void* (*allocate)(int heap, uint32_t flags, int size) = nullptr;
  void* (*allocate_large)(int heap, uint32_t flags, size_t size) = nullptr;  // newer libraries
  void (*release)(void*) = nullptr;
  int (*to_fd)(void*) = nullptr;
};

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
}

// The library stays mapped: the vendor's own library uses it too.
Result<RpcFunctions> Load() {
  const char* named = std::getenv(kLibraryVariable);
  const std::string path = named != nullptr && *named != '\0' ? named : kRpcLibraryName;
  if (path == "off") return NotFoundError(fmt::format("{} is off", kLibraryVariable));
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    return NotFoundError(fmt::format("{}: {}", path, error == nullptr ? "not found" : error));
  }
  RpcFunctions functions;
  Find(library, "rpcmem_alloc", &functions.allocate);
  Find(library, "rpcmem_alloc2", &functions.allocate_large);
  Find(library, "rpcmem_free", &functions.release);
  Find(library, "rpcmem_to_fd", &functions.to_fd);
  if (functions.allocate == nullptr || functions.release == nullptr || functions.to_fd == nullptr) {
    dlclose(library);
    return UnsupportedError(
        fmt::format("{} has not all of rpcmem_alloc, rpcmem_free and rpcmem_to_fd", path));
  }
  // Older libraries want to be told that they are used.
  void (*initialise)() = nullptr;
  Find(library, "rpcmem_init", &initialise);
  if (initialise != nullptr) initialise();
  return functions;
}

}  // namespace

Result<std::unique_ptr<RpcMemory>> RpcMemory::Allocate(size_t bytes) {
  SPILLWAY_ASSIGN_OR_RETURN(const RpcFunctions functions, Load());
  void* data = nullptr;
  if (functions.allocate_large != nullptr) {
    data = functions.allocate_large(kSystemHeap, kDefaultFlags, bytes);
  } else if (bytes <= std::numeric_limits<int>::max()) {
    data = functions.allocate(kSystemHeap, kDefaultFlags, static_cast<int>(bytes));
  }
  if (data == nullptr) {
    return ResourceExhaustedError(
        fmt::format("{} gives no shared memory of {} bytes", kRpcLibraryName, bytes));
  }
  const int fd = functions.to_fd(data);
  if (fd < 0) {
    functions.release(data);
    return ResourceExhaustedError(
        fmt::format("{} has no descriptor for its memory", kRpcLibraryName));
  }
  std::memset(data, 0, bytes);
  return std::unique_ptr<RpcMemory>(
      new RpcMemory(functions.release, static_cast<std::byte*>(data), bytes, fd));
}

RpcMemory::~RpcMemory() { release_(data_); }

}  // namespace spillway::qnn
