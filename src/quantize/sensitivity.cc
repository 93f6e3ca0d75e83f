#include "quantize/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "quantize/gptq_layers.h"
#include "quantize/layer_chain.h"
#include "quantize/quantize_graph.h"

namespace spillway {
namespace {

double DecibelsOf(double noise) {
  return noise > 0 ? -10.0 * std::log10(noise) : std::numeric_limits<double>::infinity();
}

std::string WeightName(const std::string& operation) { return operation + ".weight"; }

std::string OperationOf(const std::string& weight) {
  return weight.substr(0, weight.size() - std::string_view(".weight").size());
}

void SortWorstFirst(std::vector<OperationDamage>& damage) {
  std::stable_sort(damage.begin(), damage.end(),
                   [](const auto& a, const auto& b) { return a.noise > b.noise; });
}

// The weights of `recipe`, quantised each for itself: gptq would make them fit the layers
// before as the recipe quantises them, and here those are others.
Result<QuantizedWeights> QuantizeWeights(Decoder& decoder, const TokenWindows& windows,
                                         const FloatPrefix& prefix, const Recipe& recipe,
                                         ThreadPool* pool, Progress* progress) {
  return QuantizeWeightsInOrder(
      decoder, windows, prefix,
      [&](const std::string& weight) {
        WeightScheme scheme = recipe.WeightOf(OperationOf(weight));
        if (scheme.method == WeightMethod::kGptq) scheme.method = WeightMethod::kMse;
        return scheme;
      },
      pool, progress);
}

Result<std::vector<OperationDamage>> RankWeightsOf(LayerChain& chain, const QuantizedWeights& base,
                                                   Progress* progress) {
  std::vector<OperationDamage> damage;
  size_t done = 0;
  for (const LayerChain::Site& site : chain.sites()) {
    ReportProgress(progress, "damage of weights",
                   static_cast<double>(done++) / static_cast<double>(chain.sites().size()));
    const auto found = base.find(WeightName(site.operation));
    if (found == base.end()) continue;
    chain.Use(site.operation, &found->second);
    SPILLWAY_ASSIGN_OR_RETURN(const LogitDamage measured, chain.MeasureFrom(site.layer));
    chain.Use(site.operation, nullptr);
    damage.push_back(
        {site.operation, DecibelsOf(measured.noise), measured.noise, measured.kl, site.weights()});
  }
  ReportProgress(progress, "damage of weights", 1.0);
  SortWorstFirst(damage);
  return damage;
}

// Rounds f32 values to what an encoding can hold.
void FakeQuantize(std::span<float> values, DType dtype, const Encoding& encoding) {
  for (float& value : values) {
    value = DequantizeValue(QuantizeValue(value, encoding, dtype), encoding);
  }
}

class MixedSearch {
 public:
  MixedSearch(const Recipe& recipe, LayerChain& chain, QuantizedWeights base, ThreadPool* pool)
      : recipe_(recipe),
        target_(*recipe.mixed),
        chain_(chain),
        base_(std::move(base)),
        pool_(pool) {}

  Result<MixedResult> Run(Progress* progress) {
    for (const LayerChain::Site& site : chain_.sites()) {
      if (InLayers(site)) weights_ += site.weights();
    }
    MixedResult result;
    SPILLWAY_ASSIGN_OR_RETURN(result.damage, RankWeightsOf(chain_, base_, progress));
    Order(result.damage);
    for (const auto& [weight, matrix] : base_) chain_.Use(OperationOf(weight), &matrix);
    SPILLWAY_ASSIGN_OR_RETURN(result.base_sqnr_db, Sqnr());
    result.sqnr_db = result.base_sqnr_db;
    const size_t most = MostWithinBudget();
    size_t count = target_.target_sqnr_db > 0 ? 0 : most;
    if (target_.target_sqnr_db > 0) {
      SPILLWAY_ASSIGN_OR_RETURN(count, LeastForTarget(most, progress));
    }
    ReportProgress(progress, "search the recipe", -1.0);
    SPILLWAY_RETURN_IF_ERROR(Raise(count));
    SPILLWAY_ASSIGN_OR_RETURN(result.sqnr_db, Sqnr());
    result.target_met = !(result.sqnr_db < target_.target_sqnr_db);
    result.bits = Bits(count);
    for (size_t i = 0; i < count; ++i) result.raised.push_back(order_[i]->operation);
    result.recipe = MakeRecipe(result.raised);
    return result;
  }

 private:
  static bool InLayers(const LayerChain::Site& site) { return site.operation != "head"; }

  double ExtraBits(const LayerChain::Site& site) const {
    return BitsOf(target_.raised) - BitsOf(recipe_.WeightOf(site.operation));
  }

  // Most divergence taken away for a bit first: unlike the noise of raw logits it leaves out what
  // all logits of a position share, which no prediction sees.
  void Order(const std::vector<OperationDamage>& damage) {
    std::map<std::string, const LayerChain::Site*> sites;
    for (const LayerChain::Site& site : chain_.sites()) sites[site.operation] = &site;
    std::vector<std::pair<double, const LayerChain::Site*>> worth;
    for (const OperationDamage& operation : damage) {
      const LayerChain::Site* site = sites.at(operation.operation);
      if (!InLayers(*site) || ExtraBits(*site) <= 0) continue;
      const double cost = ExtraBits(*site) * static_cast<double>(site->weights());
      worth.emplace_back(operation.kl / cost, site);
    }
    std::stable_sort(worth.begin(), worth.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [value, site] : worth) order_.push_back(site);
  }

  // The average with the first `count` of the order raised.
  double Bits(size_t count) const {
    double bits = 0;
    for (const LayerChain::Site& site : chain_.sites()) {
      if (!InLayers(site)) continue;
      bits += BitsOf(recipe_.WeightOf(site.operation)) * static_cast<double>(site.weights());
    }
    for (size_t i = 0; i < count; ++i) {
      bits += ExtraBits(*order_[i]) * static_cast<double>(order_[i]->weights());
    }
    return bits / static_cast<double>(weights_);
  }

  // An operation that does not fit anymore is passed over, so that smaller ones behind it
  // still fill the budget.
  size_t MostWithinBudget() {
    const bool few_bits = target_.max_bits > 0, few_bytes = target_.max_raised_bytes > 0;
    const double room = (target_.max_bits - Bits(0)) * static_cast<double>(weights_);
    std::vector<const LayerChain::Site*> taken, rest;
    double used = 0;
    uint64_t bytes = 0;
    for (const LayerChain::Site* site : order_) {
      const double cost = ExtraBits(*site) * static_cast<double>(site->weights());
      const uint64_t raised = site->weights() * target_.raised.bits / 8;
      // Half a weight of rounding.
      const bool fits = (!few_bits || used + cost <= room + 0.5) &&
                        (!few_bytes || bytes + raised <= target_.max_raised_bytes);
      if (fits) used += cost, bytes += raised;
      (fits ? taken : rest).push_back(site);
    }
    const size_t count = taken.size();
    order_ = std::move(taken);
    order_.insert(order_.end(), rest.begin(), rest.end());
    return count;
  }

  // Noise falls with every operation raised, nearly always, so halving finds the least.
  Result<size_t> LeastForTarget(size_t most, Progress* progress) {
    size_t low = 0, high = most;  // `high` is what remains when nothing reaches it
    while (low < high) {
      ReportProgress(progress, "search the recipe", -1.0);
      const size_t middle = (low + high) / 2;
      SPILLWAY_RETURN_IF_ERROR(Raise(middle));
      SPILLWAY_ASSIGN_OR_RETURN(const double sqnr, Sqnr());
      if (sqnr >= target_.target_sqnr_db) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return high;
  }

  // Makes exactly the first `count` of the order raised.
  Status Raise(size_t count) {
    for (size_t i = 0; i < order_.size(); ++i) {
      const LayerChain::Site& site = *order_[i];
      if (i >= count) {
        chain_.Use(site.operation, &base_.at(WeightName(site.operation)));
        continue;
      }
      auto [found, added] = raised_.try_emplace(site.operation);
      if (added) {
        found->second =
            QuantizeMatrix(*site.weight, site.rows, site.cols, target_.raised, nullptr, pool_);
      }
      chain_.Use(site.operation, &found->second);
    }
    return OkStatus();
  }

  Result<double> Sqnr() {
    SPILLWAY_ASSIGN_OR_RETURN(const LogitDamage damage, chain_.MeasureFrom(0));
    return DecibelsOf(damage.noise);
  }

  Recipe MakeRecipe(const std::vector<std::string>& raised) const {
    Recipe recipe = recipe_;
    recipe.mixed.reset();
    recipe.description = fmt::format("{} operations' weights in {} bits, the others in {}",
                                     raised.size(), target_.raised.bits, recipe_.weights.bits);
    const std::set<std::string> sorted(raised.begin(), raised.end());
    for (const LayerChain::Site& site : chain_.sites()) {
      if (sorted.contains(site.operation)) {
        recipe.weight_rules.push_back({site.operation, target_.raised});
      }
    }
    return recipe;
  }

  const Recipe& recipe_;
  const MixedTarget& target_;
  LayerChain& chain_;
  QuantizedWeights base_;
  std::map<std::string, QuantizedMatrix> raised_;  // those tried, by operation
  ThreadPool* pool_;
  std::vector<const LayerChain::Site*> order_;
  uint64_t weights_ = 0;
};

}  // namespace

double BitsOf(const WeightScheme& scheme) {
  constexpr double kMultiplierBits = 4;
  return scheme.bits + (scheme.block == 0 ? 0 : kMultiplierBits / scheme.block);
}

Result<double> AverageBits(Decoder& decoder, const Recipe& recipe) {
  double bits = 0, weights = 0;
  SPILLWAY_ASSIGN_OR_RETURN(const auto sites, LayerChain::SitesOf(decoder));
  for (const LayerChain::Site& site : sites) {
    if (site.operation == "head") continue;
    bits += BitsOf(recipe.WeightOf(site.operation)) * static_cast<double>(site.weights());
    weights += static_cast<double>(site.weights());
  }
  return bits / weights;
}

Result<std::vector<OperationDamage>> RankWeights(Decoder& decoder, const TokenWindows& windows,
                                                 const FloatPrefix& prefix, const Recipe& recipe,
                                                 const SensitivityOptions& options,
                                                 ThreadPool* pool, Progress* progress) {
  SPILLWAY_ASSIGN_OR_RETURN(const QuantizedWeights base,
                            QuantizeWeights(decoder, windows, prefix, recipe, pool, progress));
  SPILLWAY_ASSIGN_OR_RETURN(const auto chain,
                            LayerChain::Create(decoder, windows, prefix, options.tokens, pool));
  return RankWeightsOf(*chain, base, progress);
}

Result<std::vector<OperationDamage>> RankActivations(Decoder& decoder, const TokenWindows& windows,
                                                     const FloatPrefix& prefix,
                                                     const Recipe& recipe,
                                                     const TensorRanges& ranges,
                                                     const SensitivityOptions& options,
                                                     ThreadPool* pool, Progress* progress) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto chain,
                            LayerChain::Create(decoder, windows, prefix, options.tokens, pool));
  std::vector<OperationDamage> damage;
  const std::vector<LayerChain::Activation> activations = chain->activations();
  for (size_t i = 0; i < activations.size(); ++i) {
    ReportProgress(progress, "damage of activations",
                   static_cast<double>(i) / static_cast<double>(activations.size()));
    const auto& [operation, layer] = activations[i];
    const auto range = ranges.find(operation);
    if (range == ranges.end()) continue;
    ActivationScheme scheme = recipe.ActivationOf(operation);
    if (operation.ends_with(".cached")) scheme = {recipe.kv, true};
    if (scheme.dtype == DType::kF16) continue;
    // The weights of attention have one encoding for all models.
    const Encoding encoding =
        operation.ends_with(".attention")
            ? Encoding::PerTensor(scheme.dtype, 1.0f / static_cast<float>(DTypeMax(scheme.dtype)),
                                  0)
            : ActivationEncoding(scheme, range->second);
    const LayerChain::Change change = [&](std::span<float> values) {
      FakeQuantize(values, scheme.dtype, encoding);
    };
    SPILLWAY_ASSIGN_OR_RETURN(const LogitDamage measured,
                              chain->MeasureFrom(layer, operation, change));
    damage.push_back({operation, DecibelsOf(measured.noise), measured.noise, measured.kl, 0});
  }
  ReportProgress(progress, "damage of activations", 1.0);
  SortWorstFirst(damage);
  return damage;
}

Result<MixedResult> FindMixedRecipe(Decoder& decoder, const TokenWindows& windows,
                                    const FloatPrefix& prefix, const Recipe& base,
                                    const SensitivityOptions& options, ThreadPool* pool,
                                    Progress* progress) {
  if (!base.mixed) {
    return InvalidArgumentError(
        "mixed precision needs a target: an SQNR of the logits, a number of bits or of bytes");
  }
  SPILLWAY_RETURN_IF_ERROR(base.Validate());
  SPILLWAY_ASSIGN_OR_RETURN(const double base_bits, AverageBits(decoder, base));
  const double max_bits = base.mixed->max_bits;
  if (max_bits > 0 && max_bits < base_bits) {
    return InvalidArgumentError(
        fmt::format("recipe {} has {:.3f} bits a weight already; expected a budget of more, found "
                    "{:.3f}",
                    base.name, base_bits, max_bits));
  }
  SPILLWAY_ASSIGN_OR_RETURN(QuantizedWeights weights,
                            QuantizeWeights(decoder, windows, prefix, base, pool, progress));
  SPILLWAY_ASSIGN_OR_RETURN(const auto chain,
                            LayerChain::Create(decoder, windows, prefix, options.tokens, pool));
  return MixedSearch(base, *chain, std::move(weights), pool).Run(progress);
}

Recipe WithMixedTarget(Recipe base, const MixedTarget& target) {
  if (!base.mixed) base.name = "mixed";
  base.mixed = target;
  return base;
}

}  // namespace spillway
