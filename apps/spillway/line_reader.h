// Lines of standard input, typed or piped.

#ifndef SPILLWAY_APPS_SPILLWAY_LINE_READER_H_
#define SPILLWAY_APPS_SPILLWAY_LINE_READER_H_

#include <memory>
#include <string>
#include <string_view>

#include "interrupt.h"
#include "spillway/status.h"

namespace spillway::cli {

enum class LineEnd {
  kLine,
  kInterrupted,  // Ctrl-C; what was typed is dropped
  kEndOfInput,
};

// On a terminal lines are edited with the arrow keys and the history when the program
// was built with libedit, with what the terminal itself offers otherwise. Not
// thread-safe; nothing else reads standard input while one lives.
class LineReader {
 public:
  // `interrupt` outlives it.
  explicit LineReader(InterruptWatch& interrupt);
  ~LineReader();

  bool interactive() const { return interactive_; }
  // Reads a line without its newline into `line`; `prompt` is shown on terminals only.
  // A last line without a newline is a line. kIo when reading fails, kInvalidArgument
  // when a line is longer than 64 MiB.
  Result<LineEnd> Read(std::string_view prompt, std::string* line);
  // Puts `text` in the history; newlines become blanks.
  void Remember(std::string_view text);

 private:
  Result<LineEnd> ReadPlain(std::string* line);
  bool TakeLine(std::string* line);

  InterruptWatch& interrupt_;
  bool interactive_ = false;
  std::string buffer_;   // read but not returned
  size_t searched_ = 0;  // of buffer_, has no newline
  bool at_end_ = false;
  struct Editor;
  std::unique_ptr<Editor> editor_;  // null: plain reading
};

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_LINE_READER_H_
