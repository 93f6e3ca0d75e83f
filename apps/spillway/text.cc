#include "text.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::cli {
namespace {

std::string Scaled(uint64_t value, const char* const* units, size_t unit_count) {
  double scaled = static_cast<double>(value);
  size_t unit = 0;
  while (scaled >= 999.5 && unit + 1 < unit_count) {
    scaled /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} {}", value, units[0]);
  return fmt::format("{:.{}f} {}", scaled, scaled < 9.995 ? 2 : 1, units[unit]);
}

// "12", "-0.5", "140.3 MB"; no hash, no "16a8w".
bool IsNumber(const std::string& cell) {
  const size_t end = cell.find(' ');
  return cell.substr(0, end).find_first_not_of("0123456789.-") == std::string::npos &&
         (end == std::string::npos || cell.size() - end <= 3);
}

}  // namespace

std::string BytesText(uint64_t bytes) {
  static const char* const kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  return Scaled(bytes, kUnits, std::size(kUnits));
}

std::string CountText(uint64_t count) {
  static const char* const kUnits[] = {"", "k", "M", "B"};
  return Scaled(count, kUnits, std::size(kUnits));
}

TextTable::TextTable(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void TextTable::AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string TextTable::ToString(size_t indent) const {
  std::vector<size_t> widths(rows_[0].size());
  std::vector<bool> numeric(rows_[0].size(), true);
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t i = 0; i < rows_[r].size(); ++i) {
      widths[i] = std::max(widths[i], rows_[r][i].size());
      if (r > 0 && !rows_[r][i].empty() && !IsNumber(rows_[r][i])) numeric[i] = false;
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line(indent, ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      line += numeric[i] ? fmt::format("{:>{}}  ", row[i], widths[i])
                         : fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace spillway::cli
