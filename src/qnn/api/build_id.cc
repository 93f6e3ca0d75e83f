#include "qnn/api/build_id.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <vector>

namespace spillway::qnn {
namespace {

// Major and minor at least; empty when the text is no build id.
std::vector<uint64_t> ParseBuildId(std::string_view text) {
  constexpr size_t kMostNumbers = 4;
  if (text.starts_with('v')) text.remove_prefix(1);
  std::vector<uint64_t> numbers;
  while (numbers.size() < kMostNumbers) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) break;
    numbers.push_back(number);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.starts_with('.')) break;
    text.remove_prefix(1);
  }
  if (numbers.size() < 2) numbers.clear();
  return numbers;
}

}  // namespace

std::optional<int> CompareBuildIds(std::string_view a, std::string_view b) {
  std::vector<uint64_t> left = ParseBuildId(a), right = ParseBuildId(b);
  if (left.empty() || right.empty()) return std::nullopt;
  const size_t size = std::max(left.size(), right.size());
  left.resize(size);
  right.resize(size);
  if (left == right) return 0;
  return left < right ? -1 : 1;
}

}  // namespace spillway::qnn
