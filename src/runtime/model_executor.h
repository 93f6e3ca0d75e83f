// ModelExecutor: one interface to run the graphs of a model, whoever runs them
// (host CPU in integers or float, the vendor's HTP). The runner sees one model,
// not its shards.

#ifndef SPILLWAY_RUNTIME_MODEL_EXECUTOR_H_
#define SPILLWAY_RUNTIME_MODEL_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "kvcache/kv_cache.h"
#include "spillway/decoding.h"
#include "spillway/session.h"
#include "spillway/status.h"

namespace spillway {

enum class StepKind { kPrefill, kDecode };

// The buffers of one step graph, as the graph contract orders them. Valid while
// the executor lives; the executor reads inputs and writes outputs in Run().
struct StepBuffers {
  uint32_t ar_len = 0;                // 0: the model has no such graph
  std::byte* hidden = nullptr;        // [1, 1, AR, dim], hidden_dtype
  std::byte* mask = nullptr;          // [1, 1, AR, CL], mask_dtype
  int32_t* positions = nullptr;       // [1, AR]
  const std::byte* logits = nullptr;  // [1, AR, vocab], logits_dtype
  std::vector<const std::byte*> k_new,
      v_new;  // a layer: [kv_heads, head_dim, AR], [kv_heads, AR, head_dim]
};

// The constant keys and values of the leading tokens (the attention sink), in
// columns and positions 0..P-1 of every sequence. In the cache's type.
struct KvPrefix {
  std::vector<uint32_t> tokens;  // P; empty: no prefix
  // A layer: [1, kv_heads, head_dim, P] and [1, kv_heads, P, head_dim].
  std::vector<std::shared_ptr<const ConstantData>> k, v;
};

// Types and encodings that both graphs share.
struct ModelIo {
  uint32_t vocab_size = 0;
  uint32_t hidden_dim = 0;
  KvShape kv;
  DType hidden_dtype = DType::kU16, mask_dtype = DType::kU16, logits_dtype = DType::kU16;
  Encoding hidden_encoding, logits_encoding;
  std::vector<Encoding> k_encodings;  // [layers]: of the cached keys
  // Not empty: the matrix that rotary keys are multiplied with (see KeyShift).
  std::vector<float> key_rotation;
  KvPrefix prefix;
};

// Turns token ids into the first graph's hidden states.
class EmbeddingTable {
 public:
  virtual ~EmbeddingTable() = default;
  virtual uint32_t vocab_size() const = 0;
  // Writes the row of `token` (< vocab_size) in the executor's hidden type.
  virtual void Lookup(uint32_t token, std::byte* out) const = 0;
};

// Not thread-safe.
class ModelExecutor {
 public:
  virtual ~ModelExecutor() = default;

  virtual const ModelIo& io() const = 0;
  virtual const EmbeddingTable& embedding() const = 0;
  virtual StepBuffers& buffers(StepKind kind) = 0;
  // The cache inputs, shared by both graphs: k(layer) and v(layer) hold
  // kv_heads * head_dim * (CL - 1) elements, or a PackedCache when io().kv is packed.
  virtual std::byte* k(uint32_t layer) = 0;
  virtual std::byte* v(uint32_t layer) = 0;

  // Runs every shard of the graph. `logits_row` >= 0 promises that only that row's logits
  // will be read, and that the rows after it are padding.
  virtual Status Run(StepKind kind, int logits_row) = 0;
  // Whether Run() with a logits_row reads the padding's hidden states and mask all the same.
  virtual bool reads_padding() const { return true; }

  // The sink and batch of the package's evictor, which RunEvictor() runs; none: it has none
  // or was opened without.
  virtual std::optional<AttentionSink> evictor() const { return std::nullopt; }
  // Moves columns [sink + batch, CL - 1) of every layer's cache, whose rows are arranged for
  // AR-1, to `sink`, keys turned: what KvCache::EvictBy asks for.
  virtual Status RunEvictor() { return FailedPreconditionError("the executor has no evictor"); }

  // "host, 16a8w, 2 threads", "htp (x86 simulator, plain_0.bin)".
  virtual std::string Describe() const = 0;
  // Bytes of weights that one decode step reads.
  virtual uint64_t weight_bytes() const = 0;
  // What the runs since the last call took, for executors that keep a profile.
  virtual std::vector<GraphProfile> TakeProfile() { return {}; }
};

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_MODEL_EXECUTOR_H_
