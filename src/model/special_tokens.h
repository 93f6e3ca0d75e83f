// SpecialTokens: finds the texts of special tokens in a text.

#ifndef SPILLWAY_MODEL_SPECIAL_TOKENS_H_
#define SPILLWAY_MODEL_SPECIAL_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway {

// A trie over the tokens' bytes.
class SpecialTokens {
 public:
  SpecialTokens();
  // Of equal texts the first added stays. An empty text is ignored.
  void Add(std::string_view text, uint32_t id);

  struct Match {
    size_t begin = 0, end = 0;
    uint32_t id = 0;
  };
  // The first match that starts at or after `from`, the longest of those that
  // start there. False when there is none.
  bool Find(std::string_view text, size_t from, Match* match) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    std::vector<std::pair<char, uint32_t>> children;  // sorted by byte
    uint32_t id = kNone;
  };
  uint32_t Child(uint32_t node, char byte) const;

  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};  // bytes that a token starts with
};

}  // namespace spillway

#endif  // SPILLWAY_MODEL_SPECIAL_TOKENS_H_
