#include "model/jinja_string_ops.h"

#include <algorithm>

namespace spillway::jinja {
namespace {

bool IsCased(char32_t c) { return ToUpperCodePoint(c) != c || ToLowerCodePoint(c) != c; }

std::string Encoded(char32_t c) {
  std::string text;
  AppendUtf8(c, &text);
  return text;
}

std::string UpperText(char32_t c) { return c == 0xDF ? "SS" : Encoded(ToUpperCodePoint(c)); }
std::string TitleText(char32_t c) { return c == 0xDF ? "Ss" : Encoded(ToUpperCodePoint(c)); }

bool IsSpaceAt(std::string_view text, size_t at, size_t* size) {
  const Utf8Part part = NextUtf8Part(text.substr(at));
  *size = part.size;
  return IsUnicodeSpace(part.code_point);
}

size_t StartOfCharacterBefore(std::string_view text, size_t end) {
  do --end;
  while ((static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

std::vector<MarkedText> SplitAtSpaces(const MarkedText& text, int64_t limit) {
  const std::string_view bytes = text.text();
  std::vector<MarkedText> parts;
  size_t at = 0, size = 0;
  const auto skip_spaces = [&] {
    while (at < bytes.size() && IsSpaceAt(bytes, at, &size)) at += size;
  };
  for (skip_spaces(); at < bytes.size(); skip_spaces()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text.Range(at, bytes.size()));
      break;
    }
    const size_t begin = at;
    while (at < bytes.size() && !IsSpaceAt(bytes, at, &size)) at += size;
    parts.push_back(text.Range(begin, at));
  }
  return parts;
}

std::vector<MarkedText> SplitAtSpacesFromRight(const MarkedText& text, int64_t limit) {
  const std::string_view bytes = text.text();
  std::vector<MarkedText> parts;
  size_t end = bytes.size(), size = 0;
  const auto skip_spaces = [&] {
    while (end > 0) {
      const size_t start = StartOfCharacterBefore(bytes, end);
      if (!IsSpaceAt(bytes, start, &size)) break;
      end = start;
    }
  };
  for (skip_spaces(); end > 0; skip_spaces()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text.Range(0, end));
      break;
    }
    size_t begin = end;
    while (begin > 0) {
      const size_t start = StartOfCharacterBefore(bytes, begin);
      if (IsSpaceAt(bytes, start, &size)) break;
      begin = start;
    }
    parts.push_back(text.Range(begin, end));
    end = begin;
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

MarkedText Upper(const MarkedText& text) { return MapCharacters(text, UpperText); }

MarkedText Lower(const MarkedText& text) {
  return MapCharacters(text, [](char32_t c) { return Encoded(ToLowerCodePoint(c)); });
}

MarkedText Capitalize(const MarkedText& text) {
  bool first = true;
  return MapCharacters(text, [&first](char32_t c) {
    const bool is_first = first;
    first = false;
    return is_first ? TitleText(c) : Encoded(ToLowerCodePoint(c));
  });
}

MarkedText Title(const MarkedText& text, TitleStyle style) {
  bool in_word = false;
  return MapCharacters(text, [&in_word, style](char32_t c) {
    const bool starts = !in_word;
    if (style == TitleStyle::kMethod) {
      in_word = IsCased(c);
    } else {
      in_word = !(IsUnicodeSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<');
    }
    return starts ? TitleText(c) : Encoded(ToLowerCodePoint(c));
  });
}

MarkedText Strip(const MarkedText& text, const std::string* chars, bool left, bool right) {
  const std::string_view bytes = text.text();
  const auto strips = [&](size_t at) {
    size_t size = 0;
    const bool is_space = IsSpaceAt(bytes, at, &size);
    return chars == nullptr ? is_space : chars->find(bytes.substr(at, size)) != std::string::npos;
  };
  size_t begin = 0, end = bytes.size();
  while (left && begin < end && strips(begin)) begin += Utf8SizeAt(bytes, begin);
  while (right && begin < end) {
    const size_t last = StartOfCharacterBefore(bytes, end);
    if (!strips(last)) break;
    end = last;
  }
  return text.Range(begin, end);
}

std::vector<MarkedText> Split(const MarkedText& text, const std::string* separator, int64_t limit) {
  if (separator == nullptr) return SplitAtSpaces(text, limit);
  std::vector<MarkedText> parts;
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t found = text.text().find(*separator, begin);
    if (found == std::string::npos) break;
    parts.push_back(text.Range(begin, found));
    begin = found + separator->size();
  }
  parts.push_back(text.Range(begin, text.size()));
  return parts;
}

std::vector<MarkedText> SplitFromRight(const MarkedText& text, const std::string* separator,
                                       int64_t limit) {
  if (separator == nullptr) return SplitAtSpacesFromRight(text, limit);
  const std::string_view bytes = text.text();
  std::vector<MarkedText> parts;
  size_t end = bytes.size();
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t found = bytes.substr(0, end).rfind(*separator);
    if (found == std::string_view::npos) break;
    parts.push_back(text.Range(found + separator->size(), end));
    end = found;
  }
  parts.push_back(text.Range(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<MarkedText> SplitLines(const MarkedText& text, bool keep_ends) {
  const std::string_view bytes = text.text();
  std::vector<MarkedText> lines;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Part part = NextUtf8Part(bytes.substr(at));
    const char32_t c = part.code_point;
    size_t next = at + part.size;
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (ends) {
      if (c == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      lines.push_back(text.Range(begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < bytes.size()) lines.push_back(text.Range(begin, bytes.size()));
  return lines;
}

MarkedText Replace(const MarkedText& text, const std::string& from, const MarkedText& to,
                   int64_t limit) {
  const std::string_view bytes = text.text();
  MarkedText out;
  size_t done = 0;
  int64_t count = 0;
  const auto may_go_on = [&] { return limit < 0 || count < limit; };
  if (from.empty()) {
    while (may_go_on()) {
      out.Append(to);
      ++count;
      if (done == bytes.size()) return out;
      const size_t next = done + Utf8SizeAt(bytes, done);
      out.AppendRange(text, done, next);
      done = next;
    }
  }
  while (may_go_on() && !from.empty()) {
    const size_t found = bytes.find(from, done);
    if (found == std::string_view::npos) break;
    out.AppendRange(text, done, found);
    out.Append(to);
    done = found + from.size();
    ++count;
  }
  out.AppendRange(text, done, bytes.size());
  return out;
}

size_t CountOccurrences(std::string_view text, std::string_view part) {
  if (part.empty()) return CountUtf8(text) + 1;
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

size_t ByteOfCharacter(std::string_view text, size_t index) {
  size_t at = 0;
  while (index > 0 && at < text.size()) {
    at += Utf8SizeAt(text, at);
    --index;
  }
  return at;
}

}  // namespace spillway::jinja
