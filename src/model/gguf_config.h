// The ModelConfig of a GGUF file, from its metadata alone.

#ifndef SPILLWAY_MODEL_GGUF_CONFIG_H_
#define SPILLWAY_MODEL_GGUF_CONFIG_H_

#include <string>
#include <string_view>

#include "model/config.h"
#include "model/gguf.h"
#include "spillway/status.h"

namespace spillway {

// What GGUF files of an architecture hold beyond the common decoder.
struct GgufArchitecture {
  enum class Biases { kNone, kOptional, kRequired };

  std::string_view name;
  Biases attention_bias;  // of q, k and v
  bool qk_norm;           // attn_q_norm, attn_k_norm
  bool interleaved_rope;  // rows of q and k are stored for RoPE pairs (2i, 2i + 1)
  bool rope_freqs;        // rope_freqs.weight may be there
};

// Null for an architecture that is not supported.
const GgufArchitecture* FindGgufArchitecture(std::string_view name);

// Reads and checks every `<architecture>.*` key. kUnsupported names the key and
// value that Spillway cannot honour, also for keys that it does not know: a
// model must not run with a part of its definition ignored. kCorruptData for
// values that are missing, out of range or contradict each other.
//
// `rope.factors` holds linear and YaRN scaling; rope_freqs.weight is a tensor
// and is not applied here.
Result<ModelConfig> ReadGgufConfig(const GgufFile& file);

}  // namespace spillway

#endif  // SPILLWAY_MODEL_GGUF_CONFIG_H_
