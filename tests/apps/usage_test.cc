// What the program says when it is used wrongly, and where it says it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/apps/run_program.h"

namespace spillway::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const char* const kCommands[] = {"compile",     "run",    "inspect", "eval", "analyze",
                                 "sensitivity", "verify", "socs",    "bench"};

TEST(Help, OfTheProgramListsCommandsAndExitCodes) {
  const ProgramResult result = RunProgram({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* command : kCommands) EXPECT_THAT(result.out, HasSubstr(command));
  EXPECT_THAT(result.out, HasSubstr("Exit codes:"));
  for (const char* code : {"0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "7 ", "130 "}) {
    EXPECT_THAT(result.out, HasSubstr(std::string("\n  ") + code));
  }
}

TEST(Help, OfEveryCommandHasExamplesOfIt) {
  for (const std::string command : kCommands) {
    const ProgramResult result = RunProgram({command, "--help"});
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_THAT(result.out, HasSubstr("Examples:\n")) << command;
    EXPECT_THAT(result.out, HasSubstr("  spillway " + command + " ")) << command;
    EXPECT_THAT(result.err, IsEmpty()) << command;
  }
}

TEST(Help, OfCompileHasEveryHtpOption) {
  const ProgramResult result = RunProgram({"compile", "--help"});
  std::istringstream words(
      "--soc --slc-allocator --optimization-level --vtcm-mb --hvx-threads --precision "
      "--weight-sharing --multi-contexts --dlbc --dlbc-weights --fold-relu --conv-hmx "
      "--finalize-config --op-package PATH:PROVIDER[:TARGET] --online-prepare --performance-mode "
      "--rpc-polling-us --rpc-control-latency-us --sleep-latency-us --graph-priority --pd-session "
      "--profile-level --vendor-log-level --saver-dir --dump-intermediates "
      "sustained_high_performance normal_high linting");
  for (std::string word; words >> word;) EXPECT_THAT(result.out, HasSubstr(word));
}

TEST(Help, VersionIsOneLine) {
  const ProgramResult result = RunProgram({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, ::testing::MatchesRegex("spillway [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

// Arguments, and a word that the message must have.
struct WrongUse {
  std::vector<std::string> arguments;
  std::string message;
};

std::ostream& operator<<(std::ostream& out, const WrongUse& use) {
  out << "spillway";
  for (const std::string& argument : use.arguments) out << ' ' << argument;
  return out;
}

class WrongUsage : public ::testing::TestWithParam<WrongUse> {};

TEST_P(WrongUsage, IsExitCodeTwoWithAMessageAndAHint) {
  const ProgramResult result = RunProgram(GetParam().arguments);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, StartsWith("spillway: error: "));
  EXPECT_THAT(result.err, HasSubstr(GetParam().message));
  EXPECT_THAT(result.err, HasSubstr("--help"));
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongUsage,
    ::testing::Values(
        WrongUse{{}, "no command"}, WrongUse{{"frobnicate"}, "frobnicate"},
        WrongUse{{"compile"}, "MODEL"}, WrongUse{{"compile", "m.gguf"}, "-o"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--no-such-option"}, "--no-such-option"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--mode", "both"}, "both"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--kv-bits", "12"}, "--kv-bits"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--context-len", "-5"}, "--context-len"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--context-len", "many"}, "--context-len"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--optimization-level", "9"},
                 "--optimization-level"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--slc-allocator=maybe"},
                 "'maybe', expected one of off, on, auto"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--performance-mode", "fast"},
                 "unknown performance mode 'fast', expected one of default, burst, "},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--precision", "fp8"}, "quantized, fp16"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--graph-priority", "top"}, "normal_high, high"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--pd-session", "secure"}, "unsigned, signed"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--profile-level", "all"}, "detailed, linting"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--vendor-log-level", "9"}, "verbose, debug"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--op-package", "ops.so"}, "PATH:PROVIDER"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--finalize-config", "key"}, "key=value"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--rpc-polling-us", "10000"}, "0 to 9999"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--sleep-latency-us", "0"}, "1 to 65535"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--vtcm-mb", "9"}, "the VTCM of SM8750"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--online-prepare", "--saver-dir", "s"},
                 "exclude each other"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--vendor-timeout", "-1"}, "--vendor-timeout"},
        WrongUse{{"run", "p", "-p", "x", "--min-p", "2"}, "--min-p"},
        WrongUse{{"run", "p", "-p", "x", "--seed", "99999999999999999999"}, "2^64"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--log-level", "loud"}, "loud"},
        WrongUse{{"compile", "m.gguf", "-o", "p", "--soc", "SM0000"}, "SM8750"},
        WrongUse{{"run"}, "PACKAGE"}, WrongUse{{"run", "p", "--executor", "gpu"}, "gpu"},
        WrongUse{{"run", "p", "--temperature", "-1", "--prompt", "x"}, "temperature"},
        WrongUse{{"run", "p", "--top-p", "hot", "--prompt", "x"}, "--top-p"},
        WrongUse{{"inspect"}, "PATH"}, WrongUse{{"inspect", "a", "b"}, "b"},
        WrongUse{{"eval", "m.gguf"}, "--text"},
        WrongUse{{"eval", "m.gguf", "--text", "t", "--context", "1"}, "--context"},
        WrongUse{{"eval", "m.gguf", "--text", "t", "--executor", "gpu"}, "gpu"},
        WrongUse{{"analyze", "p"}, "--float"}, WrongUse{{"sensitivity"}, "MODEL"},
        WrongUse{{"sensitivity", "m", "--activations", "--target-bits", "5"}, "--activations"},
        WrongUse{{"verify"}, "PACKAGE"}, WrongUse{{"bench"}, "PACKAGE"},
        WrongUse{{"bench", "p", "--compare", "ollama"}, "llama.cpp"},
        WrongUse{{"bench", "p", "--llama-model", "m.gguf"}, "--compare"},
        WrongUse{{"bench", "p", "--threads", "1,many"}, "--threads"}));

TEST(Errors, JsonGoesToStandardOutputAsOneObject) {
  const ProgramResult result = RunProgram({"inspect", "/no/such/file", "--json"});
  EXPECT_EQ(result.exit_code, 3);
  const auto json = ParseJson(result.out);
  ASSERT_TRUE(json.is_object()) << result.out;
  EXPECT_EQ(json["error"]["code"], "not_found");
  EXPECT_EQ(json["error"]["exit_code"], 3);
  EXPECT_THAT(json["error"]["message"].get<std::string>(), HasSubstr("/no/such/file"));
  EXPECT_THAT(result.err, HasSubstr("/no/such/file"));
}

TEST(Errors, JsonIsUsedAlsoWhenTheArgumentsDoNotParse) {
  const ProgramResult result = RunProgram({"compile", "--frobnicate", "--json"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(ParseJson(result.out)["error"]["code"], "invalid_argument") << result.out;
}

TEST(Errors, MissingFilesAreExitCodeThree) {
  const TempFolder folder;
  const std::string missing = folder.File("missing");
  EXPECT_EQ(RunProgram({"inspect", missing}).exit_code, 3);
  EXPECT_EQ(RunProgram({"run", missing, "--prompt", "x"}).exit_code, 3);
  EXPECT_EQ(RunProgram({"eval", missing, "--text", missing}).exit_code, 3);
  EXPECT_EQ(RunProgram({"verify", missing, "--prompt", "x"}).exit_code, 3);
  EXPECT_EQ(RunProgram({"analyze", missing, "--float", missing}).exit_code, 3);
  EXPECT_EQ(RunProgram({"sensitivity", missing}).exit_code, 3);
  EXPECT_EQ(RunProgram({"compile", missing, "-o", folder.File("p"), "--htp", "off"}).exit_code, 3);
  EXPECT_EQ(RunProgram({"compile", missing, "--dry-run"}).exit_code, 3);
}

TEST(Errors, AFolderOfOtherThingsIsNeverReplaced) {
  const TempFolder folder;
  std::ofstream(folder.File("letter.txt")) << "keep me";
  const ProgramResult result = RunProgram({"compile", "m.gguf", "-o", folder.path()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("no package"));
  EXPECT_EQ(ReadText(folder.File("letter.txt")), "keep me");
}

TEST(Errors, MissingVendorLibrariesAreExitCodeFour) {
  const TempFolder folder;
  std::ofstream(folder.File("blob")) << "not a GGUF file";
  const ProgramResult inspect =
      RunProgram({"inspect", folder.File("blob"), "--qnn-lib-dir", folder.path()});
  EXPECT_EQ(inspect.exit_code, 4);
  EXPECT_THAT(inspect.err, HasSubstr(folder.path()));
  const ProgramResult compile = RunProgram(
      {"compile", "m.gguf", "-o", folder.File("p"), "--htp", "on", "--qnn-lib-dir", folder.path()});
  EXPECT_EQ(compile.exit_code, 4);
}

TEST(Errors, AForeignFileIsNoContextBinary) {
  const auto libraries = QnnLibDir();
  if (!libraries) GTEST_SKIP() << "the vendor's libraries are missing";
  const TempFolder folder;
  std::ofstream(folder.File("blob")) << "not a GGUF file, and no context binary either";
  const ProgramResult result =
      RunProgram({"inspect", folder.File("blob"), "--qnn-lib-dir", *libraries, "--json"});
  EXPECT_THAT(result.exit_code, ::testing::AnyOf(3, 4)) << result.err;
  EXPECT_THAT(ParseJson(result.out)["error"]["message"].get<std::string>(),
              HasSubstr(folder.File("blob")));
}

}  // namespace
}  // namespace spillway::test
