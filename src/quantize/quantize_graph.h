// Turns float graphs into quantised ones: a type and an encoding for every
// tensor, integers for every constant, as a recipe says.

#ifndef SPILLWAY_QUANTIZE_QUANTIZE_GRAPH_H_
#define SPILLWAY_QUANTIZE_QUANTIZE_GRAPH_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "graph/graph.h"
#include "quantize/calibrate.h"
#include "quantize/recipe.h"
#include "quantize/weights.h"
#include "spillway/status.h"

namespace spillway {

// Quantises the graphs of one model. Types and encodings belong to tensor names,
// so every graph gets the same; constants are quantised once and shared between
// graphs. Not thread-safe; `pool` must outlive it.
//
// An operation computes in the type that the recipe gives its output. Inputs of
// another type go through a Convert named "<tensor>.<type>", made once a tensor
// and type. The step's own K and V are made in the caches' encoding where that has
// the type, so no Convert is needed for them.
class GraphQuantizer {
 public:
  // `recipe` is valid. `ranges` may be empty when it is_float().
  GraphQuantizer(Recipe recipe, TensorRanges ranges, ThreadPool* pool);

  // The quantised form of a float graph. kInternal when calibration did not see a
  // tensor; kCorruptData when a weight, or the embedding before, has a value that
  // is not finite; kUnsupported when a bias does not fit.
  Result<Graph> Quantize(const Graph& graph);

  // The embedding matrix [vocab, hidden] as rows of one scale each (f16 when the
  // recipe is_float()). The same object as the output head's weight when `data` is
  // its constant and both have one scheme. Must be called before Quantize(): the
  // range of the hidden input comes from it.
  Tensor QuantizeEmbedding(const std::string& name, const std::shared_ptr<const ConstantData>& data,
                           uint32_t rows, uint32_t cols);

  // The prefix's K and V in the encodings of the caches, as constants named
  // "prefix.k.<layer>" (all layers), then "prefix.v.<layer>".
  Result<std::vector<Tensor>> QuantizePrefix(const FloatPrefix& prefix, const ModelConfig& config);

  // Matrices that were quantised before, by the name of the constant
  // ("layers.0.q.weight"): Quantize() takes them as they are instead of rounding by
  // the recipe's scheme, and QuantizeEmbedding() one of its name. Call it before both.
  void UseMatrices(std::map<std::string, QuantizedMatrix> matrices);

  // Forgets the quantised matrices of Linear operations, except the head's and the
  // embedding's, so that those of a finished shard are freed with its graphs.
  // Another graph that needs one quantises it again, to the same values; one of
  // UseMatrices() is then kInternal.
  void ReleaseMatrices();

  const TensorRanges& ranges() const { return ranges_; }
  const Recipe& recipe() const { return recipe_; }

 private:
  friend class GraphRewrite;

  using DataPtr = std::shared_ptr<const ConstantData>;
  // A matrix of a Linear, or of the embedding. Not `keep`: ReleaseMatrices() drops it.
  const QuantizedMatrix& Matrix(const DataPtr& data, uint32_t rows, uint32_t cols,
                                const WeightScheme& scheme, bool keep);
  // Replaces type, encoding and data of a float constant.
  Status SetMatrix(const WeightScheme& scheme, bool keep, Tensor& tensor);
  Status SetGivenMatrix(Tensor& tensor);
  void SetVector(const ActivationScheme& scheme, Tensor& tensor);
  Status SetBias(const Tensor& x, const Tensor& weight, Tensor& bias);
  Result<Range> RangeOf(const std::string& name) const;

  struct QuantizedVector {
    DataPtr data;
    Encoding encoding;
  };
  struct MatrixKey {
    DataPtr data;  // the float constant, kept alive
    uint8_t bits = 0;
    uint32_t block = 0;
    WeightMethod method = WeightMethod::kRtn;
    auto operator<=>(const MatrixKey&) const = default;
  };
  struct CachedMatrix {
    QuantizedMatrix matrix;
    bool keep = false;
  };
  Recipe recipe_;
  TensorRanges ranges_;
  ThreadPool* pool_;
  Status bad_;  // what is wrong with the embedding; Quantize() returns it
  std::map<MatrixKey, CachedMatrix> matrices_;
  std::map<std::pair<DataPtr, DType>, QuantizedVector> vectors_;
  struct GivenMatrix {
    QuantizedMatrix matrix;
    bool used = false, released = false;
  };
  std::map<std::string, GivenMatrix> given_;
};

// The mask: 65535 = may look (0), 0 = hidden (-255).
Encoding MaskEncoding();

// Encoding of a range in u8 or u16; none for f16.
Encoding ActivationEncoding(const ActivationScheme& scheme, const Range& range);

}  // namespace spillway

#endif  // SPILLWAY_QUANTIZE_QUANTIZE_GRAPH_H_
