// CompileReport for people and for scripts.

#include <fmt/format.h>

#include <cmath>
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

const char* SlcText(SlcOutcome outcome) {
  switch (outcome) {
    case SlcOutcome::kOff:
      return "off";
    case SlcOutcome::kNothingToKeep:
      return "on, but no allocation: the graph moves no data that could be kept";
    case SlcOutcome::kMarked:
      return "on, transfers marked";
  }
  return "";
}

const char* RequestText(SlcAllocator requested) {
  switch (requested) {
    case SlcAllocator::kOff:
      return "off";
    case SlcAllocator::kOn:
      return "on";
    case SlcAllocator::kAuto:
      return "auto";
  }
  return "";
}

// The vendor's own numbers do not change with the allocator, so only a device tells.
constexpr char kMeasureSlc[] =
    "compile the package twice, with --slc-allocator=on and =off, run both on the device with "
    "the same prompts, and compare its power and DDR counters and tokens/s";

Json SlcJson(const SlcReport& slc) {
  return Json{{"requested", RequestText(slc.requested)},
              {"used", slc.used},
              {"soc_support", slc.soc_support},
              {"soc_source", slc.soc_source},
              {"reason", slc.reason},
              {"marked_graphs", slc.marked_graphs},
              {"how_to_measure", kMeasureSlc}};
}

std::string SlcReportText(const SlcReport& slc) {
  if (slc.requested == SlcAllocator::kOff) return "";
  std::string text = fmt::format(
      "  SLC allocator ({}): {}\n", RequestText(slc.requested),
      slc.requested == SlcAllocator::kAuto ? slc.reason
      : slc.marked_graphs.empty()
          ? "on, but no graph has transfers to keep"
          : fmt::format("on, transfers marked in {}", fmt::join(slc.marked_graphs, "; ")));
  text += fmt::format("    does the SoC profit: {} ({})\n    to measure: {}\n", slc.soc_support,
                      slc.soc_source, kMeasureSlc);
  return text;
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

Json ProfileJson(const std::vector<ProfileRow>& rows) {
  Json json = Json::array();
  for (const ProfileRow& row : rows) {
    json.push_back(Json{{"depth", row.depth},
                        {"event", row.type},
                        {"name", row.name},
                        {"value", row.value},
                        {"unit", row.unit}});
  }
  return json;
}

std::string ProfileText(const std::vector<ProfileRow>& rows) {
  std::string text;
  for (const ProfileRow& row : rows) {
    text += fmt::format("      {:>{}}{} {} {}\n", "", 2 * row.depth,
                        row.name.empty() ? fmt::format("event {}", row.type) : row.name, row.value,
                        row.unit);
  }
  return text;
}

Json GraphJson(const GraphReport& graph) {
  Json json{{"name", graph.name},
            {"nodes", graph.nodes},
            {"finalize_s", graph.finalize_s},
            {"spill_fill_bytes", graph.spill_fill_buffer_bytes},
            {"vtcm_bytes", graph.vtcm_bytes},
            {"slc", SlcText(graph.slc)}};
  if (graph.estimate_us > 0) json["estimate_us"] = graph.estimate_us;
  if (!graph.profile.empty()) json["profile"] = ProfileJson(graph.profile);
  return json;
}

Json EvictorJson(const EvictorReport& evictor) {
  Json json{{"sink", evictor.sink},
            {"batch", evictor.batch},
            {"context_bytes", evictor.context_bytes},
            {"htp_left_out", evictor.htp_left_out}};
  if (evictor.context_bytes > 0) json["graph"] = GraphJson(evictor.graph);
  return json;
}

Json ShardJson(const ShardReport& shard) {
  Json graphs = Json::array();
  for (const GraphReport& graph : shard.graphs) graphs.push_back(GraphJson(graph));
  Json json{{"first_layer", shard.first_layer},     {"num_layers", shard.num_layers},
            {"from_cache", shard.from_cache},       {"spill_fill_bytes", shard.spill_fill_bytes},
            {"context_bytes", shard.context_bytes}, {"weight_bytes", shard.weight_bytes},
            {"graphs", std::move(graphs)}};
  if (!shard.saver_files.empty()) json["saver_files"] = shard.saver_files;
  return json;
}

std::string GraphText(const GraphReport& graph) {
  if (graph.finalize_s == 0) {
    return fmt::format("    {:<16} {} nodes, not finalised\n", graph.name, graph.nodes);
  }
  std::string text = fmt::format(
      "    {:<16} {} nodes, finalised in {:.1f} s; DDR a call: read {}, write {}, spill {}, fill "
      "{}\n",
      graph.name, graph.nodes, graph.finalize_s, Bytes(graph.read_bytes), Bytes(graph.write_bytes),
      Bytes(graph.spill_bytes), Bytes(graph.fill_bytes));
  if (graph.estimate_us > 0) {
    text +=
        fmt::format("    {:<16} the vendor's estimate: {:.0f} us a call\n", "", graph.estimate_us);
  }
  return text + ProfileText(graph.profile);
}

// What a shard was made into.
std::string ShardText(const ShardReport& shard) {
  if (!shard.saver_files.empty()) {
    return fmt::format("no context, but a record of the vendor calls: {}",
                       fmt::join(shard.saver_files, ", "));
  }
  if (shard.context_bytes == 0) {
    return fmt::format(
        "weights {}, no context: the vendor accepts every operation, and the device prepares it",
        Bytes(shard.weight_bytes));
  }
  return fmt::format("context {}, weights {}, spill-fill {}{}", Bytes(shard.context_bytes),
                     Bytes(shard.weight_bytes), Bytes(shard.spill_fill_bytes),
                     shard.from_cache ? "; from the cache" : "");
}

// JSON has no infinity: logits without noise.
Json Decibels(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json MixedJson(const MixedReport& mixed) {
  return Json{{"bits", mixed.bits},
              {"sqnr_db", Decibels(mixed.sqnr_db)},
              {"base_sqnr_db", Decibels(mixed.base_sqnr_db)},
              {"target_met", mixed.target_met},
              {"raised", mixed.raised}};
}

std::string MixedText(const MixedReport& mixed) {
  return fmt::format(
      "  mixed precision: {} operations raised, {:.3f} bits a weight, logits {:.2f} dB (before: "
      "{:.2f}){}\n",
      mixed.raised.size(), mixed.bits, mixed.sqnr_db, mixed.base_sqnr_db,
      mixed.target_met ? "" : "; the target is not met");
}

}  // namespace

std::string EvictorReport::ToJson() const {
  return EvictorJson(*this).dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string EvictorReport::ToText() const {
  std::string text = fmt::format("  evictor for attention sink {},{}: {}\n", sink, batch,
                                 context_bytes > 0 ? fmt::format("context {}", Bytes(context_bytes))
                                                   : "no context: " + htp_left_out);
  return context_bytes > 0 ? text + GraphText(graph) : text;
}

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
  json["max_spill_fill_bytes"] = max_spill_fill_bytes;
  json["slc_allocator"] = SlcJson(slc);
  json["htp_left_out"] = htp_left_out;
  json["prefix_tokens"] = prefix_tokens;
  if (mixed) json["mixed"] = MixedJson(*mixed);
  if (evictor) json["evictor"] = EvictorJson(*evictor);
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
  if (mixed) text += MixedText(*mixed);
  for (size_t i = 0; i < shards.size() && htp_left_out.empty(); ++i) {
    const ShardReport& shard = shards[i];
    text += fmt::format("  shard {} (layers {} to {}): {}\n", i, shard.first_layer,
                        shard.first_layer + shard.num_layers - 1, ShardText(shard));
    for (const GraphReport& graph : shard.graphs) text += GraphText(graph);
  }
  if (htp_left_out.empty()) {
    text +=
        fmt::format("  spill-fill buffer for {}: {}\n",
                    shards.size() > 1 ? "all shards" : "the context", Bytes(max_spill_fill_bytes));
    text += SlcReportText(slc);
  }
  if (evictor) text += evictor->ToText();
  text += fmt::format(
      "  time {:.1f} s: calibrate {:.1f}, quantise {:.1f}, write {:.1f}, vendor {:.1f} (of it "
      "finalise {:.1f})\n  peak memory of all processes {}\n",
      wall_s, calibrate_s, quantize_s, write_s, vendor_s, vendor_finalize_s, Bytes(peak_rss_bytes));
  return text;
}

}  // namespace spillway
