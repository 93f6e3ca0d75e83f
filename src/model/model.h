// Model: the configuration and the weights of a GGUF file, as views that
// dequantise on demand. Nothing is copied at load time; the file stays mapped
// while any view lives. Const methods may be called from several threads.

#ifndef SPILLWAY_MODEL_MODEL_H_
#define SPILLWAY_MODEL_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/gguf.h"
#include "spillway/status.h"

namespace spillway {

// A matrix [rows, cols] (a vector has one row) stored in the file in any
// supported type. For a linear layer rows are outputs and cols inputs. The view
// already hides the file's conventions: q and k rows of the llama architecture
// come out in the half-split RoPE order (pairs are i and i + dim/2), whatever
// order the file has them in.
class WeightView {
 public:
  WeightView() = default;
  WeightView(std::shared_ptr<const GgufFile> file, const GgufTensor* tensor);

  // True when the model has this weight.
  explicit operator bool() const { return tensor_ != nullptr; }
  const std::string& name() const;  // the tensor's name in the file
  uint64_t rows() const { return rows_; }
  uint64_t cols() const { return cols_; }
  // Bytes in the file.
  uint64_t stored_bytes() const;

  // Writes rows [row, row + count) as float, row-major, to `out`, which has
  // count * cols() elements.
  void ReadRows(uint64_t row, uint64_t count, float* out) const;
  std::vector<float> ReadAll() const;
  // The row pages are not needed for now and may leave memory.
  void ReleasePages() const;

  // Row r of the view is row order[r] of the file; of a vector (one row, `order`
  // as long as it), element i is element order[i]. Null keeps the file's order.
  // `order` must be in range.
  WeightView WithRowOrder(std::shared_ptr<const std::vector<uint32_t>> order) const;

 private:
  std::shared_ptr<const GgufFile> file_;
  const GgufTensor* tensor_ = nullptr;
  uint64_t rows_ = 0, cols_ = 0;
  std::shared_ptr<const std::vector<uint32_t>> row_order_;
};

// An absent weight converts to false.
struct LayerWeights {
  WeightView attn_norm;       // [1, hidden]
  WeightView wq, wk, wv;      // [heads * head_dim, hidden], [kv_heads * head_dim, hidden] x 2
  WeightView bq, bk, bv;      // [1, rows of the weight]; attention_bias only
  WeightView q_norm, k_norm;  // [1, head_dim]; qk_norm only
  WeightView wo;              // [hidden, heads * head_dim]
  WeightView ffn_norm;        // [1, hidden]
  WeightView w_gate, w_up;    // [ffn, hidden]
  WeightView w_down;          // [hidden, ffn]
};

class Model {
 public:
  // Opens and checks a GGUF file: architecture, scaling and every tensor's
  // presence, shape and type. Tensors that the architecture does not use are an
  // error that names them.
  static Result<std::shared_ptr<const Model>> Open(const std::string& path);

  const ModelConfig& config() const { return config_; }
  const std::shared_ptr<const GgufFile>& file() const { return file_; }
  const WeightView& embedding() const { return embedding_; }  // [vocab, hidden]
  // The output head [vocab, hidden]; the embedding when tied.
  const WeightView& head() const { return head_; }
  const WeightView& final_norm() const { return final_norm_; }  // [1, hidden]
  const std::vector<LayerWeights>& layers() const { return layers_; }
  // Number of parameters (elements of all tensors used, tied ones once).
  uint64_t num_parameters() const { return num_parameters_; }

 private:
  Model() = default;
  std::shared_ptr<const GgufFile> file_;
  ModelConfig config_;
  WeightView embedding_, head_, final_norm_;
  std::vector<LayerWeights> layers_;
  uint64_t num_parameters_ = 0;
};

}  // namespace spillway

#endif  // SPILLWAY_MODEL_MODEL_H_
