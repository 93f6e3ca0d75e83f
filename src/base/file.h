// Files: memory-mapped reading, whole-file reading, and writing that leaves
// either the complete new file (or folder) or nothing.
//
// Errors name the path and what the operating system said; a full disk is
// kResourceExhausted, a missing path kNotFound, everything else kIo.

#ifndef SPILLWAY_BASE_FILE_H_
#define SPILLWAY_BASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/status.h"

namespace spillway {

// A file mapped read-only. The bytes are valid while the object (or the one it
// was moved to) lives. Reading from several threads is safe. An empty file
// gives an empty span.
class MappedFile {
 public:
  // Only regular files. A file that another process cuts short while it is
  // mapped makes reads of the lost part end this process (SIGBUS).
  static Result<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Tells the kernel that [offset, offset + size) is no longer needed, so that
  // it stops counting as resident. The bytes stay readable.
  void Release(size_t offset, size_t size) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

// The whole contents: a regular file of at most 4 GiB, or a pipe or device of
// at most 64 MiB (kInvalidArgument beyond). Map what is larger.
Result<std::string> ReadFile(const std::string& path);

// Writes a file under a temporary name beside `path`; Commit() flushes it to
// disk and renames it over `path`. Without Commit() the destructor removes the
// temporary file. The parent folder must exist; a folder, pipe or device at
// `path` is refused. Small writes are gathered, so that a full disk may show at
// a later Write() or at Commit(); after a failure every call fails the same
// way. Not thread-safe.
class AtomicFile {
 public:
  static Result<AtomicFile> Create(const std::string& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) = delete;
  ~AtomicFile();

  Status Write(std::span<const std::byte> bytes);
  Status Write(std::string_view text);
  // Pads with zero bytes to the next multiple of `alignment` (a power of two).
  Status Align(size_t alignment);
  // Bytes written so far.
  uint64_t size() const { return size_; }
  Status Commit();

 private:
  AtomicFile() = default;
  Status WriteOut(std::span<const std::byte> bytes);
  Status Flush();

  int fd_ = -1;
  uint64_t size_ = 0;
  std::string path_, temporary_, buffer_;
  Status error_;
};

Status WriteFileAtomically(const std::string& path, std::string_view contents);
// The contents of `from` at `to`, which does not exist: a hard link, or a copy where the
// file system cannot link.
Status LinkOrCopyFile(const std::string& from, const std::string& to);

// A folder that is filled under a temporary name beside its place and then
// exchanged with it, so that a reader sees the old or the new folder, never a
// mixture. Without Commit() the destructor removes the temporary folder.
// Creates missing parent folders. Create() removes abandoned temporary folders
// of the same place whose process is gone. A path that exists and is no folder
// is refused; whether a folder that is there may be lost is the caller's
// decision. A link to a folder stays: the folder behind it is exchanged.
// Commit() flushes every file to disk first. Not thread-safe.
class AtomicFolder {
 public:
  static Result<AtomicFolder> Create(const std::string& path);

  AtomicFolder(AtomicFolder&& other) noexcept;
  AtomicFolder& operator=(AtomicFolder&& other) = delete;
  ~AtomicFolder();

  // Where to put the files until Commit().
  const std::string& staging_path() const { return staging_; }
  Status Commit();

 private:
  AtomicFolder() = default;
  std::string path_, staging_;
  int lock_fd_ = -1;
};

// Removes the temporary folders of all AtomicFolders of this process: for a program that a
// signal ends. Thread-safe; what still writes into them fails.
void RemoveTemporaryFolders();

// "a" + "b" = "a/b"; an empty folder adds nothing.
std::string JoinPath(std::string_view folder, std::string_view name);
// The last component of a path; slashes at the end do not count. Empty for "/".
std::string BaseName(std::string_view path);
bool FileExists(const std::string& path);
bool IsDirectory(const std::string& path);
Result<uint64_t> FileSize(const std::string& path);
// The names (not paths) in a folder, sorted, without "." and "..".
Result<std::vector<std::string>> ListFolder(const std::string& path);
// Free bytes for an unprivileged user on the file system that holds `path` or,
// when it does not exist yet, its nearest existing parent.
Result<uint64_t> FreeDiskBytes(const std::string& path);
// The folder that holds the running program, without a trailing slash.
std::string ExecutableFolder();

}  // namespace spillway

#endif  // SPILLWAY_BASE_FILE_H_
