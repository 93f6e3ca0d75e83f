#include "base/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/file_descriptor.h"
#include "base/process_memory.h"

namespace spillway {
namespace {

constexpr std::chrono::milliseconds kSamplePeriod(20);
constexpr size_t kAlignment = 64;

// Adds the children of `pid` to `pids`. Processes come and go meanwhile; what
// cannot be read is left out.
void AddChildren(int pid, std::vector<int>& pids) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  const Result<std::vector<std::string>> names = ListFolder(tasks);
  if (!names.ok()) return;
  for (const std::string& name : names.value()) {
    const Result<std::string> list = ReadFile(fmt::format("{}/{}/children", tasks, name));
    if (!list.ok()) continue;
    const char* at = list.value().data();
    const char* const end = at + list.value().size();
    while (at < end) {
      int child = 0;
      const auto [next, error] = std::from_chars(at, end, child);
      if (error == std::errc()) pids.push_back(child);
      at = error == std::errc() ? next : at + 1;
    }
  }
}

// A field of a file of lines "Name:   1234 kB", in bytes.
std::optional<uint64_t> ReadField(const std::string& path, std::string_view field) {
  const Result<std::string> status = ReadFile(path);
  if (!status.ok()) return std::nullopt;
  const std::string& text = status.value();
  const size_t line = text.find("\n" + std::string(field) + ":");
  if (line == std::string::npos) return std::nullopt;
  const size_t digits = text.find_first_of("0123456789\n", line + 1);
  if (digits == std::string::npos) return std::nullopt;
  uint64_t kibibytes = 0;
  const auto parsed = std::from_chars(text.data() + digits, text.data() + text.size(), kibibytes);
  if (parsed.ec != std::errc()) return std::nullopt;
  return kibibytes * 1024;
}

uint64_t TreeRssBytes() {
  uint64_t sum = CurrentRssBytes();
  std::vector<int> pids;
  AddChildren(getpid(), pids);
  std::set<int> seen;
  // `pids` grows while the loop goes through it.
  for (size_t i = 0; i < pids.size(); ++i) {
    const int pid = pids[i];
    if (!seen.insert(pid).second) continue;
    sum += ProcessMemoryBytes(pid, "VmRSS").value_or(0);
    AddChildren(pid, pids);
  }
  return sum;
}

}  // namespace

std::optional<uint64_t> ProcessMemoryBytes(int pid, std::string_view field) {
  return ReadField("/proc/" + std::to_string(pid) + "/status", field);
}

uint64_t AvailableMemoryBytes() { return ReadField("/proc/meminfo", "MemAvailable").value_or(0); }

uint64_t CurrentRssBytes() { return ProcessMemoryBytes(getpid(), "VmRSS").value_or(0); }

uint64_t PeakRssBytes() { return ProcessMemoryBytes(getpid(), "VmHWM").value_or(0); }

bool ResetPeakRss() {
  const FileDescriptor file(open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC));
  return file.valid() && write(file.get(), "5", 1) == 1;
}

struct MemoryWatch::Impl {
  std::mutex mutex;
  std::condition_variable stop_changed;
  bool stop = false;
  uint64_t peak = 0;
  std::thread thread;

  void Sample() {
    const uint64_t now = TreeRssBytes();
    const std::lock_guard lock(mutex);
    peak = std::max(peak, now);
  }

  void Loop() {
    std::unique_lock lock(mutex);
    while (!stop_changed.wait_for(lock, kSamplePeriod, [this] { return stop; })) {
      lock.unlock();
      Sample();
      lock.lock();
    }
  }
};

MemoryWatch::MemoryWatch() : impl_(std::make_unique<Impl>()) {
  impl_->Sample();
  try {
    impl_->thread = std::thread([impl = impl_.get()] { impl->Loop(); });
  } catch (const std::system_error&) {
    // Without a thread, peak_bytes() still samples.
  }
}

MemoryWatch::~MemoryWatch() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->stop_changed.notify_all();
  if (impl_->thread.joinable()) impl_->thread.join();
}

uint64_t MemoryWatch::peak_bytes() const {
  impl_->Sample();
  const std::lock_guard lock(impl_->mutex);
  return impl_->peak;
}

AlignedBuffer::AlignedBuffer(size_t size) {
  if (size == 0) return;
  if (size > SIZE_MAX - kAlignment) throw std::bad_alloc();
  const size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
  data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  if (data_ == nullptr) throw std::bad_alloc();
  size_ = size;
}

AlignedBuffer AlignedBuffer::Zeroed(size_t size) {
  constexpr size_t kMapped = size_t{64} << 10;
  if (size < kMapped) {
    AlignedBuffer buffer(size);
    if (buffer.data_ != nullptr) std::memset(buffer.data_, 0, size);
    return buffer;
  }
  AlignedBuffer buffer;
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = size;
  buffer.mapped_ = true;
  return buffer;
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, false)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (mapped_) {
    munmap(data_, size_);
  } else {
    std::free(data_);
  }
}

}  // namespace spillway
