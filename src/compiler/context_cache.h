// ContextCache: finished context binaries on disk, so that a compile that was
// interrupted goes on where it was.
//
// A folder with two files an entry: <key>.bin, the binary, and <key>.json, an object
// with "version" 1, "description", "bytes" and "hash" of the binary, and "result" (a
// VendorResult). An entry is there when its JSON is. The key
// is a hash of everything that decides the binary. Binaries are hard links to those of
// packages where the file system can, so an entry costs no space while its package
// is there. A lock on the folder's file `lock` makes changes one at a time.

#ifndef SPILLWAY_COMPILER_CONTEXT_CACHE_H_
#define SPILLWAY_COMPILER_CONTEXT_CACHE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/vendor_job.h"
#include "spillway/status.h"

namespace spillway {

// Thread-safe, and safe between processes.
class ContextCache {
 public:
  // $SPILLWAY_CACHE_DIR, else $XDG_CACHE_HOME/spillway, else ~/.cache/spillway.
  // Empty (no cache) when the first is "off" or there is no home.
  static std::string DefaultFolder();
  // $SPILLWAY_CACHE_LIMIT in gigabytes, else 10 GB.
  static uint64_t DefaultLimit();

  // Creates the folder. `limit_bytes`: Put() removes the entries that were not used
  // for longest until the rest fits.
  static Result<std::unique_ptr<ContextCache>> Open(const std::string& folder,
                                                    uint64_t limit_bytes);

  // Puts the binary of `key` at `output_path` (which must not exist) and returns what
  // was stored with it. Nothing when there is no such entry; one that is damaged is
  // removed and counts as missing.
  Result<std::optional<VendorResult>> Take(const std::string& key, const std::string& output_path);
  // Keeps the finished binary; `description` is for people. Entries put or taken by
  // this object are not removed for space.
  Status Put(const std::string& key, const std::string& binary_path, const VendorResult& result,
             const std::string& description);

  struct Entry {
    std::string key;
    uint64_t bytes = 0;
    int64_t used_s = 0;       // when it was last put or taken, seconds since 1970
    std::string description;  // "SmolLM2 135M, shard 0 of 1, SM8750"
  };
  // The most recently used first.
  Result<std::vector<Entry>> List() const;
  // Removes all entries; returns the bytes of their binaries.
  Result<uint64_t> Clear();

  const std::string& folder() const { return folder_; }
  uint64_t limit_bytes() const { return limit_bytes_; }

 private:
  ContextCache(std::string folder, uint64_t limit_bytes)
      : folder_(std::move(folder)), limit_bytes_(limit_bytes) {}
  std::string PathOf(const std::string& key, std::string_view ending) const;
  void Remove(const std::string& key);
  Status Trim(const std::set<std::string>& spared);

  const std::string folder_;
  const uint64_t limit_bytes_;
  std::mutex mutex_;
  std::set<std::string> in_use_;  // keys of Put() and Take()
};

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_CONTEXT_CACHE_H_
