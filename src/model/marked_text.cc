#include "model/marked_text.h"

#include <algorithm>
#include <utility>

namespace spillway {

MarkedText::MarkedText(std::string text, bool marked) : text_(std::move(text)) {
  if (!text_.empty()) runs_.push_back({text_.size(), marked});
}

bool MarkedText::AnyMarked() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.marked; });
}

void MarkedText::Append(std::string_view text, bool marked) {
  if (text.empty()) return;
  text_.append(text);
  if (!runs_.empty() && runs_.back().marked == marked) {
    runs_.back().end = text_.size();
  } else {
    runs_.push_back({text_.size(), marked});
  }
}

void MarkedText::AppendRange(const MarkedText& other, size_t begin, size_t end) {
  const std::string_view text = other.text_;
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                              [](size_t at, const Run& r) { return at < r.end; });
  for (; begin < end; ++run) {
    const size_t stop = std::min(run->end, end);
    Append(text.substr(begin, stop - begin), run->marked);
    begin = stop;
  }
}

MarkedText MarkedText::Range(size_t begin, size_t end) const {
  MarkedText part;
  part.AppendRange(*this, begin, end);
  return part;
}

}  // namespace spillway
