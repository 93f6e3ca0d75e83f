// MarkedText: a string that remembers which of its bytes came from a message.

#ifndef SPILLWAY_MODEL_MARKED_TEXT_H_
#define SPILLWAY_MODEL_MARKED_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

class MarkedText {
 public:
  // Bytes from the end of the run before up to `end`, all marked or all not.
  struct Run {
    size_t end;
    bool marked;
  };

  MarkedText() = default;
  explicit MarkedText(std::string text, bool marked = false);

  const std::string& text() const { return text_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  // In order; neighbours differ in `marked`. Empty when the text is.
  const std::vector<Run>& runs() const { return runs_; }
  bool AnyMarked() const;

  void Append(std::string_view text, bool marked);
  void Append(const MarkedText& other) { AppendRange(other, 0, other.size()); }
  // Appends other[begin, end). `other` may be this object's copy, not itself.
  void AppendRange(const MarkedText& other, size_t begin, size_t end);
  MarkedText Range(size_t begin, size_t end) const;

 private:
  std::string text_;
  std::vector<Run> runs_;
};

}  // namespace spillway

#endif  // SPILLWAY_MODEL_MARKED_TEXT_H_
