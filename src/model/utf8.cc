#include "model/utf8.h"

namespace spillway {
namespace {

// The lead byte's character size and the range of its second byte (Unicode
// standard, table 3-7); size 0 when it leads nothing.
struct Lead {
  size_t size;
  uint8_t low, high;
};

Lead LeadOf(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Part NextUtf8Part(std::string_view bytes) {
  const auto first = static_cast<uint8_t>(bytes[0]);
  if (first < 0x80) return {Utf8Part::Kind::kCharacter, 1, first};
  const Lead lead = LeadOf(first);
  if (lead.size == 0) return {Utf8Part::Kind::kIllFormed, 1, 0};
  char32_t code_point = first & (0xFFu >> (lead.size + 1));
  for (size_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) return {Utf8Part::Kind::kIncomplete, i, 0};
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Part::Kind::kIllFormed, i, 0};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {Utf8Part::Kind::kCharacter, lead.size, code_point};
}

bool IsValidUtf8(std::string_view bytes) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(bytes[at]); };
  size_t at = 0;
  while (at < bytes.size()) {
    if (byte(at) < 0x80) {
      ++at;
      continue;
    }
    // Most of the others, among them all of a byte-level alphabet.
    if (byte(at) >= 0xC2 && byte(at) <= 0xDF && at + 1 < bytes.size() &&
        (byte(at + 1) & 0xC0) == 0x80) {
      at += 2;
      continue;
    }
    const Utf8Part part = NextUtf8Part(bytes.substr(at));
    if (part.kind != Utf8Part::Kind::kCharacter) return false;
    at += part.size;
  }
  return true;
}

std::string RepairUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Part part = NextUtf8Part(bytes.substr(at));
    if (part.kind == Utf8Part::Kind::kCharacter) {
      out.append(bytes.substr(at, part.size));
    } else {
      out.append(kReplacementCharacter);
    }
    at += part.size;
  }
  return out;
}

void AppendUtf8(char32_t c, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

size_t Utf8SizeAt(std::string_view text, size_t at) {
  const auto byte = static_cast<uint8_t>(text[at]);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

size_t CountUtf8(std::string_view text) {
  size_t count = 0;
  for (const char c : text) {
    if ((static_cast<uint8_t>(c) & 0xC0) != 0x80) ++count;
  }
  return count;
}

bool IsUnicodeSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

namespace {

// Blocks in which upper and lower case alternate; `even` says that the upper
// case letters have even code points.
struct Alternating {
  char32_t first, last;
  bool even;
};
constexpr Alternating kAlternating[] = {
    {0x100, 0x12F, true},   {0x132, 0x137, true},  {0x139, 0x148, false}, {0x14A, 0x177, true},
    {0x179, 0x17E, false},  {0x460, 0x481, true},  {0x48A, 0x4BF, true},  {0x4D0, 0x52F, true},
    {0x1E00, 0x1E95, true}, {0x1EA0, 0x1EFF, true}};

// Blocks in which lower case follows at a fixed distance.
struct Shifted {
  char32_t first, last, distance;  // of the upper case letters
};
constexpr Shifted kShifted[] = {{'A', 'Z', 32},       {0xC0, 0xD6, 32},      {0xD8, 0xDE, 32},
                                {0x388, 0x38A, 37},   {0x391, 0x3A1, 32},    {0x3A3, 0x3AB, 32},
                                {0x410, 0x42F, 32},   {0x400, 0x40F, 80},    {0x531, 0x556, 48},
                                {0xFF21, 0xFF3A, 32}, {0x10400, 0x10427, 40}};

}  // namespace

char32_t ToLowerCodePoint(char32_t c) {
  for (const Shifted& block : kShifted) {
    if (c >= block.first && c <= block.last) return c + block.distance;
  }
  for (const Alternating& block : kAlternating) {
    if (c >= block.first && c <= block.last) return (c % 2 == 0) == block.even ? c + 1 : c;
  }
  if (c == 0x178) return 0xFF;
  if (c == 0x386) return 0x3AC;
  return c;
}

char32_t ToUpperCodePoint(char32_t c) {
  if (c == 0xFF) return 0x178;
  if (c == 0x3AC) return 0x386;
  if (c == 0x3C2) return 0x3A3;
  for (const Shifted& block : kShifted) {
    if (c >= block.first + block.distance && c <= block.last + block.distance) {
      return c - block.distance;
    }
  }
  for (const Alternating& block : kAlternating) {
    if (c >= block.first && c <= block.last) return (c % 2 == 0) == block.even ? c : c - 1;
  }
  return c;
}

}  // namespace spillway
