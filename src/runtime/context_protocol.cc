#include "runtime/context_protocol.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

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

ContextInfo InfoFromJson(const Json& json) {
  ContextInfo info;
  info.build_id = json.at("build_id").get<std::string>();
  info.soc_model = json.at("soc_model").get<uint32_t>();
  for (const Json& graph : json.at("graphs")) {
    info.graphs.push_back({graph.at("name").get<std::string>(), TensorsFromJson(graph.at("inputs")),
                           TensorsFromJson(graph.at("outputs"))});
  }
  return info;
}

}  // namespace

std::string RunRequestText(const ContextRunnerOptions& options) {
  return Dump({{"job", "run"},
               {"context_path", options.context_path},
               {"qnn_lib_dir", options.qnn_lib_dir},
               {"soc", options.soc},
               {"vendor_log_level", options.vendor_log_level}});
}

Result<ContextRunnerOptions> ParseRunRequest(std::string_view text) {
  return Parse<ContextRunnerOptions>(text, "the run request", [](const Json& json) {
    ContextRunnerOptions options;
    options.context_path = json.at("context_path").get<std::string>();
    options.qnn_lib_dir = json.at("qnn_lib_dir").get<std::string>();
    options.soc = json.at("soc").get<std::string>();
    options.vendor_log_level = json.at("vendor_log_level").get<uint32_t>();
    return options;
  });
}

std::string BindRequestText(const IoLayout& layout) {
  Json graphs = Json::array();
  for (const IoLayout::GraphPlaces& graph : layout.graphs) {
    graphs.push_back({{"inputs", graph.inputs}, {"outputs", graph.outputs}});
  }
  return Dump({{"op", "bind"}, {"bytes", layout.bytes}, {"graphs", graphs}});
}

std::string ExecuteRequestText(size_t graph) { return Dump({{"op", "execute"}, {"graph", graph}}); }

Result<ContextRequest> ParseContextRequest(std::string_view text) {
  return Parse<ContextRequest>(
      text, "the request to the worker", [](const Json& json) -> Result<ContextRequest> {
        ContextRequest request;
        const std::string op = json.at("op").get<std::string>();
        if (op == "execute") {
          request.graph = json.at("graph").get<size_t>();
          return request;
        }
        if (op != "bind") return InternalError(fmt::format("unknown request \"{}\"", op));
        request.bind = true;
        request.layout.bytes = json.at("bytes").get<uint64_t>();
        for (const Json& graph : json.at("graphs")) {
          request.layout.graphs.push_back({graph.at("inputs").get<std::vector<uint64_t>>(),
                                           graph.at("outputs").get<std::vector<uint64_t>>()});
        }
        return request;
      });
}

std::string ReadyEventText(const ContextInfo& info) {
  Json graphs = Json::array();
  for (const ContextGraph& graph : info.graphs) {
    graphs.push_back({{"name", graph.name},
                      {"inputs", TensorsToJson(graph.inputs)},
                      {"outputs", TensorsToJson(graph.outputs)}});
  }
  return Dump({{"event", "ready"},
               {"build_id", info.build_id},
               {"soc_model", info.soc_model},
               {"graphs", graphs}});
}

std::string DoneEventText() { return Dump({{"event", "done"}}); }

std::string ErrorEventText(const Status& status) {
  return Dump({{"event", "error"},
               {"code", static_cast<int>(status.code())},
               {"message", status.message()}});
}

std::string LogEventText(LogLevel level, std::string_view line) {
  return Dump({{"event", "log"}, {"level", static_cast<int>(level)}, {"line", line}});
}

Result<ContextEvent> ParseContextEvent(std::string_view text) {
  return Parse<ContextEvent>(
      text, "the worker's message", [](const Json& json) -> Result<ContextEvent> {
        ContextEvent event;
        const std::string kind = json.at("event").get<std::string>();
        if (kind == "done") return event;
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
