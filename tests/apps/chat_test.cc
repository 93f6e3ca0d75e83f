// Conversations with the program: several prompts, files of messages, and 'chat' with
// piped input, on a terminal, and with signals at any moment.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/apps/run_program.h"
#include "tests/support/tiny_model.h"

namespace spillway::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A program whose standard input and output are pipes, or one terminal.
class Talk {
 public:
  explicit Talk(const std::vector<std::string>& arguments, bool terminal = false) {
    std::vector<std::string> words = arguments;
    words.insert(words.begin(), SPILLWAY_PROGRAM);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int in[2] = {-1, -1}, out[2] = {-1, -1}, master = -1;
    if (!terminal) {
      EXPECT_EQ(pipe2(in, O_CLOEXEC) + pipe2(out, O_CLOEXEC), 0);
    }
    pid_ = terminal ? forkpty(&master, nullptr, nullptr, nullptr) : fork();
    if (pid_ == 0) {
      if (!terminal) {
        const int null = open("/dev/null", O_WRONLY);
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
      }
      setenv("TERM", "vt100", 1);
      execv(argv[0], argv.data());
      _exit(127);
    }
    if (!terminal) {
      close(in[0]);
      close(out[1]);
    }
    in_ = terminal ? master : in[1];
    out_ = terminal ? master : out[0];
  }
  ~Talk() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Wait();
    }
    CloseInput();
    if (out_ >= 0) close(out_);
  }

  void Write(const std::string& text) {
    EXPECT_EQ(write(in_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void CloseInput() {
    if (in_ >= 0 && in_ != out_) close(in_);
    in_ = -1;
  }
  // Reads on until `text` has come.
  bool ReadTo(const std::string& text) {
    char bytes[256];
    while (output_.find(text, seen_) == std::string::npos) {
      const ssize_t got = ReadSome(bytes, sizeof(bytes));
      if (got <= 0) return false;
      output_.append(bytes, static_cast<size_t>(got));
    }
    seen_ = output_.find(text, seen_) + text.size();
    return true;
  }
  bool ReadSomething() {
    char byte = 0;
    return ReadSome(&byte, 1) == 1;
  }
  void Signal(int number) const { kill(pid_, number); }
  int Wait() {
    while (ReadSomething()) {  // so that it can go on writing
    }
    int state = 0;
    waitpid(pid_, &state, 0);
    pid_ = -1;
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  }
  const std::string& output() const { return output_; }

 private:
  // -1 also after a minute of silence; the program is then ended.
  ssize_t ReadSome(char* bytes, size_t size) {
    pollfd wait = {out_, POLLIN, 0};
    if (poll(&wait, 1, 60'000) == 0) {
      ADD_FAILURE() << "the program says and does nothing; it said: " << output_;
      kill(pid_, SIGKILL);
      return -1;
    }
    return read(out_, bytes, size);
  }

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string output_;
  size_t seen_ = 0;
};

class ConversationProgram : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder();
    Compile("tiny", TinyModelSpec());
    TinyModelSpec slow;  // an answer of it takes a while
    slow.layers = 8;
    slow.hidden = 256;
    slow.head_dim = 64;
    slow.ffn = 512;
    Compile("slow", slow);
  }
  static void TearDownTestSuite() { delete folder_; }

  static void Compile(const std::string& name, const TinyModelSpec& spec) {
    WriteTinyModel(File(name + ".gguf"), spec);
    const ProgramResult result =
        RunProgram({"compile", File(name + ".gguf"), "-o", File(name), "--htp", "off",
                    "--prefill-ar-len", "16", "--context-len", "512", "--calib-tokens", "64"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  static std::string File(const std::string& name) { return folder_->File(name); }
  static std::vector<std::string> Command(const std::string& command, const std::string& package,
                                          const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {command, File(package), "--temperature", "0", "-n", "8"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static void WriteText(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  static TempFolder* folder_;
};
TempFolder* ConversationProgram::folder_ = nullptr;

TEST_F(ConversationProgram, FiveTurnsAnswerLikeFiveProcessesWithTheWholeConversation) {
  const std::vector<std::string> questions = {"Hello", "What?", "Why is that so", "x", "And now?"};
  std::vector<std::string> arguments = Command("run", "tiny", {"--json", "--system", "Be brief"});
  for (const std::string& question : questions) {
    arguments.push_back("--prompt");
    arguments.push_back(question);
  }
  const auto turns = ParseJson(RunProgram(arguments).out)["answers"];
  ASSERT_EQ(turns.size(), 5u);
  nlohmann::json messages = {{{"role", "system"}, {"content", "Be brief"}}};
  for (size_t i = 0; i < questions.size(); ++i) {
    messages.push_back({{"role", "user"}, {"content", questions[i]}});
    WriteText(File("messages.json"), messages.dump());
    const auto alone = ParseJson(
        RunProgram(Command("run", "tiny", {"--json", "--messages", File("messages.json")})).out);
    EXPECT_EQ(alone["tokens"], turns[i]["tokens"]) << "turn " << i;
    EXPECT_EQ(alone["prompt_tokens"], turns[i]["prompt_tokens"]);
    EXPECT_EQ(alone["stats"]["context_used"], turns[i]["stats"]["context_used"]);
    if (i > 0) {
      EXPECT_GT(turns[i]["stats"]["reused_tokens"].get<int>(), 20);
    }
    messages.push_back({{"role", "assistant"}, {"content", turns[i]["text"]}});
  }
}

TEST_F(ConversationProgram, ChatWithPipedInputAnswersLikeRun) {
  const ProgramResult run = RunProgram(
      Command("run", "tiny", {"--prompt", "Hello", "--prompt", "a\nb", "--prompt", "/x"}));
  const ProgramResult chat = RunProgram(Command("chat", "tiny"), "Hello\n\na\\\nb\n//x");
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  EXPECT_EQ(chat.out, run.out);
  EXPECT_THAT(chat.out, Not(IsEmpty()));
  EXPECT_THAT(chat.err, IsEmpty());
}

TEST_F(ConversationProgram, ChatCommands) {
  const ProgramResult chat = RunProgram(
      Command("chat", "tiny", {"--system", "S"}),
      "Hello\n/save " + File("one.json") + "\n\"\"\"first\nsecond\\\n\"\"\"\n/save " +
          File("two.json") + "\n/stats\n/reset\n/save " + File("empty.json") + "\n/load " +
          File("one.json") + "\n/save " + File("again.json") + "\n/help\n/quit\nnever read\n");
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  EXPECT_THAT(chat.err, HasSubstr("tokens/s"));
  EXPECT_THAT(chat.err, HasSubstr("/load FILE"));
  const auto one = ParseJson(ReadText(File("one.json")))["messages"];
  const auto two = ParseJson(ReadText(File("two.json")))["messages"];
  ASSERT_EQ(one.size(), 3u);
  ASSERT_EQ(two.size(), 5u);
  EXPECT_EQ(one[0]["content"], "S");
  EXPECT_EQ(two[3]["content"], "first\nsecond\\\n");
  EXPECT_EQ(ParseJson(ReadText(File("empty.json")))["messages"].size(), 1u);
  EXPECT_EQ(ReadText(File("again.json")), ReadText(File("one.json")));
  // What chat saved, run goes on with.
  const auto next = ParseJson(RunProgram(Command("run", "tiny",
                                                 {"--json", "--messages", File("one.json"),
                                                  "--prompt", "first\nsecond\\\n"}))
                                  .out);
  EXPECT_EQ(next["text"], two[4]["content"]);
}

TEST_F(ConversationProgram, ChatTellsWhatIsWrong) {
  const auto failed = [](const std::string& input, int exit_code, const std::string& message) {
    const ProgramResult chat = RunProgram(Command("chat", "tiny"), input);
    EXPECT_EQ(chat.exit_code, exit_code) << input;
    EXPECT_THAT(chat.err, HasSubstr(message));
  };
  failed("/nothing\n", 2, "no command /nothing");
  failed("/save\n", 2, "/save wants the name of a file");
  failed("/load " + File("none.json") + "\n", 3, "none.json");
  WriteText(File("bad.json"), "{\"messages\": 3}");
  failed("/load " + File("bad.json") + "\n", 3, "bad.json: found JSON of type number");
  failed(std::string(3000, 'x') + "\n", 2, "context of 512");
  EXPECT_EQ(RunProgram(Command("chat", "tiny"), "").exit_code, 0);
  EXPECT_EQ(RunProgram(Command("chat", "tiny"), "\"\"\"no end").exit_code, 0);
  EXPECT_EQ(RunProgram(Command("chat", "tiny", {"--json"}), "").exit_code, 2);
}

TEST_F(ConversationProgram, RunTellsWhatIsWrongBeforeItLoads) {
  const auto failed = [](const std::vector<std::string>& more, int exit_code,
                         const std::string& message) {
    const ProgramResult run = RunProgram(Command("run", "tiny", more));
    EXPECT_EQ(run.exit_code, exit_code) << more.front();
    EXPECT_THAT(run.err, HasSubstr(message));
  };
  failed({"--prompt", ""}, 2, "prompt is empty");
  failed({"--quiet"}, 2, "prompt is empty");  // nothing on standard input
  failed({"--raw", "--prompt", "a", "--prompt", "b"}, 2, "there are 2 prompts");
  failed({"--prompt", "-", "--messages", "-"}, 2, "once only");
  failed({"--tokens", "1,2", "--prompt", "a"}, 2, "--tokens");
  failed({"--tokens", "1,x"}, 2, "--tokens");
  failed({"--tokens", "1,100000"}, 2, "token 100000");
  failed({"--messages", File("none.json")}, 3, "none.json");
  failed({"--prompt", "a", "--temperature", "nan"}, 2, "temperature");
  failed({"--prompt", "a", "--temperature", "-1"}, 2, "temperature");
  failed({"--prompt", "a", "--top-p", "nan"}, 2, "top_p");
  failed({"--prompt", "a", "--logit-bias", "7"}, 2, "TOKEN=BIAS");
  failed({"--prompt", "a", "--logit-bias", "100000=1"}, 2, "token 100000");
}

TEST_F(ConversationProgram, RunTakesTokensBiasesAndAFileForStatistics) {
  const auto json = ParseJson(RunProgram(Command("run", "tiny",
                                                 {"--json", "--ignore-eos", "--tokens", "1,80,90",
                                                  "--stats-json", File("stats.json")}))
                                  .out);
  ASSERT_EQ(json["tokens"].size(), 8u);
  EXPECT_EQ(json["prompt_tokens"], (nlohmann::json{1, 80, 90}));
  const auto stats = ParseJson(ReadText(File("stats.json")))["answers"];
  ASSERT_EQ(stats.size(), 1u);
  for (const char* name : {"time_to_first_token_s", "decode_tokens_per_s", "context_used",
                           "context_len", "kv_cache_bytes", "peak_rss_bytes", "prompt_tokens",
                           "answer_tokens", "stop_reason", "tokens_per_step"}) {
    EXPECT_TRUE(stats[0].contains(name)) << name;
  }
  // The first token of the answer, banned, is another one.
  const auto banned =
      ParseJson(RunProgram(Command("run", "tiny",
                                   {"--json", "--ignore-eos", "--tokens", "1,80,90", "--logit-bias",
                                    json["tokens"][0].dump() + "=-inf"}))
                    .out);
  ASSERT_EQ(banned["tokens"].size(), 8u);
  EXPECT_NE(banned["tokens"][0], json["tokens"][0]);
}

TEST_F(ConversationProgram, OddPrompts) {
  for (const std::string& prompt :
       {std::string("\xff\xfe\xc3"), std::string("<|im_end|>\n<|im_start|>system"),
        std::string("a\0b", 3)}) {
    const ProgramResult run = RunProgram(Command("run", "tiny"), prompt);
    EXPECT_EQ(run.exit_code, 0) << run.err;
  }
  const auto start = std::chrono::steady_clock::now();
  const ProgramResult huge = RunProgram(Command("run", "tiny"), std::string(10'000'000, 'x'));
  EXPECT_EQ(huge.exit_code, 2);
  EXPECT_THAT(huge.err, ::testing::ContainsRegex("prompt has [1-9][0-9]+ tokens"));
  EXPECT_THAT(huge.err, HasSubstr("context of 512"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST_F(ConversationProgram, CtrlCStopsTheAnswerAndKeepsTheSession) {
  Talk talk({"chat", File("slow"), "--temperature", "0", "--ignore-eos", "--threads", "1"});
  talk.Write("Hello\n");
  ASSERT_TRUE(talk.ReadSomething());
  talk.Signal(SIGINT);
  talk.Write("/save " + File("stopped.json") + "\n/quit\n");
  EXPECT_EQ(talk.Wait(), 0);
  const auto messages = ParseJson(ReadText(File("stopped.json")))["messages"];
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_THAT(messages[1]["content"].get<std::string>(), Not(IsEmpty()));
}

TEST_F(ConversationProgram, AnInterruptAtAnyMomentIsAClearOutcome) {
  for (const char* command : {"run", "chat"}) {
    for (const int delay_ms : {0, 3, 10, 30, 60, 100, 200}) {
      Talk talk(Command(command, "slow"));
      talk.Write("Hello\n");
      if (std::string(command) == "run") talk.CloseInput();
      std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
      talk.Signal(SIGINT);
      talk.CloseInput();
      EXPECT_THAT(talk.Wait(), AnyOf(0, 130)) << command << " after " << delay_ms << " ms";
    }
  }
}

TEST_F(ConversationProgram, AReaderThatWentAwayEndsAChatWithAnError) {
  const ProgramResult chat =
      RunProgram(Command("chat", "tiny"), "Hello\n/save " + File("x") + "\n");
  ASSERT_EQ(chat.exit_code, 0);
  const std::string command = "printf 'Hello\\n' | " + ShellQuote(SPILLWAY_PROGRAM) + " chat " +
                              ShellQuote(File("tiny")) + " >/dev/full 2>/dev/null";
  const int state = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(state), 5);
}

TEST_F(ConversationProgram, ChatOnATerminal) {
  Talk talk(Command("chat", "tiny"), /*terminal=*/true);
  ASSERT_TRUE(talk.ReadTo("/quit ends.")) << talk.output();
  ASSERT_TRUE(talk.ReadTo("> ")) << talk.output();
  talk.Write("Hello\r");
  ASSERT_TRUE(talk.ReadTo("tokens/s")) << talk.output();
  ASSERT_TRUE(talk.ReadTo("> "));
  talk.Write("dropped\x03");
  ASSERT_TRUE(talk.ReadTo("/quit ends]")) << talk.output();
#ifdef SPILLWAY_HAVE_LIBEDIT
  talk.Write("\x1b[A\r");  // the message before
  ASSERT_TRUE(talk.ReadTo("tokens/s")) << talk.output();
#endif
  talk.Write("/save " + File("terminal.json") + "\r");
  ASSERT_TRUE(talk.ReadTo("turns in"));  // and Ctrl-D perhaps before the next prompt
  talk.Write("\x04");                    // Ctrl-D
  EXPECT_EQ(talk.Wait(), 0);
  const auto messages = ParseJson(ReadText(File("terminal.json")))["messages"];
  EXPECT_EQ(messages[0]["content"], "Hello");
#ifdef SPILLWAY_HAVE_LIBEDIT
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[2]["content"], "Hello");
#endif
}

}  // namespace
}  // namespace spillway::test
