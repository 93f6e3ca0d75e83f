// CompileReport for people and for scripts.

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "spillway/compile.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

std::string Bytes(uint64_t bytes) {
  if (bytes >= 1000000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  if (bytes >= 1000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{} bytes", bytes);
}

// DDR traffic of a graph over all shards.
struct Traffic {
  uint64_t spill = 0, fill = 0, read = 0, write = 0;
};

std::map<std::string, Traffic> TrafficByGraph(const CompileReport& report) {
  std::map<std::string, Traffic> traffic;
  for (const ShardReport& shard : report.shards) {
    for (const GraphReport& graph : shard.graphs) {
      Traffic& sum = traffic[graph.name];
      sum.spill += graph.spill_bytes;
      sum.fill += graph.fill_bytes;
      sum.read += graph.read_bytes;
      sum.write += graph.write_bytes;
    }
  }
  return traffic;
}

Json ShardJson(const ShardReport& shard) {
  Json graphs = Json::array();
  for (const GraphReport& graph : shard.graphs) {
    Json json{{"name", graph.name},
              {"nodes", graph.nodes},
              {"finalize_s", graph.finalize_s},
              {"spill_fill_bytes", graph.spill_fill_buffer_bytes},
              {"vtcm_bytes", graph.vtcm_bytes},
              {"slc", graph.slc}};
    if (graph.estimate_us > 0) json["estimate_us"] = graph.estimate_us;
    graphs.push_back(std::move(json));
  }
  return Json{{"spill_fill_bytes", shard.spill_fill_bytes},
              {"context_bytes", shard.context_bytes},
              {"weight_bytes", shard.weight_bytes},
              {"graphs", std::move(graphs)}};
}

std::string GraphText(const GraphReport& graph) {
  std::string text = fmt::format(
      "    {:<16} {} nodes, finalised in {:.1f} s; DDR a call: read {}, write {}, spill {}, fill "
      "{}\n",
      graph.name, graph.nodes, graph.finalize_s, Bytes(graph.read_bytes), Bytes(graph.write_bytes),
      Bytes(graph.spill_bytes), Bytes(graph.fill_bytes));
  if (graph.estimate_us > 0) {
    text +=
        fmt::format("    {:<16} the vendor's estimate: {:.0f} us a call\n", "", graph.estimate_us);
  }
  if (!graph.slc.empty()) text += fmt::format("    {:<16} SLC: {}\n", "", graph.slc);
  return text;
}

}  // namespace

std::string CompileReport::ToJson() const {
  Json json{{"package", package_path}, {"soc", soc}, {"graphs", graphs}};
  json["shards"] = Json::array();
  for (const ShardReport& shard : shards) json["shards"].push_back(ShardJson(shard));
  json["ddr"] = Json::object();
  for (const auto& [name, traffic] : TrafficByGraph(*this)) {
    json["ddr"][name] = Json{{"read_bytes", traffic.read},
                             {"write_bytes", traffic.write},
                             {"spill_bytes", traffic.spill},
                             {"fill_bytes", traffic.fill}};
  }
  json["htp_left_out"] = htp_left_out;
  json["prefix_tokens"] = prefix_tokens;
  json["vendor_build_id"] = vendor_build_id;
  json["wall_s"] = wall_s;
  json["calibrate_s"] = calibrate_s;
  json["quantize_s"] = quantize_s;
  json["write_s"] = write_s;
  json["vendor_s"] = vendor_s;
  json["vendor_finalize_s"] = vendor_finalize_s;
  json["peak_rss_bytes"] = peak_rss_bytes;
  json["package_bytes"] = package_bytes;
  // Paths need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string CompileReport::ToText() const {
  std::string text =
      fmt::format("package {} for {}, {}\n", package_path, soc, Bytes(package_bytes));
  if (!htp_left_out.empty()) {
    text += fmt::format("  no context binary: {}\n", htp_left_out);
  }
  if (!prefix_tokens.empty()) {
    text += fmt::format("  prefix KV: the cache starts with token {}\n",
                        fmt::join(prefix_tokens, ", "));
  }
  for (size_t i = 0; i < shards.size() && htp_left_out.empty(); ++i) {
    const ShardReport& shard = shards[i];
    text += fmt::format("  shard {}: context {}, weights {}, spill-fill buffer {}\n", i,
                        Bytes(shard.context_bytes), Bytes(shard.weight_bytes),
                        Bytes(shard.spill_fill_bytes));
    for (const GraphReport& graph : shard.graphs) text += GraphText(graph);
  }
  text += fmt::format(
      "  time {:.1f} s: calibrate {:.1f}, quantise {:.1f}, write {:.1f}, vendor {:.1f} (of it "
      "finalise {:.1f})\n  peak memory of all processes {}\n",
      wall_s, calibrate_s, quantize_s, write_s, vendor_s, vendor_finalize_s, Bytes(peak_rss_bytes));
  return text;
}

}  // namespace spillway
