// ModelConfig: the shape of a decoder-only transformer, whatever file it came
// from. Fields that no supported architecture uses yet are there so that a new
// one is a reader, not a redesign; a reader must reject what it cannot set.

#ifndef SPILLWAY_MODEL_CONFIG_H_
#define SPILLWAY_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

enum class Activation { kSilu, kGeluTanh };  // SwiGLU, GeGLU

struct RopeConfig {
  float theta = 10000.0f;
  // Rotated width of a head; the rest passes through (partial rotary).
  uint32_t dim = 0;
  // Frequencies are divided by `factors[i]` (dim/2 values; empty = all 1). Made
  // from rope_freqs.weight and from linear scaling.
  std::vector<float> factors;
  // Multiplies cos and sin (YaRN's attention factor); 1 otherwise.
  float attention_factor = 1.0f;
};

// Attention window of a layer.
enum class LayerAttention { kGlobal, kSlidingWindow };

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", "qwen3"
  std::string name;          // from the file, for people
  uint32_t num_layers = 0;
  uint32_t hidden_dim = 0;
  uint32_t ffn_dim = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t vocab_size = 0;
  uint32_t max_context = 0;  // what the model was trained for
  float rms_norm_eps = 1e-5f;
  RopeConfig rope;

  bool attention_bias = false;  // q, k, v have biases (qwen2)
  bool qk_norm = false;         // RmsNorm of each q and k head (qwen3)
  bool tied_embeddings = false;
  Activation activation = Activation::kSilu;

  // Not used by a supported architecture yet.
  uint32_t sliding_window = 0;                  // 0 = none
  std::vector<LayerAttention> layer_attention;  // empty = all global
  RopeConfig local_rope;
  bool post_norms = false;
  float attention_logit_softcap = 0.0f;
  float final_logit_softcap = 0.0f;
  float embedding_scale = 1.0f;

  uint32_t GroupSize() const { return num_heads / num_kv_heads; }
};

}  // namespace spillway

#endif  // SPILLWAY_MODEL_CONFIG_H_
