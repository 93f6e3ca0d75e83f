#include "model/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "model/byte_alphabet.h"
#include "model/tokenizer_data.h"
#include "model/utf8.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The 256 bytes, a few merges and two special tokens.
TokenizerData SmallData() {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.emplace_back(AlphabetTextOf(static_cast<uint8_t>(byte)));
  }
  for (const char* token : {"ab", "bc", "abc", "aa", "aaaa", "\u0120a"})
    data.tokens.push_back(token);
  data.merges =
      ParseMerges({"a b", "b c", "ab c", "a a", "aa aa", "\u0120 a"}, data.tokens).value();
  data.types.assign(data.tokens.size(), 1);
  for (const char* token : {"<|end|>", "<|end", "<tool>"}) data.tokens.push_back(token);
  data.types.insert(data.types.end(), {3, 3, 4});
  data.eos_id = 262;
  return data;
}

std::shared_ptr<const Tokenizer> MustCreate(TokenizerData data) {
  auto tokenizer = Tokenizer::Create(std::move(data));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

std::shared_ptr<const Tokenizer> ModelTokenizer() {
  const auto path = test::ModelPath();
  if (!path) return nullptr;
  auto file = GgufFile::Open(*path);
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  if (!file.ok()) return nullptr;
  auto data = TokenizerData::FromGguf(**file);
  EXPECT_TRUE(data.ok()) << data.status().ToString();
  return data.ok() ? MustCreate(*std::move(data)) : nullptr;
}

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in, nullptr, false);
}

// Valid UTF-8 that mixes scripts, white space, digits and what looks like
// control tokens.
std::string RandomText(std::mt19937* random, size_t parts) {
  static const char* const kParts[] = {
      "the",    " word",  "  ",         "\n", "\t", "12345", "é",     "世界", "👍🏽",
      "'s",     "'LL",    "<|im_end|>", "<|", "|>", "_",     "...",   " \n ", "\r\n",
      "\u00a0", "\u3000", "ſ",          "½",  "a",  "A",     "\u200d"};
  std::string text;
  for (size_t i = 0; i < parts; ++i) {
    if ((*random)() % 4 == 0) {
      char32_t c = (*random)() % ((*random)() % 2 == 0 ? 0x3000 : 0x110000);
      if (c >= 0xD800 && c < 0xE000) c = 'x';
      AppendUtf8(c, &text);
    } else {
      text += kParts[(*random)() % std::size(kParts)];
    }
  }
  return text;
}

TEST(ByteAlphabet, IsAOneToOneMap) {
  std::string all, text;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  AppendAlphabetText(all, &text);
  EXPECT_EQ(CountUtf8(text), 256u);
  std::string bytes = "kept ";
  AppendBytesOfAlphabetText(text, &bytes);
  EXPECT_EQ(bytes, "kept " + all);
  EXPECT_EQ(AlphabetTextOf(' '), "\u0120");
  EXPECT_EQ(AlphabetTextOf('\n'), "\u010a");
  EXPECT_EQ(AlphabetTextOf('A'), "A");
  EXPECT_EQ(AlphabetTextOf(0xAD), "\u0143");
}

TEST(Utf8, RepairsMaximalParts) {
  // The example of the Unicode standard, table 3-8.
  EXPECT_EQ(RepairUtf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(RepairUtf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(RepairUtf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(RepairUtf8("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_TRUE(IsValidUtf8("aé世👍"));
  EXPECT_FALSE(IsValidUtf8("a\xE4\xB8"));
}

TEST(Tokenizer, MergesByRankThenFromTheLeft) {
  const auto tokenizer = MustCreate(SmallData());
  const auto id = [&](const char* text) { return *tokenizer->FindToken(text); };
  EXPECT_THAT(tokenizer->Encode("abc", false), ElementsAre(id("abc")));
  EXPECT_THAT(tokenizer->Encode("bc", false), ElementsAre(id("bc")));
  EXPECT_THAT(tokenizer->Encode("aaa", false), ElementsAre(id("aa"), id("a")));
  EXPECT_THAT(tokenizer->Encode("aaaaab", false), ElementsAre(id("aaaa"), id("ab")));
  EXPECT_THAT(tokenizer->Encode("a a", false), ElementsAre(id("a"), id("\u0120a")));
  EXPECT_TRUE(tokenizer->Encode("", true).empty());
}

TEST(Tokenizer, LongAndShortPiecesMergeAlike) {
  const auto tokenizer = MustCreate(SmallData());
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    // Joined by a letter that no merge takes, pieces merge as they do alone.
    std::string joined;
    std::vector<uint32_t> expected;
    for (int part = 0; part < 12; ++part) {
      std::string piece;
      for (size_t i = random() % 20; i > 0; --i) piece.push_back("abc"[random() % 3]);
      piece.push_back('z');
      joined += piece;
      for (const uint32_t id : tokenizer->Encode(piece, false)) expected.push_back(id);
    }
    ASSERT_EQ(tokenizer->Encode(joined, false), expected) << joined;
  }
}

TEST(Tokenizer, FindsTheLongestSpecialToken) {
  const auto tokenizer = MustCreate(SmallData());
  const auto id = [&](const char* text) { return *tokenizer->FindToken(text); };
  EXPECT_THAT(tokenizer->Encode("<|end|>a<|end<tool>", true),
              ElementsAre(id("<|end|>"), id("a"), id("<|end"), id("<tool>")));
  const auto plain = tokenizer->Encode("<|end|>", false);
  EXPECT_EQ(plain.size(), 7u);
  EXPECT_EQ(tokenizer->Decode(plain), "<|end|>");
  const auto matches = tokenizer->FindSpecial("x<|end|><tool");
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].begin, 1u);
  EXPECT_EQ(matches[0].end, 8u);
}

TEST(Tokenizer, DecodesSpecialTokensOnlyWhenAsked) {
  const auto tokenizer = MustCreate(SmallData());
  const std::vector<uint32_t> ids = {262, 'a', 264, 99999};
  EXPECT_EQ(tokenizer->TokenBytes(262), "");
  EXPECT_EQ(tokenizer->TokenBytes(262, true), "<|end|>");
  EXPECT_EQ(tokenizer->TokenBytes(264), "<tool>");
  EXPECT_EQ(tokenizer->TokenBytes(99999, true), "");
  EXPECT_TRUE(tokenizer->IsControl(262));
  EXPECT_FALSE(tokenizer->IsControl(264));
  EXPECT_FALSE(tokenizer->IsControl(99999));
  EXPECT_EQ(tokenizer->Decode(ids, true), "<|end|>a<tool>");
}

TEST(Tokenizer, KnowsEndTokensOnce) {
  TokenizerData data = SmallData();
  data.eot_id = 262;
  EXPECT_THAT(MustCreate(data)->end_ids(), ElementsAre(262));
  data.eos_id = 1;
  data.eot_id = 2;
  EXPECT_THAT(MustCreate(data)->end_ids(), ElementsAre(1, 2, 262));
  data.types[262] = 4;  // not a control token: no end marker
  EXPECT_THAT(MustCreate(data)->end_ids(), ElementsAre(1, 2));
}

TEST(Tokenizer, LeavesOutBytesWithoutAToken) {
  TokenizerData data = SmallData();
  data.tokens['x'] = "no longer x";
  const auto tokenizer = MustCreate(data);
  // As the reference does it: the neighbours meet.
  EXPECT_THAT(tokenizer->Encode("axb", false), ElementsAre(*tokenizer->FindToken("ab")));
}

TEST(Tokenizer, LlamaTakesWholePiecesThatAreTokens) {
  TokenizerData data = SmallData();
  data.tokens.push_back("cab");  // no merge makes it
  data.types.push_back(1);
  EXPECT_EQ(MustCreate(data)->Encode("cab", false).size(), 2u);
  data.pre = "llama-bpe";
  EXPECT_THAT(MustCreate(data)->Encode("cab", false), ElementsAre(265));
}

// The pieces of `text` for a kind that takes a whole piece that is a token: in
// this vocabulary every part of the text is one.
std::vector<std::string> Pieces(const std::string& pre, const std::string& text) {
  TokenizerData data = SmallData();
  data.pre = pre;
  std::string alphabet;
  AppendAlphabetText(text, &alphabet);
  data.tokens.resize(256);
  data.merges.clear();
  std::vector<std::string> characters;
  for (size_t at = 0; at < alphabet.size();) {
    const size_t size = Utf8SizeAt(alphabet, at);
    characters.push_back(alphabet.substr(at, size));
    at += size;
  }
  for (size_t begin = 0; begin < characters.size(); ++begin) {
    std::string part = characters[begin];
    for (size_t end = begin + 1; end < characters.size(); ++end) {
      part += characters[end];
      data.tokens.push_back(part);
    }
  }
  data.types.assign(data.tokens.size(), 1);
  data.eos_id.reset();
  const auto tokenizer = MustCreate(data);
  std::vector<std::string> pieces;
  for (const uint32_t id : tokenizer->Encode(text, false))
    pieces.push_back(tokenizer->TokenBytes(id));
  return pieces;
}

TEST(Pretokenizer, LlamaKeepsThreeDigitsAndLineEnds) {
  EXPECT_THAT(Pieces("llama-bpe", "it'LL be 12345!!\n\n ok"),
              ElementsAre("it", "'LL", " be", " ", "123", "45", "!!\n\n", " ok"));
  EXPECT_THAT(Pieces("llama3", "a  b\n \n c\t"), ElementsAre("a", " ", " b", "\n \n", " c", "\t"));
  EXPECT_THAT(Pieces("llama-bpe", "x \u180e"), ElementsAre("x", " \u180e"));
}

TEST(Pretokenizer, DigitsAreSplitAsTheKindSays) {
  const auto count = [](const char* pre, const char* text) {
    TokenizerData data = SmallData();
    data.pre = pre;
    for (const char* token : {"11", "1111"}) {
      data.tokens.push_back(token);
      data.types.push_back(1);
    }
    data.merges = ParseMerges({"1 1", "11 11"}, data.tokens).value();
    return MustCreate(data)->Encode(text, false).size();
  };
  EXPECT_EQ(count("gpt-2", "1111"), 1u);
  EXPECT_EQ(count("smollm", "1111"), 4u);
  EXPECT_EQ(count("qwen2", "1111"), 4u);
  EXPECT_EQ(count("llama-bpe", "1111"), 3u);  // 111 | 1, of which 11 1 | 1
}

TEST(Tokenizer, RefusesWhatItCannotDo) {
  TokenizerData data = SmallData();
  data.pre = "deepseek-llm";
  EXPECT_EQ(Tokenizer::Create(data).status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(Tokenizer::Create(data).status().message(), HasSubstr("smollm"));
  data = SmallData();
  data.model = "llama";
  EXPECT_EQ(Tokenizer::Create(data).status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(Tokenizer::Create(data).status().message(), HasSubstr("'llama'"));
  data = SmallData();
  for (uint32_t TokenMerge::*id : {&TokenMerge::left, &TokenMerge::right, &TokenMerge::merged}) {
    data = SmallData();
    data.merges[5].*id = 265;
    EXPECT_EQ(Tokenizer::Create(data).status().code(), StatusCode::kCorruptData);
    EXPECT_THAT(Tokenizer::Create(data).status().message(), HasSubstr("merges[5]"));
  }
  data = SmallData();
  data.eos_id = 265;
  EXPECT_THAT(Tokenizer::Create(data).status().message(), HasSubstr("eos"));
  data = SmallData();
  data.types.pop_back();
  EXPECT_EQ(Tokenizer::Create(data).status().code(), StatusCode::kCorruptData);
  data = SmallData();
  data.tokens[7] = "\xFF";
  EXPECT_THAT(Tokenizer::Create(data).status().message(), HasSubstr("tokens[7]"));
}

TEST(TokenizerData, MergesAreTwoTokensThatMakeOne) {
  const std::vector<std::string> tokens = {"a", "b", "ab", "\u0120", "\u0120a"};
  const auto merges = ParseMerges({"a b", "\u0120 a"}, tokens);
  ASSERT_TRUE(merges.ok()) << merges.status().ToString();
  EXPECT_THAT(*merges, ElementsAre(TokenMerge{0, 1, 2}, TokenMerge{3, 0, 4}));
  for (const auto& [merge, part] :
       std::vector<std::pair<std::string, std::string>>{{"a nowhere", "'nowhere'"},
                                                        {"nowhere a", "'nowhere'"},
                                                        {"b a", "'ba'"},
                                                        {"alone", "two tokens"},
                                                        {"a ", "two tokens"},
                                                        {"", "two tokens"}}) {
    const Status status = ParseMerges({"a b", merge}, tokens).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << merge;
    EXPECT_THAT(status.message(), HasSubstr("merges[1]")) << merge;
    EXPECT_THAT(status.message(), HasSubstr(part)) << merge;
  }
}

TEST(TokenizerData, ComesBackFromItsStoredForm) {
  TokenizerData data = SmallData();
  data.add_bos = true;
  data.pad_id = 0;
  data.chat_template = "{{ messages }}";
  const std::string bytes = data.Serialize();
  const auto parsed = TokenizerData::Parse(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->tokens, data.tokens);
  EXPECT_EQ(parsed->types, data.types);
  EXPECT_EQ(parsed->merges, data.merges);
  EXPECT_EQ(parsed->eos_id, data.eos_id);
  EXPECT_EQ(parsed->bos_id, std::nullopt);
  EXPECT_EQ(parsed->pad_id, data.pad_id);
  EXPECT_TRUE(parsed->add_bos);
  EXPECT_FALSE(parsed->add_eos);
  EXPECT_EQ(parsed->chat_template, data.chat_template);
  EXPECT_EQ(parsed->Serialize(), bytes);
}

TEST(TokenizerData, DamageIsAnErrorWithTheField) {
  const std::string bytes = SmallData().Serialize();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto parsed = TokenizerData::Parse(std::string_view(bytes).substr(0, size));
    ASSERT_FALSE(parsed.ok()) << size;
    ASSERT_EQ(parsed.status().code(), StatusCode::kCorruptData);
  }
  EXPECT_FALSE(TokenizerData::Parse(bytes + "x").ok());
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = bytes;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    static_cast<void>(TokenizerData::Parse(damaged));  // must not crash
  }
  std::string huge = bytes;
  huge.replace(4 + 4 + 8 + 9 + 4 + 20, 4, "\xFF\xFF\xFF\xFF");  // the number of tokens
  const auto parsed = TokenizerData::Parse(huge);
  ASSERT_FALSE(parsed.ok());
  EXPECT_THAT(parsed.status().message(), HasSubstr("'tokens'"));
}

TEST(Tokenizer, LongRunsAreNotQuadratic) {
  for (const char* pre : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    TokenizerData data = SmallData();
    data.pre = pre;
    const auto tokenizer = MustCreate(data);
    const auto start = std::chrono::steady_clock::now();
    for (const std::string unit : {"a", " ", "\n", "1", "!", " \n", "<", "世"}) {
      std::string text;
      const size_t size = unit == "a" || unit == " " ? 1 << 20 : 1 << 16;
      while (text.size() < size) text += unit;
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text, true)), text);
      text += "b";
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text, true)), text);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 60) << pre;  // generous: sanitizers and busy machines
  }
}

TEST(ModelTokenizer, GivesTheReferenceIds) {
  const auto shared = test::SharedDataDir();
  if (!test::ModelPath() || !shared) GTEST_SKIP() << "The model or the shared data are missing.";
  const auto tokenizer = ModelTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  const auto cases = ReadJson(*shared + "/smollm2/tokenizer.json");
  ASSERT_TRUE(cases.is_array());
  ASSERT_GT(cases.size(), 20u);
  for (const auto& one : cases) {
    const std::string text = one["text"];
    EXPECT_EQ(tokenizer->Encode(text, true), one["ids"].get<std::vector<uint32_t>>()) << text;
    EXPECT_EQ(tokenizer->Encode(text, false), one["ids_no_special"].get<std::vector<uint32_t>>())
        << text;
  }
}

TEST(ModelTokenizer, ReadsTheMetadata) {
  if (!test::ModelPath()) GTEST_SKIP() << "The model file is missing.";
  const auto tokenizer = ModelTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 49152u);
  EXPECT_EQ(tokenizer->data().pre, "smollm");
  EXPECT_EQ(tokenizer->data().bos_id, 1u);
  EXPECT_EQ(tokenizer->data().eos_id, 2u);
  EXPECT_FALSE(tokenizer->data().add_bos);
  EXPECT_THAT(tokenizer->data().chat_template, HasSubstr("<|im_start|>"));
  EXPECT_THAT(tokenizer->end_ids(), ElementsAre(2, 0));
  const auto parsed = TokenizerData::Parse(tokenizer->data().Serialize());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->merges, tokenizer->data().merges);
}

TEST(ModelTokenizer, RandomTextComesBack) {
  if (!test::ModelPath()) GTEST_SKIP() << "The model file is missing.";
  const auto tokenizer = ModelTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  // This vocabulary lacks some bytes that valid UTF-8 has; texts with them lose
  // them, as they do in the reference.
  std::array<bool, 256> has{};
  for (int byte = 0; byte < 256; ++byte) {
    has[byte] = tokenizer->FindToken(AlphabetTextOf(static_cast<uint8_t>(byte))).has_value();
  }
  std::mt19937 random(11);
  int whole = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string text = RandomText(&random, 1 + random() % 60);
    std::string expected;
    for (const char c : text) {
      if (has[static_cast<uint8_t>(c)]) expected.push_back(c);
    }
    whole += expected == text ? 1 : 0;
    const auto ids = tokenizer->Encode(text, false);
    ASSERT_EQ(tokenizer->Decode(ids), expected);
    for (const uint32_t id : ids) ASSERT_FALSE(tokenizer->IsControl(id));
    ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text, true), true), expected);
  }
  EXPECT_GT(whole, 500);
}

TEST(ModelTokenizer, IsFast) {
  if (!test::ModelPath()) GTEST_SKIP() << "The model file is missing.";
  auto file = GgufFile::Open(*test::ModelPath());
  ASSERT_TRUE(file.ok());
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  auto data = TokenizerData::FromGguf(**file);
  ASSERT_TRUE(data.ok());
  const auto tokenizer = MustCreate(*std::move(data));
  const std::chrono::duration<double, std::milli> load = Clock::now() - start;
  std::string text;
  std::ifstream licence(test::SourceDir() + "/.deps/model/LICENSE");
  std::stringstream words;
  words << licence.rdbuf();
  if (words.str().empty()) words << "The quick brown fox jumps over the lazy dog. ";
  while (text.size() < (4 << 20)) text += words.str();
  const auto begin = Clock::now();
  const size_t count = tokenizer->Encode(text, true).size();
  const std::chrono::duration<double> encode = Clock::now() - begin;
  const double rate = static_cast<double>(text.size()) / 1e6 / encode.count();
  RecordProperty("load_ms", std::to_string(load.count()));
  RecordProperty("encode_mb_per_s", std::to_string(rate));
  std::cout << "load " << load.count() << " ms, encode " << rate << " MB/s, " << count
            << " tokens\n";
  // Loose bounds that only a wrong algorithm misses; the figures are printed.
  EXPECT_LT(load.count(), 2000);
  EXPECT_GT(rate, 0.2);
}

}  // namespace
}  // namespace spillway
