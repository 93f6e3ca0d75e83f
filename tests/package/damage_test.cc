// Damaged packages: whatever the bytes are, opening gives an error or graphs
// that can be walked, and never reads outside the files.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "package/graph_file.h"
#include "tests/package/sample.h"
#include "tests/support/paths.h"

namespace spillway::test {
namespace {

// Touches everything that a user of the graphs would.
size_t Walk(const StoredGraphs& stored) {
  size_t sum = 0;
  for (const auto& shard : stored.graphs) {
    for (const auto& graph : shard) {
      sum += graph->ToString().size();
      EXPECT_TRUE(graph->Validate().ok());
      for (const Tensor& tensor : graph->tensors()) {
        if (tensor.data == nullptr) continue;
        EXPECT_FALSE(tensor.data->bytes().empty());
        sum += static_cast<size_t>(tensor.data->bytes().back());
      }
    }
  }
  return sum;
}

// In place: making thousands of files anew would wait for the disk.
void Overwrite(const std::string& path, const std::string& bytes) {
  const int fd = open(path.c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes.size())), 0);
  close(fd);
}

class DamageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteGraphFiles(folder_.path(), SampleShards(), {}).ok());
    bytes_ = *ReadFile(folder_.File(kGraphsFile));
  }
  // True when the damaged file was still readable.
  bool Try(const std::string& damaged) {
    Overwrite(folder_.File(kGraphsFile), damaged);
    Result<StoredGraphs> stored = ReadGraphFiles(folder_.path());
    if (stored.ok()) {
      EXPECT_GT(Walk(*stored), 0u);
      return true;
    }
    EXPECT_TRUE(stored.status().code() == StatusCode::kCorruptData ||
                stored.status().code() == StatusCode::kUnsupported)
        << stored.status().ToString();
    return false;
  }

  TempFolder folder_;
  std::string bytes_;
};

TEST_F(DamageTest, UndamagedReads) { EXPECT_TRUE(Try(bytes_)); }

TEST_F(DamageTest, EveryBitOfTheFirstKilobyte) {
  size_t refused = 0;
  for (size_t i = 0; i < 1024 && i < bytes_.size(); ++i) {
    std::string damaged = bytes_;
    damaged[i] ^= static_cast<char>(1u << i % 8);
    refused += Try(damaged) ? 0 : 1;
  }
  EXPECT_GT(refused, 300u);
}

TEST_F(DamageTest, RandomFlips) {
  std::mt19937 random(1);
  size_t refused = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string damaged = bytes_;
    const int flips = 1 + round % 4;
    for (int i = 0; i < flips; ++i) {
      damaged[random() % damaged.size()] ^= static_cast<char>(1u << random() % 8);
    }
    refused += Try(damaged) ? 0 : 1;
  }
  EXPECT_GT(refused, 1000u);
}

TEST_F(DamageTest, RandomWords) {
  std::mt19937 random(2);
  constexpr uint32_t kWords[] = {0, 1, 4, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0};
  for (int round = 0; round < 4000; ++round) {
    std::string damaged = bytes_;
    const size_t place = random() % (damaged.size() / 4) * 4;
    const uint32_t word = kWords[random() % std::size(kWords)];
    std::memcpy(damaged.data() + place, &word, sizeof(word));
    Try(damaged);
  }
}

// Moved by 4, the ranges' table has no elements, and a place where none can be.
TEST_F(DamageTest, RangesOffTheirAlignment) {
  const auto at = [&]<typename T>(size_t place, T) {
    T value;
    std::memcpy(&value, bytes_.data() + place, sizeof(value));
    return value;
  };
  const size_t root = at(0, uint32_t{});
  const size_t fields = root - at(root, int32_t{}) + 2 * sizeof(uint16_t);
  const size_t blobs = root + at(fields + sizeof(uint16_t), uint16_t{});  // the second field
  const uint32_t moved = at(blobs, uint32_t{}) + 4;
  std::memcpy(bytes_.data() + blobs, &moved, sizeof(moved));
  Overwrite(folder_.File(kGraphsFile), bytes_);
  const Result<StoredGraphs> stored = ReadGraphFiles(folder_.path());
  EXPECT_EQ(stored.status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(stored.status().message(), ::testing::HasSubstr("starts at no multiple of 8"));
}

TEST_F(DamageTest, CutShort) {
  for (size_t size = 0; size < bytes_.size(); size += 13) {
    EXPECT_FALSE(Try(bytes_.substr(0, size))) << size;
  }
}

// The whole package without hashes, so that the damage gets past them.
TEST(PackageDamage, RandomFlipsInAnyFile) {
  const TempFolder folder;
  const std::string path = folder.File("pkg");
  WriteSample(path);
  std::mt19937 random(3);
  for (const char* name : {"manifest.json", "graphs.fb", "tokenizer.bin"}) {
    const std::string file = path + "/" + name;
    const std::string bytes = *ReadFile(file);
    size_t refused = 0;
    for (int round = 0; round < 1000; ++round) {
      std::string damaged = bytes;
      damaged[random() % damaged.size()] ^= static_cast<char>(1u << random() % 8);
      Overwrite(file, damaged);
      Result<std::shared_ptr<const Package>> package = Package::Open(path, {.verify = false});
      if (package.ok()) {
        EXPECT_EQ((*package)->embedding().shape, (Shape{kVocab, kHidden}));
      } else {
        EXPECT_FALSE(package.status().message().empty());
        ++refused;
      }
    }
    EXPECT_GT(refused, 100u) << name;
    Overwrite(file, bytes);
  }
  EXPECT_TRUE(Package::Open(path).ok());
}

}  // namespace
}  // namespace spillway::test
