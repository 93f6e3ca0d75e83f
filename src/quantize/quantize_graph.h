// Turns float graphs into quantised ones: an encoding for every tensor,
// integers for every constant.

#ifndef SPILLWAY_QUANTIZE_QUANTIZE_GRAPH_H_
#define SPILLWAY_QUANTIZE_QUANTIZE_GRAPH_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "graph/graph.h"
#include "quantize/calibrate.h"
#include "quantize/recipe.h"
#include "quantize/weights.h"
#include "spillway/status.h"

namespace spillway {

// Quantises the graphs of one model. Encodings belong to tensor names, so every
// graph gets the same; constants are quantised once and shared between graphs.
// Not thread-safe; `pool` must outlive it.
class GraphQuantizer {
 public:
  GraphQuantizer(Recipe recipe, TensorRanges ranges, ThreadPool* pool);

  // The quantised form of a float graph, operations unchanged. kInternal when
  // calibration did not see a tensor; kCorruptData when a weight, or the
  // embedding before, has a value that is not finite.
  Result<Graph> Quantize(const Graph& graph);

  // The embedding matrix [vocab, hidden] as s8 rows with one scale each. The
  // same object as the output head's weight when `data` is its constant. Must be
  // called before Quantize(): the range of the hidden input comes from it.
  Tensor QuantizeEmbedding(const std::string& name, const std::shared_ptr<const ConstantData>& data,
                           uint32_t rows, uint32_t cols);

  // The prefix's K and V in the encodings of the caches, as constants named
  // "prefix.k.<layer>" (all layers), then "prefix.v.<layer>".
  Result<std::vector<Tensor>> QuantizePrefix(const FloatPrefix& prefix, const ModelConfig& config);

  const TensorRanges& ranges() const { return ranges_; }

 private:
  const QuantizedMatrix& Matrix(const std::shared_ptr<const ConstantData>& data, uint32_t rows,
                                uint32_t cols, const WeightScheme& scheme);
  Result<Encoding> OutputEncoding(const Graph& graph, const Op& op, const Graph& quantized) const;
  Status QuantizeConstants(const Op& op, Graph& graph);
  Status QuantizeBias(const Op& op, Graph& graph);
  Status QuantizeVector(Tensor& tensor);
  Status QuantizeInputs(Graph& graph);
  Result<Range> RangeOf(const std::string& name) const;

  struct QuantizedVector {
    std::shared_ptr<const ConstantData> data;
    Encoding encoding;
  };
  Recipe recipe_;
  TensorRanges ranges_;
  ThreadPool* pool_;
  Status bad_;  // what is wrong with the embedding; Quantize() returns it
  // Keyed by the float constant, which the map keeps alive.
  std::map<std::shared_ptr<const ConstantData>, QuantizedMatrix> matrices_;
  std::map<std::shared_ptr<const ConstantData>, QuantizedVector> vectors_;
};

// The mask: 65535 = may look (0), 0 = hidden (-255).
Encoding MaskEncoding();

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_QUANTIZE_GRAPH_H_
