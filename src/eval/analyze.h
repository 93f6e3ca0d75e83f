// Analyze: where a package loses quality. Every tensor of the quantised run against
// the float run of the same tokens.

#ifndef SPILLWAY_EVAL_ANALYZE_H_
#define SPILLWAY_EVAL_ANALYZE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "eval/verify.h"
#include "model/model.h"
#include "package/package.h"
#include "spillway/status.h"

namespace spillway {

// The output of one operation over all steps. Decibels are signal to noise, infinite
// when there is no noise; each tensor has the noise of everything before it, too.
struct OperationQuality {
  std::string operation, type;
  std::string types;              // "u16 x s8 -> u16"
  std::optional<uint32_t> layer;  // none outside layers
  double sqnr_db = 0;
  // The worst of its inputs that are computed; infinite when there are none. What the
  // operation itself loses shows as the step from here to sqnr_db.
  double input_sqnr_db = 0;
  float largest = 0;   // magnitude in the float run
  double clipped = 0;  // share of float values outside what the type and encoding hold
};

struct LayerQuality {
  uint32_t layer = 0;
  double sqnr_db = 0;  // of the hidden state after it
  std::string worst;   // its operation with the lowest SQNR
  double worst_sqnr_db = 0;
};

struct AnalysisReport {
  std::vector<OperationQuality> operations;  // lowest SQNR first
  std::vector<LayerQuality> layers;          // in order
  double logits_sqnr_db = 0;
  uint32_t tokens = 0;  // compared
  // Operations without a float tensor to compare with (smoothing divides it by factors
  // that the package does not carry).
  std::vector<std::string> left_out;
  // With the simulator: host against the vendor's library, one operation at a time on the
  // host's inputs. In the report's order: lowest SQNR first.
  std::vector<OperationDifference> simulator;

  // `top`: how many operations to print; 0: all. JSON has no infinity: it becomes null.
  std::string ToJson(uint32_t top) const;
  std::string ToText(uint32_t top) const;
};

// Feeds `tokens` (as many as the context holds, in whole calls of the decode graph)
// to the package's decode graph on the host and to the same graph of `model` in float,
// after the package's prefix, and compares every computed tensor. Attention scores count
// only where the mask lets them. A recipe's rotations are applied to the float weights,
// too. Memory: the tensors of one call. kInvalidArgument when the model is not the one
// that the package was made of (shapes), or there are too few tokens.
Result<AnalysisReport> AnalyzePackage(std::shared_ptr<const Package> package,
                                      std::shared_ptr<const Model> model,
                                      std::vector<uint32_t> tokens, uint32_t threads,
                                      Progress* progress);

}  // namespace spillway

#endif  // SPILLWAY_EVAL_ANALYZE_H_
