// spillway run: answers a prompt with a package.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <iostream>
#include <iterator>

#include "base/file.h"
#include "checks.h"
#include "command.h"
#include "htp_flags.h"
#include "json_text.h"
#include "spillway/session.h"
#include "text.h"

namespace spillway::cli {
namespace {

constexpr char kExamples[] =
    "The prompt goes through the model's own chat template; what it says never becomes a\n"
    "control token. Ctrl-C stops the answer, a second Ctrl-C the program.\n\n"
    "Examples:\n"
    "  spillway run pkg/ --prompt \"What is a cache?\" --temperature 0\n"
    "  spillway run pkg/ --system \"Answer in one sentence.\" < question.txt\n"
    "  spillway run pkg/ --raw --prompt \"Once upon a time\" --max-new-tokens 50 --stats\n"
    "  # Through the vendor's library; on x86-64 its simulator, seconds a token.\n"
    "  spillway run pkg/ --executor htp --prompt Hello --max-new-tokens 4\n"
    "  # A package for a device only (shared weights, SLC), built here for the simulator.\n"
    "  spillway run pkg/ --executor htp --online-prepare --prompt Hello --max-new-tokens 4\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

volatile std::sig_atomic_t interrupted = 0;

// The first Ctrl-C stops the answer; the handler is then gone, so that a second
// one ends the program as usual.
void StopOnInterrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

// A run is short: its stages are of no interest in a log file, unless it builds graphs.
std::unique_ptr<Progress> MakeProgress(const Console& console, bool builds) {
  return builds || isatty(STDERR_FILENO) == 1 ? console.MakeProgress() : nullptr;
}

std::string ReadStandardInput(const Console& console) {
  if (isatty(STDIN_FILENO) == 1) console.Note("Type the prompt, and end it with Ctrl-D:");
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class RunCommand : public Command {
 public:
  explicit RunCommand(CLI::App& program);
  Status Run(Console& console) override;

 private:
  void AddPromptOptions(CLI::App& app);
  void AddSamplingOptions(CLI::App& app);
  Status CheckArguments() const;
  Status AnswerPrompt(Session& session, const std::string& prompt, Console& console);

  SessionOptions session_;
  RunOptions run_;
  std::string prompt_ = "-";
  std::string system_;
  CLI::Option* system_given_ = nullptr;
  bool stats_ = false;
};

RunCommand::RunCommand(CLI::App& program) {
  CLI::App& app = *program.add_subcommand("run", "Answer a prompt with a package");
  app.fallthrough();
  app.add_option("PACKAGE", session_.package_path, "The package, a folder")->required();
  app.add_option("--executor", session_.executor,
                 "host: this processor, in the chip's integers; htp: the vendor's library")
      ->check(CLI::IsMember({"host", "htp"}))
      ->capture_default_str();
  app.add_option("--threads", session_.threads, "Threads of the host executor; 0: all processors")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--qnn-lib-dir", session_.qnn_lib_dir,
                 "Folder of libQnnHtp.so; default: $SPILLWAY_QNN_LIB_DIR, then .deps/");
  app.add_flag("--stats", stats_, "Print times, rates and memory to standard error");
  app.add_option(
      "--dump-dir", session_.dump_dir,
      "Write every tensor of every step below this new or empty folder. With --executor\n"
      "htp: for packages compiled with --dump-intermediates, or with --online-prepare");
  AddPromptOptions(app);
  AddSamplingOptions(app);
  AddHtpRunFlags(app, session_.htp);
  app.footer(kExamples);
}

void RunCommand::AddPromptOptions(CLI::App& app) {
  const std::string group = "Prompt";
  app.add_option("-p,--prompt", prompt_, "The prompt; without it or with -: standard input")
      ->group(group);
  system_given_ =
      app.add_option("--system", system_, "A system message before the prompt")->group(group);
  CLI::Option* raw =
      app.add_flag("--raw", run_.raw_prompt, "Continue the text itself: no chat template")
          ->group(group);
  system_given_->excludes(raw);
  app.add_flag("--parse-special", run_.parse_special,
               "With --raw: control tokens that the text spells become such tokens")
      ->needs(raw)
      ->group(group);
}

void RunCommand::AddSamplingOptions(CLI::App& app) {
  const std::string group = "Answer";
  app.add_option("-n,--max-new-tokens", run_.max_new_tokens,
                 "At most so many tokens; 0: until the model ends or the context is full")
      ->capture_default_str()
      ->group(group);
  app.add_option("-t,--temperature", run_.temperature, "0: the best token always")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  app.add_option("--top-k", run_.top_k, "Only the k best tokens; 0: all")
      ->capture_default_str()
      ->group(group);
  app.add_option("--top-p", run_.top_p, "Only the best tokens that together reach p; 1: all")
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", run_.seed, "The same seed gives the same answer")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--ignore-eos", run_.ignore_eos, "Go on after an end token")->group(group);
}

Json ProfilesJson(const std::vector<GraphProfile>& graphs) {
  Json list = Json::array();
  for (const GraphProfile& graph : graphs) {
    Json operations = Json::array();
    for (const auto& [name, cycles] : graph.operations) {
      operations.push_back({{"name", name}, {"cycles", cycles}});
    }
    list.push_back({{"graph", graph.graph},
                    {"shard", graph.shard},
                    {"calls", graph.calls},
                    {"total_us", graph.total_us},
                    {"accelerator_us", graph.accelerator_us},
                    {"cycles", graph.cycles},
                    {"operations", std::move(operations)}});
  }
  return list;
}

Json StatsJson(const RunStats& s) {
  return {{"executor", s.executor},
          {"load_s", s.load_s},
          {"time_to_first_token_s", s.time_to_first_token_s},
          {"prefill_tokens", s.prefill_tokens},
          {"reused_tokens", s.reused_tokens},
          {"prefill_s", s.prefill_s},
          {"prefill_tokens_per_s", s.prefill_tokens_per_s},
          {"decode_steps", s.decode_steps},
          {"decode_s", s.decode_s},
          {"decode_tokens_per_s", s.decode_tokens_per_s},
          {"weight_bytes", s.weight_bytes},
          {"weight_bytes_per_s", s.weight_bytes_per_s},
          {"peak_rss_bytes", s.peak_rss_bytes},
          {"graphs", ProfilesJson(s.graphs)}};
}

std::string AnswerJson(const Answer& answer) {
  return JsonText({{"prompt_tokens", answer.prompt_tokens},
                   {"tokens", answer.tokens},
                   {"text", answer.text},
                   {"stop_reason", answer.stop_reason},
                   {"stats", StatsJson(answer.stats)}});
}

std::string ProfileText(const GraphProfile& graph) {
  std::string text = fmt::format("profile       {}, shard {}: {} calls, {:.3f} ms a call",
                                 graph.graph, graph.shard, graph.calls,
                                 static_cast<double>(graph.total_us) / 1e3 /
                                     static_cast<double>(std::max<uint64_t>(graph.calls, 1)));
  if (graph.cycles > 0) text += fmt::format(", {} cycles in all", graph.cycles);
  text += '\n';
  for (const auto& [name, cycles] : graph.operations) {
    text += fmt::format("              {:>12}  {}\n", cycles, name);
  }
  return text;
}

std::string StatsText(const Answer& answer) {
  const RunStats& s = answer.stats;
  std::string text = fmt::format("executor      {}\n", s.executor);
  text += fmt::format("load          {:.3f} s\n", s.load_s);
  text += fmt::format("first token   after {:.3f} s\n", s.time_to_first_token_s);
  text += fmt::format("prompt        {} tokens ({} still cached) in {:.3f} s, {:.1f} tokens/s\n",
                      answer.prompt_tokens.size(), s.reused_tokens, s.prefill_s,
                      s.prefill_tokens_per_s);
  text += fmt::format("answer        {} tokens; {} steps in {:.3f} s, {:.1f} tokens/s\n",
                      answer.tokens.size(), s.decode_steps, s.decode_s, s.decode_tokens_per_s);
  text += fmt::format("weights       {} a step, {}/s\n", BytesText(s.weight_bytes),
                      BytesText(static_cast<uint64_t>(s.weight_bytes_per_s)));
  text += fmt::format("peak memory   {}\n", BytesText(s.peak_rss_bytes));
  for (const GraphProfile& graph : s.graphs) text += ProfileText(graph);
  return text + fmt::format("stopped       {}", answer.stop_reason);
}

std::string ShortStats(const Answer& answer) {
  return fmt::format("[{} tokens, {:.1f} tokens/s, {}]", answer.tokens.size(),
                     answer.stats.decode_tokens_per_s, answer.stop_reason);
}

Status RunCommand::CheckArguments() const {
  if (!FileExists(session_.package_path)) {
    return NotFoundError(session_.package_path + ": there is no such package");
  }
  if (session_.executor == "host" && session_.htp != HtpRunOptions()) {
    return InvalidArgumentError(
        "--performance-mode, --graph-priority, --pd-session, --profile-level, --vendor-log-level "
        "and "
        "--online-prepare are for --executor htp");
  }
  return session_.executor == "htp" ? CheckVendorLibrary(session_.qnn_lib_dir) : OkStatus();
}

Status RunCommand::AnswerPrompt(Session& session, const std::string& prompt, Console& console) {
  std::unique_ptr<Progress> progress = MakeProgress(console, false);
  run_.progress = [&](std::string_view stage, double fraction) {
    ReportProgress(progress.get(), stage, fraction);
  };
  Status write_status;
  StopOnInterrupt();
  const auto answer = session.Generate(prompt, run_, [&](std::string_view piece) {
    progress.reset();  // its line would stand in the answer
    if (interrupted != 0) return false;
    if (!console.json) write_status = console.Print(piece);
    return write_status.ok();
  });
  progress.reset();
  if (!answer.ok()) return answer.status();
  SPILLWAY_RETURN_IF_ERROR(write_status);
  SPILLWAY_RETURN_IF_ERROR(console.Print(console.json ? AnswerJson(*answer) : "\n"));
  if (stats_) {
    console.Note(StatsText(*answer));
  } else if (isatty(STDERR_FILENO) == 1 && !console.json) {
    console.Note(ShortStats(*answer));
  }
  return interrupted != 0 ? CancelledError("interrupted") : OkStatus();
}

Status RunCommand::Run(Console& console) {
  SPILLWAY_RETURN_IF_ERROR(CheckArguments());
  if (system_given_->count() > 0) run_.system_prompt = system_;
  std::unique_ptr<Progress> progress = MakeProgress(console, session_.htp.online_prepare);
  ReportProgress(progress.get(), "load " + session_.package_path, -1);
  session_.progress = [&](std::string_view stage, double fraction) {
    ReportProgress(progress.get(), stage, fraction);
  };
  auto session = Session::Open(session_);
  session_.progress = nullptr;
  progress.reset();
  if (!session.ok()) return session.status();
  const std::string prompt = prompt_ == "-" ? ReadStandardInput(console) : prompt_;
  return AnswerPrompt(**session, prompt, console);
}

}  // namespace

std::unique_ptr<Command> AddRunCommand(CLI::App& program) {
  return std::make_unique<RunCommand>(program);
}

}  // namespace spillway::cli
