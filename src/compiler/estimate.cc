// What a compile would take, from the model's shapes and from what was measured
// on two models (bench/README.md).

#include "compiler/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/thread_pool.h"
#include "compiler/check_options.h"
#include "compiler/shard_plan.h"
#include "compiler/vendor_job.h"
#include "model/model.h"
#include "spillway/compile.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

// Memory of the vendor's process: a fixed part and, for each graph, a multiple of
// the weights (SmolLM2-135M hybrid: 1.47 GB for 134.5 MB; a 1B model: 11.6 GB for
// 1.24 GB).
constexpr double kVendorBaseBytes = 250e6;
constexpr double kVendorOverWeights = 4.6;
// Seconds of the vendor's finalise for each graph and byte of weights.
constexpr double kFinalizeSecondsPerByte = 45e-9;
// Float operations a second of one thread in calibration.
constexpr double kCalibrateFlops = 3e10;

double Mega(uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

uint64_t WeightCount(const Model& model) {
  uint64_t count = model.head().rows() * model.head().cols();
  for (const LayerWeights& layer : model.layers()) {
    for (const WeightView* view :
         {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.w_gate, &layer.w_up, &layer.w_down}) {
      count += view->rows() * view->cols();
    }
  }
  return count;
}

}  // namespace

uint64_t VendorPeakBytes(uint64_t weight_bytes, size_t graphs) {
  return static_cast<uint64_t>(kVendorBaseBytes + static_cast<double>(graphs) * kVendorOverWeights *
                                                      static_cast<double>(weight_bytes));
}

Result<CompileEstimate> EstimateCompile(const CompileOptions& options) {
  SPILLWAY_ASSIGN_OR_RETURN(const CheckedOptions checked, CheckCompileOptions(options));
  SPILLWAY_ASSIGN_OR_RETURN(const auto model, Model::Open(options.model_path));
  SPILLWAY_RETURN_IF_ERROR(CheckAgainstModel(options, *model));
  const ModelConfig& config = model->config();
  const ContextSizes sizes = EstimateContextSizes(*model, options, checked.recipe);
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<LayerRange> shards, PlanShards(sizes, options));
  const double graphs = options.mode == "kv" ? 1 : 2;
  const bool htp = options.htp_build != HtpBuild::kOff;
  const bool contexts = htp && MakesBinary(options.htp);

  CompileEstimate estimate;
  estimate.model_name = config.name;
  estimate.architecture = config.architecture;
  estimate.soc = std::string(checked.soc->name);
  estimate.shards = static_cast<uint32_t>(shards.size());
  estimate.parameters = model->num_parameters();
  const uint64_t value_bytes = checked.recipe.is_float() ? 2 : 1;
  estimate.weight_bytes = value_bytes * WeightCount(*model);
  const auto weights = static_cast<double>(estimate.weight_bytes);
  const uint64_t embedding_bytes = value_bytes * config.vocab_size * config.hidden_dim;
  uint64_t context = 0, largest = 0;
  for (const LayerRange& shard : shards) {
    const uint64_t bytes = sizes.WeightBytes(shard.first_layer, shard.num_layers);
    context += bytes;
    largest = std::max(largest, bytes);
  }
  const bool shared = options.htp.weight_sharing.value_or(true);
  if (contexts) estimate.context_bytes = (shared ? 1 : static_cast<uint64_t>(graphs)) * context;
  if (contexts && options.with_simulator) {
    estimate.context_bytes += static_cast<uint64_t>(graphs) * context;
  }
  estimate.package_bytes = estimate.weight_bytes + estimate.context_bytes +
                           (config.tied_embeddings ? 0 : embedding_bytes);
  estimate.kv_cache_bytes = uint64_t{2} * config.num_layers * config.num_kv_heads *
                            config.head_dim * options.context_len * DTypeSize(checked.recipe.kv);
  // Of the weights the largest shard is in memory, as values of one or two bytes.
  const double part =
      static_cast<double>(largest) / static_cast<double>(std::max<uint64_t>(context, 1));
  const double own = 1.2 * part * weights + 100e6;
  const double vendor =
      htp ? static_cast<double>(
                VendorPeakBytes(static_cast<uint64_t>(part * weights), static_cast<size_t>(graphs)))
          : 0.0;
  estimate.peak_rss_bytes = static_cast<uint64_t>(std::max(own, vendor + 60e6));
  const double threads =
      options.threads == 0 ? static_cast<double>(AvailableProcessors()) : options.threads;
  const double calibrate = 2.0 * static_cast<double>(estimate.parameters) *
                           CalibrationTokens(options, checked.recipe) / (kCalibrateFlops * threads);
  estimate.wall_s = calibrate + 1.0 + (htp ? graphs * weights * kFinalizeSecondsPerByte : 0.0);
  return estimate;
}

std::string CompileEstimate::ToJson() const {
  return Json{{"model", model_name},
              {"architecture", architecture},
              {"soc", soc},
              {"shards", shards},
              {"parameters", parameters},
              {"weight_bytes", weight_bytes},
              {"context_bytes", context_bytes},
              {"package_bytes", package_bytes},
              {"kv_cache_bytes", kv_cache_bytes},
              {"peak_rss_bytes", peak_rss_bytes},
              {"wall_s", wall_s}}
      .dump(2, ' ', false, Json::error_handler_t::replace);  // names need not be UTF-8
}

std::string CompileEstimate::ToText() const {
  return fmt::format(
      "{} ({}, {:.1f} million parameters) for {}\n"
      "  weights {:.1f} MB, context binaries {:.1f} MB in {} shard{}, package {:.1f} MB, KV cache "
      "{:.2f} MB\n"
      "  the compile takes about {:.0f} s and {:.0f} MB of memory\n",
      model_name, architecture, static_cast<double>(parameters) / 1e6, soc, Mega(weight_bytes),
      Mega(context_bytes), shards, shards == 1 ? "" : "s", Mega(package_bytes),
      Mega(kv_cache_bytes), wall_s, Mega(peak_rss_bytes));
}

}  // namespace spillway
