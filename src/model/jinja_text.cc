// Values as text: str(), repr() and JSON.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "model/jinja_value.h"
#include "model/utf8.h"

namespace spillway::jinja {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

std::string Hex(uint32_t value, int digits) {
  std::string text;
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) {
    text.push_back(kHexDigits[value >> shift & 15]);
  }
  return text;
}

// Calls put(text, marked) for each character of `text`, with escape(code point)
// in place of the characters for which that is not empty.
template <typename Escape>
void AppendEscaped(const MarkedText& text, Escape escape, MarkedText* out) {
  const std::string_view bytes = text.text();
  size_t at = 0;
  for (const MarkedText::Run& run : text.runs()) {
    size_t plain = at;  // start of what needs no escape
    while (at < run.end) {
      const Utf8Part part = NextUtf8Part(bytes.substr(at));
      const std::string escaped = escape(part.code_point);
      if (!escaped.empty()) {
        out->Append(bytes.substr(plain, at - plain), run.marked);
        out->Append(escaped, run.marked);
        plain = at + part.size;
      }
      at += part.size;
    }
    out->Append(bytes.substr(plain, run.end - plain), run.marked);
    at = run.end;
  }
}

// Characters that Python's repr() does not print: controls, separators, and the
// usual invisible ones.
bool IsPrintable(char32_t c) {
  if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD) return false;
  if (c != ' ' && IsUnicodeSpace(c)) return false;
  if ((c >= 0x200B && c <= 0x200F) || (c >= 0x202A && c <= 0x202E)) return false;
  if ((c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c >= 0xE000 && c <= 0xF8FF)) return false;
  return c < 0xE0000;
}

MarkedText ReprOfString(const MarkedText& text) {
  const bool single = text.text().find('\'') != std::string::npos;
  const bool twofold = text.text().find('"') != std::string::npos;
  const char32_t quote = single && !twofold ? '"' : '\'';
  const auto escape = [quote](char32_t c) -> std::string {
    if (c == quote || c == '\\') return {'\\', static_cast<char>(c)};
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    if (IsPrintable(c)) return "";
    if (c < 0x100) return "\\x" + Hex(c, 2);
    return c < 0x10000 ? "\\u" + Hex(c, 4) : "\\U" + Hex(c, 8);
  };
  const std::string mark(1, static_cast<char>(quote));
  MarkedText out(mark);
  AppendEscaped(text, escape, &out);
  out.Append(mark, false);
  return out;
}

void AppendRepr(const Value& value, MarkedText* out);

void AppendReprOfItems(const ValueList& items, MarkedText* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->Append(", ", false);
    AppendRepr(items[i], out);
  }
}

void AppendRepr(const Value& value, MarkedText* out) {
  switch (value.kind()) {
    case Kind::kUndefined:
      out->Append("Undefined", false);
      return;
    case Kind::kString:
      out->Append(ReprOfString(value.AsText()));
      return;
    case Kind::kList:
      out->Append("[", false);
      AppendReprOfItems(value.AsList(), out);
      out->Append("]", false);
      return;
    case Kind::kTuple:
      out->Append("(", false);
      AppendReprOfItems(value.AsList(), out);
      out->Append(value.AsList().size() == 1 ? ",)" : ")", false);
      return;
    case Kind::kDict: {
      out->Append("{", false);
      bool first = true;
      for (const auto& [key, item] : value.AsDict()) {
        if (!first) out->Append(", ", false);
        first = false;
        AppendRepr(key, out);
        out->Append(": ", false);
        AppendRepr(item, out);
      }
      out->Append("}", false);
      return;
    }
    default:
      out->Append(ToText(value));
      return;
  }
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonOptions& options) : options_(options) {}

  Status Write(const Value& value, int level) {
    switch (value.kind()) {
      case Kind::kNone:
        out_.Append("null", false);
        return OkStatus();
      case Kind::kBool:
        out_.Append(value.AsInt() != 0 ? "true" : "false", false);
        return OkStatus();
      case Kind::kInt:
        out_.Append(std::to_string(value.AsInt()), false);
        return OkStatus();
      case Kind::kFloat:
        out_.Append(FloatJson(value.AsDouble()), false);
        return OkStatus();
      case Kind::kString:
        WriteString(value.AsText());
        return OkStatus();
      case Kind::kList:
      case Kind::kTuple:
        return WriteList(value.AsList(), level);
      case Kind::kDict:
        return WriteDict(value.AsDict(), level);
      default:
        return InvalidArgumentError("a value of type " + std::string(TypeName(value)) +
                                    " cannot be written as JSON");
    }
  }

  MarkedText Take() { return std::move(out_); }

 private:
  static std::string FloatJson(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatText(value);
  }

  static std::string EscapeAbove16Bits(char32_t c) {
    const char32_t rest = c - 0x10000;
    return "\\u" + Hex(0xD800 + (rest >> 10), 4) + "\\u" + Hex(0xDC00 + (rest & 0x3FF), 4);
  }

  void WriteString(const MarkedText& text) {
    const bool ascii_only = options_.ascii_only;
    const auto escape = [ascii_only](char32_t c) -> std::string {
      switch (c) {
        case '"':
          return "\\\"";
        case '\\':
          return "\\\\";
        case '\n':
          return "\\n";
        case '\r':
          return "\\r";
        case '\t':
          return "\\t";
        case '\b':
          return "\\b";
        case '\f':
          return "\\f";
        default:
          break;
      }
      if (c < 0x20 || (ascii_only && c >= 0x7F && c < 0x10000)) {
        return c == 0x7F ? "" : "\\u" + Hex(c, 4);
      }
      return ascii_only && c >= 0x10000 ? EscapeAbove16Bits(c) : "";
    };
    out_.Append("\"", false);
    AppendEscaped(text, escape, &out_);
    out_.Append("\"", false);
  }

  void NewLine(int level) {
    if (!options_.pretty) return;
    out_.Append("\n", false);
    for (int i = 0; i < level; ++i) out_.Append(options_.indent, false);
  }

  Status WriteList(const ValueList& items, int level) {
    out_.Append("[", false);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(options_.item_separator, false);
      NewLine(level + 1);
      SPILLWAY_RETURN_IF_ERROR(Write(items[i], level + 1));
    }
    if (!items.empty()) NewLine(level);
    out_.Append("]", false);
    return OkStatus();
  }

  Status WriteKey(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        WriteString(key.AsText());
        return OkStatus();
      case Kind::kNone:
        WriteString(MarkedText("null"));
        return OkStatus();
      case Kind::kBool:
        WriteString(MarkedText(key.AsInt() != 0 ? "true" : "false"));
        return OkStatus();
      case Kind::kInt:
      case Kind::kFloat:
        WriteString(ToText(key));
        return OkStatus();
      default:
        return InvalidArgumentError("a value of type " + std::string(TypeName(key)) +
                                    " cannot be a key in JSON");
    }
  }

  Status WriteDict(ValueItems items, int level) {
    if (options_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
        return ToText(a.first).text() < ToText(b.first).text();
      });
    }
    out_.Append("{", false);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(options_.item_separator, false);
      NewLine(level + 1);
      SPILLWAY_RETURN_IF_ERROR(WriteKey(items[i].first));
      out_.Append(options_.key_separator, false);
      SPILLWAY_RETURN_IF_ERROR(Write(items[i].second, level + 1));
    }
    if (!items.empty()) NewLine(level);
    out_.Append("}", false);
    return OkStatus();
  }

  const JsonOptions& options_;
  MarkedText out_;
};

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The shortest digits that give the value back, laid out as Python does:
  // with an exponent below -4 and from 16.
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific)
                       .ptr;
  const std::string text(buffer.data(), end);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed)
          .ptr;
  std::string out(buffer.data(), fixed);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

MarkedText ToText(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return MarkedText();
    case Kind::kNone:
      return MarkedText("None");
    case Kind::kBool:
      return MarkedText(value.AsInt() != 0 ? "True" : "False");
    case Kind::kInt:
      return MarkedText(std::to_string(value.AsInt()));
    case Kind::kFloat:
      return MarkedText(FloatText(value.AsDouble()));
    case Kind::kString:
      return value.AsText();
    case Kind::kNamespace:
      return MarkedText("<Namespace>");
    case Kind::kLoop:
      return MarkedText("<LoopContext>");
    case Kind::kCallable:
      return MarkedText("<function " + value.AsCallable().name + ">");
    default:
      break;
  }
  return ToRepr(value);
}

MarkedText ToRepr(const Value& value) {
  MarkedText out;
  AppendRepr(value, &out);
  return out;
}

Result<MarkedText> ToJson(const Value& value, const JsonOptions& options) {
  JsonWriter writer(options);
  SPILLWAY_RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

}  // namespace spillway::jinja
