#include "compiler/htp_options_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace spillway {

using Json = nlohmann::ordered_json;

std::string HtpOptionsToJson(const HtpOptions& options) {
  Json json{{"soc", options.soc},
            {"optimization_level", options.optimization_level},
            {"vtcm_mb", options.vtcm_mb},
            {"hvx_threads", options.hvx_threads},
            {"slc_allocator", options.slc_allocator}};
  if (options.weight_sharing) json["weight_sharing"] = *options.weight_sharing;
  return json.dump();
}

Result<HtpOptions> HtpOptionsFromJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return CorruptDataError("HTP options are not a JSON object");
  HtpOptions options;
  try {
    options.soc = json.at("soc");
    options.optimization_level = json.at("optimization_level");
    options.vtcm_mb = json.at("vtcm_mb");
    options.hvx_threads = json.at("hvx_threads");
    options.slc_allocator = json.at("slc_allocator");
    if (json.contains("weight_sharing")) {
      options.weight_sharing = json.at("weight_sharing").get<bool>();
    }
  } catch (const Json::exception& error) {
    return CorruptDataError(fmt::format("HTP options: {}", error.what()));
  }
  return options;
}

}  // namespace spillway
