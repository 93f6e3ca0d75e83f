#include "runtime/context_protocol.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "qnn/htp/options_json.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

// A line or a name that is not UTF-8 must not break the message.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
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

Json TensorsToJson(const std::vector<ContextTensor>& tensors) {
  Json list = Json::array();
  for (const ContextTensor& tensor : tensors) {
    list.push_back(
        {{"name", tensor.name}, {"dtype", DTypeName(tensor.dtype)}, {"shape", tensor.shape}});
  }
  return list;
}

std::vector<ContextTensor> TensorsFromJson(const Json& list) {
  std::vector<ContextTensor> tensors;
  for (const Json& json : list) {
    ContextTensor& tensor = tensors.emplace_back();
    tensor.name = json.at("name").get<std::string>();
    tensor.dtype = ParseDType(json.at("dtype").get<std::string>()).value_or(DType::kF32);
    tensor.shape = json.at("shape").get<Shape>();
  }
  return tensors;
}

Json ContextToJson(const ContextInfo& context) {
  Json graphs = Json::array();
  for (const ContextGraph& graph : context.graphs) {
    graphs.push_back({{"name", graph.name},
                      {"inputs", TensorsToJson(graph.inputs)},
                      {"outputs", TensorsToJson(graph.outputs)}});
  }
  return {{"build_id", context.build_id}, {"soc_model", context.soc_model}, {"graphs", graphs}};
}

ContextInfo ContextFromJson(const Json& json) {
  ContextInfo info;
  info.build_id = json.at("build_id").get<std::string>();
  info.soc_model = json.at("soc_model").get<uint32_t>();
  for (const Json& graph : json.at("graphs")) {
    info.graphs.push_back({graph.at("name").get<std::string>(), TensorsFromJson(graph.at("inputs")),
                           TensorsFromJson(graph.at("outputs"))});
  }
  return info;
}

RunnerInfo InfoFromJson(const Json& json) {
  RunnerInfo info;
  info.shares_spill_fill = json.at("shares_spill_fill").get<bool>();
  for (const Json& context : json.at("contexts")) info.contexts.push_back(ContextFromJson(context));
  return info;
}

Json ProfileToJson(const ExecuteProfile& profile) {
  return {{"total_us", profile.total_us},
          {"accelerator_us", profile.accelerator_us},
          {"cycles", profile.cycles},
          {"operations", profile.operations}};
}

ExecuteProfile ProfileFromJson(const Json& json) {
  ExecuteProfile profile;
  profile.total_us = json.at("total_us").get<uint64_t>();
  profile.accelerator_us = json.at("accelerator_us").get<uint64_t>();
  profile.cycles = json.at("cycles").get<uint64_t>();
  json.at("operations").get_to(profile.operations);
  return profile;
}

IoLayout LayoutFromJson(const Json& json) {
  IoLayout layout;
  layout.bytes = json.at("bytes").get<uint64_t>();
  for (const Json& context : json.at("contexts")) {
    std::vector<IoLayout::GraphPlaces>& graphs = layout.contexts.emplace_back();
    for (const Json& graph : context) {
      graphs.push_back({graph.at("inputs").get<std::vector<uint64_t>>(),
                        graph.at("outputs").get<std::vector<uint64_t>>()});
    }
  }
  return layout;
}

}  // namespace

std::string RunRequestText(const ContextRunnerOptions& options) {
  return Dump({{"job", "run"},
               {"context_paths", options.context_paths},
               {"prepare_folder", options.prepare_folder},
               {"evictor", options.evictor},
               {"qnn_lib_dir", options.qnn_lib_dir},
               {"htp", qnn::htp::HtpOptionsToJson(options.htp)},
               {"shared_spill_fill_bytes", options.shared_spill_fill_bytes}});
}

Result<ContextRunnerOptions> ParseRunRequest(std::string_view text) {
  return Parse<ContextRunnerOptions>(
      text, "the run request", [](const Json& json) -> Result<ContextRunnerOptions> {
        ContextRunnerOptions options;
        json.at("context_paths").get_to(options.context_paths);
        json.at("prepare_folder").get_to(options.prepare_folder);
        json.at("evictor").get_to(options.evictor);
        json.at("qnn_lib_dir").get_to(options.qnn_lib_dir);
        SPILLWAY_ASSIGN_OR_RETURN(options.htp,
                                  qnn::htp::HtpOptionsFromJson(json.at("htp").get<std::string>()));
        options.shared_spill_fill_bytes = json.at("shared_spill_fill_bytes").get<uint64_t>();
        return options;
      });
}

std::string BindRequestText(const IoLayout& layout) {
  Json contexts = Json::array();
  for (const std::vector<IoLayout::GraphPlaces>& context : layout.contexts) {
    Json graphs = Json::array();
    for (const IoLayout::GraphPlaces& graph : context) {
      graphs.push_back({{"inputs", graph.inputs}, {"outputs", graph.outputs}});
    }
    contexts.push_back(std::move(graphs));
  }
  return Dump({{"op", "bind"}, {"bytes", layout.bytes}, {"contexts", contexts}});
}

std::string ExecuteRequestText(size_t context, size_t graph) {
  return Dump({{"op", "execute"}, {"context", context}, {"graph", graph}});
}

Result<ContextRequest> ParseContextRequest(std::string_view text) {
  return Parse<ContextRequest>(text, "the request to the worker",
                               [](const Json& json) -> Result<ContextRequest> {
                                 ContextRequest request;
                                 const std::string op = json.at("op").get<std::string>();
                                 if (op == "execute") {
                                   request.context = json.at("context").get<size_t>();
                                   request.graph = json.at("graph").get<size_t>();
                                   return request;
                                 }
                                 if (op != "bind") {
                                   return InternalError(fmt::format("unknown request \"{}\"", op));
                                 }
                                 request.bind = true;
                                 request.layout = LayoutFromJson(json);
                                 return request;
                               });
}

std::string ReadyEventText(const RunnerInfo& info) {
  Json contexts = Json::array();
  for (const ContextInfo& context : info.contexts) contexts.push_back(ContextToJson(context));
  return Dump(
      {{"event", "ready"}, {"shares_spill_fill", info.shares_spill_fill}, {"contexts", contexts}});
}

std::string DoneEventText(const ExecuteProfile& profile) {
  return Dump({{"event", "done"}, {"profile", ProfileToJson(profile)}});
}

std::string ErrorEventText(const Status& status) {
  return Dump({{"event", "error"},
               {"code", static_cast<int>(status.code())},
               {"message", status.message()}});
}

std::string LogEventText(LogLevel level, std::string_view line) {
  return Dump({{"event", "log"}, {"level", static_cast<int>(level)}, {"line", line}});
}

std::string ProgressEventText(std::string_view stage, double fraction) {
  return Dump({{"event", "progress"}, {"stage", stage}, {"fraction", fraction}});
}

Result<ContextEvent> ParseContextEvent(std::string_view text) {
  return Parse<ContextEvent>(
      text, "the worker's message", [](const Json& json) -> Result<ContextEvent> {
        ContextEvent event;
        const std::string kind = json.at("event").get<std::string>();
        if (kind == "done") {
          event.profile = ProfileFromJson(json.at("profile"));
          return event;
        }
        if (kind == "ready") {
          event.kind = ContextEvent::Kind::kReady;
          event.info = InfoFromJson(json);
          return event;
        }
        if (kind == "log") {
          event.kind = ContextEvent::Kind::kLog;
          event.level = static_cast<LogLevel>(json.at("level").get<int>());
          event.line = json.at("line").get<std::string>();
          return event;
        }
        if (kind == "progress") {
          event.kind = ContextEvent::Kind::kProgress;
          event.line = json.at("stage").get<std::string>();
          event.fraction = json.at("fraction").get<double>();
          return event;
        }
        const int code = json.at("code").get<int>();
        if (kind != "error" || code <= 0 || code > static_cast<int>(StatusCode::kInternal)) {
          return InternalError(fmt::format("unknown event \"{}\"", kind));
        }
        event.kind = ContextEvent::Kind::kError;
        event.status = Status(static_cast<StatusCode>(code), json.at("message").get<std::string>());
        return event;
      });
}

}  // namespace spillway
