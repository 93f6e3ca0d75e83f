#include "runtime/answer_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "model/utf8.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_model.h"

namespace spillway {
namespace {

class AnswerTextTest : public ::testing::Test {
 protected:
  AnswerTextTest() {
    const auto file =
        GgufFile::Open(test::WriteTinyModel(folder_.File("tiny.gguf"), test::TinyModelSpec()));
    EXPECT_TRUE(file.ok());
    tokenizer_ = Tokenizer::Create(TokenizerData::FromGguf(**file).value()).value();
  }
  test::TempFolder folder_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

// Bytes at random: whole characters come out, and all of them what a repair of the
// whole gives.
TEST_F(AnswerTextTest, PiecesAreWholeCharactersOfTheRepairedText) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    AnswerText text(*tokenizer_, 5);
    std::string bytes, pieces;
    for (int i = 0; i < 40; ++i) {
      // Few bytes that matter to UTF-8, so that characters happen.
      static constexpr uint8_t kBytes[] = {'a', 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0xFF};
      const uint32_t id = 3 + kBytes[random() % std::size(kBytes)];
      bytes += tokenizer_->TokenBytes(id);
      const std::string piece(text.Add(id));
      EXPECT_TRUE(IsValidUtf8(piece));
      pieces += piece;
    }
    pieces += text.Finish();
    EXPECT_EQ(pieces, RepairUtf8(bytes));
    EXPECT_EQ(text.Take(), pieces);
  }
}

TEST_F(AnswerTextTest, HoldsBackPartsOfCharacters) {
  AnswerText decoder(*tokenizer_, 5);
  const std::string text =
      "aé世👍\x80"
      "b\xE4\xB8"
      "c\xF0\x9F";
  std::string out;
  for (const char byte : text) {
    const std::string part(decoder.Add(3 + static_cast<uint8_t>(byte)));
    EXPECT_TRUE(IsValidUtf8(part));
    out += part;
  }
  EXPECT_EQ(out, "aé世👍\uFFFDb\uFFFDc");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  EXPECT_EQ(decoder.Finish(), "");
  EXPECT_EQ(decoder.Add(2), "");  // a control token
}

TEST_F(AnswerTextTest, GivesTheSameAsTheWhole) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    for (int i = 0; i < 40; ++i)
      bytes.push_back(static_cast<char>(random() % 3 ? 0x80 + random() % 128 : 'a'));
    AnswerText decoder(*tokenizer_, 5);
    std::string out;
    for (const char byte : bytes) out += decoder.Add(3 + static_cast<uint8_t>(byte));
    out += decoder.Finish();
    ASSERT_EQ(out, RepairUtf8(bytes));
  }
}

}  // namespace
}  // namespace spillway
