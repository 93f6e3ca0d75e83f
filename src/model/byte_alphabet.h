// The byte-level alphabet of GPT-2: every byte as one printable character, so
// that tokens are valid text. The bytes '!'..'~', 0xA1..0xAC and 0xAE..0xFF stand
// for themselves (as code points); the other 68, in order, are U+0100 and up.

#ifndef SPILLWAY_MODEL_BYTE_ALPHABET_H_
#define SPILLWAY_MODEL_BYTE_ALPHABET_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

// The UTF-8 text of the character that stands for `byte`.
std::string_view AlphabetTextOf(uint8_t byte);
// Bytes to alphabet text.
void AppendAlphabetText(std::string_view bytes, std::string* out);
// Alphabet text back to bytes; a character outside the alphabet stays as it is.
void AppendBytesOfAlphabetText(std::string_view text, std::string* out);

}  // namespace spillway

#endif  // SPILLWAY_MODEL_BYTE_ALPHABET_H_
