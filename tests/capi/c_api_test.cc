#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "spillway.h"
#include "spillway/session.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_model.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

// A char* error of a call, freed.
class Message {
 public:
  ~Message() { spillway_free(text_); }
  char** out() {
    spillway_free(text_);
    text_ = nullptr;
    return &text_;
  }
  std::string text() const { return text_ == nullptr ? "" : text_; }

 private:
  char* text_ = nullptr;
};

class CApiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TempFolder();
    spillway_options* options = spillway_options_new();
    for (const auto& [name, value] :
         std::vector<std::pair<const char*, const char*>>{{"htp", "off"},
                                                          {"context_len", "128"},
                                                          {"prefill_ar_len", "16"},
                                                          {"calib_tokens", "64"},
                                                          {"threads", "1"}}) {
      EXPECT_EQ(spillway_options_set(options, name, value, nullptr), SPILLWAY_OK) << name;
    }
    const std::string model =
        test::WriteTinyModel(folder_->File("tiny.gguf"), test::TinyModelSpec());
    Message error, report;
    int calls = 0;
    const auto on_progress = [](const char* stage, double, void* user) {
      *static_cast<int*>(user) += stage[0] != '\0' ? 1 : 0;
    };
    EXPECT_EQ(spillway_compile(model.c_str(), folder_->File("pkg").c_str(), options, on_progress,
                               &calls, report.out(), error.out()),
              SPILLWAY_OK)
        << error.text();
    EXPECT_GT(calls, 1);
    EXPECT_TRUE(nlohmann::json::parse(report.text(), nullptr, false).contains("package_bytes"));
    spillway_options_free(options);
  }
  static void TearDownTestSuite() { delete folder_; }

  void SetUp() override {
    options_ = spillway_options_new();
    Set("threads", "1");
    Set("temperature", "0");
    Set("max_new_tokens", "8");
    Set("ignore_eos", "on");
    Message error;
    ASSERT_EQ(spillway_open(folder_->File("pkg").c_str(), options_, &session_, error.out()),
              SPILLWAY_OK)
        << error.text();
  }
  void TearDown() override {
    spillway_close(session_);
    spillway_options_free(options_);
  }
  void Set(const char* name, const char* value) {
    Message error;
    EXPECT_EQ(spillway_options_set(options_, name, value, error.out()), SPILLWAY_OK)
        << error.text();
  }

  static test::TempFolder* folder_;
  spillway_options* options_ = nullptr;
  spillway_session* session_ = nullptr;
};
test::TempFolder* CApiTest::folder_ = nullptr;

TEST_F(CApiTest, AnswersLikeTheSession) {
  std::string streamed;
  const auto on_text = [](const char* piece, size_t size, void* user) {
    EXPECT_EQ(std::strlen(piece), size);
    static_cast<std::string*>(user)->append(piece);
    return 0;
  };
  spillway_answer* answer = nullptr;
  Message error;
  ASSERT_EQ(
      spillway_generate(session_, "Hello", options_, on_text, &streamed, &answer, error.out()),
      SPILLWAY_OK)
      << error.text();
  EXPECT_EQ(spillway_answer_text(answer), streamed);
  EXPECT_STREQ(spillway_answer_stop_reason(answer), "max_new_tokens");
  EXPECT_TRUE(nlohmann::json::parse(spillway_answer_stats_json(answer), nullptr, false)
                  .contains("decode_tokens_per_s"));
  size_t count = 0;
  const uint32_t* tokens = spillway_answer_tokens(answer, &count);

  SessionOptions open;
  open.package_path = folder_->File("pkg");
  open.threads = 1;
  auto session = Session::Open(open);
  ASSERT_TRUE(session.ok());
  RunOptions run;
  run.temperature = 0;
  run.max_new_tokens = 8;
  run.ignore_eos = true;
  const auto expected = (*session)->Generate("Hello", run);
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(std::vector<uint32_t>(tokens, tokens + count), expected->tokens);
  EXPECT_EQ(spillway_context_len(session_), 128u);

  // The same as a message and as tokens, from the cache and without it.
  const spillway_message message = {"user", "Hello"};
  for (const bool reset : {false, true}) {
    if (reset) spillway_reset(session_);
    spillway_answer *chat = nullptr, *raw = nullptr;
    EXPECT_EQ(spillway_chat(session_, &message, 1, options_, nullptr, nullptr, &chat, nullptr),
              SPILLWAY_OK);
    EXPECT_EQ(spillway_generate_tokens(session_, expected->prompt_tokens.data(),
                                       expected->prompt_tokens.size(), options_, nullptr, nullptr,
                                       &raw, nullptr),
              SPILLWAY_OK);
    EXPECT_EQ(spillway_answer_text(chat), streamed);
    EXPECT_EQ(spillway_answer_text(raw), streamed);
    spillway_answer_free(chat);
    spillway_answer_free(raw);
  }
  spillway_answer_free(answer);
}

TEST_F(CApiTest, ACallbackStops) {
  int pieces = 0;
  const auto on_text = [](const char*, size_t, void* user) {
    return ++*static_cast<int*>(user) == 2 ? 1 : 0;
  };
  spillway_answer* answer = nullptr;
  EXPECT_EQ(spillway_generate(session_, "Hello", options_, on_text, &pieces, &answer, nullptr),
            SPILLWAY_OK);
  EXPECT_STREQ(spillway_answer_stop_reason(answer), "cancelled");
  EXPECT_EQ(pieces, 2);
  spillway_answer_free(answer);
}

TEST_F(CApiTest, OptionsThatAreWrong) {
  const auto wrong = [&](const char* name, const char* value, const std::string& message) {
    Message error;
    EXPECT_EQ(spillway_options_set(options_, name, value, error.out()), SPILLWAY_INVALID_ARGUMENT)
        << name;
    EXPECT_THAT(error.text(), HasSubstr(message));
  };
  wrong("temprature", "1", "there is no option \"temprature\"; there are soc, mode");
  wrong("top_k", "-1", "option top_k: is \"-1\"; expected a whole number");
  wrong("top_k", "5000000000", "option top_k");
  wrong("top_p", "0.5x", "option top_p");
  wrong("ignore_eos", "yes", "\"on\" or \"off\"");
  wrong("logit_bias", "3", "\"TOKEN=BIAS\"");
  wrong("slc_allocator", "maybe", "slc_allocator");
  wrong("attention_sink", "4", "SINK,BATCH");
  wrong("attention_sink", "4,32,1", "SINK,BATCH");
  wrong("attention_sink", "4,-1", "option attention_sink: is \"4,-1\"");
  wrong("lookahead", "3,4", "NGRAM,WINDOW,GCAP");
  Set("logit_bias", "3=-inf");
  Set("weight_sharing", "off");
  Set("performance_mode", "burst");
  // What only the function itself can tell.
  Set("temperature", "-1");
  Message error;
  EXPECT_EQ(spillway_generate(session_, "x", options_, nullptr, nullptr, nullptr, error.out()),
            SPILLWAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.text(), HasSubstr("temperature is -1"));
}

// An answer longer than the context.
TEST_F(CApiTest, AnAttentionSinkGoesOn) {
  Set("attention_sink", "4,16");
  Message error;
  spillway_session* session = nullptr;
  ASSERT_EQ(spillway_open(folder_->File("pkg").c_str(), options_, &session, error.out()),
            SPILLWAY_OK)
      << error.text();
  Set("max_new_tokens", "200");
  Set("ignore_eos", "on");
  spillway_answer* answer = nullptr;
  ASSERT_EQ(spillway_generate(session, "x", options_, nullptr, nullptr, &answer, error.out()),
            SPILLWAY_OK)
      << error.text();
  EXPECT_STREQ(spillway_answer_stop_reason(answer), "max_new_tokens");
  spillway_answer_free(answer);
  spillway_close(session);
}

TEST_F(CApiTest, NullAndWhatIsNotThere) {
  Message error;
  spillway_session* none = session_;
  EXPECT_EQ(spillway_open(folder_->File("none").c_str(), nullptr, &none, error.out()),
            SPILLWAY_NOT_FOUND);
  EXPECT_EQ(none, nullptr);
  EXPECT_THAT(error.text(), HasSubstr("none"));
  EXPECT_EQ(spillway_open(nullptr, nullptr, &none, nullptr), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_generate(nullptr, "x", nullptr, nullptr, nullptr, nullptr, error.out()),
            SPILLWAY_INVALID_ARGUMENT);
  EXPECT_THAT(error.text(), HasSubstr("NULL"));
  EXPECT_EQ(spillway_chat(session_, nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr),
            SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_options_set(nullptr, "a", "b", nullptr), SPILLWAY_INVALID_ARGUMENT);
  EXPECT_EQ(spillway_compile("none.gguf", folder_->File("out").c_str(), nullptr, nullptr, nullptr,
                             nullptr, error.out()),
            SPILLWAY_NOT_FOUND);
  spillway_free(nullptr);
  spillway_close(nullptr);
  spillway_answer_free(nullptr);
  spillway_options_free(nullptr);
  EXPECT_STREQ(spillway_status_name(SPILLWAY_NOT_FOUND), "not found");
  EXPECT_STREQ(spillway_status_name(static_cast<spillway_status>(99)), "unknown");
  EXPECT_THAT(spillway_version(), HasSubstr("."));
}

}  // namespace
}  // namespace spillway
