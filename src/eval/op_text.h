// What reports say about operations.

#ifndef SPILLWAY_EVAL_OP_TEXT_H_
#define SPILLWAY_EVAL_OP_TEXT_H_

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace spillway {

// "u16 x s8 -> u16".
inline std::string OpTypesText(const Graph& graph, const Op& op) {
  std::string types;
  for (const TensorId id : op.inputs) {
    types += fmt::format("{}{}", types.empty() ? "" : " x ", DTypeName(graph.tensor(id).dtype));
  }
  return fmt::format("{} -> {}", types, DTypeName(graph.tensor(op.outputs[0]).dtype));
}

// The layer of "layers.<n>.<part>"; none for the rest.
inline std::optional<uint32_t> LayerOfName(std::string_view name) {
  constexpr std::string_view kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  uint32_t layer = 0;
  const char* const begin = name.data() + kPrefix.size();
  const auto parsed = std::from_chars(begin, name.data() + name.size(), layer);
  return parsed.ec == std::errc() ? std::optional<uint32_t>(layer) : std::nullopt;
}

}  // namespace spillway

#endif  // SPILLWAY_EVAL_OP_TEXT_H_
