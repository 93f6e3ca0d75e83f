// spillway inspect of a context binary.

#include <fmt/format.h>

#include "base/file.h"
#include "checks.h"
#include "child.h"
#include "inspect.h"
#include "json_text.h"
#include "qnn/api/binary_info.h"
#include "qnn/htp/soc_table.h"
#include "text.h"

namespace spillway::cli {
namespace {

constexpr unsigned kDeadlineSeconds = 60;

std::string SocText(const qnn::BinaryInfo& info) {
  if (info.soc_model == 0) return "not said";
  const qnn::htp::Soc* soc = qnn::htp::FindSocById(info.soc_model);
  return fmt::format("{} (number {})", soc == nullptr ? "unknown" : soc->name, info.soc_model);
}

Json TensorsJson(const std::vector<qnn::TensorInfo>& tensors) {
  Json json = Json::array();
  for (const qnn::TensorInfo& tensor : tensors) {
    Json entry = {
        {"name", tensor.name}, {"type", qnn::DataTypeName(tensor.dtype)}, {"shape", tensor.dims}};
    if (tensor.encoding.kind == qnn::TensorEncoding::Kind::kPerTensor &&
        !tensor.encoding.scales.empty()) {
      entry["scale"] = tensor.encoding.scales[0];
      entry["offset"] = tensor.encoding.offsets.empty() ? 0 : tensor.encoding.offsets[0];
    }
    json.push_back(std::move(entry));
  }
  return json;
}

Json MemoryJson(const qnn::GraphMemory& memory) {
  return {{"spill_fill_bytes", memory.spill_fill_bytes},
          {"vtcm_bytes", memory.vtcm_bytes},
          {"optimization_level", memory.optimization_level},
          {"dlbc", memory.dlbc},
          {"hvx_threads", memory.hvx_threads},
          {"io_tensor_bytes", memory.io_tensor_bytes},
          {"op_data_bytes", memory.op_data_bytes},
          {"const_bytes", memory.const_bytes},
          {"shared_weight_bytes", memory.shared_weight_bytes}};
}

Json ToJson(const std::string& path, uint64_t bytes, const qnn::BinaryInfo& info) {
  Json json = {{"kind", "context_binary"},
               {"path", path},
               {"bytes", bytes},
               {"build_id", info.build_id},
               {"soc_model", info.soc_model},
               {"soc", SocText(info)},
               {"dsp_arch", info.dsp_arch},
               {"core_api", qnn::VersionText(info.core_api)},
               {"backend_api", qnn::VersionText(info.backend_api)},
               {"spill_fill_bytes", info.spill_fill_bytes},
               {"graphs", Json::array()}};
  for (const qnn::BinaryGraph& graph : info.graphs) {
    Json entry = {{"name", graph.name},
                  {"inputs", TensorsJson(graph.inputs)},
                  {"outputs", TensorsJson(graph.outputs)}};
    if (graph.memory) entry["memory"] = MemoryJson(*graph.memory);
    json["graphs"].push_back(std::move(entry));
  }
  return json;
}

std::string EncodingText(const qnn::TensorEncoding& encoding) {
  if (encoding.scales.size() != 1) return "";
  return fmt::format("scale {} offset {}", encoding.scales[0],
                     encoding.offsets.empty() ? 0 : encoding.offsets[0]);
}

std::string TensorsText(const qnn::BinaryGraph& graph) {
  TextTable table({"", "tensor", "type", "shape", "encoding"});
  const auto add = [&](const char* role, const std::vector<qnn::TensorInfo>& tensors) {
    for (const qnn::TensorInfo& tensor : tensors) {
      table.AddRow({role, tensor.name, qnn::DataTypeName(tensor.dtype),
                    fmt::format("[{}]", fmt::join(tensor.dims, ", ")),
                    EncodingText(tensor.encoding)});
    }
  };
  add("input", graph.inputs);
  add("output", graph.outputs);
  return table.ToString(2);
}

std::string ToText(const std::string& path, uint64_t bytes, const qnn::BinaryInfo& info,
                   bool with_tensors) {
  std::string text = fmt::format("{}: QNN context binary, {}\n", path, BytesText(bytes));
  text += fmt::format("made by       {}, core API {}, HTP API {}\n", info.build_id,
                      qnn::VersionText(info.core_api), qnn::VersionText(info.backend_api));
  text += fmt::format("chip          {}{}\n", SocText(info),
                      info.dsp_arch == 0 ? "" : fmt::format(", HTP v{}", info.dsp_arch));
  text += fmt::format("spill-fill    {}\n", BytesText(info.spill_fill_bytes));
  TextTable table({"graph", "inputs", "outputs", "spill-fill", "VTCM", "own weights",
                   "shared weights", "level"});
  for (const qnn::BinaryGraph& graph : info.graphs) {
    std::vector<std::string> row = {graph.name, std::to_string(graph.inputs.size()),
                                    std::to_string(graph.outputs.size())};
    if (graph.memory) {
      const qnn::GraphMemory& memory = *graph.memory;
      row.insert(row.end(), {BytesText(memory.spill_fill_bytes), BytesText(memory.vtcm_bytes),
                             BytesText(memory.const_bytes), BytesText(memory.shared_weight_bytes),
                             std::to_string(memory.optimization_level)});
    }
    table.AddRow(std::move(row));
  }
  text += table.ToString();
  if (!with_tensors) return text;
  for (const qnn::BinaryGraph& graph : info.graphs) {
    text += "\n" + graph.name + "\n" + TensorsText(graph);
  }
  return text;
}

// Runs the vendor's code on the file, which may be damaged.
Result<std::string> Describe(const InspectOptions& options, uint64_t bytes, bool json) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto library, qnn::SystemLibrary::Load(options.qnn_lib_dir));
  SPILLWAY_ASSIGN_OR_RETURN(const auto info, qnn::ReadBinaryInfoFile(*library, options.path));
  return json ? JsonText(ToJson(options.path, bytes, info))
              : ToText(options.path, bytes, info, options.graphs || options.tensors);
}

}  // namespace

Status InspectContext(const InspectOptions& options, Console& console) {
  SPILLWAY_ASSIGN_OR_RETURN(const uint64_t bytes, FileSize(options.path));
  if (bytes == 0) return CorruptDataError(options.path + ": the file is empty");
  const Status found = CheckVendorLibrary(options.qnn_lib_dir, qnn::kSystemLibraryName);
  if (!found.ok()) {
    return found.WithContext(options.path +
                             ": no GGUF file and no package; as a context binary it can be read "
                             "with the vendor's libQnnSystem.so only");
  }
  SPILLWAY_ASSIGN_OR_RETURN(const std::string text, RunInChild(options.path, kDeadlineSeconds, [&] {
                              return Describe(options, bytes, console.json);
                            }));
  return console.Print(text);
}

}  // namespace spillway::cli
