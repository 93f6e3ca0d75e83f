// spillway cache: finished context binaries that are kept for the next compile.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ctime>

#include "base/file.h"
#include "command.h"
#include "compiler/context_cache.h"
#include "json_text.h"
#include "text.h"

namespace spillway::cli {
namespace {

constexpr char kExamples[] =
    "Context binaries are kept so that a compile that was interrupted goes on where it was.\n"
    "The folder is $SPILLWAY_CACHE_DIR (\"off\": no cache), else $XDG_CACHE_HOME/spillway, else\n"
    "~/.cache/spillway; it holds at most $SPILLWAY_CACHE_LIMIT gigabytes (default 10). Where the\n"
    "file system can, a binary and its copy in a package are one file.\n\n"
    "Examples:\n"
    "  spillway cache            what is in it\n"
    "  spillway cache --clear    remove everything\n";

class CacheCommand : public Command {
 public:
  explicit CacheCommand(CLI::App& program) {
    CLI::App& app = *program.add_subcommand("cache", "Show or clear the cache of contexts");
    app.add_option("--cache-dir", folder_, "The folder, instead of the one of the environment");
    app.add_flag("--clear", clear_, "Remove all entries");
    app.footer(kExamples);
  }

  Status Run(Console& console) override {
    if (folder_.empty()) folder_ = ContextCache::DefaultFolder();
    if (folder_.empty()) {
      return FailedPreconditionError(
          "there is no cache: SPILLWAY_CACHE_DIR is off or HOME is not set");
    }
    const uint64_t limit = ContextCache::DefaultLimit();
    if (!IsDirectory(folder_)) return Show(console, {}, limit);  // nothing was kept yet
    SPILLWAY_ASSIGN_OR_RETURN(const auto cache, ContextCache::Open(folder_, limit));
    if (clear_) return Clear(console, *cache);
    SPILLWAY_ASSIGN_OR_RETURN(const auto entries, cache->List());
    return Show(console, entries, limit);
  }

 private:
  Status Clear(Console& console, ContextCache& cache) const {
    SPILLWAY_ASSIGN_OR_RETURN(const uint64_t bytes, cache.Clear());
    if (console.json) {
      return console.Print(JsonText({{"folder", folder_}, {"removed_bytes", bytes}}));
    }
    return console.Print(fmt::format("{}: removed {}\n", folder_, BytesText(bytes)));
  }

  Status Show(Console& console, const std::vector<ContextCache::Entry>& entries,
              uint64_t limit) const {
    uint64_t total = 0;
    for (const ContextCache::Entry& entry : entries) total += entry.bytes;
    if (console.json) {
      Json list = Json::array();
      for (const ContextCache::Entry& entry : entries) {
        list.push_back({{"key", entry.key},
                        {"bytes", entry.bytes},
                        {"used_s", entry.used_s},
                        {"description", entry.description}});
      }
      return console.Print(JsonText(
          {{"folder", folder_}, {"limit_bytes", limit}, {"bytes", total}, {"entries", list}}));
    }
    std::string text = fmt::format("{}: {} of at most {} in {} contexts\n", folder_,
                                   BytesText(total), BytesText(limit), entries.size());
    TextTable table({"last used", "size", "context"});
    for (const ContextCache::Entry& entry : entries) {
      table.AddRow({fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(entry.used_s)),
                    BytesText(entry.bytes), entry.description});
    }
    if (!entries.empty()) text += table.ToString(2);
    return console.Print(text);
  }

  std::string folder_;
  bool clear_ = false;
};

}  // namespace

std::unique_ptr<Command> AddCacheCommand(CLI::App& program) {
  return std::make_unique<CacheCommand>(program);
}

}  // namespace spillway::cli
