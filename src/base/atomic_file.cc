// AtomicFile and AtomicFolder of base/file.h.
//
// A temporary has the name .<base>.tmp-<pid>-<random> beside its target. The
// writer of a folder holds a lock (flock) on it, which the system drops when
// the process ends: a temporary folder that can be locked is abandoned. The
// process number alone would mislead when processes live in containers.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <random>
#include <set>
#include <system_error>
#include <utility>

#include "base/errno_error.h"
#include "base/file.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/replace_folder.h"

namespace spillway {
namespace {

constexpr size_t kWriteBuffer = 256 << 10;
constexpr int kNameAttempts = 100;

std::string ParentFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string TemporaryPrefix(const std::string& path) { return "." + BaseName(path) + ".tmp-"; }

std::string TemporaryPath(const std::string& path) {
  std::array<char, 9> random;
  std::snprintf(random.data(), random.size(), "%08x",
                static_cast<unsigned int>(std::random_device()()));
  return JoinPath(ParentFolder(path),
                  TemporaryPrefix(path) + std::to_string(getpid()) + "-" + random.data());
}

// Makes the entries of a folder (a rename) survive a power cut. File systems
// that cannot do that say so with EINVAL, which is no reason to fail.
Status SyncFolder(const std::string& folder) {
  const FileDescriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError("open folder '" + folder + "'", errno);
  if (fsync(fd.get()) != 0 && errno != EINVAL) {
    return ErrnoError("flush folder '" + folder + "' to disk", errno);
  }
  return OkStatus();
}

Status SyncTree(const std::string& folder) {
  std::error_code error;
  std::filesystem::recursive_directory_iterator it(folder, error);
  for (; !error && it != std::filesystem::recursive_directory_iterator(); it.increment(error)) {
    const std::string path = it->path().string();
    std::error_code ignored;
    const std::filesystem::file_status kind = it->symlink_status(ignored);
    if (std::filesystem::is_directory(kind)) {
      SPILLWAY_RETURN_IF_ERROR(SyncFolder(path));
    } else if (std::filesystem::is_regular_file(kind)) {
      const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (!fd.valid()) return ErrnoError("open '" + path + "'", errno);
      if (fsync(fd.get()) != 0) return ErrnoError("flush '" + path + "' to disk", errno);
    }
  }
  if (error) return ErrnoError("list folder '" + folder + "'", error.value());
  return SyncFolder(folder);
}

void RemoveTree(const std::string& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) {
    Log(LogLevel::kWarning, "cannot remove the temporary folder '{}': {}", folder, error.message());
  }
}

// The lock says that a process is at work in the folder. Without a value:
// somebody else holds it, or the file system has no locks.
FileDescriptor LockFolder(const std::string& folder) {
  FileDescriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd.Close();
  return fd;
}

void RemoveAbandoned(const std::string& path) {
  const std::string parent = ParentFolder(path);
  const std::string prefix = TemporaryPrefix(path);
  const Result<std::vector<std::string>> names = ListFolder(parent);
  if (!names.ok()) return;
  for (const std::string& name : names.value()) {
    if (!name.starts_with(prefix)) continue;
    const std::string folder = JoinPath(parent, name);
    const FileDescriptor lock = LockFolder(folder);
    if (!lock.valid()) continue;
    Log(LogLevel::kInfo, "removing the abandoned temporary folder '{}'", folder);
    RemoveTree(folder);
  }
}

bool SameFolder(int fd, const std::string& path) {
  struct stat locked;
  struct stat named;
  return fstat(fd, &locked) == 0 && lstat(path.c_str(), &named) == 0 &&
         locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
}

// Absolute, links resolved when it exists, without a trailing slash.
Result<std::string> ResolveTarget(const std::string& path) {
  std::error_code error;
  std::filesystem::path target =
      std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  if (error) return ErrnoError("resolve '" + path + "'", error.value());
  std::string text = target.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

}  // namespace

Result<AtomicFile> AtomicFile::Create(const std::string& path) {
  if (BaseName(path).empty() || path.back() == '/') {
    return InvalidArgumentError("cannot create the file '" + path + "': it has no file name");
  }
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return IoError("cannot write '" + path + "': a " +
                   (S_ISDIR(info.st_mode) ? "folder" : "pipe or device") +
                   " is there; choose another name");
  }
  AtomicFile file;
  file.path_ = path;
  for (int attempt = 0; file.fd_ < 0; ++attempt) {
    file.temporary_ = TemporaryPath(path);
    file.fd_ = open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.fd_ >= 0) break;
    if (errno != EEXIST || attempt == kNameAttempts) {
      file.temporary_.clear();
      return ErrnoError("create '" + path + "'", errno);
    }
  }
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      buffer_(std::move(other.buffer_)),
      error_(std::move(other.error_)) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Status AtomicFile::WriteOut(std::span<const std::byte> bytes) {
  const int error = WriteAll(fd_, bytes);
  if (error != 0) error_ = ErrnoError("write '" + path_ + "'", error);
  return error_;
}

Status AtomicFile::Flush() {
  Status status = WriteOut(std::as_bytes(std::span(buffer_)));
  buffer_.clear();
  return status;
}

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  if (fd_ < 0) return FailedPreconditionError("cannot write '" + path_ + "' after its commit");
  SPILLWAY_RETURN_IF_ERROR(error_);
  if (buffer_.size() + bytes.size() > kWriteBuffer) SPILLWAY_RETURN_IF_ERROR(Flush());
  if (bytes.size() > kWriteBuffer) {
    SPILLWAY_RETURN_IF_ERROR(WriteOut(bytes));
  } else {
    buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  size_ += bytes.size();
  return OkStatus();
}

Status AtomicFile::Write(std::string_view text) { return Write(std::as_bytes(std::span(text))); }

Status AtomicFile::Align(size_t alignment) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    return InvalidArgumentError("cannot align '" + path_ + "' to " + std::to_string(alignment) +
                                ": not a power of two");
  }
  static constexpr std::array<std::byte, 4096> kZeros{};
  uint64_t missing = (alignment - size_ % alignment) % alignment;
  while (missing > 0) {
    const size_t block = static_cast<size_t>(std::min<uint64_t>(missing, kZeros.size()));
    SPILLWAY_RETURN_IF_ERROR(Write(std::span(kZeros).first(block)));
    missing -= block;
  }
  return OkStatus();
}

Status AtomicFile::Commit() {
  if (fd_ < 0) return FailedPreconditionError("'" + path_ + "' is already committed");
  SPILLWAY_RETURN_IF_ERROR(error_);
  SPILLWAY_RETURN_IF_ERROR(Flush());
  if (fsync(fd_) != 0) return error_ = ErrnoError("flush '" + path_ + "' to disk", errno);
  if (close(std::exchange(fd_, -1)) != 0) return ErrnoError("close '" + path_ + "'", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return ErrnoError("rename '" + temporary_ + "' to '" + path_ + "'", errno);
  }
  temporary_.clear();
  return SyncFolder(ParentFolder(path_));
}

Status LinkOrCopyFile(const std::string& from, const std::string& to) {
  if (link(from.c_str(), to.c_str()) == 0) return OkStatus();
  if (errno == EEXIST || errno == ENOENT) return ErrnoError("link '" + to + "'", errno);
  SPILLWAY_ASSIGN_OR_RETURN(const MappedFile source, MappedFile::Open(from));
  SPILLWAY_ASSIGN_OR_RETURN(AtomicFile copy, AtomicFile::Create(to));
  SPILLWAY_RETURN_IF_ERROR(copy.Write(source.bytes()));
  return copy.Commit();
}

Status WriteFileAtomically(const std::string& path, std::string_view contents) {
  SPILLWAY_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  SPILLWAY_RETURN_IF_ERROR(file.Write(contents));
  return file.Commit();
}

namespace {

// The temporary folders that there are.
struct Staged {
  std::mutex mutex;
  std::set<std::string> folders;
};
Staged& AllStaged() {
  static auto* const staged = new Staged;
  return *staged;
}
void Remember(const std::string& folder) {
  const std::lock_guard<std::mutex> lock(AllStaged().mutex);
  AllStaged().folders.insert(folder);
}
void Forget(const std::string& folder) {
  const std::lock_guard<std::mutex> lock(AllStaged().mutex);
  AllStaged().folders.erase(folder);
}

}  // namespace

void RemoveTemporaryFolders() {
  const std::lock_guard<std::mutex> lock(AllStaged().mutex);
  for (const std::string& folder : AllStaged().folders) RemoveTree(folder);
}

Result<AtomicFolder> AtomicFolder::Create(const std::string& path) {
  if (path.empty()) return InvalidArgumentError("cannot create a folder without a name");
  AtomicFolder folder;
  SPILLWAY_ASSIGN_OR_RETURN(folder.path_, ResolveTarget(path));
  if (BaseName(folder.path_).empty()) {
    return InvalidArgumentError("cannot replace the folder '" + path + "': it is the root");
  }
  if (FileExists(folder.path_) && !IsDirectory(folder.path_)) {
    return IoError("cannot create the folder '" + path +
                   "': a file is there; move it away or choose another place");
  }
  std::error_code error;
  std::filesystem::create_directories(ParentFolder(folder.path_), error);
  if (error) {
    return ErrnoError("create folder '" + ParentFolder(folder.path_) + "'", error.value());
  }
  RemoveAbandoned(folder.path_);
  for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
    const std::string staging = TemporaryPath(folder.path_);
    if (mkdir(staging.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      return ErrnoError("create folder '" + staging + "'", errno);
    }
    FileDescriptor lock = LockFolder(staging);
    // Between mkdir and flock another process may have taken it for abandoned.
    if (!lock.valid() ? !IsDirectory(staging) : !SameFolder(lock.get(), staging)) continue;
    folder.staging_ = staging;
    Remember(staging);
    folder.lock_fd_ = lock.Release();
    return folder;
  }
  return IoError("cannot create a temporary folder beside '" + path + "'");
}

AtomicFolder::AtomicFolder(AtomicFolder&& other) noexcept
    : path_(std::move(other.path_)),
      staging_(std::exchange(other.staging_, {})),
      lock_fd_(std::exchange(other.lock_fd_, -1)) {}

AtomicFolder::~AtomicFolder() {
  if (!staging_.empty()) {
    RemoveTree(staging_);
    Forget(staging_);
  }
  if (lock_fd_ >= 0) close(lock_fd_);
}

Status AtomicFolder::Commit() {
  if (staging_.empty()) return FailedPreconditionError("'" + path_ + "' is already committed");
  SPILLWAY_RETURN_IF_ERROR(SyncTree(staging_));
  SPILLWAY_RETURN_IF_ERROR(ReplaceFolder(staging_, path_));
  const std::string old = std::exchange(staging_, {});
  Forget(old);
  Status status = SyncFolder(ParentFolder(path_));
  RemoveTree(old);
  close(std::exchange(lock_fd_, -1));
  return status;
}

}  // namespace spillway
