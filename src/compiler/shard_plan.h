// Which layers go into which shard.

#ifndef SPILLWAY_COMPILER_SHARD_PLAN_H_
#define SPILLWAY_COMPILER_SHARD_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"
#include "quantize/recipe.h"
#include "spillway/compile.h"
#include "spillway/status.h"

namespace spillway {

// What a model puts into context binaries, in bytes, estimated from its shapes and
// the recipe's widths.
struct ContextSizes {
  std::vector<uint64_t> layers;  // weights of each layer
  uint64_t first = 0;            // more in the first shard: the embedding table, if inside
  uint64_t last = 0;             // more in the last shard: the output head
  // The same weights as they are handed to the vendor: a byte or two for each,
  // however few bits it has in the end.
  std::vector<uint64_t> layer_values;
  uint64_t last_values = 0;
  // Inputs and outputs of all graphs together: mask, hidden states and logits, and the
  // caches of each layer.
  uint64_t io = 0, io_per_layer = 0;

  // Of a shard with layers [first_layer, first_layer + num_layers).
  uint64_t WeightBytes(uint32_t first_layer, uint32_t num_layers) const;
  uint64_t ValueBytes(uint32_t first_layer, uint32_t num_layers) const;
  uint64_t IoBytes(uint32_t num_layers) const { return io + io_per_layer * num_layers; }
  // What the vendor has to place for it on the device.
  uint64_t ContextBytes(uint32_t first_layer, uint32_t num_layers) const {
    return WeightBytes(first_layer, num_layers) + IoBytes(num_layers);
  }
};
ContextSizes EstimateContextSizes(const Model& model, const CompileOptions& options,
                                  const Recipe& recipe);

// Bytes of a context binary that one weight of the scheme takes.
double ContextBytesPerWeight(const WeightScheme& scheme);

struct LayerRange {
  uint32_t first_layer = 0, num_layers = 0;
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// Splits the layers into `num_shards` (1 to the number of layers) groups of
// neighbours, as even in bytes as can be (the sum of the squares is the least).
std::vector<LayerRange> SplitLayers(const ContextSizes& sizes, uint32_t num_shards);

// The shards that the options ask for; for num_shards 0 the smallest number for which
// no context is estimated to be larger than options.shard_limit_bytes and the vendor's
// compiler to need more than `memory_bytes` (0: whatever it needs) for one of them.
// kResourceExhausted when a shard is larger than that: says which, how large it is and
// what would fit. kInvalidArgument for more shards than layers.
Result<std::vector<LayerRange>> PlanShards(const ContextSizes& sizes, const CompileOptions& options,
                                           uint64_t memory_bytes = 0);

}  // namespace spillway

#endif  // SPILLWAY_COMPILER_SHARD_PLAN_H_
