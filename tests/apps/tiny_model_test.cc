// The commands one after the other, as a user has them, on a small random model
// and without the vendor's libraries.

#include "tests/support/tiny_model.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/apps/run_program.h"

namespace spillway::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Starts the program with its standard output going to `out`; returns its pid.
pid_t StartProgram(const std::vector<std::string>& arguments, int out) {
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), SPILLWAY_PROGRAM);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(null, STDERR_FILENO);
  execv(argv[0], argv.data());
  _exit(127);
}

int WaitForExitCode(pid_t child) {
  int state = 0;
  waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

// One model and one package for all tests.
class TinyModelProgram : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    TinyModelSpec spec;
    spec.weight_type = TensorType::kQ8_0;
    WriteTinyModel(Model(), spec);
    compile_ = new ProgramResult(
        RunProgram({"compile", Model(), "-o", Package(), "--htp", "off", "--prefill-ar-len", "8",
                    "--context-len", "64", "--calib-tokens", "128", "--json", "--quiet"}));
  }
  static void TearDownTestSuite() {
    delete compile_;
    delete folder_;
  }
  void SetUp() override { ASSERT_EQ(compile_->exit_code, 0) << compile_->err; }

  static std::string Model() { return folder_->File("tiny.gguf"); }
  static std::string Package() { return folder_->File("pkg"); }
  static TempFolder* folder_;
  static ProgramResult* compile_;
};
TempFolder* TinyModelProgram::folder_ = nullptr;
ProgramResult* TinyModelProgram::compile_ = nullptr;

TEST_F(TinyModelProgram, HtpOptionsOfTheCommandLineAreInTheManifest) {
  const std::string ops = folder_->File("ops:1.so");
  std::ofstream(ops) << "x";
  const std::string package = folder_->File("options");
  std::vector<std::string> arguments = {"compile", Model(),        "-o",
                                        package,   "--op-package", ops + ":provider:HTP"};
  std::istringstream words(
      "--htp off --prefill-ar-len 8 --context-len 64 --calib-tokens 64 --quiet --soc SM8650 "
      "--slc-allocator=auto --optimization-level 2 --vtcm-mb 4 --hvx-threads 3 "
      "--precision quantized --weight-sharing=off --multi-contexts --dlbc --dlbc-weights=on "
      "--fold-relu=off --conv-hmx --finalize-config a=1 --finalize-config b=x=y "
      "--performance-mode low_balanced --rpc-polling-us 0 --rpc-control-latency-us 80 "
      "--sleep-latency-us 60 --graph-priority high --pd-session signed --profile-level detailed "
      "--vendor-log-level debug --dump-intermediates");
  for (std::string word; words >> word;) arguments.push_back(word);
  const ProgramResult result = RunProgram(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto options = ParseJson(ReadText(package + "/manifest.json"))["target"]["htp_options"];
  const auto expected = ParseJson(R"({"soc":"SM8650","slc_allocator":"auto",
      "optimization_level":2,"vtcm_mb":4,"hvx_threads":3,"precision":"quantized",
      "weight_sharing":false,"multi_contexts":true,"dlbc":true,"dlbc_weights":true,
      "fold_relu":false,"conv_hmx":true,"finalize_config":[["a","1"],["b","x=y"]],
      "performance":"low_balanced","rpc_polling_us":0,"rpc_control_latency_us":80,
      "sleep_latency_us":60,"priority":"high","pd_session":"signed","profile_level":"detailed",
      "log_level":"debug","dump_intermediates":true,"online_prepare":false,"saver_dir":""})");
  ASSERT_TRUE(expected.is_object());
  for (const auto& [name, value] : expected.items()) EXPECT_EQ(options[name], value) << name;
  EXPECT_EQ(options["op_packages"][0]["path"], ops);
  EXPECT_EQ(options["op_packages"][0]["provider"], "provider");
  EXPECT_EQ(options["op_packages"][0]["target"], "HTP");
  // Nothing is forgotten here.
  EXPECT_EQ(options.size(), expected.size() + 1);
}

TEST_F(TinyModelProgram, CompileReportsWhatScriptsNeed) {
  const auto json = ParseJson(compile_->out);
  ASSERT_TRUE(json.is_object()) << compile_->out;
  for (const char* key :
       {"soc", "graphs", "shards", "ddr", "wall_s", "vendor_finalize_s", "peak_rss_bytes"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["soc"], "SM8750");
  EXPECT_EQ(json["graphs"], (nlohmann::json{"prefill_forward", "kv_forward"}));
  EXPECT_GT(json["wall_s"].get<double>(), 0.0);
  EXPECT_GT(json["peak_rss_bytes"].get<uint64_t>(), 1000000u);
}

TEST_F(TinyModelProgram, QuietCompileSaysNothingElse) { EXPECT_THAT(compile_->err, IsEmpty()); }

TEST_F(TinyModelProgram, CompileIntoAPackageReplacesIt) {
  const std::string place = folder_->File("again");
  for (const char* context : {"32", "48"}) {
    const ProgramResult result =
        RunProgram({"compile", Model(), "-o", place, "--htp", "off", "--prefill-ar-len", "8",
                    "--context-len", context, "--calib-tokens", "64"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, Not(IsEmpty()));
  }
  const auto json = ParseJson(RunProgram({"inspect", place, "--json"}).out);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["graphs"]["context_len"], 48);
}

TEST_F(TinyModelProgram, DryRunWritesNothing) {
  const std::string place = folder_->File("dry");
  const ProgramResult result =
      RunProgram({"compile", Model(), "-o", place, "--dry-run", "--context-len", "64", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(ParseJson(result.out).is_object()) << result.out;
  EXPECT_FALSE(std::filesystem::exists(place));
}

TEST_F(TinyModelProgram, ContextShorterThanACallIsAUsageError) {
  const ProgramResult result = RunProgram({"compile", Model(), "-o", folder_->File("bad"), "--htp",
                                           "off", "--prefill-ar-len", "64", "--context-len", "32"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("64"));
  EXPECT_THAT(result.err, HasSubstr("32"));
  EXPECT_FALSE(std::filesystem::exists(folder_->File("bad")));
}

TEST_F(TinyModelProgram, InspectDescribesTheModel) {
  const auto json = ParseJson(RunProgram({"inspect", Model(), "--json", "--tensors"}).out);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["kind"], "gguf");
  EXPECT_EQ(json["config"]["architecture"], "llama");
  EXPECT_EQ(json["config"]["num_layers"], 2);
  EXPECT_EQ(json["tensors"].size(), json["num_tensors"].get<size_t>());
  EXPECT_EQ(json["metadata"]["tokenizer.ggml.tokens"]["length"], 300);
  const ProgramResult text = RunProgram({"inspect", Model(), "--tensors"});
  EXPECT_THAT(text.out, HasSubstr("blk.1.ffn_down.weight"));
  EXPECT_THAT(text.out, HasSubstr("Q8_0"));
}

TEST_F(TinyModelProgram, InspectSaysWhyAModelCannotBeCompiled) {
  TinyModel model = MakeTinyModel({});
  model.file.Set("general.architecture", MetaValue::String("mamba"));
  model.file.Write(folder_->File("mamba.gguf"));
  const ProgramResult inspect = RunProgram({"inspect", folder_->File("mamba.gguf")});
  EXPECT_EQ(inspect.exit_code, 0) << inspect.err;
  EXPECT_THAT(inspect.out, HasSubstr("mamba"));
  EXPECT_THAT(inspect.out, HasSubstr("cannot be compiled"));
  const ProgramResult compile = RunProgram(
      {"compile", folder_->File("mamba.gguf"), "-o", folder_->File("mamba"), "--htp", "off"});
  EXPECT_EQ(compile.exit_code, 3);
  EXPECT_THAT(compile.err, HasSubstr("mamba"));
}

TEST_F(TinyModelProgram, InspectDescribesThePackage) {
  const auto json = ParseJson(RunProgram({"inspect", Package(), "--json", "--graphs"}).out);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["kind"], "package");
  EXPECT_EQ(json["graphs"]["context_len"], 64);
  ASSERT_EQ(json["shard_graphs"].size(), 2u);
  EXPECT_EQ(json["shard_graphs"][0]["name"], "prefill_forward");
  EXPECT_EQ(json["shard_graphs"][0]["tensors"][0]["name"], "hidden_in");
  const ProgramResult text = RunProgram({"inspect", Package(), "--graphs"});
  EXPECT_THAT(text.out, HasSubstr("weights.bin"));
  EXPECT_THAT(text.out, HasSubstr("attention_mask"));
}

TEST_F(TinyModelProgram, RunPrintsWhatItsJsonHas) {
  const std::vector<std::string> arguments = {"run", Package(), "--prompt",      "Hello",
                                              "-n",  "12",      "--temperature", "0"};
  std::vector<std::string> with_json = arguments;
  with_json.push_back("--json");
  const auto json = ParseJson(RunProgram(with_json).out);
  ASSERT_TRUE(json.is_object());
  EXPECT_GT(json["prompt_tokens"].size(), 5u);
  EXPECT_LE(json["tokens"].size(), 12u);
  EXPECT_THAT(json["stop_reason"].get<std::string>(),
              ::testing::AnyOf("max_new_tokens", "end_of_text"));
  EXPECT_GT(json["stats"]["load_s"].get<double>(), 0.0);
  const ProgramResult text = RunProgram(arguments);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.err, IsEmpty());
  EXPECT_EQ(text.out, json["text"].get<std::string>() + "\n");
}

TEST_F(TinyModelProgram, RunReadsThePromptFromStandardInput) {
  const std::vector<std::string> options = {"-n", "4", "--temperature", "0", "--json"};
  std::vector<std::string> given = {"run", Package(), "--prompt", "two\nlines"};
  std::vector<std::string> piped = {"run", Package()};
  given.insert(given.end(), options.begin(), options.end());
  piped.insert(piped.end(), options.begin(), options.end());
  const auto from_option = ParseJson(RunProgram(given).out);
  const auto from_input = ParseJson(RunProgram(piped, "two\nlines\n").out);
  ASSERT_TRUE(from_option.is_object());
  EXPECT_EQ(from_option["prompt_tokens"], from_input["prompt_tokens"]);
  EXPECT_EQ(from_option["tokens"], from_input["tokens"]);
}

TEST_F(TinyModelProgram, RunStatsGoToStandardError) {
  const ProgramResult result =
      RunProgram({"run", Package(), "--prompt", "Hello", "-n", "2", "--stats"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("tokens/s"));
  EXPECT_THAT(result.out, Not(HasSubstr("tokens/s")));
}

TEST_F(TinyModelProgram, APromptLongerThanTheContextSaysBothNumbers) {
  const ProgramResult result =
      RunProgram({"run", Package(), "--raw", "--prompt", std::string(500, 'x')});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("64"));
  EXPECT_THAT(result.err, ::testing::ContainsRegex("[1-9][0-9][0-9]* tokens"));
}

TEST_F(TinyModelProgram, EvalComparesWithFloat) {
  const std::string text = folder_->File("text.txt");
  std::string words;
  for (int i = 0; i < 40; ++i) words += "The lock keeper opens sluice " + std::to_string(i) + ". ";
  std::ofstream(text) << words;
  const ProgramResult result =
      RunProgram({"eval", Package(), Model(), "--text", text, "--context", "32", "--windows", "3",
                  "--greedy", "4", "--prompt", "Hello", "--float", Model(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = ParseJson(result.out);
  EXPECT_EQ(json["protocol"], "llama.cpp");
  ASSERT_EQ(json["results"].size(), 3u) << result.out;
  const auto& reference = json["results"][0];
  const auto& package = json["results"][1];
  const auto& same = json["results"][2];
  EXPECT_EQ(reference["what"], "float");
  EXPECT_EQ(reference["windows"], 3);
  EXPECT_FALSE(reference.contains("logits_sqnr_db"));
  EXPECT_NEAR(package["ratio"].get<double>(), 1.0, 0.1);
  EXPECT_GT(package["logits_sqnr_db"].get<double>(), 20);
  EXPECT_GT(package["kl_divergence"].get<double>(), 0);
  EXPECT_EQ(package["greedy_tokens"].size(), 4u);
  EXPECT_TRUE(same["logits_sqnr_db"].is_null()) << "no noise";
  EXPECT_EQ(same["perplexity"], reference["perplexity"]);
  EXPECT_EQ(same["top1_agreement"], 1.0);
  EXPECT_EQ(same["greedy_equal"], 4);

  const ProgramResult table =
      RunProgram({"eval", Model(), "--text", text, "--context", "32", "--stride", "16"});
  EXPECT_THAT(table.out, HasSubstr("perplexity"));
  EXPECT_THAT(table.out, HasSubstr("sliding"));
  const ProgramResult long_window =
      RunProgram({"eval", Package(), "--text", text, "--context", "65"});
  EXPECT_EQ(long_window.exit_code, 2);
  EXPECT_THAT(long_window.err, HasSubstr("64"));
}

TEST_F(TinyModelProgram, EvalFollowsATextPastTheContext) {
  const std::string text = folder_->File("long.txt");
  std::string words;
  for (int i = 0; i < 60; ++i) words += "The lock keeper opens sluice " + std::to_string(i) + ". ";
  std::ofstream(text) << words;
  const ProgramResult result =
      RunProgram({"eval", Package(), "--float", Model(), "--text", text, "--attention-sink", "4,16",
                  "--tokens", "300", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = ParseJson(result.out);
  EXPECT_EQ(json["protocol"], "stream");
  EXPECT_EQ(json["context"], 64);
  ASSERT_EQ(json["results"].size(), 4u) << result.out;
  for (const auto& line : json["results"]) {
    const bool sinkless = line["what"].get<std::string>().ends_with(", no sink");
    EXPECT_EQ(line["sink"], sinkless ? 0 : 4) << line;
    EXPECT_EQ(line["scored_tokens"], 299);
    EXPECT_EQ(line["before_tokens"], 64) << line;
    EXPECT_EQ(line["evictions"], 15) << line;
    EXPECT_EQ(line["running"].back(), line["perplexity"]);
  }
  EXPECT_NEAR(json["results"][1]["ratio"].get<double>(), 1.0, 0.1);
  const ProgramResult table = RunProgram(
      {"eval", Package(), "--text", text, "--attention-sink", "4,16", "--tokens", "200"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("one stream of 200 tokens through a context of 64"));
  const ProgramResult small =
      RunProgram({"eval", Package(), "--text", text, "--attention-sink", "4,16", "--tokens", "60"});
  EXPECT_EQ(small.exit_code, 2);
  EXPECT_THAT(small.err, HasSubstr("60 tokens, no more than the context of 64"));
}

// compile --attention-sink, or add-evictor later: answers go on; inspect tells.
TEST_F(TinyModelProgram, AddEvictorMakesAnswersGoOn) {
  const std::string package = folder_->File("with_evictor");
  const ProgramResult compiled =
      RunProgram({"compile", Model(), "-o", package, "--context-len", "64", "--prefill-ar-len",
                  "16", "--calib-tokens", "64", "--htp", "off", "--attention-sink", "4,16"});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  EXPECT_THAT(compiled.out, HasSubstr("evictor for attention sink 4,16"));
  const ProgramResult added =
      RunProgram({"add-evictor", package, "--attention-sink", "2,20", "--htp", "off", "--json"});
  ASSERT_EQ(added.exit_code, 0) << added.err;
  EXPECT_EQ(ParseJson(added.out)["batch"], 20);
  const ProgramResult inspected = RunProgram({"inspect", package, "--graphs"});
  EXPECT_THAT(inspected.out, HasSubstr("attention sink 2,20"));
  EXPECT_THAT(inspected.out, HasSubstr("attention_sink_evictor"));
  EXPECT_THAT(inspected.out, HasSubstr("k_kept_1"));
  const std::vector<std::string> run = {"run",   package,        "--raw", "--prompt",
                                        "Hello", "--ignore-eos", "-n",    "150"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = run;
    all.insert(all.end(), more.begin(), more.end());
    const ProgramResult result = RunProgram(all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return ParseJson(result.out);
  };
  EXPECT_GT(with({"--json"})["stats"]["evictions"].get<int>(), 3);
  EXPECT_EQ(with({"--json", "--attention-sink", "0,0"})["stop_reason"], "context_full");
  EXPECT_EQ(
      RunProgram({"add-evictor", package, "--attention-sink", "2,62", "--htp", "off"}).exit_code,
      2);
}

TEST_F(TinyModelProgram, AnalyzeShowsWhereQualityGoes) {
  const ProgramResult text = RunProgram({"analyze", Package(), "--float", Model(), "--top", "3"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("quantised against float"));
  const ProgramResult result = RunProgram(
      {"analyze", Package(), "--float", Model(), "--tokens", "8", "--top", "0", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = ParseJson(result.out);
  EXPECT_EQ(json["tokens"], 8);
  EXPECT_EQ(json["layers"].size(), 2u);
  EXPECT_GT(json["operations"].size(), 20u);
  EXPECT_LE(json["operations"][0]["sqnr_db"], json["operations"][1]["sqnr_db"]);
}

TEST_F(TinyModelProgram, SensitivityFindsARecipeThatCompiles) {
  const ProgramResult ranking = RunProgram({"sensitivity", Model(), "--recipe", "16a4w", "--top",
                                            "0", "--calib-tokens", "64", "--json"});
  ASSERT_EQ(ranking.exit_code, 0) << ranking.err;
  EXPECT_EQ(ParseJson(ranking.out)["damage"].size(), 15u) << ranking.out;

  const std::string recipe = folder_->File("mixed.json");
  const ProgramResult mixed = RunProgram(
      {"sensitivity", Model(), "--target-bits", "6", "--calib-tokens", "64", "-o", recipe});
  ASSERT_EQ(mixed.exit_code, 0) << mixed.err;
  EXPECT_THAT(mixed.out, HasSubstr("bits a weight"));
  const ProgramResult shown = RunProgram({"recipes", recipe});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_EQ(ParseJson(shown.out)["name"], "mixed") << shown.out;
  const ProgramResult printed =
      RunProgram({"sensitivity", Model(), "--target-bits", "6", "--calib-tokens", "64"});
  EXPECT_EQ(printed.out, ReadText(recipe)) << "the answer is the recipe";
  const ProgramResult compiled =
      RunProgram({"compile", Model(), "-o", folder_->File("mixed"), "--htp", "off", "--recipe",
                  recipe, "--prefill-ar-len", "8", "--context-len", "64", "--calib-tokens", "64"});
  EXPECT_EQ(compiled.exit_code, 0) << compiled.err;
  const ProgramResult nothing = RunProgram({"sensitivity", Model(), "-o", recipe});
  EXPECT_EQ(nothing.exit_code, 2) << "-o without a target";
}

TEST_F(TinyModelProgram, CompileSearchesMixedPrecisionItself) {
  const std::string place = folder_->File("searched"), recipe = folder_->File("found.json");
  std::vector<std::string> arguments = {"compile",
                                        Model(),
                                        "-o",
                                        place,
                                        "--htp",
                                        "off",
                                        "--recipe",
                                        "mixed",
                                        "--prefill-ar-len",
                                        "8",
                                        "--context-len",
                                        "64",
                                        "--calib-tokens",
                                        "64",
                                        "--save-recipe",
                                        recipe};
  const ProgramResult compiled = RunProgram(arguments);
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  EXPECT_THAT(compiled.out, HasSubstr("bits a weight"));
  EXPECT_THAT(compiled.err, HasSubstr("damage of weights")) << "progress";
  const auto found = ParseJson(ReadText(recipe));
  EXPECT_EQ(found["name"], "mixed");
  EXPECT_FALSE(found["weights"]["rules"].empty());
  EXPECT_FALSE(found.contains("mixed"));
  const auto encodings = ParseJson(RunProgram({"inspect", place, "--encodings", "--json"}).out);
  EXPECT_EQ(encodings["recipe"], found);
  arguments.insert(arguments.end(), {"--target-sqnr", "200", "--json", "--quiet"});
  const ProgramResult beyond = RunProgram(arguments);
  ASSERT_EQ(beyond.exit_code, 0) << beyond.err;
  EXPECT_THAT(beyond.err, HasSubstr("less than the target of 200 dB"));
  EXPECT_EQ(ParseJson(beyond.out)["mixed"]["target_met"], false);
}

TEST_F(TinyModelProgram, RecipesAreListedAndPrinted) {
  const ProgramResult table = RunProgram({"recipes"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  const auto list = ParseJson(RunProgram({"recipes", "--json"}).out);
  ASSERT_TRUE(list.is_object());
  std::vector<std::string> names;
  for (const auto& recipe : list["recipes"]) names.push_back(recipe["name"]);
  EXPECT_THAT(names,
              ::testing::IsSupersetOf({"16a8w", "16a4w", "16a4w-block", "8a8w", "fp16", "mixed"}));
  for (const auto& recipe : list["recipes"]) {
    const std::string name = recipe["name"];
    EXPECT_THAT(table.out, HasSubstr(name));
    EXPECT_EQ(ParseJson(RunProgram({"recipes", name}).out), recipe);
  }
  EXPECT_EQ(RunProgram({"recipes", "16a9w"}).exit_code, 3);
}

TEST_F(TinyModelProgram, ARuleThatMatchesNothingIsAWarning) {
  const std::string recipe = folder_->File("slip.json");
  std::ofstream(recipe) << R"({"weights": {"rules": [{"match": "layers.*.dwon", "bits": 4}]}})";
  const ProgramResult result =
      RunProgram({"compile", Model(), "-o", folder_->File("slip"), "--htp", "off", "--recipe",
                  recipe, "--prefill-ar-len", "8", "--context-len", "64", "--calib-tokens", "64"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, ::testing::AllOf(HasSubstr("weights.rules[0] 'layers.*.dwon'"),
                                           HasSubstr("layers.N.down")));
}

TEST_F(TinyModelProgram, InspectPrintsEncodingsAndRecipe) {
  const ProgramResult text = RunProgram({"inspect", Package(), "--encodings"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, ::testing::AllOf(HasSubstr("recipe 16a8w"), HasSubstr("layers.1.down"),
                                         HasSubstr("k_cache_0")));
  const auto json = ParseJson(RunProgram({"inspect", Package(), "--encodings", "--json"}).out);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["recipe"]["name"], "16a8w");
  bool seen = false;
  for (const auto& tensor : json["tensors"]) {
    if (tensor["name"] != "layers.1.down.weight") continue;
    seen = true;
    EXPECT_EQ(tensor["kind"], "per_channel");
    EXPECT_EQ(tensor["bits"], 8);
    EXPECT_EQ(tensor["scales"].size(), 64u);
  }
  EXPECT_TRUE(seen);
}

TEST_F(TinyModelProgram, SensitivityOfActivationsAndOfTransformedWeights) {
  const std::string recipe = folder_->File("rotated.json");
  std::ofstream(recipe) << R"({"name": "rotated", "weights": {"bits": 4},
                              "transforms": ["norm_folding", "rotate_r1", "rotate_r2"]})";
  for (const std::string& name : {std::string("8a8w"), recipe}) {
    for (const bool activations : {false, true}) {
      std::vector<std::string> arguments = {"sensitivity", Model(), "--recipe",       name,
                                            "--top",       "3",     "--calib-tokens", "64"};
      if (activations) arguments.emplace_back("--activations");
      const ProgramResult text = RunProgram(arguments);
      ASSERT_EQ(text.exit_code, 0) << text.err;
      EXPECT_THAT(text.out, HasSubstr("worst first"));
      arguments.emplace_back("--json");
      const auto json = ParseJson(RunProgram(arguments).out);
      EXPECT_EQ(json["of"], activations ? "activations" : "weights");
      ASSERT_EQ(json["damage"].size(), 3u);
      EXPECT_LE(json["damage"][0]["sqnr_db"], json["damage"][2]["sqnr_db"]);
    }
  }
  const ProgramResult floats = RunProgram({"sensitivity", Model(), "--recipe", "fp16"});
  EXPECT_EQ(floats.exit_code, 2);
  EXPECT_THAT(floats.err, HasSubstr("fp16"));
}

TEST_F(TinyModelProgram, ADamagedPackageIsNamed) {
  const std::string damaged = folder_->File("damaged");
  std::filesystem::copy(Package(), damaged, std::filesystem::copy_options::recursive);
  std::fstream weights(damaged + "/weights.bin", std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(100);
  const int byte = weights.peek();
  weights.seekp(100);
  weights.put(static_cast<char>(byte ^ 0x55));
  weights.close();
  const ProgramResult result = RunProgram({"run", damaged, "--prompt", "x", "--json"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("weights.bin"));
  EXPECT_EQ(ParseJson(result.out)["error"]["code"], "corrupt_data");
}

TEST_F(TinyModelProgram, VerifyNeedsAContextBinary) {
  const ProgramResult result = RunProgram({"verify", Package(), "--prompt", "x"});
  // 4 where the vendor's libraries are missing, too.
  EXPECT_THAT(result.exit_code, ::testing::AnyOf(3, 4));
  EXPECT_THAT(result.err, HasSubstr("spillway: error: "));
}

TEST_F(TinyModelProgram, AFullDeviceIsASystemError) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  EXPECT_EQ(WaitForExitCode(StartProgram({"inspect", Model()}, full)), 5);
  close(full);
}

TEST_F(TinyModelProgram, AReaderThatWentAwayIsASystemErrorNotASignal) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[0]);
  EXPECT_EQ(WaitForExitCode(StartProgram({"run", Package(), "--prompt", "x"}, ends[1])), 5);
  close(ends[1]);
}

// Large enough for an answer, or a compile, to take a while.
void WriteSlowModel(const std::string& path) {
  TinyModelSpec spec;
  spec.layers = 8;
  spec.hidden = 256;
  spec.head_dim = 64;
  spec.ffn = 512;
  WriteTinyModel(path, spec);
}

TEST_F(TinyModelProgram, InterruptStopsTheAnswer) {
  const std::string place = folder_->File("slow");
  WriteSlowModel(folder_->File("slow.gguf"));
  ASSERT_EQ(RunProgram({"compile", folder_->File("slow.gguf"), "-o", place, "--htp", "off",
                        "--context-len", "512", "--calib-tokens", "64"})
                .exit_code,
            0);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child =
      StartProgram({"run", place, "--prompt", "x", "--ignore-eos", "--threads", "1"}, ends[1]);
  close(ends[1]);
  char first = 0;
  ASSERT_EQ(read(ends[0], &first, 1), 1);
  kill(child, SIGINT);
  EXPECT_EQ(WaitForExitCode(child), 130);
  close(ends[0]);
}

TEST_F(TinyModelProgram, InterruptedCompileLeavesNothing) {
  const TempFolder folder;
  WriteSlowModel(folder.File("slow.gguf"));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child =
      StartProgram({"compile", folder.File("slow.gguf"), "-o", folder.File("pkg"), "--htp", "off",
                    "--context-len", "512", "--calib-tokens", "100000", "--json"},
                   ends[1]);
  close(ends[1]);
  // Once it has begun to write.
  const auto names = [&] {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      found.push_back(entry.path().filename());
    }
    return found;
  };
  while (names().size() < 2 && kill(child, 0) == 0) usleep(1000);
  kill(child, SIGINT);
  EXPECT_EQ(WaitForExitCode(child), 130);
  std::string out(4096, '\0');
  out.resize(static_cast<size_t>(std::max<ssize_t>(read(ends[0], out.data(), out.size()), 0)));
  close(ends[0]);
  EXPECT_EQ(ParseJson(out)["error"]["code"], "cancelled") << out;
  EXPECT_THAT(names(), ::testing::ElementsAre("slow.gguf"));
}

}  // namespace
}  // namespace spillway::test
