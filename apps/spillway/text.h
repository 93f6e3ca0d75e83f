// Text for people: sizes, and tables with aligned columns.

#ifndef SPILLWAY_APPS_SPILLWAY_TEXT_H_
#define SPILLWAY_APPS_SPILLWAY_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::cli {

// "512 B", "14.2 kB", "140.3 MB", "1.25 GB" (powers of 1000).
std::string BytesText(uint64_t bytes);
// "134.5 M", "1.24 B": parameters.
std::string CountText(uint64_t count);

// Columns are as wide as their widest cell, with two spaces between them. A
// column of numbers only (with or without a unit) is set to the right.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  void AddRow(std::vector<std::string> cells);
  // Every line ends with a newline and starts with `indent` spaces.
  std::string ToString(size_t indent = 0) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace spillway::cli

#endif  // SPILLWAY_APPS_SPILLWAY_TEXT_H_
