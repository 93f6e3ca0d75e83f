// VerifyReport for people and for scripts.

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "eval/verify.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownOutputs = 8;

// JSON has no infinity: equal logits have no noise.
Json Decibels(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

std::vector<OperationDifference> VerifyReport::BeyondAllowed() const {
  std::vector<OperationDifference> beyond;
  for (const OperationDifference& operation : operations) {
    if (operation.max_lsb > operation.allowed_lsb) beyond.push_back(operation);
  }
  return beyond;
}

std::string VerifyReport::ToJson() const {
  Json json{{"steps", steps},
            {"logits_sqnr_db", Decibels(logits_sqnr_db)},
            {"top1_agreement", top1_agreement},
            {"generated_tokens", generated_tokens},
            {"equal_tokens", equal_tokens},
            {"reference_tokens", reference_tokens},
            {"tested_tokens", tested_tokens}};
  json["outputs"] = Json::array();
  for (const OutputDifference& output : outputs) {
    json["outputs"].push_back({{"graph", output.graph},
                               {"output", output.output},
                               {"max_lsb", output.max_lsb},
                               {"mean_lsb", output.mean_lsb},
                               {"elements", output.elements}});
  }
  json["operations"] = Json::array();
  for (const OperationDifference& operation : operations) {
    json["operations"].push_back({{"operation", operation.operation},
                                  {"type", operation.type},
                                  {"types", operation.types},
                                  {"max_lsb", operation.max_lsb},
                                  {"mean_lsb", operation.mean_lsb},
                                  {"allowed_lsb", operation.allowed_lsb},
                                  {"sqnr_db", Decibels(operation.sqnr_db)}});
  }
  return json.dump(2);
}

std::string VerifyReport::ToText() const {
  std::string text = fmt::format(
      "{} calls compared: logits SQNR {:.1f} dB, best token equal in {:.0f}% of the calls, {} of "
      "{} generated tokens equal\n",
      steps, logits_sqnr_db, 100 * top1_agreement, equal_tokens, generated_tokens);
  text += fmt::format("{:<18} {:<12} {:>10} {:>10}\n", "graph", "output", "max LSB", "mean LSB");
  for (size_t i = 0; i < outputs.size() && i < kShownOutputs; ++i) {
    const OutputDifference& output = outputs[i];
    text += fmt::format("{:<18} {:<12} {:>10.0f} {:>10.2f}\n", output.graph, output.output,
                        output.max_lsb, output.mean_lsb);
  }
  if (outputs.size() > kShownOutputs) {
    text += fmt::format("and {} outputs that differ less\n", outputs.size() - kShownOutputs);
  }
  if (operations.empty()) return text;
  const std::vector<OperationDifference> beyond = BeyondAllowed();
  text += fmt::format("{} operations alone, with the host's inputs: {} beyond the allowed LSB\n",
                      operations.size(), beyond.size());
  for (const OperationDifference& operation : beyond) {
    text += fmt::format("  {:<26} {:<16} {}: max {:.0f}, mean {:.2f}, allowed {:.0f}\n",
                        operation.operation, operation.type, operation.types, operation.max_lsb,
                        operation.mean_lsb, operation.allowed_lsb);
  }
  return text;
}

}  // namespace spillway
