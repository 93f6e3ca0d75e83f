// Filters on single values: text, numbers, JSON, default.

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "model/jinja_builtins.h"
#include "model/jinja_string_ops.h"

namespace spillway::jinja {
namespace {

// str(input), paid for.
Result<MarkedText> TextOf(Budget* budget, const Value& input) {
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(input.weight()));
  return ToText(input);
}

Result<Value> Trim(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, "trim", {"chars"}));
  SPILLWAY_ASSIGN_OR_RETURN(const MarkedText text, TextOf(budget, input));
  const bool spaces = args[0] == nullptr || args[0]->kind() == Kind::kNone;
  if (!spaces && !args[0]->is_string()) {
    return InvalidArgumentError("'trim' needs a string of characters");
  }
  return NewString(budget, Strip(text, spaces ? nullptr : &args[0]->AsString(), true, true));
}

template <MarkedText (*kChange)(const MarkedText&)>
Result<Value> Change(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN([[maybe_unused]] const auto args, Bind(arguments, "the filter", {}));
  SPILLWAY_ASSIGN_OR_RETURN(const MarkedText text, TextOf(budget, input));
  return NewString(budget, kChange(text));
}

MarkedText Same(const MarkedText& text) { return text; }
MarkedText FilterTitle(const MarkedText& text) { return Title(text, TitleStyle::kFilter); }

MarkedText EscapeHtml(const MarkedText& text) {
  return MapCharacters(text, [](char32_t c) -> std::string {
    switch (c) {
      case '&':
        return "&amp;";
      case '<':
        return "&lt;";
      case '>':
        return "&gt;";
      case '"':
        return "&#34;";
      case '\'':
        return "&#39;";
      default:
        break;
    }
    std::string same;
    AppendUtf8(c, &same);
    return same;
  });
}

Result<Value> ReplaceFilter(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_RETURN_IF_ERROR(Bind(arguments, "replace", {"old", "new", "count"}, 2).status());
  SPILLWAY_ASSIGN_OR_RETURN(MarkedText text, TextOf(budget, input));
  Arguments positional;
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, "replace", {"old", "new", "count"}));
  for (int i = 0; i < 2; ++i) {
    SPILLWAY_ASSIGN_OR_RETURN(MarkedText part, TextOf(budget, *args[i]));
    positional.positional.push_back(Value::String(std::move(part)));
  }
  if (args[2] != nullptr && args[2]->kind() != Kind::kNone) {
    positional.positional.push_back(*args[2]);
  }
  return CallMethod(budget, Value::String(std::move(text)), "replace", positional);
}

Result<Value> Default(Budget*, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args,
                            Bind(arguments, "default", {"default_value", "boolean"}));
  const bool by_truth = args[1] != nullptr && IsTrue(*args[1]);
  if (!input.is_undefined() && !(by_truth && !IsTrue(input))) return input;
  return args[0] != nullptr ? *args[0] : Value::String("");
}

Result<Value> IndentFilter(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args,
                            Bind(arguments, "indent", {"width", "first", "blank"}));
  SPILLWAY_ASSIGN_OR_RETURN(MarkedText text, TextOf(budget, input));
  MarkedText indent("    ");
  if (args[0] != nullptr && args[0]->is_string()) {
    indent = args[0]->AsText();
  } else if (args[0] != nullptr) {
    if (!args[0]->is_integral() || args[0]->AsInt() > 256) {
      return InvalidArgumentError("'indent' needs a width of at most 256 or a string");
    }
    indent =
        MarkedText(std::string(static_cast<size_t>(std::max<int64_t>(args[0]->AsInt(), 0)), ' '));
  }
  const bool first = args[1] != nullptr && IsTrue(*args[1]);
  const bool blank = args[2] != nullptr && IsTrue(*args[2]);
  text.Append("\n", false);  // so that a final line end keeps its empty line
  const std::vector<MarkedText> lines = SplitLines(text, false);
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(lines.size() * (64 + indent.size())));
  MarkedText out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n", false);
    if (i == 0 ? first : (blank || !lines[i].empty())) out.Append(indent);
    out.Append(lines[i]);
  }
  return NewString(budget, std::move(out));
}

Result<Value> ToJsonFilter(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(
      const auto args,
      Bind(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonOptions options;
  options.ascii_only = args[0] != nullptr && IsTrue(*args[0]);
  options.sort_keys = args[3] != nullptr && IsTrue(*args[3]);
  if (args[1] != nullptr && args[1]->kind() != Kind::kNone) {
    options.pretty = true;
    options.item_separator = ",";
    if (args[1]->is_string() && args[1]->AsText().size() <= 64) {
      options.indent = args[1]->AsString();
    } else if (args[1]->is_integral() && args[1]->AsInt() <= 64) {
      options.indent =
          std::string(static_cast<size_t>(std::max<int64_t>(args[1]->AsInt(), 0)), ' ');
    } else {
      return InvalidArgumentError("'tojson' needs an indent of at most 64");
    }
  }
  if (args[2] != nullptr && args[2]->kind() != Kind::kNone) {
    const bool is_pair = args[2]->is_sequence() && args[2]->AsList().size() == 2 &&
                         args[2]->AsList()[0].is_string() && args[2]->AsList()[1].is_string();
    if (!is_pair) return InvalidArgumentError("'tojson' needs two strings as separators");
    options.item_separator = args[2]->AsList()[0].AsString();
    options.key_separator = args[2]->AsList()[1].AsString();
  }
  const uint64_t for_each = 1 + options.indent.size() * input.depth() / 8 +
                            (options.item_separator.size() + options.key_separator.size()) / 8;
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(input.weight() * for_each));
  SPILLWAY_ASSIGN_OR_RETURN(MarkedText text, ToJson(input, options));
  return NewString(budget, std::move(text));
}

// The text of a number literal: trimmed, without underscores between digits.
std::string NumberText(const std::string& text) {
  std::string out = Strip(MarkedText(text), nullptr, true, true).text();
  out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
  return out;
}

std::optional<int64_t> ParseInt(const std::string& text, int base) {
  if (text.empty() || text.find_first_of(" \t\n") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(text.c_str(), &end, base);
  if (errno != 0 || end != text.c_str() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> ParseFloat(const std::string& text) {
  // strtod also takes hexadecimal, which Python does not.
  if (text.empty() || text.find_first_of("xX \t\n") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size()) return std::nullopt;
  return value;
}

std::optional<Value> Truncated(double value) {
  if (!(std::fabs(value) < 9.2e18)) return std::nullopt;
  return Value::Int(static_cast<int64_t>(value));
}

Result<Value> ToInt(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, "int", {"default", "base"}));
  const Value otherwise = args[0] != nullptr ? *args[0] : Value::Int(0);
  if (input.is_integral()) return Value::Int(input.AsInt());
  if (input.kind() == Kind::kFloat) return Truncated(input.AsDouble()).value_or(otherwise);
  if (!input.is_string()) return otherwise;
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(input.AsText().size()));
  const std::string text = NumberText(input.AsString());
  const int64_t base = args[1] != nullptr && args[1]->is_integral() ? args[1]->AsInt() : 10;
  if (base < 2 || base > 36) return InvalidArgumentError("'int' needs a base from 2 to 36");
  const std::optional<int64_t> value = ParseInt(text, static_cast<int>(base));
  if (value) return Value::Int(*value);
  const std::optional<double> real = ParseFloat(text);
  return real ? Truncated(*real).value_or(otherwise) : otherwise;
}

Result<Value> ToFloat(Budget* budget, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, "float", {"default"}));
  const Value otherwise = args[0] != nullptr ? *args[0] : Value::Float(0);
  if (input.is_number()) return Value::Float(input.AsDouble());
  if (!input.is_string()) return otherwise;
  SPILLWAY_RETURN_IF_ERROR(budget->Bytes(input.AsText().size()));
  const std::optional<double> value = ParseFloat(NumberText(input.AsString()));
  return value ? Value::Float(*value) : otherwise;
}

Result<Value> Abs(Budget*, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN([[maybe_unused]] const auto args, Bind(arguments, "abs", {}));
  if (!input.is_number()) return InvalidArgumentError("'abs' needs a number");
  if (input.kind() == Kind::kFloat) return Value::Float(std::fabs(input.AsDouble()));
  return input.AsInt() < 0 ? Negate(input) : Value::Int(input.AsInt());
}

Result<Value> Round(Budget*, const Value& input, const Arguments& arguments) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto args, Bind(arguments, "round", {"precision", "method"}));
  const int64_t precision = args[0] != nullptr && args[0]->is_integral() ? args[0]->AsInt() : 0;
  const std::string method =
      args[1] != nullptr && args[1]->is_string() ? args[1]->AsString() : "common";
  if (!input.is_number() || precision < 0 || precision > 15) {
    return InvalidArgumentError("'round' needs a number and a precision from 0 to 15");
  }
  const double value = input.AsDouble();
  if (method == "common") {
    if (input.is_integral()) return Value::Int(input.AsInt());
    // Decimal rounding of the exact value, as Python does it.
    std::string text(400, '\0');
    const int size =
        std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(precision), value);
    text.resize(static_cast<size_t>(std::max(size, 0)));
    return Value::Float(std::strtod(text.c_str(), nullptr));
  }
  if (method != "ceil" && method != "floor") {
    return InvalidArgumentError("'round' has the methods common, ceil and floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = method == "ceil" ? std::ceil(value * scale) : std::floor(value * scale);
  return Value::Float(scaled / scale);
}

constexpr FilterDef kFilters[] = {
    {"trim", Trim},
    {"upper", Change<Upper>},
    {"lower", Change<Lower>},
    {"capitalize", Change<Capitalize>},
    {"title", Change<FilterTitle>},
    {"string", Change<Same>},
    {"safe", Change<Same>},
    {"escape", Change<EscapeHtml>},
    {"e", Change<EscapeHtml>},
    {"replace", ReplaceFilter},
    {"default", Default},
    {"d", Default},
    {"indent", IndentFilter},
    {"tojson", ToJsonFilter},
    {"int", ToInt},
    {"float", ToFloat},
    {"abs", Abs},
    {"round", Round},
};

}  // namespace

const FilterDef* FindTextFilter(std::string_view name) {
  const auto at = std::find_if(std::begin(kFilters), std::end(kFilters),
                               [name](const FilterDef& filter) { return filter.name == name; });
  return at == std::end(kFilters) ? nullptr : at;
}

}  // namespace spillway::jinja
