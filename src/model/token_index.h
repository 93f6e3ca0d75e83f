// TokenIndex: from a token's text to its id.

#ifndef SPILLWAY_MODEL_TOKEN_INDEX_H_
#define SPILLWAY_MODEL_TOKEN_INDEX_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// A hash table with open addressing; of equal texts the lowest id is found.
// Keeps a reference to `tokens`, which must stay as it is.
class TokenIndex {
 public:
  explicit TokenIndex(const std::vector<std::string>& tokens);
  std::optional<uint32_t> Find(std::string_view text) const;

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t id_plus_one = 0;  // 0 = empty
  };
  const std::vector<std::string>& tokens_;
  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace spillway

#endif  // SPILLWAY_MODEL_TOKEN_INDEX_H_
