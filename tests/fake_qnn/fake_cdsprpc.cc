// A stand-in for the device's libcdsprpc.so: memory of memfd, and a count of the blocks that
// live. FAKE_RPC_FAIL=alloc or =fd makes it refuse.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

namespace {

struct Block {
  int fd;
  size_t size;
};
std::mutex mutex;
std::map<void*, Block> blocks;

bool Fails(std::string_view what) {
  const char* text = std::getenv("FAKE_RPC_FAIL");
  return text != nullptr && text == what;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void* rpcmem_alloc(int heap, uint32_t flags, int size) {
  if (Fails("alloc") || heap != 25 || flags != 1 || size <= 0) return nullptr;
  const int fd = memfd_create("fake_rpc", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, size) != 0) return nullptr;
  void* data = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const std::lock_guard lock(mutex);
  blocks[data] = {fd, static_cast<size_t>(size)};
  return data;
}

__attribute__((visibility("default"))) void rpcmem_free(void* data) {
  const std::lock_guard lock(mutex);
  const Block block = blocks.at(data);
  munmap(data, block.size);
  close(block.fd);
  blocks.erase(data);
}

__attribute__((visibility("default"))) int rpcmem_to_fd(void* data) {
  const std::lock_guard lock(mutex);
  return Fails("fd") ? -1 : blocks.at(data).fd;
}

__attribute__((visibility("default"))) int FakeRpcLiveBlocks() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(blocks.size());
}

}  // extern "C"
