#include <nlohmann/json.hpp>

#include "spillway/session.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

Json ProfilesJson(const std::vector<GraphProfile>& graphs) {
  Json list = Json::array();
  for (const GraphProfile& graph : graphs) {
    Json operations = Json::array();
    for (const auto& [name, cycles] : graph.operations) {
      operations.push_back({{"name", name}, {"cycles", cycles}});
    }
    list.push_back({{"graph", graph.graph},
                    {"shard", graph.shard},
                    {"calls", graph.calls},
                    {"total_us", graph.total_us},
                    {"accelerator_us", graph.accelerator_us},
                    {"cycles", graph.cycles},
                    {"operations", std::move(operations)}});
  }
  return list;
}

}  // namespace

std::string RunStats::ToJson() const {
  const Json json = {{"executor", executor},
                     {"load_s", load_s},
                     {"time_to_first_token_s", time_to_first_token_s},
                     {"prefill_tokens", prefill_tokens},
                     {"reused_tokens", reused_tokens},
                     {"prefill_s", prefill_s},
                     {"prefill_tokens_per_s", prefill_tokens_per_s},
                     {"decode_steps", decode_steps},
                     {"decode_tokens", decode_tokens},
                     {"tokens_per_step", tokens_per_step},
                     {"decode_s", decode_s},
                     {"decode_tokens_per_s", decode_tokens_per_s},
                     {"weight_bytes", weight_bytes},
                     {"weight_bytes_per_s", weight_bytes_per_s},
                     {"context_used", context_used},
                     {"context_len", context_len},
                     {"evicted_tokens", evicted_tokens},
                     {"evictions", evictions},
                     {"kv_cache_bytes", kv_cache_bytes},
                     {"peak_rss_bytes", peak_rss_bytes},
                     {"graphs", ProfilesJson(graphs)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace spillway
