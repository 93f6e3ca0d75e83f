// UTF-8: taking text apart, repairing it, and the few properties of characters
// that the tokenizer and the template interpreter need.

#ifndef SPILLWAY_MODEL_UTF8_H_
#define SPILLWAY_MODEL_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

// What stands at the start of some bytes.
struct Utf8Part {
  enum class Kind {
    kCharacter,   // one well-formed character
    kIllFormed,   // a maximal ill-formed part, to be replaced by one U+FFFD
    kIncomplete,  // the bytes end within what may become a character
  };
  Kind kind = Kind::kCharacter;
  size_t size = 0;          // bytes, at least 1
  char32_t code_point = 0;  // kCharacter only
};

// The first part of `bytes`, which must not be empty. "Maximal part" is the
// Unicode standard's recommended practice (chapter 3.9, substitution of maximal
// subparts).
Utf8Part NextUtf8Part(std::string_view bytes);

bool IsValidUtf8(std::string_view bytes);
// Ill-formed and incomplete parts become U+FFFD.
std::string RepairUtf8(std::string_view bytes);
void AppendUtf8(char32_t code_point, std::string* out);
// Size of the character that starts at text[at]; `text` is valid UTF-8.
size_t Utf8SizeAt(std::string_view text, size_t at);
size_t CountUtf8(std::string_view text);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// White space in the sense of Python's str.isspace().
bool IsUnicodeSpace(char32_t c);
// Simple case mapping for Latin, Greek and Cyrillic; other characters stay.
char32_t ToLowerCodePoint(char32_t c);
char32_t ToUpperCodePoint(char32_t c);

}  // namespace spillway

#endif  // SPILLWAY_MODEL_UTF8_H_
