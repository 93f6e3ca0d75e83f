#include "model/byte_alphabet.h"

#include <array>

#include "model/utf8.h"

namespace spillway {
namespace {

constexpr char32_t kFirstStandIn = 0x100;
constexpr int kStandIns = 68;

bool StandsForItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Tables {
  std::array<std::string, 256> text;                // byte -> UTF-8
  std::array<int, kFirstStandIn + kStandIns> byte;  // code point -> byte or -1

  Tables() {
    byte.fill(-1);
    char32_t next = kFirstStandIn;
    for (int b = 0; b < 256; ++b) {
      const char32_t c = StandsForItself(b) ? static_cast<char32_t>(b) : next++;
      AppendUtf8(c, &text[b]);
      byte[c] = b;
    }
  }
};

const Tables& GetTables() {
  static const Tables* const tables = new Tables();
  return *tables;
}

}  // namespace

std::string_view AlphabetTextOf(uint8_t byte) { return GetTables().text[byte]; }

void AppendAlphabetText(std::string_view bytes, std::string* out) {
  const Tables& tables = GetTables();
  for (const char c : bytes) out->append(tables.text[static_cast<uint8_t>(c)]);
}

void AppendBytesOfAlphabetText(std::string_view text, std::string* out) {
  const Tables& tables = GetTables();
  for (size_t at = 0; at < text.size();) {
    const Utf8Part part = NextUtf8Part(text.substr(at));
    const bool known = part.kind == Utf8Part::Kind::kCharacter &&
                       part.code_point < tables.byte.size() && tables.byte[part.code_point] >= 0;
    if (known) {
      out->push_back(static_cast<char>(tables.byte[part.code_point]));
    } else {
      out->append(text.substr(at, part.size));
    }
    at += part.size;
  }
}

}  // namespace spillway
