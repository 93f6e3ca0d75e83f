#include "compiler/context_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "base/file.h"
#include "tests/fake_qnn/fake_qnn.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/paths.h"

namespace spillway::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ContextCacheTest : public ::testing::Test {
 protected:
  std::unique_ptr<ContextCache> Open(uint64_t limit = 1 << 20) {
    auto cache = ContextCache::Open(folder_.File("cache"), limit);
    EXPECT_TRUE(cache.ok()) << cache.status().ToString();
    return std::move(cache).value();
  }
  // A binary of `size` bytes, kept under `key`.
  void Put(ContextCache& cache, const std::string& key, size_t size) {
    const std::string path = folder_.File(key + ".made");
    WriteBytes(path, std::string(size, key[0]));
    VendorResult result;
    result.build_id = "build " + key;
    result.shard.context_bytes = size;
    const Status status = cache.Put(key, path, result, "the context " + key);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  std::optional<VendorResult> Take(ContextCache& cache, const std::string& key) {
    std::remove(folder_.File("taken").c_str());
    auto found = cache.Take(key, folder_.File("taken"));
    EXPECT_TRUE(found.ok()) << found.status().ToString();
    return found.ok() ? *found : std::nullopt;
  }
  std::vector<std::string> Keys(const ContextCache& cache) {
    std::vector<std::string> keys;
    const auto entries = cache.List();
    EXPECT_TRUE(entries.ok());
    for (const ContextCache::Entry& entry : *entries) keys.push_back(entry.key);
    std::sort(keys.begin(), keys.end());
    return keys;
  }
  // Makes the entry look as if it was used `seconds` after 1970.
  void SetUsed(const std::string& key, time_t seconds) {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    const std::string path = folder_.File("cache/" + key + ".json");
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  TempFolder folder_;
};

TEST_F(ContextCacheTest, GivesBackWhatWasPut) {
  const auto cache = Open();
  EXPECT_FALSE(Take(*cache, "a"));
  Put(*cache, "a", 100);
  const auto result = Take(*cache, "a");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->build_id, "build a");
  EXPECT_EQ(result->shard.context_bytes, 100U);
  EXPECT_EQ(*ReadFile(folder_.File("taken")), std::string(100, 'a'));
  EXPECT_EQ(cache->List()->front().description, "the context a");
}

TEST_F(ContextCacheTest, ADamagedBinaryOrDescriptionCountsAsMissing) {
  const auto cache = Open();
  Put(*cache, "a", 100);
  Put(*cache, "b", 100);
  // Not in place: the binary may be one file with the package's.
  WriteBytes(folder_.File("cache/a.bin"), std::string(100, 'x'));
  WriteBytes(folder_.File("cache/b.json"), "{\"version\": 1");
  EXPECT_FALSE(Take(*cache, "a"));
  EXPECT_FALSE(Take(*cache, "b"));
  EXPECT_THAT(Keys(*cache), IsEmpty());
  EXPECT_FALSE(FileExists(folder_.File("cache/a.bin")));
}

TEST_F(ContextCacheTest, TheEntriesUnusedForLongestMakeRoom) {
  auto cache = Open(250);
  Put(*cache, "a", 100);
  Put(*cache, "b", 100);
  SetUsed("a", 2000);
  SetUsed("b", 1000);
  cache = Open(250);
  Put(*cache, "c", 100);
  EXPECT_THAT(Keys(*cache), ElementsAre("a", "c"));
}

TEST_F(ContextCacheTest, WhatThisCompileMadeStays) {
  const auto cache = Open(50);
  Put(*cache, "a", 100);
  Put(*cache, "b", 100);
  EXPECT_THAT(Keys(*cache), ElementsAre("a", "b"));
}

TEST_F(ContextCacheTest, LeftoversOfAKilledProcessGo) {
  const auto cache = Open();
  Put(*cache, "a", 10);
  WriteBytes(folder_.File("cache/half.bin"), "no description yet");
  WriteBytes(folder_.File("cache/.a.json.tmp-1-2"), "{");
  Put(*cache, "b", 10);
  EXPECT_THAT(*ListFolder(folder_.File("cache")),
              ElementsAre("a.bin", "a.json", "b.bin", "b.json", "lock"));
}

TEST_F(ContextCacheTest, ClearRemovesEverything) {
  const auto cache = Open();
  Put(*cache, "a", 100);
  Put(*cache, "b", 50);
  EXPECT_EQ(*cache->Clear(), 150U);
  EXPECT_THAT(*ListFolder(folder_.File("cache")), ElementsAre("lock"));
  EXPECT_EQ(*ReadFile(folder_.File("a.made")), std::string(100, 'a'));
}

TEST_F(ContextCacheTest, ThreadsDoNotDisturbEachOther) {
  const auto cache = Open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string key(1, static_cast<char>('a' + t));
      for (int i = 0; i < 10; ++i) Put(*cache, key, 100);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(Keys(*cache), ElementsAre("a", "b", "c", "d"));
}

TEST(ContextCacheFolder, FollowsTheEnvironment) {
  const ScopedEnv cache("XDG_CACHE_HOME", "/xdg");
  {
    const ScopedEnv own("SPILLWAY_CACHE_DIR", "/own");
    EXPECT_EQ(ContextCache::DefaultFolder(), "/own");
  }
  {
    const ScopedEnv own("SPILLWAY_CACHE_DIR", "off");
    EXPECT_EQ(ContextCache::DefaultFolder(), "");
  }
  const ScopedEnv own("SPILLWAY_CACHE_DIR", "");
  EXPECT_EQ(ContextCache::DefaultFolder(), "/xdg/spillway");
}

}  // namespace
}  // namespace spillway::test
