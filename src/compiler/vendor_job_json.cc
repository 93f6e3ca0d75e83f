// VendorJob and VendorResult as JSON.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "compiler/vendor_job.h"
#include "qnn/htp/options_json.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

Json ProfileToJson(const std::vector<ProfileRow>& rows) {
  Json json = Json::array();
  for (const ProfileRow& row : rows) {
    json.push_back(Json::array({row.depth, row.type, row.name, row.value, row.unit}));
  }
  return json;
}

std::vector<ProfileRow> ProfileFromJson(const Json& json) {
  std::vector<ProfileRow> rows;
  for (const Json& row : json) {
    rows.push_back({row.at(0), row.at(1), row.at(2), row.at(3), row.at(4)});
  }
  return rows;
}

Json GraphToJson(const GraphReport& graph) {
  return Json{{"name", graph.name},
              {"spill_bytes", graph.spill_bytes},
              {"fill_bytes", graph.fill_bytes},
              {"read_bytes", graph.read_bytes},
              {"write_bytes", graph.write_bytes},
              {"finalize_s", graph.finalize_s},
              {"spill_fill_buffer_bytes", graph.spill_fill_buffer_bytes},
              {"vtcm_bytes", graph.vtcm_bytes},
              {"nodes", graph.nodes},
              {"estimate_us", graph.estimate_us},
              {"slc", static_cast<int>(graph.slc)},
              {"profile", ProfileToJson(graph.profile)}};
}

GraphReport GraphFromJson(const Json& json) {
  GraphReport graph;
  graph.name = json.value("name", "");
  graph.spill_bytes = json.value("spill_bytes", uint64_t{0});
  graph.fill_bytes = json.value("fill_bytes", uint64_t{0});
  graph.read_bytes = json.value("read_bytes", uint64_t{0});
  graph.write_bytes = json.value("write_bytes", uint64_t{0});
  graph.finalize_s = json.value("finalize_s", 0.0);
  graph.spill_fill_buffer_bytes = json.value("spill_fill_buffer_bytes", uint64_t{0});
  graph.vtcm_bytes = json.value("vtcm_bytes", uint64_t{0});
  graph.nodes = json.value("nodes", uint64_t{0});
  graph.estimate_us = json.value("estimate_us", 0.0);
  graph.slc = static_cast<SlcOutcome>(json.value("slc", 0));
  if (json.contains("profile")) graph.profile = ProfileFromJson(json.at("profile"));
  return graph;
}

// The two sides are one program, so a message that does not parse is a bug.
template <typename T, typename Read>
Result<T> Parse(std::string_view text, std::string_view what, const Read& read) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InternalError(fmt::format("{} is not a JSON object", what));
  try {
    return read(json);
  } catch (const Json::exception& error) {
    return InternalError(fmt::format("{}: {}", what, error.what()));
  }
}

// Text that is not UTF-8 must not stop the process; such a path is then not found.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string VendorJob::ToJson() const {
  return Dump(Json{{"job", "compile"},
                   {"folder", folder},
                   {"shard", shard},
                   {"evictor", evictor},
                   {"output", output_path},
                   {"qnn_lib_dir", qnn_lib_dir},
                   {"htp", Json::parse(qnn::htp::HtpOptionsToJson(htp))}});
}

Result<VendorJob> VendorJob::FromJson(std::string_view text) {
  return Parse<VendorJob>(text, "compile job", [](const Json& json) -> Result<VendorJob> {
    VendorJob job;
    job.folder = json.at("folder");
    job.shard = json.at("shard");
    job.evictor = json.at("evictor");
    job.output_path = json.at("output");
    job.qnn_lib_dir = json.at("qnn_lib_dir");
    SPILLWAY_ASSIGN_OR_RETURN(job.htp, qnn::htp::HtpOptionsFromJson(json.at("htp").dump()));
    return job;
  });
}

std::string VendorResult::ToJson() const {
  Json graphs = Json::array();
  for (const GraphReport& graph : shard.graphs) graphs.push_back(GraphToJson(graph));
  return Dump(Json{{"build_id", build_id},
                   {"core_api", core_api},
                   {"backend_api", backend_api},
                   {"soc_model", soc_model},
                   {"finalize_s", finalize_s},
                   {"total_s", total_s},
                   {"spill_fill_bytes", shard.spill_fill_bytes},
                   {"context_bytes", shard.context_bytes},
                   {"weight_bytes", shard.weight_bytes},
                   {"saver_files", shard.saver_files},
                   {"graphs", graphs}});
}

Result<VendorResult> VendorResult::FromJson(std::string_view text) {
  return Parse<VendorResult>(text, "compile result", [](const Json& json) -> Result<VendorResult> {
    VendorResult result;
    result.build_id = json.at("build_id");
    result.core_api = json.at("core_api");
    result.backend_api = json.at("backend_api");
    result.soc_model = json.at("soc_model");
    result.finalize_s = json.at("finalize_s");
    result.total_s = json.at("total_s");
    result.shard.spill_fill_bytes = json.at("spill_fill_bytes");
    result.shard.context_bytes = json.at("context_bytes");
    result.shard.weight_bytes = json.at("weight_bytes");
    if (json.contains("saver_files")) {
      result.shard.saver_files = json.at("saver_files").get<std::vector<std::string>>();
    }
    for (const Json& graph : json.at("graphs")) {
      result.shard.graphs.push_back(GraphFromJson(graph));
    }
    return result;
  });
}

}  // namespace spillway
