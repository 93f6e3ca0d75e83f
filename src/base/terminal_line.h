// The line that a progress display keeps at the bottom of the terminal. Log
// messages take it away before they print, so that the two do not mix.

#ifndef SPILLWAY_BASE_TERMINAL_LINE_H_
#define SPILLWAY_BASE_TERMINAL_LINE_H_

#include <string_view>

namespace spillway {

// Shows `text` in place of the line shown before, on standard error, which must
// be a terminal. Thread-safe, as is the next.
void ShowTerminalLine(std::string_view text);
// Removes the line if there is one; otherwise does nothing.
void ClearTerminalLine();

}  // namespace spillway

#endif  // SPILLWAY_BASE_TERMINAL_LINE_H_
