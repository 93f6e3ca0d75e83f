#include "quantize/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <tuple>

#include "host/executor.h"
#include "kvcache/kv_cache.h"
#include "tests/quantize/tiny.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class WindowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<TokenizerData> data = TokenizerData::FromGguf(*tiny_.model->file());
    ASSERT_TRUE(data.ok()) << data.status().ToString();
    Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::Create(*data);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    tokenizer_ = *tokenizer;
    Result<std::shared_ptr<const ChatTemplate>> chat = ChatTemplate::Parse(data->chat_template);
    ASSERT_TRUE(chat.ok()) << chat.status().ToString();
    chat_ = *chat;
  }

  TokenWindows Make(std::string_view text, uint32_t window, uint32_t limit, bool chat) const {
    Result<TokenWindows> windows =
        MakeCalibrationWindows(*tokenizer_, chat ? chat_.get() : nullptr, text, window, limit);
    EXPECT_TRUE(windows.ok()) << windows.status().ToString();
    return windows.ok() ? std::move(windows).value() : TokenWindows();
  }

  static size_t Total(const TokenWindows& windows) {
    size_t total = 0;
    for (const auto& window : windows) total += window.size();
    return total;
  }

  test::TinyDecoder tiny_{test::TinyModelSpec{}};
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> chat_;
};

TEST_F(WindowsTest, PlainTextIsCutInOrder) {
  // One paragraph that is longer than a window.
  const std::string text(400, 'q');
  const std::vector<uint32_t> ids = tokenizer_->Encode(text, false);
  const TokenWindows windows = Make(text, 64, 100000, false);
  std::vector<uint32_t> joined;
  for (size_t i = 0; i < windows.size(); ++i) {
    EXPECT_LE(windows[i].size(), 64u);
    EXPECT_TRUE(windows[i].size() == 64 || i + 1 == windows.size());
    joined.insert(joined.end(), windows[i].begin(), windows[i].end());
  }
  // What is left after the last whole window is dropped.
  EXPECT_GT(joined.size() + 64, ids.size());
  ASSERT_LE(joined.size(), ids.size());
  EXPECT_TRUE(std::equal(joined.begin(), joined.end(), ids.begin()));
}

TEST_F(WindowsTest, TheLimitCountsAllTokens) {
  for (const bool chat : {false, true}) {
    for (const uint32_t limit : {16u, 50u, 128u, 200u, 1000u}) {
      const TokenWindows windows = Make(DefaultCalibrationText(), 64, limit, chat);
      EXPECT_LE(Total(windows), limit);
      EXPECT_GT(Total(windows) + 16, limit) << "the text is long enough to use it up";
      for (const auto& window : windows) {
        EXPECT_GE(window.size(), 16u);
        EXPECT_LE(window.size(), 64u);
      }
    }
  }
}

TEST_F(WindowsTest, ChatAndTextAlternate) {
  const TokenWindows plain = Make(DefaultCalibrationText(), 64, 100000, false);
  const TokenWindows windows = Make(DefaultCalibrationText(), 64, 640, true);
  ASSERT_EQ(windows.size(), 10u);
  for (size_t i = 0; i < windows.size(); ++i) {
    if (i % 2 == 1) {
      EXPECT_EQ(windows[i], plain[i / 2]);
    } else {
      EXPECT_EQ(windows[i][0], 1u) << "<|im_start|>";
      EXPECT_NE(windows[i], windows[(i + 2) % 10]);
    }
  }
  // The conversation is the template's, cut to the window.
  const std::string text(DefaultCalibrationText());
  const size_t first = text.find("\n\n"), second = text.find("\n\n", first + 2);
  const auto pieces = chat_->Render(
      {{"user", text.substr(0, first)}, {"assistant", text.substr(first + 2, second - first - 2)}},
      false, "", "");
  ASSERT_TRUE(pieces.ok());
  std::vector<uint32_t> expected = EncodePrompt(*tokenizer_, *pieces);
  expected.resize(64);
  EXPECT_EQ(windows[0], expected);
}

TEST_F(WindowsTest, TheSameEveryTime) {
  EXPECT_EQ(Make(DefaultCalibrationText(), 100, 700, true),
            Make(DefaultCalibrationText(), 100, 700, true));
}

TEST_F(WindowsTest, ShortWindowsUseTheTextToo) {
  const TokenWindows windows = Make(DefaultCalibrationText(), 4, 64, false);
  EXPECT_EQ(Total(windows), 64u);
  for (const auto& window : windows) EXPECT_EQ(window.size(), 4u);
}

TEST_F(WindowsTest, TooShortATextIsAnError) {
  for (const auto& [text, count] :
       {std::pair{"", "0 tokens"}, {"zq", "2 tokens"}, {"z z z z z z z", "13 tokens"}}) {
    for (const uint32_t window : {8u, 64u}) {
      const Result<TokenWindows> windows =
          MakeCalibrationWindows(*tokenizer_, chat_.get(), text, window, 1000);
      ASSERT_FALSE(windows.ok());
      EXPECT_EQ(windows.status().code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(windows.status().message(),
                  AllOf(HasSubstr(count), HasSubstr("expected at least 16")));
    }
  }
  EXPECT_FALSE(MakeCalibrationWindows(*tokenizer_, nullptr, DefaultCalibrationText(), 0, 99).ok());
  EXPECT_FALSE(MakeCalibrationWindows(*tokenizer_, nullptr, DefaultCalibrationText(), 64, 0).ok());
}

TEST_F(WindowsTest, SourcesTakeTurns) {
  CalibrationSource text{"", std::string(400, 'q'), {}};
  CalibrationSource chat;
  for (const char* content : {"first first first first", "second second second", "third third"}) {
    chat.conversations.push_back({{"system", "be brief"}, {"user", content}});
  }
  const auto make = [&](uint32_t limit) {
    const Result<TokenWindows> windows = MakeCalibrationWindows(
        *tokenizer_, chat_.get(), std::vector<CalibrationSource>{text, chat}, 40, limit);
    EXPECT_TRUE(windows.ok()) << windows.status().ToString();
    return windows.ok() ? *windows : TokenWindows();
  };
  const TokenWindows windows = make(100000);
  const auto rendered = [&](size_t i) {
    const auto pieces = chat_->Render(chat.conversations[i], false, "", "");
    EXPECT_TRUE(pieces.ok());
    std::vector<uint32_t> ids = EncodePrompt(*tokenizer_, *pieces);
    EXPECT_EQ(ids[0], 1u) << "special tokens are included";
    if (ids.size() > 40) ids.resize(40);
    return ids;
  };
  ASSERT_GE(windows.size(), 6u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(windows[2 * i + 1], rendered(i));
  EXPECT_EQ(windows[0].size(), 40u);
  EXPECT_EQ(Total(make(90)), 80u + (90 - 80 >= 16 ? 10u : 0u)) << "a rest below 16 is left out";
  EXPECT_EQ(make(90), make(90));
  const Result<TokenWindows> none =
      MakeCalibrationWindows(*tokenizer_, nullptr, std::vector<CalibrationSource>{chat}, 40, 100);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().message(), HasSubstr("chat template"));
}

TEST_F(WindowsTest, OneParagraphIsSeenBothWays) {
  const std::string paragraph(200, 'q');
  const TokenWindows windows = Make(paragraph, 64, 1000, true);
  const auto pieces = chat_->Render({{"user", paragraph}}, false, "", "");
  ASSERT_TRUE(pieces.ok());
  std::vector<uint32_t> expected = EncodePrompt(*tokenizer_, *pieces);
  expected.resize(64);
  ASSERT_GE(windows.size(), 2u);
  EXPECT_EQ(windows[0], expected);
  EXPECT_EQ(windows[1], Make(paragraph, 64, 1000, false)[0]);
}

TEST_F(WindowsTest, HowConversationsBeginDoesNotDependOnTheFiles) {
  test::TempFolder folder;
  const TokenizerData data = tokenizer_->data();
  std::ofstream(folder.File("text.txt")) << std::string(300, 'q');
  std::ofstream(folder.File("chat.json")) << R"([{"role": "user", "content": "hello you there"}])";
  const auto none = ReadCalibrationWindows(data, {}, 48, 500);
  ASSERT_TRUE(none.ok()) << none.status().ToString();
  const TokenWindows built_in = Make(DefaultCalibrationText(), 48, 500, true);
  EXPECT_EQ(none->conversations, (TokenWindows{built_in[0], built_in[2]}));
  const auto files =
      ReadCalibrationWindows(data, {folder.File("text.txt"), folder.File("chat.json")}, 48, 500);
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  EXPECT_EQ(files->conversations, none->conversations);
  EXPECT_NE(files->windows, none->windows);
  TokenizerData plain = data;
  plain.chat_template.clear();
  const auto without = ReadCalibrationWindows(plain, {folder.File("text.txt")}, 48, 500);
  ASSERT_TRUE(without.ok()) << without.status().ToString();
  EXPECT_TRUE(without->conversations.empty());
}

TEST(CalibrationFileTest, TextAndConversations) {
  test::TempFolder folder;
  const auto read = [&](const std::string& name, std::string_view content) {
    std::ofstream(folder.File(name)) << content;
    return ReadCalibrationFile(folder.File(name));
  };
  const Result<CalibrationSource> text = read("a.txt", "[plain] text");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->text, "[plain] text");
  EXPECT_TRUE(text->conversations.empty());
  constexpr std::string_view kOne =
      R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}])";
  const std::string object = "{\"id\": 7, \"messages\": " + std::string(kOne) + "}";
  for (const auto& [name, content, count] : std::vector<std::tuple<std::string, std::string, int>>{
           {"list.json", std::string(kOne), 1},
           {"object.json", object, 1},
           {"lists.json", "[" + std::string(kOne) + "," + std::string(kOne) + "]", 2},
           {"objects.json", "[" + object + "," + object + "]", 2},
           {"lines.jsonl", object + "\n\n" + std::string(kOne) + "\r\n" + object, 3}}) {
    const Result<CalibrationSource> source = read(name, content);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    ASSERT_EQ(source->conversations.size(), static_cast<size_t>(count)) << name;
    for (const auto& conversation : source->conversations) {
      ASSERT_EQ(conversation.size(), 2u);
      EXPECT_EQ(conversation[1].role, "assistant");
      EXPECT_EQ(conversation[1].content, "yes");
    }
  }
  for (const auto& [name, content, message] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"bad.json", "{", "bad.json: found no JSON"},
           {"number.json", "7", "found a number without messages"},
           {"empty.json", "[]", "without messages"},
           {"role.json", R"([{"role": "user"}])", "message 1: found a object without a string"},
           {"parts.json", R"([{"role": "user", "content": []}])", "without a string content"},
           {"line.jsonl", object + "\n{", "line 2: found no JSON"},
           {"deep.json", std::string(100000, '['), "found no JSON"},
           {"blank.jsonl", " \n", "no conversation"}}) {
    const Result<CalibrationSource> source = read(name, content);
    ASSERT_FALSE(source.ok()) << name;
    EXPECT_EQ(source.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(source.status().message(), HasSubstr(message)) << name;
  }
  EXPECT_EQ(ReadCalibrationFile(folder.File("missing.txt")).status().code(), StatusCode::kNotFound);
}

TEST_F(WindowsTest, TheBuiltInTextIsEnoughForTheDefault) {
  // The real vocabulary packs several letters into a token, this one hardly any.
  EXPECT_GT(DefaultCalibrationText().size(), 2048u * 3);
  EXPECT_GT(std::count(DefaultCalibrationText().begin(), DefaultCalibrationText().end(), '\n'), 40);
}

TEST(RoundRangeUpTest, NineBitsAwayFromZero) {
  EXPECT_EQ(RoundRangeUp(0.0f), 0.0f);
  EXPECT_EQ(RoundRangeUp(1.0f), 1.0f);
  EXPECT_EQ(RoundRangeUp(511.0f), 511.0f);
  EXPECT_EQ(RoundRangeUp(512.5f), 514.0f);
  EXPECT_EQ(RoundRangeUp(-512.5f), -514.0f);
  EXPECT_EQ(RoundRangeUp(std::nextafter(1.0f, 2.0f)), 1.0f + 1.0f / 256);
  for (const float limit : {1e-20f, 0.3f, -7.77f, 3e20f}) {
    const float rounded = RoundRangeUp(limit);
    EXPECT_GE(std::abs(rounded), std::abs(limit));
    EXPECT_LE(std::abs(rounded), std::abs(limit) * (1.0f + 1.0f / 256));
    EXPECT_EQ(RoundRangeUp(rounded), rounded);
  }
}

// What Calibrate must give, one window at a time and one value at a time.
TensorRanges NaiveRanges(test::TinyDecoder& tiny, const TokenWindows& windows) {
  ThreadPool pool(1);
  TensorRanges ranges;
  for (const auto& window : windows) {
    const auto length = static_cast<uint32_t>(window.size());
    auto executor = host::Executor::Create(tiny.Build("naive", length, length), &pool);
    EXPECT_TRUE(executor.ok());
    auto* hidden = reinterpret_cast<float*>((*executor)->input(0).data());
    for (size_t i = 0; i < length; ++i) {
      tiny.model->embedding().ReadRows(window[i], 1, hidden + i * tiny.model->config().hidden_dim);
    }
    auto* mask = reinterpret_cast<float*>((*executor)->input(1).data());
    auto* positions = reinterpret_cast<int32_t*>((*executor)->input(2).data());
    for (uint32_t row = 0; row < length; ++row) {
      positions[row] = static_cast<int32_t>(row);
      for (uint32_t column = 0; column < length; ++column) {
        mask[row * length + column] = column <= row ? 0.0f : kHiddenMask;
      }
    }
    const Status status =
        (*executor)->Run([&](const Op&, const Tensor& tensor, std::span<const std::byte> bytes) {
          for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
            float value;
            std::memcpy(&value, bytes.data() + at, sizeof(value));
            Range& range = ranges[tensor.name];
            range.min = std::min(range.min, value);
            range.max = std::max(range.max, value);
          }
        });
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  return ranges;
}

TEST(CalibrateTest, RangesAreTheNaiveOnes) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    test::TinyModelSpec spec;
    spec.architecture = architecture;
    test::TinyDecoder tiny(spec);
    // Lengths in no order, so that sorting them does not matter.
    const TokenWindows windows = tiny.Windows({20, 33, 16, 33});
    const TensorRanges expected = NaiveRanges(tiny, windows);
    ThreadPool pool(2);
    const Result<TensorRanges> ranges = Calibrate(*tiny.decoder, windows, {}, &pool, nullptr);
    ASSERT_TRUE(ranges.ok()) << ranges.status().ToString();
    const auto graph = tiny.Build("g", 4, 8);
    for (const Op& op : graph->ops()) {
      const std::string& name = graph->tensor(op.outputs[0]).name;
      if (KeepsEncoding(op.type)) {
        EXPECT_FALSE(ranges->contains(name)) << name;
        continue;
      }
      ASSERT_TRUE(ranges->contains(name)) << name;
      // A limit may be rounded away from zero, by less than one part in 256.
      const Range& exact = expected.at(name);
      EXPECT_LE(ranges->at(name).min, exact.min) << name;
      EXPECT_GE(ranges->at(name).min, exact.min * (1.0f + 1.0f / 256)) << name;
      EXPECT_GE(ranges->at(name).max, exact.max) << name;
      EXPECT_LE(ranges->at(name).max, exact.max * (1.0f + 1.0f / 256)) << name;
      EXPECT_LT(ranges->at(name).min, ranges->at(name).max) << name;
    }
  }
}

TEST(CalibrateTest, NoWindowsNoRanges) {
  test::TinyDecoder tiny{test::TinyModelSpec{}};
  ThreadPool pool(1);
  const Result<TensorRanges> ranges = Calibrate(*tiny.decoder, {}, {}, &pool, nullptr);
  ASSERT_TRUE(ranges.ok());
  EXPECT_TRUE(ranges->empty());
}

TEST(CalibrateTest, WeightsThatAreNotFiniteAreAnError) {
  const float bads[] = {std::nanf(""), std::numeric_limits<float>::infinity()};
  for (const float bad : bads) {
    test::TinyModel model = test::MakeTinyModel({});
    std::memcpy(model.file.FindTensor("blk.1.ffn_gate.weight")->data.data() + 40, &bad,
                sizeof(bad));
    test::TinyDecoder tiny(model);
    ThreadPool pool(1);
    const Result<TensorRanges> ranges =
        Calibrate(*tiny.decoder, tiny.Windows({16}), {}, &pool, nullptr);
    ASSERT_FALSE(ranges.ok());
    EXPECT_EQ(ranges.status().code(), StatusCode::kCorruptData);
    EXPECT_THAT(ranges.status().message(),
                AllOf(HasSubstr("tensor layers.1.gate "), HasSubstr("not finite")));
  }
}

TEST(RangeTest, AlwaysHoldsZero) {
  Range range;
  range.Include(2.0f, 3.0f);
  EXPECT_EQ(range.min, 0.0f);
  EXPECT_EQ(range.max, 3.0f);
  range.Include(-1.0f, -0.5f);
  EXPECT_EQ(range.min, -1.0f);
  EXPECT_EQ(range.max, 3.0f);
}

}  // namespace
}  // namespace spillway
