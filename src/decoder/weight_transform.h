// WeightTransform: another set of weights that computes the same logits.

#ifndef SPILLWAY_DECODER_WEIGHT_TRANSFORM_H_
#define SPILLWAY_DECODER_WEIGHT_TRANSFORM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spillway {

// What a Decoder asks for every constant that comes from the model's weights. Names
// are those of the graph's constants: "layers.0.q.weight", "layers.0.q.bias",
// "layers.0.attn_norm.gamma", "head.weight", "embedding.weight". Const methods may be
// called from several threads; answers depend on the arguments only.
class WeightTransform {
 public:
  virtual ~WeightTransform() = default;

  // The transformed form of the f32 matrix `weights` [rows, cols], read row by row; `weights`
  // itself when there is nothing to do.
  virtual std::shared_ptr<const ConstantData> Matrix(const std::string& name,
                                                     std::shared_ptr<const ConstantData> weights,
                                                     uint32_t rows, uint32_t cols) const = 0;

  // Transforms a norm's weights or a bias in place.
  virtual void Vector(const std::string& name, std::vector<float>& values) const = 0;

  // The embedding and the output head differ even when the model's are one matrix.
  virtual bool SplitsEmbedding() const = 0;

  // An orthogonal matrix [head_dim, head_dim], row-major, by which the graph multiplies
  // (as a Linear) every query and key after the rotary embedding; null: none.
  virtual std::shared_ptr<const ConstantData> KeyRotation() const = 0;
};

}  // namespace spillway

#endif  // SPILLWAY_DECODER_WEIGHT_TRANSFORM_H_
