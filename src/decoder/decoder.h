// How a decoder-only transformer becomes float graphs that follow the graph
// contract (docs/architecture.md): attention, rotary embedding, norms, MLP, KV
// inputs and outputs, shards.

#ifndef SPILLWAY_DECODER_DECODER_H_
#define SPILLWAY_DECODER_DECODER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/weight_transform.h"
#include "graph/graph.h"
#include "model/model.h"
#include "spillway/status.h"

namespace spillway {

// What the first graph takes and how tensors are called.
enum class IoProfile {
  // Tokens as hidden states [1, 1, AR, hidden]; the runner looks rows up.
  kSpillway,
  // Token ids [1, AR] i32 and a Gather inside.
  kExecutorch,
};
std::string_view IoProfileName(IoProfile profile);  // "spillway"
std::optional<IoProfile> ParseIoProfile(std::string_view name);

// Names of tensors that other parts refer to.
inline constexpr char kHiddenInputName[] = "hidden_in";
inline constexpr char kTokensInputName[] = "tokens";
inline constexpr char kMaskInputName[] = "attention_mask";
inline constexpr char kPositionsInputName[] = "position_ids";
inline constexpr char kLogitsName[] = "logits";
inline constexpr char kHeadWeightName[] = "head.weight";
inline constexpr char kEmbeddingWeightName[] = "embedding.weight";
inline constexpr char kKeyRotationWeightName[] = "key_rotation.weight";

struct DecoderOptions {
  std::string name;          // of the graph
  uint32_t ar_len = 1;       // 1..context_len
  uint32_t context_len = 0;  // columns of the mask
  IoProfile io = IoProfile::kSpillway;
  // The shard: layers [first_layer, first_layer + num_layers). The shard with
  // layer 0 takes the tokens, the one with the last layer gives the logits.
  uint32_t first_layer = 0;
  uint32_t num_layers = 0;  // 0 = all from first_layer on
};

// Builds the graphs of one model. Graphs from the same object share their
// constants (same ConstantData), which is what weight sharing means. Weights
// stay in the model's file; a graph keeps it mapped. Not thread-safe.
class Decoder {
 public:
  // With `transform` all graphs, and the embedding, have the transformed weights.
  explicit Decoder(std::shared_ptr<const Model> model,
                   std::shared_ptr<const WeightTransform> transform = nullptr);

  const Model& model() const { return *model_; }
  // The embedding is the output head's matrix: tied in the model and by the transform.
  bool TiesEmbedding() const;

  // The float graph. With ar_len == context_len there are no cache inputs (a
  // window that starts empty: calibration, perplexity in float). Otherwise
  // inputs and outputs are those of the contract, in its order. 1/sqrt(head_dim)
  // is folded into Wq (and its bias), or into the query norm where there is one.
  Result<Graph> Build(const DecoderOptions& options);

  // The float weight matrix [vocab, hidden] whose rows are token embeddings.
  std::shared_ptr<const ConstantData> EmbeddingData();

 private:
  friend class GraphBuilder;
  std::shared_ptr<const ConstantData> Cached(
      const std::string& name, const std::function<std::shared_ptr<const ConstantData>()>& make);

  std::shared_ptr<const Model> model_;
  std::shared_ptr<const WeightTransform> transform_;  // null: none
  std::map<std::string, std::shared_ptr<const ConstantData>> constants_;
};

// cos and sin of the rotary embedding, [context_len, dim / 2] each: angle of
// position p and pair i is p * theta^(-2 i / dim) / factor_i.
struct RopeTables {
  std::vector<float> cos, sin;
};
RopeTables MakeRopeTables(const RopeConfig& rope, uint32_t context_len);

}  // namespace spillway

#endif  // SPILLWAY_DECODER_DECODER_H_
