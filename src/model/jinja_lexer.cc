#include "model/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>

#include "model/utf8.h"

namespace spillway::jinja {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }

int HexValue(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Line ends become \n; one at the very end is dropped.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Resolves the escapes of a string literal's body as Python does; unknown ones
// stay as they are.
class Unescaper {
 public:
  explicit Unescaper(std::string_view body) : body_(body) {}

  // Nullopt for an escape that lacks its digits.
  std::optional<std::string> Run() {
    while (at_ < body_.size()) {
      if (body_[at_] != '\\' || at_ + 1 == body_.size()) {
        out_.push_back(body_[at_++]);
        continue;
      }
      const char kind = body_[at_ + 1];
      at_ += 2;
      if (!Escape(kind)) return std::nullopt;
    }
    return std::move(out_);
  }

 private:
  bool Escape(char kind) {
    static constexpr std::string_view kNames = "\\'\"abfnrtv\n";
    static constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    const size_t simple = kNames.find(kind);
    if (simple < kValues.size()) {
      out_.push_back(kValues[simple]);
      return true;
    }
    if (kind == '\n') return true;  // a line continued
    if (kind == 'x') return CodePoint(2);
    if (kind == 'u') return CodePoint(4);
    if (kind == 'U') return CodePoint(8);
    if (kind >= '0' && kind <= '7') {
      char32_t value = static_cast<char32_t>(kind - '0');
      for (int i = 0; i < 2 && at_ < body_.size() && body_[at_] >= '0' && body_[at_] <= '7'; ++i) {
        value = value * 8 + static_cast<char32_t>(body_[at_++] - '0');
      }
      AppendUtf8(value, &out_);
      return true;
    }
    out_.push_back('\\');
    out_.push_back(kind);
    return true;
  }

  bool Digits(size_t count, char32_t* value) {
    *value = 0;
    for (size_t i = 0; i < count; ++i) {
      const int digit = at_ < body_.size() ? HexValue(body_[at_]) : -1;
      if (digit < 0) return false;
      *value = *value << 4 | static_cast<char32_t>(digit);
      ++at_;
    }
    return true;
  }

  bool CodePoint(size_t digits) {
    char32_t value = 0;
    if (!Digits(digits, &value)) return false;
    if (value >= 0xD800 && value < 0xDC00 && body_.substr(at_, 2) == "\\u") {
      const size_t back = at_;
      char32_t low = 0;
      at_ += 2;
      if (Digits(4, &low) && low >= 0xDC00 && low < 0xE000) {
        value = 0x10000 + ((value - 0xD800) << 10 | (low - 0xDC00));
      } else {
        at_ = back;
      }
    }
    if (value > 0x10FFFF) return false;
    AppendUtf8(value >= 0xD800 && value < 0xE000 ? 0xFFFD : value, &out_);
    return true;
  }

  std::string_view body_;
  size_t at_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      const size_t tag = FindTag();
      if (tag == std::string::npos) break;
      SPILLWAY_RETURN_IF_ERROR(Tag(tag));
    }
    Data(source_.substr(at_));
    Add(Token::Type::kEnd, "");
    return std::move(tokens_);
  }

 private:
  char At(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }

  void Add(Token::Type type, std::string text) {
    Token token;
    token.type = type;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  void Data(std::string text) {
    if (!text.empty()) Add(Token::Type::kData, std::move(text));
  }

  // Moves on to `end`, counting lines.
  void AdvanceTo(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    line_start_ = end > at_ && source_[end - 1] == '\n';
    at_ = end;
  }

  Status Error(const std::string& what) const {
    return InvalidArgumentError("line " + std::to_string(line_) + ": " + what);
  }

  // The next "{{", "{%" or "{#" at or after at_.
  size_t FindTag() const {
    for (size_t i = source_.find('{', at_); i != std::string::npos; i = source_.find('{', i + 1)) {
      if (At(i + 1) == '{' || At(i + 1) == '%' || At(i + 1) == '#') return i;
    }
    return std::string::npos;
  }

  size_t SkipSpace(size_t i) const {
    while (i < source_.size()) {
      const Utf8Part part = NextUtf8Part(std::string_view(source_).substr(i));
      if (!IsUnicodeSpace(part.code_point)) break;
      i += part.size;
    }
    return i;
  }

  // The text before a tag, white space stripped as the tag's sign asks.
  std::string Stripped(std::string text, char sign, bool is_print) const {
    if (sign == '-') {
      size_t keep = 0;
      for (size_t i = 0; i < text.size();) {
        const Utf8Part part = NextUtf8Part(std::string_view(text).substr(i));
        i += part.size;
        if (!IsUnicodeSpace(part.code_point)) keep = i;
      }
      text.resize(keep);
    } else if (sign != '+' && !is_print) {
      const size_t newline = text.rfind('\n');
      const size_t start = newline == std::string::npos ? 0 : newline + 1;
      if ((start > 0 || line_start_) && IsBlank(text, start)) text.resize(start);
    }
    return text;
  }

  static bool IsBlank(std::string_view text, size_t from) {
    while (from < text.size()) {
      const Utf8Part part = NextUtf8Part(text.substr(from));
      if (!IsUnicodeSpace(part.code_point)) return false;
      from += part.size;
    }
    return true;
  }

  char SignAt(size_t i) const { return At(i) == '-' || At(i) == '+' ? source_[i] : '\0'; }

  // The end of a tag's closing `close` ("%}") at i, with the white space that it
  // swallows; npos when it is not there.
  size_t CloseAt(size_t i, std::string_view close, bool trim_newline) const {
    const std::string_view text = source_;
    if (At(i) == '-' && text.substr(i + 1, 2) == close) return SkipSpace(i + 3);
    if (trim_newline && At(i) == '+' && text.substr(i + 1, 2) == close) return i + 3;
    if (text.substr(i, 2) != close) return std::string::npos;
    return trim_newline && At(i + 2) == '\n' ? i + 3 : i + 2;
  }

  Status Tag(size_t tag) {
    const char kind = source_[tag + 1];
    const char sign = SignAt(tag + 2);
    Data(Stripped(source_.substr(at_, tag - at_), sign, kind == '{'));
    const size_t inside = tag + 2 + (sign != '\0' ? 1 : 0);
    AdvanceTo(inside);
    if (kind == '#') return Comment();
    if (kind == '%') {
      const size_t raw = RawOpenEnd(inside);
      if (raw != std::string::npos) return Raw(raw);
    }
    return Expression(kind == '{');
  }

  Status Comment() {
    const size_t close = source_.find("#}", at_);
    if (close == std::string::npos) return Error("a comment is not closed; '#}' is missing");
    const bool has_sign = close > at_ && SignAt(close - 1) != '\0';
    AdvanceTo(CloseAt(has_sign ? close - 1 : close, "#}", true));
    return OkStatus();
  }

  // Where "raw %}" that starts at i ends; npos when something else stands there.
  size_t RawOpenEnd(size_t i) const {
    i = SkipSpace(i);
    if (source_.compare(i, 3, "raw") != 0) return std::string::npos;
    return CloseAt(SkipSpace(i + 3), "%}", false);
  }

  Status Raw(size_t begin) {
    AdvanceTo(begin);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = SignAt(tag + 2);
      const size_t name = SkipSpace(tag + 2 + (sign != '\0' ? 1 : 0));
      if (source_.compare(name, 6, "endraw") != 0) continue;
      const size_t end = CloseAt(SkipSpace(name + 6), "%}", true);
      if (end == std::string::npos) continue;
      Data(Stripped(source_.substr(at_, tag - at_), sign, false));
      AdvanceTo(end);
      return OkStatus();
    }
    return Error("'raw' is not closed; 'endraw' is missing");
  }

  Status Expression(bool is_print) {
    Add(is_print ? Token::Type::kPrintBegin : Token::Type::kBlockBegin, is_print ? "{{" : "{%");
    std::string closers;  // that open brackets wait for
    while (true) {
      AdvanceTo(SkipSpace(at_));
      if (at_ >= source_.size()) {
        return Error(std::string("a tag is not closed; '") + (is_print ? "}}" : "%}") +
                     "' is missing");
      }
      if (closers.empty()) {
        const size_t end = CloseAt(at_, is_print ? "}}" : "%}", !is_print);
        if (end != std::string::npos) {
          Add(is_print ? Token::Type::kPrintEnd : Token::Type::kBlockEnd, is_print ? "}}" : "%}");
          AdvanceTo(end);
          return OkStatus();
        }
      }
      SPILLWAY_RETURN_IF_ERROR(OneToken(&closers));
    }
  }

  Status OneToken(std::string* closers) {
    const char c = source_[at_];
    if (IsDigit(c)) return Number();
    if (IsNameStart(c)) {
      size_t end = at_;
      while (end < source_.size() && IsNamePart(source_[end])) ++end;
      Add(Token::Type::kName, source_.substr(at_, end - at_));
      AdvanceTo(end);
      return OkStatus();
    }
    if (c == '\'' || c == '"') return StringLiteral(c);
    return Operator(closers);
  }

  // Digits with single underscores between them, from i on.
  size_t SkipDigits(size_t i) const {
    while (IsDigit(At(i)) || (At(i) == '_' && IsDigit(At(i + 1)))) ++i;
    return i;
  }

  Status Number() {
    int base = 10;
    size_t end = at_;
    const char mark = static_cast<char>(At(at_ + 1) | 0x20);
    if (source_[at_] == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : 2;
      end = at_ + 2;
      while (At(end) == '_' || (HexValue(At(end)) >= 0 && HexValue(At(end)) < base)) ++end;
    } else {
      end = SkipDigits(at_);
    }
    bool is_float = false;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (base == 10 && !after_dot) {
      if (At(end) == '.' && IsDigit(At(end + 1))) {
        is_float = true;
        end = SkipDigits(end + 1);
      }
      const size_t exponent = At(end + 1) == '+' || At(end + 1) == '-' ? end + 2 : end + 1;
      if ((At(end) | 0x20) == 'e' && IsDigit(At(exponent))) {
        is_float = true;
        end = SkipDigits(exponent);
      }
    }
    std::string digits = source_.substr(at_, end - at_);
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    Add(is_float ? Token::Type::kFloat : Token::Type::kInt, digits);
    Token& token = tokens_.back();
    if (is_float) {
      token.float_value = std::strtod(digits.c_str(), nullptr);
    } else {
      const char* const first = digits.data() + (base == 10 ? 0 : 2);
      const char* const last = digits.data() + digits.size();
      const auto [stop, error] = std::from_chars(first, last, token.int_value, base);
      if (error != std::errc() || stop != last) {
        return Error("'" + digits + "' is no integer of at most 64 bits");
      }
    }
    AdvanceTo(end);
    return OkStatus();
  }

  Status StringLiteral(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Error("a string is not closed");
    const std::string_view body = std::string_view(source_).substr(at_ + 1, end - at_ - 1);
    std::optional<std::string> value = Unescaper(body).Run();
    if (!value) return Error("a string has an incomplete \\x, \\u or \\U escape");
    Add(Token::Type::kString, *std::move(value));
    AdvanceTo(end + 1);
    return OkStatus();
  }

  Status Operator(std::string* closers) {
    static constexpr std::array<std::string_view, 6> kTwo = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    const std::string_view two = std::string_view(source_).substr(at_, 2);
    const size_t size = std::find(kTwo.begin(), kTwo.end(), two) != kTwo.end() ? 2 : 1;
    const char c = source_[at_];
    if (size == 1 && kOne.find(c) == std::string_view::npos) {
      return Error("unexpected character '" + source_.substr(at_, Utf8SizeAt(source_, at_)) +
                   "' in a tag");
    }
    if (c == '(') closers->push_back(')');
    if (c == '[') closers->push_back(']');
    if (c == '{') closers->push_back('}');
    if (c == ')' || c == ']' || c == '}') {
      if (closers->empty() || closers->back() != c) {
        return Error(std::string("'") + c + "' closes no bracket");
      }
      closers->pop_back();
    }
    Add(Token::Type::kOperator, source_.substr(at_, size));
    AdvanceTo(at_ + size);
    return OkStatus();
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;  // at_ is at the start of a line
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Lex(std::string_view source) {
  return Lexer(NormalizeNewlines(source)).Run();
}

}  // namespace spillway::jinja
