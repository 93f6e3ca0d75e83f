#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "base/errno_error.h"
#include "base/file_descriptor.h"

namespace spillway {
namespace {

constexpr uint64_t kMaxWholeFile = uint64_t{4} << 30;
constexpr uint64_t kMaxWholeStream = uint64_t{64} << 20;

std::string Quoted(std::string_view action, std::string_view path) {
  return std::string(action) + " '" + std::string(path) + "'";
}

Result<FileDescriptor> OpenForReading(const std::string& path) {
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError(Quoted("open", path), errno);
  return fd;
}

Result<struct stat> StatOf(const FileDescriptor& fd, const std::string& path) {
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return ErrnoError(Quoted("examine", path), errno);
  if (S_ISDIR(info.st_mode)) {
    return IoError("cannot read '" + path + "': it is a folder, not a file");
  }
  return info;
}

bool Resize(std::string& text, size_t size) {
  try {
    text.resize(size);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

// Reads to the end, at most `limit` bytes; `expected` sizes the first block.
Result<std::string> ReadToEnd(const FileDescriptor& fd, const std::string& path, uint64_t expected,
                              uint64_t limit) {
  std::string text;
  size_t used = 0;
  // One more byte than expected, so that the end shows without another block.
  size_t block = static_cast<size_t>(std::min(expected, limit)) + 1;
  while (true) {
    if (used == text.size() && !Resize(text, used + block)) {
      return ResourceExhaustedError("cannot read '" + path + "': not enough memory for " +
                                    std::to_string(used + block) + " bytes");
    }
    const ssize_t got = read(fd.get(), text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(Quoted("read", path), errno);
    if (got == 0) break;
    used += static_cast<size_t>(got);
    if (used > limit) {
      return InvalidArgumentError("'" + path + "' holds more than " + std::to_string(limit) +
                                  " bytes, too much to read as a whole; give a smaller file");
    }
    block = std::max<size_t>(used, 64 << 10);
  }
  text.resize(used);
  return text;
}

}  // namespace

int WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return EIO;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  SPILLWAY_ASSIGN_OR_RETURN(const FileDescriptor fd, OpenForReading(path));
  SPILLWAY_ASSIGN_OR_RETURN(const struct stat info, StatOf(fd, path));
  if (!S_ISREG(info.st_mode)) {
    return IoError("cannot map '" + path + "': it is a pipe or device, not a regular file");
  }
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<size_t>(info.st_size);
  if (file.size_ == 0) return file;
  void* address = mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) {
    file.size_ = 0;
    return ErrnoError(Quoted("map", path), errno);
  }
  file.data_ = static_cast<const std::byte*>(address);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::Release(size_t offset, size_t size) const {
  if (data_ == nullptr || offset >= size_) return;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t end = offset + std::min(size, size_ - offset);
  // Only whole pages: the neighbours of the range may still be in use. The
  // page that the end of the file cuts has no other user.
  const size_t first = (offset + page - 1) / page * page;
  const size_t last = end == size_ ? end : end / page * page;
  if (first >= last) return;
  madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

Result<std::string> ReadFile(const std::string& path) {
  SPILLWAY_ASSIGN_OR_RETURN(const FileDescriptor fd, OpenForReading(path));
  SPILLWAY_ASSIGN_OR_RETURN(const struct stat info, StatOf(fd, path));
  const bool regular = S_ISREG(info.st_mode);
  const uint64_t expected = regular ? static_cast<uint64_t>(info.st_size) : 0;
  const uint64_t limit = regular ? kMaxWholeFile : kMaxWholeStream;
  if (expected > limit) {
    return InvalidArgumentError("'" + path + "' holds " + std::to_string(expected) +
                                " bytes, too much to read as a whole (at most " +
                                std::to_string(limit) + "); give a smaller file");
  }
  return ReadToEnd(fd, path, expected, limit);
}

std::string JoinPath(std::string_view folder, std::string_view name) {
  std::string path(folder);
  if (!path.empty() && path.back() != '/' && !name.empty()) path += '/';
  path += name;
  return path;
}

std::string BaseName(std::string_view path) {
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

bool FileExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<uint64_t> FileSize(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return ErrnoError(Quoted("examine", path), errno);
  if (!S_ISREG(info.st_mode)) {
    return IoError("'" + path + "' is not a regular file, so it has no size");
  }
  return static_cast<uint64_t>(info.st_size);
}

Result<std::vector<std::string>> ListFolder(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (folder == nullptr) return ErrnoError(Quoted("list folder", path), errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) return ErrnoError(Quoted("list folder", path), errno);
  std::sort(names.begin(), names.end());
  return names;
}

Result<uint64_t> FreeDiskBytes(const std::string& path) {
  std::string place = path.empty() ? "." : path;
  struct statvfs info;
  while (statvfs(place.c_str(), &info) != 0) {
    if ((errno != ENOENT && errno != ENOTDIR) || place == "/" || place == ".") {
      return ErrnoError(Quoted("ask for the free space at", place), errno);
    }
    while (place.size() > 1 && place.back() == '/') place.pop_back();
    const size_t slash = place.rfind('/');
    place = slash == std::string::npos ? "." : slash == 0 ? "/" : place.substr(0, slash);
  }
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

std::string ExecutableFolder() {
  std::string target(256, '\0');
  while (true) {
    const ssize_t length = readlink("/proc/self/exe", target.data(), target.size());
    if (length <= 0) return ".";
    if (static_cast<size_t>(length) < target.size()) {
      target.resize(static_cast<size_t>(length));
      break;
    }
    target.resize(target.size() * 2);
  }
  const size_t slash = target.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : target.substr(0, slash);
}

}  // namespace spillway
