// spillway bench on a small random model, with programs that stand in for llama.cpp's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/apps/run_program.h"
#include "tests/support/tiny_model.h"

namespace spillway::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class BenchProgram : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    WriteTinyModel(Model(), {});
    compile_ = new ProgramResult(
        RunProgram({"compile", Model(), "-o", Package(), "--htp", "off", "--prefill-ar-len", "8",
                    "--context-len", "62", "--calib-tokens", "64", "--quiet"}));
  }
  static void TearDownTestSuite() {
    delete compile_;
    delete folder_;
  }
  void SetUp() override { ASSERT_EQ(compile_->exit_code, 0) << compile_->err; }

  static std::string Model() { return folder_->File("tiny.gguf"); }
  static std::string Package() { return folder_->File("pkg"); }

  // An executable file with these contents.
  static std::string Script(const std::string& name, const std::string& text) {
    const std::string path = folder_->File(name);
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  // Answers every test that it is asked for with 10 tokens a second, and notes each call.
  static std::string FakeLlamaBench() {
    return Script("llama-bench",
                  "#!/bin/sh\n"
                  "echo \"$*\" >>" +
                      Calls() +
                      "\n"
                      "echo 'load_backend: loaded' >&2\n"
                      "depth=0\n"
                      "while [ $# -gt 0 ]; do\n"
                      "  case $1 in -p) prompts=$2;; -n) gen=$2;; -d) depth=$2;; esac\n"
                      "  shift\n"
                      "done\n"
                      "for n in $(echo $prompts | tr , ' '); do\n"
                      "  echo \"{\\\"n_prompt\\\": $n, \\\"n_gen\\\": 0, \\\"n_depth\\\": $depth, "
                      "\\\"avg_ts\\\": 10.0}\"\n"
                      "done\n"
                      "echo \"{\\\"n_prompt\\\": 0, \\\"n_gen\\\": $gen, \\\"n_depth\\\": $depth, "
                      "\\\"avg_ts\\\": 10.0}\"\n");
  }
  static std::string Calls() { return folder_->File("calls"); }

  // Few and short tests.
  static std::vector<std::string> Arguments(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"bench", Package(), "-r", "2", "--bandwidth-mb", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  static TempFolder* folder_;
  static ProgramResult* compile_;
};
TempFolder* BenchProgram::folder_ = nullptr;
ProgramResult* BenchProgram::compile_ = nullptr;

void ExpectSpread(const nlohmann::json& spread) {
  ASSERT_TRUE(spread.is_object()) << spread;
  EXPECT_GT(spread["min"].get<double>(), 0.0);
  EXPECT_LE(spread["min"], spread["median"]);
  EXPECT_LE(spread["median"], spread["max"]);
}

TEST_F(BenchProgram, JsonHasEveryFigure) {
  const ProgramResult result = RunProgram(
      {"bench", Package(), "--threads", "1,2", "-r", "2", "--prompts", "24,61,128", "--decode",
       "16", "--depth", "40", "--depth-tokens", "4", "--bandwidth-mb", "4", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = ParseJson(result.out);
  EXPECT_EQ(json["kind"], "bench");
  EXPECT_EQ(json["context_len"], 62);
  EXPECT_EQ(json["prefill_ar_len"], 8);
  EXPECT_TRUE(json["peer"].is_null());
  EXPECT_EQ(json["bandwidth_buffer_bytes"], 4000000);
  ASSERT_EQ(json["starts"].size(), 2u) << result.out;
  ASSERT_EQ(json["threads"].size(), 2u);
  const TinyModelSpec spec;
  const uint64_t heads = spec.heads * spec.head_dim, kv = spec.kv_heads * spec.head_dim;
  const double layer = 2.0 * spec.hidden * static_cast<double>(heads + kv) +
                       3.0 * spec.hidden * static_cast<double>(spec.ffn);
  const double head = static_cast<double>(spec.hidden) * spec.vocab;
  for (size_t i = 0; i < 2; ++i) {
    const auto& start = json["starts"][i];
    EXPECT_EQ(start["threads"], i + 1);
    ExpectSpread(start["load_s"]);
    ExpectSpread(start["first_token_s"]);
    EXPECT_GE(start["load_to_first_token_s"]["max"], start["load_s"]["max"]);
    EXPECT_GT(start["peak_rss_bytes"].get<uint64_t>(), 1000000u);
    const auto& threads = json["threads"][i];
    EXPECT_EQ(threads["threads"], i + 1);
    EXPECT_GT(threads["memory_bandwidth"].get<double>(), 0.0);
    EXPECT_GT(threads["peak_rss_bytes"].get<uint64_t>(), 1000000u);
    ASSERT_EQ(threads["tests"].size(), 4u) << threads;
    const char* const names[] = {"pp24", "pp61", "tg16", "tg4 @ d40"};
    for (size_t t = 0; t < 4; ++t) {
      EXPECT_EQ(threads["tests"][t]["test"], names[t]);
      ExpectSpread(threads["tests"][t]["tokens_per_s"]);
    }
    const auto& prompt = threads["tests"][0];
    EXPECT_NEAR(prompt["multiply_adds_per_s"].get<double>() /
                    prompt["tokens_per_s"]["median"].get<double>(),
                spec.layers * layer + head / 24, 1e-3);
    const auto& decode = threads["tests"][2];
    EXPECT_NEAR(decode["weight_bytes_per_s"].get<double>(),
                decode["tokens_per_s"]["median"].get<double>() * json["weight_bytes"].get<double>(),
                1.0);
    EXPECT_GT(decode["memory_bandwidth_share"].get<double>(), 0.0);
    EXPECT_FALSE(decode.contains("ratio"));
  }
  ASSERT_EQ(json["remarks"].size(), 2u) << json["remarks"];
  EXPECT_THAT(json["remarks"][0].get<std::string>(), HasSubstr("pp61: its last 5 tokens"));
  EXPECT_THAT(json["remarks"][1].get<std::string>(), HasSubstr("pp128 is left out"));
}

TEST_F(BenchProgram, TextIsATable) {
  const ProgramResult result = RunProgram(
      {"bench", Package(), "-r", "1", "--prompts", "8", "--decode", "4", "--bandwidth-mb", "4"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* word : {"tokens/s", "pp8", "tg4", "first token", "Gmadd/s", "of memory", "%"}) {
    EXPECT_THAT(result.out, HasSubstr(word));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("llama")));
}

TEST_F(BenchProgram, ComparesInTurnsWithLlamaBench) {
  std::filesystem::remove(Calls());
  const ProgramResult result =
      RunProgram(Arguments({"--prompts", "8,16", "--decode", "4", "--depth", "32", "--depth-tokens",
                            "2", "--threads", "1", "--compare", "llama.cpp", "--llama-bench",
                            FakeLlamaBench(), "--llama-model", Model(), "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = ParseJson(result.out);
  EXPECT_THAT(json["peer"].get<std::string>(), HasSubstr("tiny.gguf"));
  ASSERT_EQ(json["threads"][0]["tests"].size(), 4u);
  for (const auto& test : json["threads"][0]["tests"]) {
    EXPECT_EQ(test["peer_tokens_per_s"]["median"], 10.0);
    EXPECT_NEAR(test["ratio"]["min"].get<double>(),
                test["tokens_per_s"]["min"].get<double>() / 10.0, 1e-6);
    EXPECT_NEAR(test["ratio"]["max"].get<double>(),
                test["tokens_per_s"]["max"].get<double>() / 10.0, 1e-6);
  }
  const std::string first = "-m " + Model() + " -t 1 -p 8,16 -n 4 -r 1 -o jsonl\n";
  const std::string deep = "-m " + Model() + " -t 1 -p 0 -n 2 -r 1 -o jsonl -d 32\n";
  EXPECT_EQ(ReadText(Calls()), first + first + deep + deep);
}

TEST_F(BenchProgram, FindsLlamaBenchInTheEnvironment) {
  FakeLlamaBench();
  for (const std::string& environment :
       {"LLAMA_BENCH=" + folder_->File("llama-bench"), "PATH=" + folder_->path() + ":$PATH"}) {
    const ProgramResult result =
        RunProgram(Arguments({"--prompts", "8", "--decode", "0", "--compare", "llama.cpp",
                              "--llama-model", Model()}),
                   "", environment);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("ratio"));
    EXPECT_THAT(result.out, HasSubstr("in turns with llama-bench " + folder_->path()));
  }
}

TEST_F(BenchProgram, ComparesWithThePythonPackage) {
  if (!std::filesystem::exists("/usr/bin/python3")) GTEST_SKIP() << "python3 is missing";
  const std::string place = folder_->File("python");
  std::filesystem::create_directory(place);
  std::filesystem::create_symlink("/usr/bin/python3", place + "/python3");
  std::ofstream(place + "/llama_cpp.py") << R"(
class Llama:
    def __init__(self, model_path, n_ctx, n_batch, n_threads, n_threads_batch, verbose):
        assert model_path.endswith("tiny.gguf") and n_ctx >= 16 and n_threads == 1
        self.there = None
    def n_vocab(self):
        return 300
    def reset(self):
        self.there = 0
    def eval(self, tokens):
        assert all(0 <= token < 300 for token in tokens)
        self.there += len(tokens)
        assert self.there in (8, 32, 33, 34), self.there
)";
  const ProgramResult result = RunProgram(
      Arguments({"--prompts", "8", "--decode", "0", "--depth", "32", "--depth-tokens", "2",
                 "--threads", "1", "--compare", "llama.cpp", "--llama-model", Model(), "--json"}),
      "", "PATH=" + place + " PYTHONPATH=" + place);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = ParseJson(result.out);
  EXPECT_THAT(json["peer"].get<std::string>(), HasSubstr("llama-cpp-python"));
  for (const auto& test : json["threads"][0]["tests"]) ExpectSpread(test["peer_tokens_per_s"]);
}

TEST_F(BenchProgram, SaysWhereItLookedForLlamaCpp) {
  const ProgramResult result =
      RunProgram({"bench", Package(), "--compare", "llama.cpp", "--llama-model", Model()}, "",
                 "-u LLAMA_BENCH PATH=/nowhere");
  EXPECT_EQ(result.exit_code, 3);
  for (const char* word : {"--llama-bench", "LLAMA_BENCH", "PATH", "python", "llama-cpp-python"}) {
    EXPECT_THAT(result.err, HasSubstr(word));
  }
  EXPECT_THAT(result.out, IsEmpty());
}

TEST_F(BenchProgram, APeerThatFailsIsQuoted) {
  const std::string broken =
      Script("broken", "#!/bin/sh\necho 'error: failed to load model' >&2\nexit 3\n");
  const std::string silent = Script("silent", "#!/bin/sh\necho nothing\n");
  const auto run = [&](const std::string& program) {
    return RunProgram(Arguments({"--prompts", "8", "--decode", "0", "--compare", "llama.cpp",
                                 "--llama-bench", program, "--llama-model", Model()}));
  };
  const ProgramResult failed = run(broken);
  EXPECT_EQ(failed.exit_code, 2);
  EXPECT_THAT(failed.err, HasSubstr("exited with code 3"));
  EXPECT_THAT(failed.err, HasSubstr("failed to load model"));
  const ProgramResult odd = run(silent);
  EXPECT_EQ(odd.exit_code, 3);
  EXPECT_THAT(odd.err, HasSubstr("no figure for pp8"));
  EXPECT_EQ(run(folder_->File("missing")).exit_code, 3);
}

TEST_F(BenchProgram, WrongArgumentsAreToldBeforeAnythingRuns) {
  const auto run = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    return RunProgram(arguments);
  };
  EXPECT_EQ(run({folder_->File("none")}).exit_code, 3);
  const ProgramResult no_model = run({Package(), "--compare", "llama.cpp"});
  EXPECT_EQ(no_model.exit_code, 2);
  EXPECT_THAT(no_model.err, HasSubstr("--llama-model"));
  std::ofstream(folder_->File("text.gguf")) << "no model";
  EXPECT_EQ(run({Package(), "--compare", "llama.cpp", "--llama-model", folder_->File("text.gguf")})
                .exit_code,
            2);
  const ProgramResult nothing = run({Package(), "--prompts", "0", "--decode", "0"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("nothing to measure"));
  const ProgramResult long_prompt =
      run({Package(), "-r", "1", "--prompts", "512", "--decode", "0", "--bandwidth-mb", "0"});
  EXPECT_EQ(long_prompt.exit_code, 2);
  EXPECT_THAT(long_prompt.err, HasSubstr("a context of 62"));
}

}  // namespace
}  // namespace spillway::test
