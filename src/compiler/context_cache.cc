#include "compiler/context_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/errno_error.h"
#include "base/file.h"
#include "base/file_descriptor.h"
#include "base/hash.h"
#include "base/log.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kEntryVersion = 1;
constexpr double kDefaultLimitGb = 10.0;
constexpr std::string_view kBinary = ".bin", kDescription = ".json";

// Changes of the folder by one process and thread at a time.
Result<FileDescriptor> Lock(const std::string& folder) {
  const std::string path = JoinPath(folder, "lock");
  FileDescriptor fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd.valid()) return ErrnoError("open '" + path + "'", errno);
  while (flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return ErrnoError("lock '" + path + "'", errno);
  }
  return fd;
}

struct Stored {
  std::string description;
  uint64_t bytes = 0;
  std::string hash;
  VendorResult result;
};

// Nothing when it is not an entry that this version wrote.
std::optional<Stored> ReadStored(const std::string& path) {
  const Result<std::string> text = ReadFile(path);
  if (!text.ok()) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  try {
    if (json.at("version") != kEntryVersion) return std::nullopt;
    Stored stored{json.at("description"), json.at("bytes"), json.at("hash"), {}};
    Result<VendorResult> result = VendorResult::FromJson(json.at("result").dump());
    if (!result.ok()) return std::nullopt;
    stored.result = std::move(result).value();
    return stored;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string ContextCache::DefaultFolder() {
  const char* own = std::getenv("SPILLWAY_CACHE_DIR");
  if (own != nullptr && *own != '\0') return std::string_view(own) == "off" ? "" : own;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return JoinPath(cache, "spillway");
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? JoinPath(home, ".cache/spillway") : "";
}

uint64_t ContextCache::DefaultLimit() {
  const char* text = std::getenv("SPILLWAY_CACHE_LIMIT");
  double gigabytes = kDefaultLimitGb;
  if (text != nullptr && *text != '\0') {
    char* end = nullptr;
    const double value = std::strtod(text, &end);
    if (*end == '\0' && value >= 0.0 && value < 1e9) {
      gigabytes = value;
    } else {
      Log(LogLevel::kWarning, "SPILLWAY_CACHE_LIMIT is '{}', expected gigabytes; {} is used", text,
          kDefaultLimitGb);
    }
  }
  return static_cast<uint64_t>(gigabytes * 1e9);
}

Result<std::unique_ptr<ContextCache>> ContextCache::Open(const std::string& folder,
                                                         uint64_t limit_bytes) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return ErrnoError("create folder '" + folder + "'", error.value());
  return std::unique_ptr<ContextCache>(new ContextCache(folder, limit_bytes));
}

std::string ContextCache::PathOf(const std::string& key, std::string_view ending) const {
  return JoinPath(folder_, key + std::string(ending));
}

void ContextCache::Remove(const std::string& key) {
  // The description first: without it there is no entry.
  (void)std::remove(PathOf(key, kDescription).c_str());
  (void)std::remove(PathOf(key, kBinary).c_str());
}

Result<std::optional<VendorResult>> ContextCache::Take(const std::string& key,
                                                       const std::string& output_path) {
  SPILLWAY_ASSIGN_OR_RETURN(const FileDescriptor lock, Lock(folder_));
  const std::string path = PathOf(key, kDescription);
  if (!FileExists(path)) return std::optional<VendorResult>();
  const std::optional<Stored> stored = ReadStored(path);
  const Result<std::string> hash = HashFile(PathOf(key, kBinary));
  if (!stored || !hash.ok() || *hash != stored->hash) {
    Log(LogLevel::kWarning, "the entry {} of the cache {} is damaged and is removed", key, folder_);
    Remove(key);
    return std::optional<VendorResult>();
  }
  SPILLWAY_RETURN_IF_ERROR(LinkOrCopyFile(PathOf(key, kBinary), output_path));
  (void)utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now
  const std::lock_guard<std::mutex> guard(mutex_);
  in_use_.insert(key);
  return std::optional<VendorResult>(stored->result);
}

Status ContextCache::Put(const std::string& key, const std::string& binary_path,
                         const VendorResult& result, const std::string& description) {
  SPILLWAY_ASSIGN_OR_RETURN(const uint64_t bytes, FileSize(binary_path));
  SPILLWAY_ASSIGN_OR_RETURN(const std::string hash, HashFile(binary_path));
  SPILLWAY_ASSIGN_OR_RETURN(const FileDescriptor lock, Lock(folder_));
  Remove(key);
  SPILLWAY_RETURN_IF_ERROR(LinkOrCopyFile(binary_path, PathOf(key, kBinary)));
  const Json json{{"version", kEntryVersion},
                  {"description", description},
                  {"bytes", bytes},
                  {"hash", hash},
                  {"result", Json::parse(result.ToJson())}};
  SPILLWAY_RETURN_IF_ERROR(WriteFileAtomically(
      PathOf(key, kDescription), json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
  std::set<std::string> spared;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    in_use_.insert(key);
    spared = in_use_;
  }
  return Trim(spared);
}

// Under the lock.
Status ContextCache::Trim(const std::set<std::string>& spared) {
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<Entry> entries, List());
  std::set<std::string> known;
  uint64_t total = 0;
  for (const Entry& entry : entries) {
    known.insert(entry.key);
    total += entry.bytes;
    if (total <= limit_bytes_ || spared.contains(entry.key)) continue;
    Remove(entry.key);
    total -= entry.bytes;
  }
  // What a process that was killed left half done.
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder_));
  for (const std::string& name : names) {
    const bool orphan =
        name.ends_with(kBinary) && !known.contains(name.substr(0, name.size() - kBinary.size()));
    if (orphan || name.front() == '.') (void)std::remove(JoinPath(folder_, name).c_str());
  }
  return OkStatus();
}

Result<std::vector<ContextCache::Entry>> ContextCache::List() const {
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder_));
  std::vector<Entry> entries;
  for (const std::string& name : names) {
    struct stat info;
    const std::string path = JoinPath(folder_, name);
    if (!name.ends_with(kDescription) || stat(path.c_str(), &info) != 0) continue;
    const std::optional<Stored> stored = ReadStored(path);
    if (!stored) continue;
    entries.push_back({name.substr(0, name.size() - kDescription.size()), stored->bytes,
                       info.st_mtim.tv_sec, stored->description});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used_s > b.used_s; });
  return entries;
}

Result<uint64_t> ContextCache::Clear() {
  SPILLWAY_ASSIGN_OR_RETURN(const FileDescriptor lock, Lock(folder_));
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder_));
  uint64_t freed = 0;
  for (const bool binaries : {false, true}) {
    for (const std::string& name : names) {
      if (!name.ends_with(binaries ? kBinary : kDescription)) continue;
      const std::string path = JoinPath(folder_, name);
      const Result<uint64_t> bytes = FileSize(path);
      if (std::remove(path.c_str()) != 0) return ErrnoError("remove '" + path + "'", errno);
      if (binaries && bytes.ok()) freed += *bytes;
    }
  }
  return freed;
}

}  // namespace spillway
