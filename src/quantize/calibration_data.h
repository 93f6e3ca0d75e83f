// What calibration runs on: texts and conversations, cut into windows of tokens.

#ifndef SPILLWAY_QUANTIZE_CALIBRATION_DATA_H_
#define SPILLWAY_QUANTIZE_CALIBRATION_DATA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat_template.h"
#include "model/tokenizer.h"
#include "spillway/status.h"

namespace spillway {

// Windows of tokens, each the start of a sequence of its own.
using TokenWindows = std::vector<std::vector<uint32_t>>;

// One source: plain text or conversations.
struct CalibrationSource {
  std::string name;  // of the file, for errors
  std::string text;
  std::vector<std::vector<ChatMessage>> conversations;
};

// The text that calibration uses unless the user gives another. Our own.
std::string_view DefaultCalibrationText();

// A file called *.json or *.jsonl holds conversations: a list of messages
// {"role": ..., "content": ...}, an object {"messages": [...]}, a list of either, or
// (*.jsonl) one of them a line. Other keys of the objects are ignored. Every other
// file is text. Errors name the file and the place.
Result<CalibrationSource> ReadCalibrationFile(const std::string& path);

// Cuts the sources into windows of at most `window` tokens, at most `token_limit` in
// all, taking one window of each source in turn. A text's windows alternate between
// plain text and, when the model has a chat template, a conversation made of two of the
// text's paragraphs (a question alone when there is one paragraph), so that special tokens and the
// first-token behaviour are seen both ways; a conversation is rendered by the template, its special
// tokens included, and cut at `window`. Deterministic. kInvalidArgument names a source that has too
// few tokens (16 for a text) or conversations without a chat template.
Result<TokenWindows> MakeCalibrationWindows(const Tokenizer& tokenizer,
                                            const ChatTemplate* chat_template,
                                            const std::vector<CalibrationSource>& sources,
                                            uint32_t window, uint32_t token_limit);
// Of one text.
Result<TokenWindows> MakeCalibrationWindows(const Tokenizer& tokenizer,
                                            const ChatTemplate* chat_template,
                                            std::string_view text, uint32_t window,
                                            uint32_t token_limit);

// The windows of the files (of DefaultCalibrationText() without one), and how sequences begin.
struct CalibrationWindows {
  TokenWindows windows;
  // Two conversations of the built-in text as the model's template renders them, cut at the
  // window, whatever the files are; empty without a template.
  TokenWindows conversations;
  std::optional<uint32_t> bos;  // the model's
};
// With tokenizer and chat template of `data`; a template that does not parse is left out
// with a warning. Errors as those of the functions above.
Result<CalibrationWindows> ReadCalibrationWindows(const TokenizerData& data,
                                                  const std::vector<std::string>& paths,
                                                  uint32_t window, uint32_t token_limit);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_CALIBRATION_DATA_H_
