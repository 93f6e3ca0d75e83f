// Python's string operations on marked text.

#ifndef SPILLWAY_MODEL_JINJA_STRING_OPS_H_
#define SPILLWAY_MODEL_JINJA_STRING_OPS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/marked_text.h"
#include "model/utf8.h"

namespace spillway::jinja {

// Every character c replaced by map(c), a std::string; marks stay.
template <typename Map>
MarkedText MapCharacters(const MarkedText& text, Map map) {
  MarkedText out;
  size_t at = 0;
  for (const MarkedText::Run& run : text.runs()) {
    std::string mapped;
    while (at < run.end) {
      const Utf8Part part = NextUtf8Part(std::string_view(text.text()).substr(at));
      mapped += map(part.code_point);
      at += part.size;
    }
    out.Append(mapped, run.marked);
  }
  return out;
}

MarkedText Upper(const MarkedText& text);
MarkedText Lower(const MarkedText& text);
MarkedText Capitalize(const MarkedText& text);
// Every word's first letter large; `words` says whether a word starts after any
// non-letter (str.title) or after white space, '-' and brackets (the filter).
enum class TitleStyle { kMethod, kFilter };
MarkedText Title(const MarkedText& text, TitleStyle style);

// `chars` null = white space.
MarkedText Strip(const MarkedText& text, const std::string* chars, bool left, bool right);
// At most `limit` cuts (negative = all). `separator` null = runs of white space;
// else not empty.
std::vector<MarkedText> Split(const MarkedText& text, const std::string* separator, int64_t limit);
std::vector<MarkedText> SplitFromRight(const MarkedText& text, const std::string* separator,
                                       int64_t limit);
std::vector<MarkedText> SplitLines(const MarkedText& text, bool keep_ends);
// Up to `limit` replacements (negative = all). An empty `from` matches between
// all characters.
MarkedText Replace(const MarkedText& text, const std::string& from, const MarkedText& to,
                   int64_t limit);
size_t CountOccurrences(std::string_view text, std::string_view part);
// The byte where character `index` starts; text.size() beyond the end.
size_t ByteOfCharacter(std::string_view text, size_t index);

}  // namespace spillway::jinja

#endif  // SPILLWAY_MODEL_JINJA_STRING_OPS_H_
