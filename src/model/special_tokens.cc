#include "model/special_tokens.h"

#include <algorithm>

namespace spillway {

SpecialTokens::SpecialTokens() : nodes_(1) {}

uint32_t SpecialTokens::Child(uint32_t node, char byte) const {
  const auto& children = nodes_[node].children;
  const auto at = std::lower_bound(children.begin(), children.end(), std::pair(byte, uint32_t{0}));
  return at != children.end() && at->first == byte ? at->second : kNone;
}

void SpecialTokens::Add(std::string_view text, uint32_t id) {
  if (text.empty()) return;
  starts_[static_cast<uint8_t>(text[0])] = true;
  uint32_t node = 0;
  for (const char byte : text) {
    uint32_t child = Child(node, byte);
    if (child == kNone) {
      child = static_cast<uint32_t>(nodes_.size());
      auto& children = nodes_[node].children;
      const std::pair entry(byte, child);
      children.insert(std::lower_bound(children.begin(), children.end(), entry), entry);
      nodes_.emplace_back();
    }
    node = child;
  }
  if (nodes_[node].id == kNone) nodes_[node].id = id;
}

bool SpecialTokens::Find(std::string_view text, size_t from, Match* match) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    bool found = false;
    uint32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      node = Child(node, text[at]);
      if (node == kNone) break;
      if (nodes_[node].id != kNone) {
        *match = {begin, at + 1, nodes_[node].id};
        found = true;
      }
    }
    if (found) return true;
  }
  return false;
}

}  // namespace spillway
