#include "base/hash.h"

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

std::string Sample(size_t size) {
  std::string text(size, '\0');
  uint32_t state = 7;
  for (char& c : text) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return text;
}

// From the published test value of XXH3_128bits for no input.
TEST(HashTest, KnownValue) { EXPECT_EQ(HashText(""), "99aa06d3014798d86001c324468d497f"); }

TEST(HashTest, PiecesGiveTheHashOfTheWhole) {
  for (const size_t size : {0, 1, 16, 17, 128, 129, 240, 241, 1000, 100000}) {
    const std::string text = Sample(size);
    for (const size_t piece : {1, 7, 64, 4096}) {
      Hasher hasher;
      for (size_t at = 0; at < size; at += piece) {
        hasher.Add(std::string_view(text).substr(at, piece));
      }
      EXPECT_EQ(hasher.Finish(), HashText(text)) << size << " by " << piece;
    }
  }
}

TEST(HashTest, MayGoOnAfterFinish) {
  Hasher hasher;
  hasher.Add("ab");
  EXPECT_EQ(hasher.Finish(), HashText("ab"));
  hasher.Add("c");
  EXPECT_EQ(hasher.Finish(), HashText("abc"));
}

TEST(HashTest, OneBitChangesIt) {
  std::string text = Sample(5000);
  const std::string before = HashText(text);
  EXPECT_EQ(before.size(), 32u);
  EXPECT_EQ(before.find_first_not_of("0123456789abcdef"), std::string::npos);
  text[4321] ^= 1;
  EXPECT_NE(HashText(text), before);
}

TEST(HashTest, File) {
  const test::TempFolder folder;
  const std::string text = Sample((3 << 20) + 5);
  ASSERT_TRUE(WriteFileAtomically(folder.File("data"), text).ok());
  const Result<std::string> hash = HashFile(folder.File("data"));
  ASSERT_TRUE(hash.ok()) << hash.status().ToString();
  EXPECT_EQ(*hash, HashText(text));
  EXPECT_EQ(HashFile(folder.File("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(HashFile(folder.path()).status().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace spillway
