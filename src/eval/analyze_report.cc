// AnalysisReport for people and for scripts.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "eval/analyze.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

Json Decibels(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string DecibelText(double value) {
  return std::isfinite(value) ? fmt::format("{:.1f}", value) : "exact";
}

size_t Shown(size_t count, uint32_t top) { return top == 0 ? count : std::min<size_t>(count, top); }

Json SimulatorJson(const OperationDifference& operation) {
  return {{"operation", operation.operation},
          {"type", operation.type},
          {"types", operation.types},
          {"max_lsb", operation.max_lsb},
          {"mean_lsb", operation.mean_lsb},
          {"allowed_lsb", operation.allowed_lsb},
          {"sqnr_db", Decibels(operation.sqnr_db)}};
}

std::string SimulatorText(const std::vector<OperationDifference>& operations, size_t shown) {
  std::string text = fmt::format(
      "\n{} operations alone, host against the vendor's library, worst first\n{:<26} "
      "{:<16} {:>9} {:>8} {:>9} {:>8}  types\n",
      operations.size(), "operation", "type", "SQNR dB", "max LSB", "mean LSB", "allowed");
  for (size_t i = 0; i < shown; ++i) {
    const OperationDifference& operation = operations[i];
    text += fmt::format("{:<26} {:<16} {:>9} {:>8.0f} {:>9.2f} {:>8.0f}  {}\n", operation.operation,
                        operation.type, DecibelText(operation.sqnr_db), operation.max_lsb,
                        operation.mean_lsb, operation.allowed_lsb, operation.types);
  }
  return text;
}

}  // namespace

std::string AnalysisReport::ToJson(uint32_t top) const {
  Json json{{"kind", "analysis"},
            {"tokens", tokens},
            {"logits_sqnr_db", Decibels(logits_sqnr_db)},
            {"layers", Json::array()},
            {"operations", Json::array()}};
  for (const LayerQuality& layer : layers) {
    json["layers"].push_back({{"layer", layer.layer},
                              {"sqnr_db", Decibels(layer.sqnr_db)},
                              {"worst", layer.worst},
                              {"worst_sqnr_db", Decibels(layer.worst_sqnr_db)}});
  }
  for (size_t i = 0; i < Shown(operations.size(), top); ++i) {
    const OperationQuality& operation = operations[i];
    json["operations"].push_back({{"operation", operation.operation},
                                  {"type", operation.type},
                                  {"types", operation.types},
                                  {"sqnr_db", Decibels(operation.sqnr_db)},
                                  {"input_sqnr_db", Decibels(operation.input_sqnr_db)},
                                  {"largest", operation.largest},
                                  {"clipped", operation.clipped}});
  }
  json["left_out"] = left_out;
  if (!simulator.empty()) {
    json["simulator"] = Json::array();
    for (size_t i = 0; i < Shown(simulator.size(), top); ++i) {
      json["simulator"].push_back(SimulatorJson(simulator[i]));
    }
  }
  return json.dump(2);
}

std::string AnalysisReport::ToText(uint32_t top) const {
  std::string text = fmt::format("{} tokens, quantised against float: logits {} dB\n\n", tokens,
                                 DecibelText(logits_sqnr_db));
  text +=
      fmt::format("{:>5} {:>9}   {:<26} {:>9}\n", "layer", "SQNR dB", "worst operation", "SQNR dB");
  for (const LayerQuality& layer : layers) {
    text += fmt::format("{:>5} {:>9}   {:<26} {:>9}\n", layer.layer, DecibelText(layer.sqnr_db),
                        layer.worst, DecibelText(layer.worst_sqnr_db));
  }
  text += fmt::format("\n{:<26} {:<16} {:>9} {:>9} {:>12} {:>9}  types\n", "operation", "type",
                      "SQNR dB", "input dB", "largest", "clipped %");
  const size_t shown = Shown(operations.size(), top);
  for (size_t i = 0; i < shown; ++i) {
    const OperationQuality& operation = operations[i];
    text += fmt::format("{:<26} {:<16} {:>9} {:>9} {:>12.5g} {:>9.3f}  {}\n", operation.operation,
                        operation.type, DecibelText(operation.sqnr_db),
                        DecibelText(operation.input_sqnr_db), operation.largest,
                        100 * operation.clipped, operation.types);
  }
  if (shown < operations.size()) {
    text += fmt::format("and {} operations with less noise (--top 0 shows all)\n",
                        operations.size() - shown);
  }
  if (!left_out.empty()) {
    text += fmt::format("{} operations have no float tensor to compare with\n", left_out.size());
  }
  if (!simulator.empty()) text += SimulatorText(simulator, Shown(simulator.size(), top));
  return text;
}

}  // namespace spillway
