// spillway chat: a conversation with a package, turn by turn.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "answer_report.h"
#include "base/file.h"
#include "command.h"
#include "interrupt.h"
#include "line_reader.h"
#include "session_flags.h"
#include "spillway/conversation.h"

namespace spillway::cli {
namespace {

constexpr char kCommands[] =
    "/reset      forget the conversation, but for the system message\n"
    "/save FILE  write the conversation as JSON\n"
    "/load FILE  go on with a conversation that was saved\n"
    "/stats      times, rates, cache and memory of the last answer\n"
    "/help       this list\n"
    "/quit       end; so does Ctrl-D\n"
    "A line that ends with \\ goes on in the next one; a message that begins with \"\"\" ends "
    "with\n"
    "\"\"\" at the end of a line. A message that begins with / is written //. Ctrl-C stops an\n"
    "answer; what there is of it stays in the conversation.";

constexpr char kExamples[] =
    "Examples:\n"
    "  spillway chat pkg/ --system \"Answer in one sentence.\"\n"
    "  spillway chat pkg/ --messages talk.json --temperature 0\n"
    "  printf 'Hello\\nWhat did I say?\\n/save talk.json\\n' | spillway chat pkg/\n"
    "With piped input each line is a message, and the first one that fails ends the program.\n"
    "Every command also takes --verbose, --log-level and --quiet.\n";

constexpr std::string_view kBlock = "\"\"\"";

bool TakeSuffix(std::string* text, std::string_view suffix) {
  if (!text->ends_with(suffix)) return false;
  text->resize(text->size() - suffix.size());
  return true;
}

class ChatCommand : public Command {
 public:
  explicit ChatCommand(CLI::App& program);
  Status Run(Console& console) override;

 private:
  enum class Next { kGoOn, kEnd };

  Result<LineEnd> ReadMessage(LineReader& lines, std::string* message) const;
  Result<LineEnd> ReadBlock(LineReader& lines, std::string* message) const;
  Result<Next> Handle(const std::string& message, Session& session, Console& console);
  Result<Next> RunCommandLine(const std::string& line, Session& session, Console& console);
  Status AnswerMessage(const std::string& message, Session& session, Console& console);
  Status Load(const std::string& path);
  Status Talk(LineReader& lines, Session& session, Console& console);

  SessionOptions session_;
  RunOptions run_;
  std::string system_, messages_path_;
  CLI::Option* system_given_ = nullptr;

  Conversation conversation_;
  std::optional<Answer> last_;
  InterruptWatch* interrupt_ = nullptr;
  bool interactive_ = false;
};

ChatCommand::ChatCommand(CLI::App& program) {
  CLI::App& app = *program.add_subcommand("chat", "Talk with a package");
  app.fallthrough();
  AddSessionFlags(app, session_);
  const std::string group = "Conversation";
  system_given_ =
      app.add_option("--system", system_, "A system message before the conversation")->group(group);
  app.add_option("--messages", messages_path_, "Go on with the conversation of a JSON file")
      ->type_name("FILE")
      ->excludes(system_given_)
      ->group(group);
  AddAnswerFlags(app, run_);
  app.footer(std::string("In a chat:\n") + kCommands + "\n\n" + kExamples);
}

// A message of one or several lines.
Result<LineEnd> ChatCommand::ReadMessage(LineReader& lines, std::string* message) const {
  message->clear();
  std::string line;
  SPILLWAY_ASSIGN_OR_RETURN(LineEnd end, lines.Read("> ", &line));
  if (end != LineEnd::kLine) return end;
  if (line.starts_with(kBlock)) {
    *message = line.substr(kBlock.size());
    return ReadBlock(lines, message);
  }
  while (TakeSuffix(&line, "\\")) {
    *message += line + "\n";
    SPILLWAY_ASSIGN_OR_RETURN(end, lines.Read(". ", &line));
    if (end == LineEnd::kInterrupted) return end;
    if (end == LineEnd::kEndOfInput) break;  // the message counts; the next read ends
  }
  *message += line;
  return LineEnd::kLine;
}

Result<LineEnd> ChatCommand::ReadBlock(LineReader& lines, std::string* message) const {
  while (!TakeSuffix(message, kBlock)) {
    std::string line;
    SPILLWAY_ASSIGN_OR_RETURN(const LineEnd end, lines.Read(". ", &line));
    if (end == LineEnd::kInterrupted) return end;
    if (end == LineEnd::kEndOfInput) break;
    *message += "\n" + line;
  }
  return LineEnd::kLine;
}

Status ChatCommand::Load(const std::string& path) {
  SPILLWAY_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  SPILLWAY_ASSIGN_OR_RETURN(conversation_, Conversation::FromJson(json, path));
  return OkStatus();
}

Result<ChatCommand::Next> ChatCommand::RunCommandLine(const std::string& line, Session& session,
                                                      Console& console) {
  const size_t blank = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, blank);
  const size_t begin = line.find_first_not_of(' ', blank);
  const std::string argument = begin == std::string::npos ? "" : line.substr(begin);
  const bool wants_file = name == "/save" || name == "/load";
  if (wants_file && argument.empty()) {
    return InvalidArgumentError(name + " wants the name of a file, like '" + name + " talk.json'");
  }
  if (name == "/quit" || name == "/exit") return Next::kEnd;
  if (name == "/help") {
    console.Note(kCommands);
  } else if (name == "/reset") {
    conversation_.Reset();
    session.Reset();
    console.Note("[the conversation is empty]");
  } else if (name == "/stats") {
    console.Note(last_.has_value() ? StatsText(*last_) : "[nothing was answered yet]");
  } else if (name == "/save") {
    SPILLWAY_RETURN_IF_ERROR(WriteFileAtomically(argument, conversation_.ToJson()));
    console.Note(fmt::format("[{} turns in {}]", conversation_.turns().size(), argument));
  } else if (name == "/load") {
    SPILLWAY_RETURN_IF_ERROR(Load(argument));
    console.Note(fmt::format("[{} turns from {}]", conversation_.turns().size(), argument));
  } else {
    return InvalidArgumentError(
        fmt::format("there is no command {}; /help lists them, and a message that begins with / "
                    "is written //",
                    name));
  }
  return Next::kGoOn;
}

Status ChatCommand::AnswerMessage(const std::string& message, Session& session, Console& console) {
  std::unique_ptr<Progress> progress = MakePromptProgress(console);
  run_.progress = [&](std::string_view stage, double fraction) {
    ReportProgress(progress.get(), stage, fraction);
  };
  run_.should_stop = [&] { return interrupt_->pending(); };
  Status write_status;
  Result<Answer> answer = conversation_.Ask(session, message, run_, [&](std::string_view piece) {
    progress.reset();
    write_status = console.Print(piece);
    return write_status.ok();
  });
  progress.reset();
  const bool stopped = interrupt_->Take();
  if (!answer.ok()) return answer.status();
  SPILLWAY_RETURN_IF_ERROR(write_status);
  SPILLWAY_RETURN_IF_ERROR(console.Print("\n"));
  if (interactive_ || stopped) console.Note(ShortStats(*answer));
  last_ = std::move(answer).value();
  return OkStatus();
}

Result<ChatCommand::Next> ChatCommand::Handle(const std::string& message, Session& session,
                                              Console& console) {
  if (message.find_first_not_of(" \t\r\n") == std::string::npos) return Next::kGoOn;
  if (message.starts_with('/') && !message.starts_with("//")) {
    return RunCommandLine(message, session, console);
  }
  SPILLWAY_RETURN_IF_ERROR(
      AnswerMessage(message.starts_with("//") ? message.substr(1) : message, session, console));
  return Next::kGoOn;
}

Status ChatCommand::Talk(LineReader& lines, Session& session, Console& console) {
  while (true) {
    std::string message;
    SPILLWAY_ASSIGN_OR_RETURN(const LineEnd end, ReadMessage(lines, &message));
    if (end == LineEnd::kEndOfInput) return OkStatus();
    if (end == LineEnd::kInterrupted) {
      if (!interactive_) return CancelledError("interrupted");
      console.Note("\n[Ctrl-D or /quit ends]");
      continue;
    }
    lines.Remember(message);
    const Result<Next> next = Handle(message, session, console);
    // People may try again, unless nobody can read the answers.
    if (!next.ok() && (!interactive_ || next.status().code() == StatusCode::kIo)) {
      return next.status();
    }
    if (!next.ok()) {
      console.ReportError(next.status(), "");
    } else if (*next == Next::kEnd) {
      return OkStatus();
    }
  }
}

Status ChatCommand::Run(Console& console) {
  if (console.json) {
    return InvalidArgumentError(
        "chat has no --json; 'spillway run' with --messages or several --prompt has");
  }
  if (system_given_->count() > 0) conversation_.Add({"system", system_});
  if (!messages_path_.empty()) SPILLWAY_RETURN_IF_ERROR(Load(messages_path_));
  SPILLWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, OpenSession(session_, console));
  InterruptWatch interrupt;
  interrupt_ = &interrupt;
  LineReader lines(interrupt);
  interactive_ = lines.interactive();
  if (interactive_) {
    console.Note(fmt::format("{}, context of {} tokens. /help lists commands, /quit ends.",
                             session->Describe(), session->context_len()));
  }
  const Status status = Talk(lines, *session, console);
  if (interactive_ && status.ok()) console.Note("");
  return status;
}

}  // namespace

std::unique_ptr<Command> AddChatCommand(CLI::App& program) {
  return std::make_unique<ChatCommand>(program);
}

}  // namespace spillway::cli
