// Lookahead decoding with a real model: fewer calls, the same answer.

#include <gtest/gtest.h>

#include "spillway/compile.h"
#include "spillway/session.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

TEST(RealLookaheadTest, ARepetitivePromptRunsAhead) {
  const auto model_path = test::ModelPath();
  if (!model_path) GTEST_SKIP() << "the model .deps/model/SmolLM2-135M-Instruct.Q4_1.gguf";
  test::TempFolder folder;
  CompileOptions compile;
  compile.model_path = *model_path;
  compile.output_path = folder.File("pkg");
  compile.mode = "lookahead";
  compile.lookahead = {4, 2, 3};
  compile.context_len = 128;
  compile.calib_tokens = 128;
  compile.htp_build = HtpBuild::kOff;
  const Result<CompileReport> report = Compile(compile);
  ASSERT_TRUE(report.ok()) << report.status().ToString();

  RunOptions run;
  run.temperature = 0;
  run.max_new_tokens = 40;
  run.raw_prompt = true;
  run.ignore_eos = true;
  const std::string prompt =
      "The cat sat on the mat. The dog ran in the park. The bird flew over the house. "
      "The cat sat on the mat. The dog ran in the park. The bird flew over the house. "
      "The cat sat on";
  SessionOptions options;
  options.package_path = folder.File("pkg");
  std::vector<Answer> answers;
  for (const bool ahead : {true, false}) {
    if (!ahead) options.lookahead = LookaheadSizes{};
    const Result<std::unique_ptr<Session>> session = Session::Open(options);
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    Result<Answer> answer = (*session)->Generate(prompt, run);
    ASSERT_TRUE(answer.ok()) << answer.status().ToString();
    answers.push_back(std::move(*answer));
  }
  EXPECT_EQ(answers[0].tokens, answers[1].tokens);
  EXPECT_GT(answers[0].stats.tokens_per_step, 1.3);
  EXPECT_EQ(answers[1].stats.tokens_per_step, 1.0);
}

}  // namespace
}  // namespace spillway
