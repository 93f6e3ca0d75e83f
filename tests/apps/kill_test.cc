// The program killed at any moment of a compile: the old package or none, and the next
// compile cleans up and goes on.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/file.h"
#include "tests/apps/run_program.h"
#include "tests/fake_qnn/fake_qnn.h"
#include "tests/support/random.h"
#include "tests/support/tiny_model.h"

extern char** environ;

namespace spillway::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class KillTest : public ::testing::Test {
 protected:
  KillTest() : cache_("SPILLWAY_CACHE_DIR", folder_.File("cache")) {
    TinyModelSpec spec;
    spec.layers = 4;
    model_ = WriteTinyModel(folder_.File("tiny.gguf"), spec);
  }

  std::vector<std::string> Arguments(const std::string& context_len) const {
    return {"compile",
            model_,
            "-o",
            Package(),
            "--context-len",
            context_len,
            "--htp",
            "on",
            "--qnn-lib-dir",
            FakeQnnDir(),
            "--num-shards",
            "4",
            "--jobs",
            "1",
            "--calib-tokens",
            "32",
            "--quiet"};
  }
  std::string Package() const { return folder_.File("out/pkg"); }
  std::string Manifest() const { return ReadText(Package() + "/manifest.json"); }

  // Runs the program and kills it after `seconds`.
  void RunAndKill(const std::vector<std::string>& arguments, double seconds) {
    std::vector<std::string> words = {SPILLWAY_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int fd : {1, 2}) {
      posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
    }
    pid_t pid = 0;
    ASSERT_EQ(posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    kill(pid, SIGKILL);
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  }

  TempFolder folder_;
  ScopedEnv cache_;
  std::string model_;
};

TEST_F(KillTest, LeavesTheOldPackageOrNoneAndTheNextCompileCleansUp) {
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(RunProgram(Arguments("64")).exit_code, 0);
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - start;
  const std::string old_manifest = Manifest();
  Random random(3);
  int replaced = 0;
  for (int round = 0; round < 12; ++round) {
    ASSERT_EQ(RunProgram({"cache", "--clear"}).exit_code, 0);
    RunAndKill(Arguments("96"), 1.1 * random.Uniform() * whole.count());
    const ProgramResult inspect = RunProgram({"inspect", Package()});
    EXPECT_EQ(inspect.exit_code, 0) << inspect.err;
    if (Manifest() != old_manifest) {
      EXPECT_THAT(Manifest(), HasSubstr("\"context_len\": 96"));
      ++replaced;
      ASSERT_EQ(RunProgram(Arguments("64")).exit_code, 0);
    }
  }
  EXPECT_LT(replaced, 12);
  // Nothing lies around after a compile that runs through.
  ASSERT_EQ(RunProgram(Arguments("64")).exit_code, 0);
  EXPECT_THAT(*ListFolder(folder_.File("out")), ::testing::ElementsAre("pkg"));
}

TEST_F(KillTest, WithoutAnOldPackageThereIsNone) {
  RunAndKill(Arguments("64"), 0.02);
  EXPECT_FALSE(FileExists(Package() + "/manifest.json"));
  ASSERT_EQ(RunProgram(Arguments("64")).exit_code, 0);
  EXPECT_THAT(*ListFolder(folder_.File("out")), ::testing::ElementsAre("pkg"));
}

TEST_F(KillTest, FinishedShardsAreKept) {
  ASSERT_EQ(RunProgram(Arguments("64")).exit_code, 0);
  std::vector<std::string> arguments = Arguments("64");
  arguments.push_back("--json");
  const ProgramResult again = RunProgram(arguments);
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.out, HasSubstr("\"from_cache\": true"));
  EXPECT_THAT(again.out, Not(HasSubstr("\"from_cache\": false")));
  const ProgramResult cache = RunProgram({"cache"});
  EXPECT_THAT(cache.out, HasSubstr("in 4 contexts"));
  EXPECT_THAT(cache.out, HasSubstr("tiny.gguf, 16a8w, SM8750, shard 4 of 4"));
}

}  // namespace
}  // namespace spillway::test
