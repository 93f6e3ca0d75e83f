// spillway inspect of a compile spec, shard_<i>.spec of a package.

#include <fmt/format.h>

#include "inspect.h"
#include "json_text.h"
#include "package/compile_spec.h"
#include "qnn/htp/soc_table.h"
#include "text.h"

namespace spillway::cli {
namespace {

Json HtpJson(const SpecHtpOptions& htp) {
  return {{"max_sf_buf_size", htp.max_sf_buf_size},
          {"performance_mode", SpecValueName(htp.performance_mode)},
          {"precision", SpecValueName(htp.precision)},
          {"pd_session", SpecValueName(htp.pd_session)},
          {"use_conv_hmx", htp.use_conv_hmx},
          {"use_dlbc", htp.use_dlbc},
          {"use_fold_relu", htp.use_fold_relu},
          {"use_multi_contexts", htp.use_multi_contexts},
          {"use_weight_sharing", htp.use_weight_sharing},
          {"use_slc_allocator", htp.use_slc_allocator}};
}

Json GpuJson(const SpecGpuOptions& gpu) {
  return {{"performance_mode", SpecValueName(gpu.performance_mode)},
          {"precision", SpecValueName(gpu.precision)},
          {"use_memory_optimizations", gpu.use_memory_optimizations},
          {"use_node_optimizations", gpu.use_node_optimizations},
          {"use_queue_recording", gpu.use_queue_recording},
          {"use_weight_sharing", gpu.use_weight_sharing}};
}

Json LpaiJson(const SpecLpaiOptions& lpai) {
  return {{"fps", lpai.fps},
          {"ftrt_ratio", lpai.ftrt_ratio},
          {"client_perf_type", SpecValueName(lpai.client_perf_type)},
          {"affinity", SpecValueName(lpai.affinity)},
          {"core_selection", lpai.core_selection},
          {"target_env", SpecValueName(lpai.target_env)}};
}

Json OpPackagesJson(const std::vector<SpecOpPackage>& packages) {
  Json json = Json::array();
  for (const SpecOpPackage& one : packages) {
    json.push_back({{"op_package_name", one.op_package_name},
                    {"op_package_path", one.op_package_path},
                    {"interface_provider", one.interface_provider},
                    {"target", SpecValueName(one.target)},
                    {"custom_op_name", one.custom_op_name},
                    {"qnn_op_type_name", one.qnn_op_type_name},
                    {"platform", SpecValueName(one.platform)}});
  }
  return json;
}

Json SocJson(const CompileSpec& spec) {
  const qnn::htp::Soc* soc = qnn::htp::FindSocById(spec.soc_model);
  return {{"soc_model", spec.soc_model},
          {"name", soc == nullptr ? "" : soc->name},
          {"htp_arch", spec.htp_arch},
          {"vtcm_size_in_mb", spec.vtcm_size_in_mb},
          {"lpai_hardware_version", SpecValueName(spec.lpai_hardware_version)}};
}

Json ToJson(const std::string& path, const CompileSpec& spec) {
  Json json = {{"kind", "compile_spec"},
               {"path", path},
               {"soc_info", SocJson(spec)},
               {"backend_type", SpecValueName(spec.backend_type)}};
  json["htp_options"] = spec.htp ? HtpJson(*spec.htp) : Json();
  json["gpu_options"] = spec.gpu ? GpuJson(*spec.gpu) : Json();
  json["lpai_options"] = spec.lpai ? LpaiJson(*spec.lpai) : Json();
  json["library_path"] = spec.library_path;
  json["log_level"] = SpecValueName(spec.log_level);
  json["online_prepare"] = spec.online_prepare;
  json["dump_intermediate_outputs"] = spec.dump_intermediate_outputs;
  json["profile_level"] = SpecValueName(spec.profile_level);
  json["shared_buffer"] = spec.shared_buffer;
  json["is_from_context_binary"] = spec.is_from_context_binary;
  json["saver"] = spec.saver;
  json["saver_output_dir"] = spec.saver_output_dir;
  json["op_package_infos"] = OpPackagesJson(spec.op_packages);
  json["use_mha2sha"] = spec.use_mha2sha;
  return json;
}

// One row a field, "htp_options.use_dlbc", in the order of the JSON.
void AddRows(const Json& json, const std::string& prefix, TextTable& table) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = prefix + key;
    if (value.is_null()) {
      table.AddRow({name, "absent"});
    } else if (value.is_structured() && !value.empty()) {
      AddRows(value, name + ".", table);
    } else if (value.is_string()) {
      table.AddRow({name, value.get<std::string>()});
    } else {
      table.AddRow({name, value.empty() ? "none" : value.dump()});
    }
  }
}

std::string ToText(const std::string& path, Json json) {
  json.erase("kind");
  json.erase("path");
  TextTable table({"field", "value"});
  AddRows(json, "", table);
  return fmt::format("{}: compile spec of a QNN delegate\n{}", path, table.ToString());
}

}  // namespace

Status InspectSpec(const InspectOptions& options, Console& console) {
  SPILLWAY_ASSIGN_OR_RETURN(const CompileSpec spec, ReadCompileSpec(options.path));
  Json json = ToJson(options.path, spec);
  return console.Print(console.json ? JsonText(json) : ToText(options.path, std::move(json)));
}

}  // namespace spillway::cli
