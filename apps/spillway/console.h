// Console: where the program writes. Standard output carries the answer and
// nothing else; what is said about it goes to standard error.

#ifndef SPILLWAY_APPS_SPILLWAY_CONSOLE_H_
#define SPILLWAY_APPS_SPILLWAY_CONSOLE_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/progress.h"
#include "spillway/status.h"

namespace spillway::cli {

class Console {
 public:
  // Set from the global options.
  bool json = false;   // answers are one JSON object
  bool quiet = false;  // no progress, no remarks

  // Writes to standard output and flushes. kIo when it is closed or full; a
  // reader that went away is no signal (main() ignores SIGPIPE).
  Status Print(std::string_view text);
  bool printed() const { return printed_; }

  // A remark for people, on standard error, one line; nothing when quiet.
  void Note(std::string_view text) const;

  // Null when quiet.
  std::unique_ptr<Progress> MakeProgress() const;

  // Tells of a failure: "spillway: error: ..." and a hint on standard error and,
  // when JSON is asked for and nothing was printed yet, an object
  // {"error": {"code", "exit_code", "message"}} on standard output.
  //   hint: may be empty
  void ReportError(const Status& status, std::string_view hint);

 private:
  bool printed_ = false;
};

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_CONSOLE_H_
