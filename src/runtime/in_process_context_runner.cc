// Contexts in this process, through qnn/api.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "package/package.h"
#include "qnn/api/build_id.h"
#include "qnn/api/errors.h"
#include "qnn/api/manager.h"
#include "qnn/api/rpc_memory.h"
#include "qnn/htp/option_names.h"
#include "qnn/htp/options.h"
#include "qnn/htp/power.h"
#include "qnn/htp/shared_tensors.h"
#include "runtime/context_runner.h"
#include "runtime/prepare_context.h"

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

// What of the vendor's log our own log level lets through.
qnn::abi::LogLevel VendorLevelOfOurLog() {
  if (GetLogLevel() == LogLevel::kTrace) return qnn::abi::kLogVerbose;
  if (GetLogLevel() == LogLevel::kDebug) return qnn::abi::kLogInfo;
  return qnn::abi::kLogWarn;
}

// Whether the library said that it lacks an option of a context (5010) or the
// function behind it (1000).
bool IsRefusal(const Status& status) {
  constexpr qnn::abi::Error kRefusals[] = {5010, 1000};
  return std::any_of(std::begin(kRefusals), std::end(kRefusals), [&](qnn::abi::Error error) {
    return status.message().find(qnn::DescribeError(error)) != std::string::npos;
  });
}

// A library refuses binaries of newer ones, with a number that does not say so.
Status ExplainVersions(const Status& status, const std::string& made_by, const std::string& here) {
  if (qnn::CompareBuildIds(made_by, here).value_or(0) <= 0) return status;
  return Status(status.code(),
                fmt::format("{}\nThe binary was built with {}, the library found here is {}: newer "
                            "libraries load older binaries, not the reverse. Use the libraries of "
                            "{} or newer, or compile the package again with this library",
                            status.message(), made_by, here, made_by));
}

ExecuteProfile ReadProfile(const std::vector<qnn::ProfileEvent>& events) {
  const qnn::ExecuteTimes times = qnn::ReadExecuteTimes(events);
  ExecuteProfile profile;
  profile.total_us = times.total_us.value_or(0);
  profile.accelerator_us = times.accelerator_us.value_or(0);
  profile.cycles = times.accelerator_cycles.value_or(0);
  constexpr std::string_view kUnit = " (cycles)";  // after the name, in every line
  for (const qnn::ProfileEvent& node : times.nodes) {
    std::string name = node.identifier;
    if (name.ends_with(kUnit)) name.resize(name.size() - kUnit.size());
    profile.operations.emplace_back(std::move(name), node.value);
  }
  return profile;
}

class InProcessContextRunner : public ContextRunner {
 public:
  ~InProcessContextRunner() override {
    bound_.clear();
    shared_.clear();
    rpc_memory_.reset();
    // The others of a group before the first, whose buffer they use.
    while (!contexts_.empty()) contexts_.pop_back();
  }

  Status Open(const ContextRunnerOptions& options) {
    SPILLWAY_RETURN_IF_ERROR(StartVendor(options));
    SPILLWAY_RETURN_IF_ERROR(options.prepare_folder.empty() ? LoadAll(options)
                                                            : PrepareAll(options));
    Vote(options.htp);
    return OkStatus();
  }

  Status Execute(size_t context, size_t graph) override {
    SPILLWAY_RETURN_IF_ERROR(CheckGraph(context, graph));
    if (bound_.empty()) return FailedPreconditionError("no memory is bound to the contexts");
    qnn::Graph& vendor = *contexts_[context]->graphs()[graph];
    const Buffers& buffers = bound_[context][graph];
    if (profile_level_ == 0) return vendor.Execute(buffers.inputs, buffers.outputs);
    std::vector<qnn::ProfileEvent> events;
    SPILLWAY_RETURN_IF_ERROR(
        vendor.ExecuteProfiled(buffers.inputs, buffers.outputs, profile_level_, &events));
    profile_ = ReadProfile(events);
    return OkStatus();
  }

 protected:
  Status UseMemory(const IoLayout& layout) override {
    const Status shared = UseRpcMemory(layout);
    if (!shared.ok()) {
      Log(LogLevel::kInfo, "inputs and outputs are copied to the HTP: {}", shared.message());
      shared_.clear();
      rpc_memory_.reset();
    }
    for (size_t c = 0; c < contexts_.size(); ++c) {
      std::vector<Buffers>& graphs = bound_.emplace_back();
      for (size_t g = 0; g < info_.contexts[c].graphs.size(); ++g) {
        const ContextGraph& graph = info_.contexts[c].graphs[g];
        const IoLayout::GraphPlaces& places = layout.contexts[c][g];
        Buffers& buffers = graphs.emplace_back();
        for (size_t i = 0; i < graph.inputs.size(); ++i) {
          buffers.inputs.push_back(
              memory_.bytes().subspan(places.inputs[i], graph.inputs[i].Bytes()));
        }
        for (size_t i = 0; i < graph.outputs.size(); ++i) {
          buffers.outputs.push_back(
              memory_.bytes().subspan(places.outputs[i], graph.outputs[i].Bytes()));
        }
      }
    }
    return OkStatus();
  }

 private:
  // Memory that the DSP sees in place of what the caller brought, registered once: where the
  // platform has it.
  Status UseRpcMemory(const IoLayout& layout) {
    SPILLWAY_ASSIGN_OR_RETURN(rpc_memory_, qnn::RpcMemory::Allocate(memory_.bytes().size()));
    const uint64_t bytes = rpc_memory_->bytes().size();
    // A second view of it, which can be sent on like other memory.
    const int fd = dup(rpc_memory_->fd());
    if (fd < 0) return IoError("no descriptor is left for shared memory");
    SPILLWAY_ASSIGN_OR_RETURN(SharedMemory view, SharedMemory::Map(fd, bytes));
    for (size_t c = 0; c < contexts_.size(); ++c) {
      shared_.push_back(
          std::make_unique<qnn::htp::SharedTensors>(contexts_[c].get(), rpc_memory_->fd(), bytes));
      for (size_t g = 0; g < contexts_[c]->graphs().size(); ++g) {
        const IoLayout::GraphPlaces& places = layout.contexts[c][g];
        SPILLWAY_RETURN_IF_ERROR(
            shared_.back()->Use(contexts_[c]->graphs()[g].get(), places.inputs, places.outputs));
      }
    }
    memory_ = std::move(view);
    replaced_ = true;
    return OkStatus();
  }

  struct Buffers {
    std::vector<std::span<const std::byte>> inputs;
    std::vector<std::span<std::byte>> outputs;
  };

  Status StartVendor(const ContextRunnerOptions& options) {
    const HtpOptions& htp = options.htp;
    profile_level_ = qnn::htp::ToVendor(htp.profile_level);
    SPILLWAY_ASSIGN_OR_RETURN(library_, qnn::Library::Load(options.qnn_lib_dir));
    SPILLWAY_ASSIGN_OR_RETURN(system_, qnn::SystemLibrary::Load(options.qnn_lib_dir));
    // Its lines are the progress of a preparation.
    const qnn::abi::LogLevel least =
        options.prepare_folder.empty() ? qnn::abi::kLogError : qnn::abi::kLogInfo;
    SPILLWAY_ASSIGN_OR_RETURN(
        auto log,
        qnn::VendorLog::Create(
            library_, qnn::htp::ToVendor(htp.log_level, std::max(VendorLevelOfOurLog(), least)),
            [](qnn::abi::LogLevel level, std::string_view line) {
              Log(FromVendorLevel(level), "vendor: {}", line);
            }));
    SPILLWAY_ASSIGN_OR_RETURN(backend_, qnn::Backend::Create(log));
    for (const OpPackage& one : htp.op_packages) {
      SPILLWAY_RETURN_IF_ERROR(
          backend_->RegisterOpPackage(one.path, one.interface_provider, one.target));
    }
    qnn::DeviceConfigs configs;
    if (!htp.soc.empty() && (kIsSimulator || htp.pd_session == PdSession::kSigned)) {
      SPILLWAY_ASSIGN_OR_RETURN(const qnn::htp::Soc* soc, qnn::htp::FindSoc(htp.soc));
      configs = qnn::htp::MakeDeviceConfigs(*soc, htp.pd_session, library_->version().backend);
    }
    SPILLWAY_ASSIGN_OR_RETURN(device_, qnn::Device::Create(log, std::move(configs)));
    return OkStatus();
  }

  // How fast the HTP runs from now on until this object goes. The results do not
  // depend on it, so a platform that refuses is only told of.
  void Vote(const HtpOptions& htp) {
    if (htp.performance == PerformanceMode::kDefault && !htp.rpc_polling_us &&
        !htp.rpc_control_latency_us && !htp.sleep_latency_us) {
      return;
    }
    Result<std::unique_ptr<qnn::htp::PowerVote>> vote = qnn::htp::PowerVote::Create(device_);
    const Status set = vote.ok() ? (*vote)->Set(htp) : vote.status();
    if (!set.ok()) {
      Log(LogLevel::kWarning, "performance mode {} is not in effect: {}",
          qnn::htp::OptionName(htp.performance), set.message());
      return;
    }
    vote_ = std::move(vote).value();
  }

  Status LoadAll(const ContextRunnerOptions& options) {
    const std::vector<std::string>& paths = options.context_paths;
    const size_t shards = paths.size() - (options.evictor ? 1 : 0);
    uint64_t buffer = shards > 1 ? options.shared_spill_fill_bytes : 0;
    for (size_t i = 0; i < paths.size(); ++i) {
      if (options.progress && paths.size() > 1) {
        options.progress(fmt::format("load context {} of {}", i + 1, paths.size()),
                         static_cast<double>(i) / static_cast<double>(paths.size()));
      }
      if (i == shards) {
        SPILLWAY_RETURN_IF_ERROR(Load(paths[i], options.htp.priority, 0));
        continue;
      }
      Status loaded = Load(paths[i], options.htp.priority, buffer);
      if (i == 0 && buffer > 0 && IsRefusal(loaded)) {
        Log(LogLevel::kWarning,
            "this platform has no spill-fill buffer that contexts share: each of the {} contexts "
            "gets one of its own of up to {} bytes",
            shards, buffer);
        Log(LogLevel::kInfo, "{}", loaded.message());
        buffer = 0;
        loaded = Load(paths[i], options.htp.priority, buffer);
      }
      SPILLWAY_RETURN_IF_ERROR(loaded);
    }
    info_.shares_spill_fill = buffer > 0;
    return OkStatus();
  }

  Status Load(const std::string& path, GraphPriority priority, uint64_t buffer) {
    SPILLWAY_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    SPILLWAY_ASSIGN_OR_RETURN(const qnn::BinaryInfo binary,
                              qnn::ReadBinaryInfo(*system_, file.bytes(), path));
    qnn::htp::ContextOptions context_options;
    context_options.priority = priority;
    if (buffer > 0) {
      context_options.group = {contexts_.empty() ? nullptr : contexts_[0]->handle(), buffer};
    }
    Result<std::unique_ptr<qnn::Context>> context = qnn::Context::Load(
        backend_, device_, file.bytes(), binary, qnn::htp::MakeContextConfigs(context_options));
    if (!context.ok()) {
      return ExplainVersions(context.status(), binary.build_id, library_->build_id())
          .WithContext(path);
    }
    return Add(std::move(context).value(), binary.build_id, binary.soc_model);
  }

  Status PrepareAll(const ContextRunnerOptions& options) {
    SPILLWAY_ASSIGN_OR_RETURN(auto shards, ReadGraphs(options.prepare_folder));
    if (options.evictor) {
      SPILLWAY_ASSIGN_OR_RETURN(auto evictor, ReadEvictor(options.prepare_folder));
      shards.push_back({std::move(evictor)});
    }
    for (size_t s = 0; s < shards.size(); ++s) {
      ContextProgress progress;
      if (options.progress) {
        progress = [&](std::string_view stage, double fraction) {
          options.progress(shards.size() > 1
                               ? fmt::format("shard {} of {}: {}", s + 1, shards.size(), stage)
                               : std::string(stage),
                           fraction);
        };
      }
      SPILLWAY_ASSIGN_OR_RETURN(
          std::unique_ptr<qnn::Context> context,
          PrepareContext(backend_, device_, shards[s], options.htp, progress));
      SPILLWAY_RETURN_IF_ERROR(Add(std::move(context), library_->build_id(), 0));
    }
    return OkStatus();
  }

  // Takes a context whose graphs can be executed.
  Status Add(std::unique_ptr<qnn::Context> context, const std::string& build_id,
             uint32_t soc_model) {
    ContextInfo& info = info_.contexts.emplace_back();
    info.build_id = build_id;
    info.soc_model = soc_model;
    contexts_.push_back(std::move(context));
    for (const std::unique_ptr<qnn::Graph>& graph : contexts_.back()->graphs()) {
      ContextGraph& read = info.graphs.emplace_back();
      read.name = graph->name();
      SPILLWAY_ASSIGN_OR_RETURN(read.inputs, ReadTensors(graph->name(), graph->inputs()));
      SPILLWAY_ASSIGN_OR_RETURN(read.outputs, ReadTensors(graph->name(), graph->outputs()));
    }
    return OkStatus();
  }

  // Freed from the last to the first.
  std::shared_ptr<const qnn::Library> library_;
  std::shared_ptr<const qnn::SystemLibrary> system_;
  std::shared_ptr<qnn::Backend> backend_;
  std::shared_ptr<qnn::Device> device_;
  std::unique_ptr<qnn::htp::PowerVote> vote_;
  std::vector<std::unique_ptr<qnn::Context>> contexts_;
  std::unique_ptr<qnn::RpcMemory> rpc_memory_;                    // null: none
  std::vector<std::unique_ptr<qnn::htp::SharedTensors>> shared_;  // [context]
  uint32_t profile_level_ = 0;
  std::vector<std::vector<Buffers>> bound_;  // [context][graph]
};

}  // namespace

Result<std::unique_ptr<ContextRunner>> OpenContextInProcess(const ContextRunnerOptions& options) {
  auto runner = std::make_unique<InProcessContextRunner>();
  SPILLWAY_RETURN_IF_ERROR(runner->Open(options));
  return std::unique_ptr<ContextRunner>(std::move(runner));
}

}  // namespace spillway
