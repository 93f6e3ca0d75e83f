#include "spillway/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/tiny_package.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConversationTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TempFolder();
    CompileOptions options = test::TinyCompileOptions();
    options.context_len = 400;
    path_ = new std::string(test::MakeTinyPackage(folder_->path(), options));
  }
  static void TearDownTestSuite() {
    delete path_;
    delete folder_;
  }
  void SetUp() override {
    session_ = Open();
    ASSERT_NE(session_, nullptr);
  }
  static std::unique_ptr<Session> Open() {
    SessionOptions options;
    options.package_path = *path_;
    options.threads = 1;
    Result<std::unique_ptr<Session>> session = Session::Open(options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return session.ok() ? std::move(session).value() : nullptr;
  }
  static RunOptions Greedy(uint32_t most) {
    RunOptions options;
    options.temperature = 0;
    options.max_new_tokens = most;
    return options;
  }

  static test::TempFolder* folder_;
  static std::string* path_;
  std::unique_ptr<Session> session_;
};
test::TempFolder* ConversationTest::folder_ = nullptr;
std::string* ConversationTest::path_ = nullptr;

// The cache of the turns before changes nothing: each answer is that of a fresh session
// that gets the whole conversation at once.
TEST_F(ConversationTest, FiveTurnsAnswerLikeFreshSessions) {
  const std::vector<std::string> questions = {"Hello", "What?", "Why is that so", "x", "And now?"};
  for (const double temperature : {0.0, 1.5}) {
    RunOptions options = Greedy(12);
    options.temperature = temperature;
    options.seed = 11;
    session_->Reset();
    Conversation chat;
    chat.Add({"system", "Be brief"});
    for (size_t turn = 0; turn < questions.size(); ++turn) {
      std::vector<ChatTurn> whole = chat.turns();
      whole.push_back({"user", questions[turn]});
      const Result<Answer> answer = chat.Ask(*session_, questions[turn], options);
      ASSERT_TRUE(answer.ok()) << answer.status().ToString();
      const Result<Answer> fresh = Open()->Generate(whole, options);
      ASSERT_TRUE(fresh.ok());
      EXPECT_EQ(answer->prompt_tokens, fresh->prompt_tokens);
      EXPECT_EQ(answer->tokens, fresh->tokens) << "turn " << turn;
      EXPECT_EQ(answer->text, fresh->text);
      // The cache holds every token once.
      EXPECT_EQ(answer->stats.reused_tokens + answer->stats.prefill_tokens,
                answer->prompt_tokens.size());
      EXPECT_EQ(answer->stats.context_used, fresh->stats.context_used);
      EXPECT_GE(answer->stats.reused_tokens, turn == 0 ? 0u : 20u);
      ASSERT_EQ(chat.turns().size(), 3 + 2 * turn);
      EXPECT_EQ(chat.turns().back().content, answer->text);
    }
  }
}

TEST_F(ConversationTest, WhatFailsOrNeverBeganLeavesNoTurn) {
  Conversation chat;
  EXPECT_EQ(chat.Ask(*session_, std::string(5000, 'x'), Greedy(3)).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_THAT(chat.turns(), IsEmpty());
  RunOptions stopped = Greedy(5);
  stopped.should_stop = [] { return true; };
  EXPECT_EQ(chat.Ask(*session_, "Hello", stopped)->stop_reason, "cancelled");
  EXPECT_THAT(chat.turns(), IsEmpty());
  // A part of an answer is kept.
  const Result<Answer> part =
      chat.Ask(*session_, "Hello", Greedy(5), [](std::string_view) { return false; });
  ASSERT_TRUE(part.ok());
  ASSERT_EQ(chat.turns().size(), 2u);
  EXPECT_EQ(chat.turns()[1].content, part->text);
  EXPECT_EQ(chat.Continue(*session_, Greedy(1)).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Conversation().Continue(*session_, Greedy(1)).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(ConversationJsonTest, ComesBackAsItWas) {
  Conversation chat;
  chat.Add({"system", "Be \"brief\"\n"});
  chat.Add({"user", "\xC3\xBC \xff"});
  const Result<Conversation> back = Conversation::FromJson(chat.ToJson(), "file");
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  ASSERT_EQ(back->turns().size(), 2u);
  EXPECT_EQ(back->turns()[0].content, "Be \"brief\"\n");
  EXPECT_EQ(back->turns()[1].content, "\xC3\xBC \xEF\xBF\xBD");
  Conversation again = *back;
  again.Reset();
  EXPECT_EQ(again.turns().size(), 1u);
  EXPECT_EQ(
      Conversation::FromJson(R"([{"role": "user", "content": "x"}])", "file")->turns()[0].role,
      "user");
}

TEST(ConversationJsonTest, ErrorsNameFileAndPlace) {
  for (const auto& [json, what] : std::vector<std::pair<std::string, std::string>>{
           {"", "not JSON"},
           {"{", "not JSON"},
           {"3", "of type number"},
           {"{}", "no \"messages\""},
           {R"({"messages": {}})", "of type object"},
           {R"([3])", "messages[0] is of type number"},
           {R"([{"role": "user"}])", "messages[0] has no \"content\""},
           {R"([{"role": 1, "content": "x"}])", "messages[0].role is of type number"},
           {std::string(100000, '['), "not JSON"}}) {
    const Status status = Conversation::FromJson(json, "talk.json").status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << json.substr(0, 20);
    EXPECT_THAT(status.message(), HasSubstr("talk.json: "));
    EXPECT_THAT(status.message(), HasSubstr(what));
  }
}

}  // namespace
}  // namespace spillway
