#include "compiler/shard_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "compiler/estimate.h"
#include "quantize/sensitivity.h"

namespace spillway {
namespace {

double Giga(uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

// What the shards of one plan need at most, and which needs it.
struct Needs {
  uint64_t context = 0, memory = 0;
  size_t largest_context = 0;
};

Needs NeedsOf(const ContextSizes& sizes, std::span<const LayerRange> shards, size_t graphs) {
  Needs needs;
  for (size_t s = 0; s < shards.size(); ++s) {
    const auto [first, count] = shards[s];
    needs.memory = std::max(needs.memory, VendorPeakBytes(sizes.ValueBytes(first, count), graphs));
    const uint64_t context = sizes.ContextBytes(first, count);
    if (context <= needs.context) continue;
    needs.context = context;
    needs.largest_context = s;
  }
  return needs;
}

// The smallest number of shards that fits, 0 when none does.
uint32_t SmallestNumber(const ContextSizes& sizes, size_t graphs, uint64_t limit, uint64_t memory) {
  const auto layers = static_cast<uint32_t>(sizes.layers.size());
  const uint64_t total = sizes.WeightBytes(0, layers);
  const uint64_t least = std::max<uint64_t>(1, total / std::max<uint64_t>(limit, 1));
  for (uint64_t number = least; number <= layers; ++number) {
    const Needs needs = NeedsOf(sizes, SplitLayers(sizes, static_cast<uint32_t>(number)), graphs);
    if (needs.context <= limit && (memory == 0 || needs.memory <= memory)) {
      return static_cast<uint32_t>(number);
    }
  }
  return 0;
}

std::string Advice(uint32_t fitting, std::string_view otherwise) {
  if (fitting > 0) return fmt::format("use --num-shards {} or auto", fitting);
  return std::string(otherwise);
}

}  // namespace

double ContextBytesPerWeight(const WeightScheme& scheme) {
  // Measured on matrices of 2048 x 2048 and on whole models; besides the values there
  // are scales and the vendor's own tables.
  if (scheme.bits > 8) return 2.05;
  if (scheme.bits > 4) return 1.045;
  switch (scheme.block) {
    case 0:
      return 0.535;
    case 16:
      return 0.6;
    case 32:
      return 0.565;
    default:
      return 0.55;
  }
}

namespace {

// How much of weights with that scheme is raised at most, before it is known which.
double RaisedShare(const MixedTarget& target, const WeightScheme& scheme) {
  const double extra = BitsOf(target.raised) - BitsOf(scheme);
  if (extra <= 0) return 0;
  if (target.max_bits <= 0) return 1;
  return std::clamp((target.max_bits - BitsOf(scheme)) / extra, 0.0, 1.0);
}

}  // namespace

uint64_t ContextSizes::WeightBytes(uint32_t first_layer, uint32_t num_layers) const {
  const auto begin = layers.begin() + first_layer;
  uint64_t bytes = std::accumulate(begin, begin + num_layers, uint64_t{0});
  if (first_layer == 0) bytes += first;
  if (first_layer + num_layers == layers.size()) bytes += last;
  return bytes;
}

uint64_t ContextSizes::ValueBytes(uint32_t first_layer, uint32_t num_layers) const {
  const auto begin = layer_values.begin() + first_layer;
  const uint64_t bytes = std::accumulate(begin, begin + num_layers, uint64_t{0});
  return first_layer + num_layers == layer_values.size() ? bytes + last_values : bytes;
}

ContextSizes EstimateContextSizes(const Model& model, const CompileOptions& options,
                                  const Recipe& recipe) {
  const ModelConfig& config = model.config();
  ContextSizes sizes;
  const auto weights = [&](const std::string& name, const WeightView& view) {
    const WeightScheme scheme = recipe.WeightOf(name);
    double each = ContextBytesPerWeight(scheme);
    if (recipe.mixed && name != "head") {
      const double raised = RaisedShare(*recipe.mixed, scheme);
      each = (1 - raised) * each + raised * ContextBytesPerWeight(recipe.mixed->raised);
    }
    return static_cast<uint64_t>(each * static_cast<double>(view.rows() * view.cols()));
  };
  const auto values = [](const WeightView& view) { return view.rows() * view.cols(); };
  const uint64_t value_bytes = recipe.is_float() ? 2 : 1;
  for (uint32_t i = 0; i < config.num_layers; ++i) {
    const LayerWeights& layer = model.layers()[i];
    const auto name = [&](const char* part) { return fmt::format("layers.{}.{}", i, part); };
    sizes.layer_values.push_back(
        value_bytes * (values(layer.wq) + values(layer.wk) + values(layer.wv) + values(layer.wo) +
                       values(layer.w_gate) + values(layer.w_up) + values(layer.w_down)));
    sizes.layers.push_back(weights(name("q"), layer.wq) + weights(name("k"), layer.wk) +
                           weights(name("v"), layer.wv) + weights(name("o"), layer.wo) +
                           weights(name("gate"), layer.w_gate) + weights(name("up"), layer.w_up) +
                           weights(name("down"), layer.w_down));
  }
  sizes.last = weights("head", model.head());
  sizes.last_values = value_bytes * values(model.head());
  if (options.io_profile == "executorch") {
    sizes.first = 2 * uint64_t{config.vocab_size} * config.hidden_dim;
  }
  std::vector<uint32_t> ar_lens = {options.mode == "lookahead" ? options.lookahead.ArLen() : 1};
  if (options.mode != "kv") ar_lens.push_back(options.prefill_ar_len);
  for (const uint32_t ar : ar_lens) {
    sizes.io += 2 * (uint64_t{ar} * (options.context_len + 2 * config.hidden_dim) +
                     uint64_t{ar} * config.vocab_size);
    sizes.io_per_layer += 2 * uint64_t{config.num_kv_heads} * config.head_dim *
                          options.context_len * DTypeSize(recipe.kv);
  }
  return sizes;
}

std::vector<LayerRange> SplitLayers(const ContextSizes& sizes, uint32_t num_shards) {
  const auto layers = static_cast<uint32_t>(sizes.layers.size());
  // best[s][end]: the least sum of squares of s shards that hold the first `end` layers.
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(num_shards + 1, std::vector<double>(layers + 1, kNone));
  std::vector<std::vector<uint32_t>> start(num_shards + 1, std::vector<uint32_t>(layers + 1, 0));
  std::vector<double> before(layers + 1, 0.0);
  for (uint32_t i = 0; i < layers; ++i) {
    before[i + 1] = before[i] + static_cast<double>(sizes.layers[i]);
  }
  best[0][0] = 0.0;
  for (uint32_t s = 1; s <= num_shards; ++s) {
    for (uint32_t end = s; end <= layers; ++end) {
      for (uint32_t begin = s - 1; begin < end; ++begin) {
        double bytes = before[end] - before[begin];
        if (begin == 0) bytes += static_cast<double>(sizes.first);
        if (end == layers) bytes += static_cast<double>(sizes.last);
        const double sum = best[s - 1][begin] + bytes * bytes;
        if (sum >= best[s][end]) continue;
        best[s][end] = sum;
        start[s][end] = begin;
      }
    }
  }
  std::vector<LayerRange> shards(num_shards);
  uint32_t end = layers;
  for (uint32_t s = num_shards; s > 0; --s) {
    shards[s - 1] = {start[s][end], end - start[s][end]};
    end = start[s][end];
  }
  return shards;
}

Result<std::vector<LayerRange>> PlanShards(const ContextSizes& sizes, const CompileOptions& options,
                                           uint64_t memory_bytes) {
  const auto layers = static_cast<uint32_t>(sizes.layers.size());
  const uint64_t limit = options.shard_limit_bytes;
  const size_t graphs = options.mode == "kv" ? 1 : 2;
  if (options.num_shards > layers) {
    return InvalidArgumentError(
        fmt::format("{} shards for a model with {} layers: expected 1 to {}, or auto",
                    options.num_shards, layers, layers));
  }
  const uint32_t fitting = SmallestNumber(sizes, graphs, limit, memory_bytes);
  const uint32_t number = options.num_shards > 0 ? options.num_shards : std::max(fitting, 1U);
  std::vector<LayerRange> shards = SplitLayers(sizes, number);
  const Needs needs = NeedsOf(sizes, shards, graphs);
  if (needs.context > limit) {
    const auto [first, count] = shards[needs.largest_context];
    const uint64_t weights = sizes.WeightBytes(first, count);
    return ResourceExhaustedError(fmt::format(
        "shard {} of {} (layers {} to {}) needs {:.2f} GB in its context ({:.2f} GB of weights, "
        "{:.2f} GB of inputs, outputs and KV cache), and the limit is {:.2f} GB; {}, or raise "
        "--shard-limit",
        needs.largest_context, number, first, first + count - 1, Giga(needs.context), Giga(weights),
        Giga(needs.context - weights), Giga(limit),
        Advice(fitting,
               "no number of shards fits: use fewer bits a weight or a shorter --context-len")));
  }
  if (memory_bytes > 0 && needs.memory > memory_bytes) {
    return ResourceExhaustedError(fmt::format(
        "the vendor's compiler needs about {:.1f} GB of memory for the largest of {} shards, and "
        "this machine has {:.1f} GB for it; {}",
        Giga(needs.memory), number, Giga(memory_bytes),
        Advice(fitting, "no number of shards fits: use a machine with more memory, or --htp off")));
  }
  return shards;
}

}  // namespace spillway
