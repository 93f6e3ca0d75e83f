#include "tests/support/reference_decoder.h"

#include <cmath>
#include <cstdlib>
#include <string>

namespace spillway::test {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;  // one a token

class ReferenceDecoder {
 public:
  explicit ReferenceDecoder(const TinyModel& model) : model_(model), spec_(model.spec) {
    if (spec_.rope_scaling == "yarn") std::abort();
  }

  // `limit` 0: nothing is evicted.
  Rows Run(std::span<const uint32_t> tokens, const ReferenceSink& sink) const {
    const std::vector<float>& embedding = Weight("token_embd.weight");
    std::vector<LayerCache> caches(
        spec_.layers, {std::vector<Rows>(spec_.kv_heads), std::vector<Rows>(spec_.kv_heads)});
    uint32_t there = 0;
    Rows logits;
    for (const uint32_t token : tokens) {
      while (sink.limit != 0 && there >= sink.limit) {
        for (LayerCache& cache : caches) Evict(sink, cache);
        there -= sink.batch;
      }
      const auto begin = embedding.begin() + static_cast<std::ptrdiff_t>(token) * spec_.hidden;
      Row x(begin, begin + spec_.hidden);
      for (uint32_t layer = 0; layer < spec_.layers; ++layer) {
        const std::string prefix = "blk." + std::to_string(layer) + ".";
        AddAttention(prefix, there, caches[layer], x);
        AddMlp(prefix, x);
      }
      ++there;
      logits.push_back(MatVec(spec_.tied ? "token_embd.weight" : "output.weight",
                              RmsNorm(x, "output_norm.weight")));
    }
    return logits;
  }

 private:
  // [kv_heads][tokens]; keys are not rotated yet, so that positions may change.
  struct LayerCache {
    std::vector<Rows> keys, values;
  };

  static void Evict(const ReferenceSink& sink, LayerCache& cache) {
    for (std::vector<Rows>* heads : {&cache.keys, &cache.values}) {
      for (Rows& rows : *heads) {
        rows.erase(rows.begin() + sink.sink, rows.begin() + sink.sink + sink.batch);
      }
    }
  }

  bool Has(const std::string& name) const { return model_.weights.contains(name); }
  const std::vector<float>& Weight(const std::string& name) const {
    return model_.weights.at(name);
  }

  Row MatVec(const std::string& name, const Row& x) const {
    const std::vector<float>& matrix = Weight(name);
    Row y(matrix.size() / x.size());
    for (size_t n = 0; n < y.size(); ++n) {
      for (size_t k = 0; k < x.size(); ++k) y[n] += double{matrix[n * x.size() + k]} * x[k];
    }
    return y;
  }

  Row Biased(const std::string& prefix, const Row& x) const {
    Row y = MatVec(prefix + ".weight", x);
    if (!Has(prefix + ".bias")) return y;
    const std::vector<float>& bias = Weight(prefix + ".bias");
    for (size_t n = 0; n < y.size(); ++n) y[n] += double{bias[n]};
    return y;
  }

  // Over all of `x`.
  Row RmsNorm(const Row& x, const std::string& gamma_name) const {
    const std::vector<float>& gamma = Weight(gamma_name);
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double norm = std::sqrt(squares / static_cast<double>(x.size()) + double{spec_.rms_eps});
    Row y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] / norm * double{gamma[i]};
    return y;
  }

  double Angle(uint32_t position, uint32_t pair, uint32_t width) const {
    double angle = position * std::pow(double{spec_.rope_theta}, -2.0 * pair / width);
    if (spec_.rope_scaling == "linear") angle /= double{spec_.rope_scaling_factor};
    if (Has("rope_freqs.weight")) angle /= double{Weight("rope_freqs.weight")[pair]};
    return angle;
  }

  // Rotates one head in place. The llama files keep the two values of a pair
  // next to each other, the others half of the rotated width apart.
  void Rope(Row& head, uint32_t position) const {
    const uint32_t width = spec_.rope_dim == 0 ? spec_.head_dim : spec_.rope_dim;
    const bool neighbours = spec_.architecture == "llama";
    for (uint32_t pair = 0; pair < width / 2; ++pair) {
      const double angle = Angle(position, pair, width);
      double& a = head[neighbours ? 2 * pair : pair];
      double& b = head[neighbours ? 2 * pair + 1 : pair + width / 2];
      const double was_a = a, was_b = b;
      a = was_a * std::cos(angle) - was_b * std::sin(angle);
      b = was_a * std::sin(angle) + was_b * std::cos(angle);
    }
  }

  Row Head(const Row& all, uint32_t head) const {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(head) * spec_.head_dim;
    return Row(begin, begin + spec_.head_dim);
  }

  // A head of a query or key, normed when the model does.
  Row Normed(const Row& all, uint32_t head, const std::string& norm) const {
    const Row row = Head(all, head);
    return Has(norm) ? RmsNorm(row, norm) : row;
  }
  Row Placed(Row head, uint32_t position) const {
    Rope(head, position);
    return head;
  }

  // The mix of values[0..last] for one query head.
  Row Attend(const Row& query, const Rows& keys, const Rows& values) const {
    Row scores;
    double best = -1e300;
    for (const Row& key : keys) {
      double score = 0;
      for (size_t d = 0; d < query.size(); ++d) score += query[d] * key[d];
      scores.push_back(score / std::sqrt(static_cast<double>(spec_.head_dim)));
      best = std::max(best, scores.back());
    }
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - best);
    Row mixed(spec_.head_dim);
    for (size_t t = 0; t < scores.size(); ++t) {
      for (size_t d = 0; d < mixed.size(); ++d) mixed[d] += scores[t] / sum * values[t][d];
    }
    return mixed;
  }

  // Of the token at `position`, after those in the cache.
  void AddAttention(const std::string& prefix, uint32_t position, LayerCache& cache, Row& x) const {
    const Row normed = RmsNorm(x, prefix + "attn_norm.weight");
    const Row q = Biased(prefix + "attn_q", normed);
    const Row k = Biased(prefix + "attn_k", normed);
    const Row v = Biased(prefix + "attn_v", normed);
    std::vector<Rows> keys(spec_.kv_heads);
    for (uint32_t head = 0; head < spec_.kv_heads; ++head) {
      cache.keys[head].push_back(Normed(k, head, prefix + "attn_k_norm.weight"));
      cache.values[head].push_back(Head(v, head));
      for (uint32_t t = 0; t <= position; ++t) {
        keys[head].push_back(Placed(cache.keys[head][t], t));
      }
    }
    Row joined;
    for (uint32_t head = 0; head < spec_.heads; ++head) {
      const uint32_t kv = head / (spec_.heads / spec_.kv_heads);
      const Row query = Placed(Normed(q, head, prefix + "attn_q_norm.weight"), position);
      const Row mixed = Attend(query, keys[kv], cache.values[kv]);
      joined.insert(joined.end(), mixed.begin(), mixed.end());
    }
    const Row out = MatVec(prefix + "attn_output.weight", joined);
    for (size_t i = 0; i < out.size(); ++i) x[i] += out[i];
  }

  void AddMlp(const std::string& prefix, Row& x) const {
    const Row normed = RmsNorm(x, prefix + "ffn_norm.weight");
    Row gate = MatVec(prefix + "ffn_gate.weight", normed);
    const Row up = MatVec(prefix + "ffn_up.weight", normed);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    const Row out = MatVec(prefix + "ffn_down.weight", gate);
    for (size_t i = 0; i < out.size(); ++i) x[i] += out[i];
  }

  const TinyModel& model_;
  const TinyModelSpec& spec_;
};

}  // namespace

std::vector<std::vector<double>> ReferenceLogits(const TinyModel& model,
                                                 std::span<const uint32_t> tokens) {
  return ReferenceDecoder(model).Run(tokens, {});
}

std::vector<std::vector<double>> ReferenceLogits(const TinyModel& model,
                                                 std::span<const uint32_t> tokens,
                                                 const ReferenceSink& sink) {
  return ReferenceDecoder(model).Run(tokens, sink);
}

}  // namespace spillway::test
