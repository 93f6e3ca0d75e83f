#include "line_reader.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <cwchar>

#ifdef SPILLWAY_HAVE_LIBEDIT
#include <histedit.h>
#endif

namespace spillway::cli {
namespace {

#ifdef SPILLWAY_HAVE_LIBEDIT
constexpr char kCtrlD = 4;
#endif
constexpr size_t kMostLineBytes = size_t{64} << 20;

}  // namespace

#ifdef SPILLWAY_HAVE_LIBEDIT

// libedit, told to read through the same poll() as plain lines.
struct LineReader::Editor {
  EditLine* line = nullptr;
  History* history = nullptr;
  std::string prompt;
  InterruptWatch* interrupt = nullptr;

  explicit Editor(InterruptWatch& watch) : interrupt(&watch) {
    // Characters of several bytes need a locale that has them.
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    line = el_init("spillway", stdin, stderr, stderr);
    history = history_init();
    if (line == nullptr || history == nullptr) return;
    HistEvent event;
    ::history(history, &event, H_SETSIZE, 500);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_set(line, EL_CLIENTDATA, this);
    el_set(
        line, EL_PROMPT, +[](EditLine* edited) -> char* { return Of(edited)->prompt.data(); });
    el_set(line, EL_GETCFN, ReadCharacter);
    el_set(line, EL_HIST, ::history, history);
    el_set(line, EL_EDITOR, "emacs");
  }
  ~Editor() {
    if (history != nullptr) history_end(history);
    if (line != nullptr) el_end(line);
  }
  bool usable() const { return line != nullptr && history != nullptr; }

  static Editor* Of(EditLine* edited) {
    void* data = nullptr;
    el_get(edited, EL_CLIENTDATA, &data);
    return static_cast<Editor*>(data);
  }

  // -1 ends the line: interrupted.
  static int ReadCharacter(EditLine* edited, wchar_t* character) {
    Editor& editor = *Of(edited);
    std::mbstate_t state = {};
    while (true) {
      pollfd waits[] = {{STDIN_FILENO, POLLIN, 0}, {editor.interrupt->descriptor(), POLLIN, 0}};
      if (poll(waits, 2, -1) < 0 && errno != EINTR) return -1;
      if (editor.interrupt->pending()) return -1;
      if ((waits[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      char byte = 0;
      const ssize_t got = read(STDIN_FILENO, &byte, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return static_cast<int>(got);
      // Typed before the terminal was set to edit lines, Ctrl-D comes as a zero.
      if (byte == 0) byte = kCtrlD;
      const size_t size = std::mbrtowc(character, &byte, 1, &state);
      if (size == static_cast<size_t>(-2)) continue;  // more bytes of the character follow
      if (size != static_cast<size_t>(-1)) return 1;
      state = {};  // not a character of the locale: left out
    }
  }
};

#else

struct LineReader::Editor {};

#endif

LineReader::LineReader(InterruptWatch& interrupt)
    : interrupt_(interrupt), interactive_(isatty(STDIN_FILENO) == 1) {
#ifdef SPILLWAY_HAVE_LIBEDIT
  if (!interactive_ || isatty(STDERR_FILENO) != 1) return;
  editor_ = std::make_unique<Editor>(interrupt_);
  if (!editor_->usable()) editor_.reset();
#endif
}

LineReader::~LineReader() = default;

Result<LineEnd> LineReader::Read(std::string_view prompt, std::string* line) {
  line->clear();
#ifdef SPILLWAY_HAVE_LIBEDIT
  if (editor_ != nullptr) {
    editor_->prompt = prompt;
    int count = 0;
    const char* typed = el_gets(editor_->line, &count);
    if (typed == nullptr || count <= 0) {
      return interrupt_.Take() ? LineEnd::kInterrupted : LineEnd::kEndOfInput;
    }
    line->assign(typed, static_cast<size_t>(count));
    if (line->back() == '\n') line->pop_back();
    return LineEnd::kLine;
  }
#endif
  // On standard error: standard output carries the answers only.
  if (interactive_) (void)!write(STDERR_FILENO, prompt.data(), prompt.size());
  return ReadPlain(line);
}

bool LineReader::TakeLine(std::string* line) {
  const size_t newline = buffer_.find('\n', searched_);
  searched_ = buffer_.size();
  if (newline == std::string::npos && !(at_end_ && !buffer_.empty())) return false;
  const size_t end = std::min(newline, buffer_.size());
  line->assign(buffer_, 0, end);
  buffer_.erase(0, end + 1);
  searched_ = 0;
  return true;
}

Result<LineEnd> LineReader::ReadPlain(std::string* line) {
  while (true) {
    if (TakeLine(line)) return LineEnd::kLine;
    if (at_end_) return LineEnd::kEndOfInput;
    if (buffer_.size() > kMostLineBytes) {
      return InvalidArgumentError(
          fmt::format("standard input has a line of more than {} bytes", kMostLineBytes));
    }
    pollfd waits[] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_.descriptor(), POLLIN, 0}};
    if (poll(waits, 2, -1) < 0 && errno != EINTR) {
      return IoError(std::string("standard input: ") + std::strerror(errno));
    }
    if (interrupt_.Take()) return LineEnd::kInterrupted;
    if (waits[0].revents == 0) continue;
    char bytes[4096];
    const ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return IoError(std::string("standard input: ") + std::strerror(errno));
    at_end_ = got == 0;
    buffer_.append(bytes, static_cast<size_t>(got));
  }
}

void LineReader::Remember(std::string_view text) {
#ifdef SPILLWAY_HAVE_LIBEDIT
  if (editor_ == nullptr) return;
  std::string entry(text);
  std::replace(entry.begin(), entry.end(), '\n', ' ');
  HistEvent event;
  ::history(editor_->history, &event, H_ENTER, entry.c_str());
#else
  (void)text;
#endif
}

}  // namespace spillway::cli
