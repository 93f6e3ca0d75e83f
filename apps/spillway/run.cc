// spillway run: answers prompts with a package.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "answer_report.h"
#include "base/file.h"
#include "command.h"
#include "interrupt.h"
#include "session_flags.h"
#include "spillway/conversation.h"

namespace spillway::cli {
namespace {

constexpr char kExamples[] =
    "The prompt goes through the model's own chat template; what it says never becomes a\n"
    "control token. Several prompts are the turns of one conversation. Ctrl-C stops the answer,\n"
    "a second Ctrl-C the program. 'spillway chat' is the same for people.\n\n"
    "Examples:\n"
    "  spillway run pkg/ --prompt \"What is a cache?\" --temperature 0\n"
    "  spillway run pkg/ --prompt \"What is a cache?\" --prompt \"And a cache line?\"\n"
    "  spillway run pkg/ --system \"Answer in one sentence.\" < question.txt\n"
    "  spillway run pkg/ --messages talk.json --stats-json stats.json\n"
    "  spillway run pkg/ --raw --prompt \"Once upon a time\" --max-new-tokens 50 --stats\n"
    "  # Through the vendor's library; on x86-64 its simulator, seconds a token.\n"
    "  spillway run pkg/ --executor htp --prompt Hello --max-new-tokens 4\n"
    "  # A package for a device only (shared weights, SLC), built here for the simulator.\n"
    "  spillway run pkg/ --executor htp --online-prepare --prompt Hello --max-new-tokens 4\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

constexpr size_t kMostInputBytes = size_t{64} << 20;

// Without a newline at the end, which is the shell's and not the prompt's.
Result<std::string> ReadStandardInput(const Console& console) {
  if (isatty(STDIN_FILENO) == 1) console.Note("Type the prompt, and end it with Ctrl-D:");
  std::string text;
  char buffer[65536];
  while (true) {
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return IoError(std::string("standard input: ") + std::strerror(errno));
    if (got == 0) break;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kMostInputBytes) {
      return InvalidArgumentError(fmt::format(
          "standard input has more than {} bytes, too many for a prompt", kMostInputBytes));
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class RunCommand : public Command {
 public:
  explicit RunCommand(CLI::App& program);
  Status Run(Console& console) override;

 private:
  void AddPromptOptions(CLI::App& app);
  Status CheckPrompts() const;
  Status ReadInputs(const Console& console);
  Status AnswerAll(Session& session, Console& console);
  Result<Answer> AnswerPrompt(Session& session, const std::string& prompt,
                              const TextCallback& on_text);
  Status AnswerOne(Session& session, const std::string& prompt, Console& console);
  Status Report(Console& console) const;

  SessionOptions session_;
  RunOptions run_;
  std::vector<std::string> prompts_;
  std::vector<uint32_t> tokens_;
  std::string messages_path_, system_, stats_path_;
  CLI::Option* system_given_ = nullptr;
  bool stats_ = false;

  Conversation conversation_;
  std::vector<Answer> answers_;
};

RunCommand::RunCommand(CLI::App& program) {
  CLI::App& app = *program.add_subcommand("run", "Answer prompts with a package");
  app.fallthrough();
  AddSessionFlags(app, session_);
  app.add_flag("--stats", stats_, "Print times, rates and memory to standard error");
  app.add_option("--stats-json", stats_path_, "Write them to this file, as JSON")
      ->type_name("FILE");
  app.add_option(
      "--dump-dir", session_.dump_dir,
      "Write every tensor of every step below this new or empty folder. With --executor\n"
      "htp: for packages compiled with --dump-intermediates, or with --online-prepare");
  AddPromptOptions(app);
  AddAnswerFlags(app, run_);
  app.footer(kExamples);
}

void RunCommand::AddPromptOptions(CLI::App& app) {
  const std::string group = "Prompt";
  CLI::Option* prompt =
      app.add_option("-p,--prompt", prompts_,
                     "The prompt; without it or with -: standard input. Repeated: turns of one\n"
                     "conversation, answered one after the other")
          ->allow_extra_args(false)
          ->type_name("TEXT")
          ->group(group);
  CLI::Option* messages =
      app.add_option("--messages", messages_path_,
                     "Start with the conversation of a JSON file; its last turn is answered, or\n"
                     "the prompts are, which follow it. -: standard input")
          ->type_name("FILE")
          ->group(group);
  CLI::Option* tokens =
      app.add_option("--tokens", tokens_, "Continue these token ids, like 1,2,3: no text")
          ->delimiter(',')
          ->excludes(prompt)
          ->excludes(messages)
          ->group(group);
  system_given_ = app.add_option("--system", system_, "A system message before the conversation")
                      ->excludes(messages)
                      ->excludes(tokens)
                      ->group(group);
  CLI::Option* raw =
      app.add_flag("--raw", run_.raw_prompt, "Continue the text itself: no chat template")
          ->excludes(messages)
          ->excludes(tokens)
          ->group(group);
  system_given_->excludes(raw);
  app.add_flag("--parse-special", run_.parse_special,
               "With --raw: control tokens that the text spells become such tokens")
      ->needs(raw)
      ->group(group);
}

Status RunCommand::CheckPrompts() const {
  if (run_.raw_prompt && prompts_.size() > 1) {
    return InvalidArgumentError(fmt::format(
        "there are {} prompts; with --raw give one, for several are turns of a conversation",
        prompts_.size()));
  }
  const auto inputs = std::count(prompts_.begin(), prompts_.end(), "-");
  if (inputs + (messages_path_ == "-" ? 1 : 0) > 1) {
    return InvalidArgumentError("standard input can be read once only; give one -");
  }
  return OkStatus();
}

// What to answer, before the package is loaded: mistakes show at once.
Status RunCommand::ReadInputs(const Console& console) {
  if (prompts_.empty() && messages_path_.empty() && tokens_.empty()) prompts_.push_back("-");
  SPILLWAY_RETURN_IF_ERROR(CheckPrompts());
  if (system_given_->count() > 0) conversation_.Add({"system", system_});
  if (!messages_path_.empty()) {
    const bool standard = messages_path_ == "-";
    SPILLWAY_ASSIGN_OR_RETURN(const std::string json,
                              standard ? ReadStandardInput(console) : ReadFile(messages_path_));
    SPILLWAY_ASSIGN_OR_RETURN(
        conversation_, Conversation::FromJson(json, standard ? "standard input" : messages_path_));
  }
  for (std::string& prompt : prompts_) {
    if (prompt == "-") {
      SPILLWAY_ASSIGN_OR_RETURN(prompt, ReadStandardInput(console));
    }
    if (prompt.empty() && !run_.raw_prompt) {
      return InvalidArgumentError(
          "the prompt is empty; give it some text (or, to a model that has a token to begin "
          "with, none and --raw)");
    }
  }
  return OkStatus();
}

Result<Answer> RunCommand::AnswerPrompt(Session& session, const std::string& prompt,
                                        const TextCallback& on_text) {
  if (!tokens_.empty()) return session.GenerateFromTokens(tokens_, run_, on_text);
  if (run_.raw_prompt) return session.Generate(prompt, run_, on_text);
  if (prompts_.empty()) return conversation_.Continue(session, run_, on_text);
  return conversation_.Ask(session, prompt, run_, on_text);
}

Status RunCommand::AnswerOne(Session& session, const std::string& prompt, Console& console) {
  std::unique_ptr<Progress> progress = MakePromptProgress(console);
  run_.progress = [&](std::string_view stage, double fraction) {
    ReportProgress(progress.get(), stage, fraction);
  };
  InterruptWatch interrupt;
  run_.should_stop = [&] { return interrupt.pending(); };
  Status write_status;
  Result<Answer> answer = AnswerPrompt(session, prompt, [&](std::string_view piece) {
    progress.reset();  // its line would stand in the answer
    if (!console.json) write_status = console.Print(piece);
    return write_status.ok();
  });
  progress.reset();
  if (!answer.ok()) return answer.status();
  answers_.push_back(std::move(answer).value());
  SPILLWAY_RETURN_IF_ERROR(write_status);
  if (!console.json) SPILLWAY_RETURN_IF_ERROR(console.Print("\n"));
  if (stats_) {
    console.Note(StatsText(answers_.back()));
  } else if (isatty(STDERR_FILENO) == 1 && !console.json) {
    console.Note(ShortStats(answers_.back()));
  }
  return interrupt.pending() ? CancelledError("interrupted") : OkStatus();
}

Status RunCommand::AnswerAll(Session& session, Console& console) {
  if (prompts_.empty()) return AnswerOne(session, "", console);
  for (const std::string& prompt : prompts_) {
    SPILLWAY_RETURN_IF_ERROR(AnswerOne(session, prompt, console));
  }
  return OkStatus();
}

// Also after a failure: the answers until then are not lost.
Status RunCommand::Report(Console& console) const {
  if (console.json && !answers_.empty()) {
    Json list = Json::array();
    for (const Answer& answer : answers_) list.push_back(AnswerJson(answer));
    SPILLWAY_RETURN_IF_ERROR(console.Print(
        JsonText(prompts_.size() > 1 ? Json{{"answers", std::move(list)}} : list[0])));
  }
  if (stats_path_.empty()) return OkStatus();
  return WriteFileAtomically(stats_path_, StatsFileText(answers_));
}

Status RunCommand::Run(Console& console) {
  SPILLWAY_RETURN_IF_ERROR(ReadInputs(console));
  SPILLWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, OpenSession(session_, console));
  const Status answered = AnswerAll(*session, console);
  const Status reported = Report(console);
  return answered.ok() ? reported : answered;
}

}  // namespace

std::unique_ptr<Command> AddRunCommand(CLI::App& program) {
  return std::make_unique<RunCommand>(program);
}

}  // namespace spillway::cli
