// Small random decoders as GGUF files: everything that a real one has, with
// activations of a realistic size, in milliseconds.

#ifndef SPILLWAY_TESTS_SUPPORT_TINY_MODEL_H_
#define SPILLWAY_TESTS_SUPPORT_TINY_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/gguf_blocks.h"
#include "tests/support/gguf_writer.h"

namespace spillway::test {

// The ChatML template of TinyModelSpec.
extern const char kChatMlTemplate[];

struct TinyModelSpec {
  std::string architecture = "llama";  // "llama", "qwen2", "qwen3"
  uint64_t seed = 1;
  uint32_t layers = 2;
  uint32_t hidden = 64;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 16;
  uint32_t ffn = 128;
  uint32_t vocab = 300;  // at least 259
  uint32_t context_length = 512;
  bool tied = true;
  float rms_eps = 1e-5f;
  float rope_theta = 10000.0f;
  uint32_t rope_dim = 0;     // 0 = head_dim
  bool rope_freqs = false;   // rope_freqs.weight (llama only)
  std::string rope_scaling;  // "", "none", "linear", "yarn"
  float rope_scaling_factor = 4.0f;
  uint32_t rope_original_context = 128;
  bool llama_bias = false;  // q, k, v biases although the architecture is llama
  // Of the matrices. A matrix whose rows are not whole blocks is stored as Q8_0
  // or, when that does not fit either, F16. Vectors are F32.
  TensorType weight_type = TensorType::kF32;
  TensorType embedding_type = TensorType::kF32;  // and of the head
  std::string pre = "smollm";
  std::string chat_template = kChatMlTemplate;
};

struct TinyModel {
  TinyModelSpec spec;
  GgufWriter file;
  // By tensor name: the values that the stored bytes stand for, row-major, rows
  // in the file's order (for llama, RoPE pairs are rows 2i and 2i + 1).
  std::map<std::string, std::vector<float>> weights;
};

// The same for the same `spec` on every machine.
//
// Vocabulary: 0 <|endoftext|>, 1 <|im_start|>, 2 <|im_end|> (control), 3..258
// the bytes in GPT-2's alphabet in byte order, then merges. BOS is 1, EOS 2.
TinyModel MakeTinyModel(const TinyModelSpec& spec);

// Writes the model to `path` and returns `path`.
std::string WriteTinyModel(const std::string& path, const TinyModelSpec& spec);

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_SUPPORT_TINY_MODEL_H_
