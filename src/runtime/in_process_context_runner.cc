// A context binary in this process, through qnn/api.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "qnn/api/manager.h"
#include "qnn/htp/options.h"
#include "runtime/context_runner.h"

namespace spillway {
namespace {

constexpr bool kIsSimulator =
#if defined(__x86_64__)
    true;
#else
    false;
#endif

std::optional<DType> FromVendorType(qnn::DataType type) {
  switch (type) {
    case qnn::DataType::kUfixed8:
      return DType::kU8;
    case qnn::DataType::kUfixed16:
      return DType::kU16;
    case qnn::DataType::kSfixed8:
      return DType::kS8;
    case qnn::DataType::kSfixed16:
      return DType::kS16;
    case qnn::DataType::kSfixed32:
      return DType::kS32;
    case qnn::DataType::kInt32:
      return DType::kI32;
    case qnn::DataType::kFloat16:
      return DType::kF16;
    case qnn::DataType::kFloat32:
      return DType::kF32;
    default:
      return std::nullopt;
  }
}

Result<std::vector<ContextTensor>> ReadTensors(const std::string& graph,
                                               const std::vector<qnn::TensorInfo>& tensors) {
  std::vector<ContextTensor> result;
  for (const qnn::TensorInfo& tensor : tensors) {
    const std::optional<DType> dtype = FromVendorType(tensor.dtype);
    if (!dtype.has_value()) {
      return UnsupportedError(
          fmt::format("graph {}, tensor \"{}\" has type {}, which the runtime "
                      "does not know",
                      graph, tensor.name, qnn::DataTypeName(tensor.dtype)));
    }
    result.push_back({tensor.name, *dtype, tensor.dims});
  }
  return result;
}

// What the vendor calls information is detail to our users.
LogLevel FromVendorLevel(qnn::abi::LogLevel level) {
  if (level <= qnn::abi::kLogError) return LogLevel::kInfo;
  if (level <= qnn::abi::kLogInfo) return LogLevel::kDebug;
  return LogLevel::kTrace;
}

qnn::abi::LogLevel VendorLevel(uint32_t wanted) {
  if (wanted != 0) return static_cast<qnn::abi::LogLevel>(std::min(wanted, 5u));
  if (GetLogLevel() == LogLevel::kTrace) return qnn::abi::kLogVerbose;
  if (GetLogLevel() == LogLevel::kDebug) return qnn::abi::kLogInfo;
  return qnn::abi::kLogWarn;
}

class InProcessContextRunner : public ContextRunner {
 public:
  Status Open(const ContextRunnerOptions& options) {
    SPILLWAY_ASSIGN_OR_RETURN(auto library, qnn::Library::Load(options.qnn_lib_dir));
    SPILLWAY_ASSIGN_OR_RETURN(auto system, qnn::SystemLibrary::Load(options.qnn_lib_dir));
    SPILLWAY_ASSIGN_OR_RETURN(
        auto log, qnn::VendorLog::Create(library, VendorLevel(options.vendor_log_level),
                                         [](qnn::abi::LogLevel level, std::string_view line) {
                                           Log(FromVendorLevel(level), "vendor: {}", line);
                                         }));
    SPILLWAY_ASSIGN_OR_RETURN(auto backend, qnn::Backend::Create(log));
    qnn::DeviceConfigs device_configs;
    if (kIsSimulator && !options.soc.empty()) {
      SPILLWAY_ASSIGN_OR_RETURN(const qnn::htp::Soc* soc, qnn::htp::FindSoc(options.soc));
      device_configs = qnn::htp::MakeDeviceConfigs(*soc, PdSession::kUnsigned,
                                                   library->version().backend);
    }
    SPILLWAY_ASSIGN_OR_RETURN(auto device, qnn::Device::Create(log, std::move(device_configs)));
    SPILLWAY_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(options.context_path));
    SPILLWAY_ASSIGN_OR_RETURN(const qnn::BinaryInfo binary,
                              qnn::ReadBinaryInfo(*system, file.bytes(), options.context_path));
    Result<std::unique_ptr<qnn::Context>> context =
        qnn::Context::Load(backend, device, file.bytes(), binary, qnn::ContextConfigs());
    if (!context.ok()) return context.status().WithContext(options.context_path);
    context_ = std::move(context).value();
    return ReadInfo(binary);
  }

  Status Execute(size_t graph) override {
    if (graph >= bound_.size()) {
      return InvalidArgumentError(
          fmt::format("graph {} of {} bound ones cannot run", graph, bound_.size()));
    }
    return context_->graphs()[graph]->Execute(bound_[graph].inputs, bound_[graph].outputs);
  }

 protected:
  Status UseMemory(const IoLayout& layout) override {
    for (size_t g = 0; g < info_.graphs.size(); ++g) {
      const ContextGraph& graph = info_.graphs[g];
      Buffers& buffers = bound_.emplace_back();
      for (size_t i = 0; i < graph.inputs.size(); ++i) {
        buffers.inputs.push_back(
            memory_.bytes().subspan(layout.graphs[g].inputs[i], graph.inputs[i].Bytes()));
      }
      for (size_t i = 0; i < graph.outputs.size(); ++i) {
        buffers.outputs.push_back(
            memory_.bytes().subspan(layout.graphs[g].outputs[i], graph.outputs[i].Bytes()));
      }
    }
    return OkStatus();
  }

 private:
  struct Buffers {
    std::vector<std::span<const std::byte>> inputs;
    std::vector<std::span<std::byte>> outputs;
  };

  Status ReadInfo(const qnn::BinaryInfo& binary) {
    info_.build_id = binary.build_id;
    info_.soc_model = binary.soc_model;
    for (const std::unique_ptr<qnn::Graph>& graph : context_->graphs()) {
      ContextGraph& read = info_.graphs.emplace_back();
      read.name = graph->name();
      SPILLWAY_ASSIGN_OR_RETURN(read.inputs, ReadTensors(graph->name(), graph->inputs()));
      SPILLWAY_ASSIGN_OR_RETURN(read.outputs, ReadTensors(graph->name(), graph->outputs()));
    }
    return OkStatus();
  }

  std::unique_ptr<qnn::Context> context_;
  std::vector<Buffers> bound_;  // one a graph
};

}  // namespace

Result<std::unique_ptr<ContextRunner>> OpenContextInProcess(const ContextRunnerOptions& options) {
  auto runner = std::make_unique<InProcessContextRunner>();
  SPILLWAY_RETURN_IF_ERROR(runner->Open(options));
  return std::unique_ptr<ContextRunner>(std::move(runner));
}

}  // namespace spillway
