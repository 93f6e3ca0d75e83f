#include "model/token_index.h"

#include <bit>
#include <functional>

namespace spillway {
namespace {

uint32_t Hash(std::string_view text) {
  const uint64_t hash = std::hash<std::string_view>()(text);
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

}  // namespace

TokenIndex::TokenIndex(const std::vector<std::string>& tokens)
    : tokens_(tokens), slots_(std::bit_ceil(tokens.size() * 2 + 2)) {
  const size_t mask = slots_.size() - 1;
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    const uint32_t hash = Hash(tokens[id]);
    size_t at = hash & mask;
    bool known = false;
    for (; slots_[at].id_plus_one != 0; at = (at + 1) & mask) {
      known = slots_[at].hash == hash && tokens[slots_[at].id_plus_one - 1] == tokens[id];
      if (known) break;
    }
    if (!known) slots_[at] = {hash, id + 1};
  }
}

std::optional<uint32_t> TokenIndex::Find(std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  const uint32_t hash = Hash(text);
  for (size_t at = hash & mask; slots_[at].id_plus_one != 0; at = (at + 1) & mask) {
    const uint32_t id = slots_[at].id_plus_one - 1;
    if (slots_[at].hash == hash && tokens_[id] == text) return id;
  }
  return std::nullopt;
}

}  // namespace spillway
