#include "qnn/api/context_manager.h"

#include <fmt/format.h>

#include <utility>

namespace spillway::qnn {

Status ContextManager::InitBackend() {
  if (device_ != nullptr) return OkStatus();
  SPILLWAY_ASSIGN_OR_RETURN(auto library, Library::Load(setup_.library_dir));
  SPILLWAY_ASSIGN_OR_RETURN(std::shared_ptr<VendorLog> log,
                            VendorLog::Create(library, setup_.log_level, setup_.log_sink));
  SPILLWAY_ASSIGN_OR_RETURN(std::shared_ptr<Backend> backend, Backend::Create(log));
  DeviceConfigs configs;
  if (setup_.device_configs) {
    SPILLWAY_ASSIGN_OR_RETURN(configs, setup_.device_configs(*library));
  }
  SPILLWAY_ASSIGN_OR_RETURN(device_, Device::Create(log, std::move(configs)));
  log_ = std::move(log);
  backend_ = std::move(backend);
  return OkStatus();
}

Status ContextManager::InitContextCache() {
  if (cache_) return OkStatus();
  const std::span<const std::byte> binary = compiled_.empty() ? setup_.binary : compiled_;
  if (binary.empty()) {
    return FailedPreconditionError(setup_.binary_name +
                                   ": there is no context binary to read; compile one first");
  }
  SPILLWAY_ASSIGN_OR_RETURN(const auto system, SystemLibrary::Load(setup_.library_dir));
  SPILLWAY_ASSIGN_OR_RETURN(cache_, ReadBinaryInfo(*system, binary, setup_.binary_name));
  return OkStatus();
}

Status ContextManager::LoadContext() {
  SPILLWAY_RETURN_IF_ERROR(InitContextCache());
  SPILLWAY_ASSIGN_OR_RETURN(
      context_,
      Context::Load(backend_, device_, setup_.binary, *cache_,
                    setup_.context_configs ? setup_.context_configs() : ContextConfigs()));
  return OkStatus();
}

Status ContextManager::BuildContext(const std::vector<std::string>& graph_names) {
  SPILLWAY_ASSIGN_OR_RETURN(
      std::unique_ptr<Context> context,
      Context::Create(backend_, device_,
                      setup_.context_configs ? setup_.context_configs() : ContextConfigs()));
  for (const std::string& name : graph_names) {
    SPILLWAY_RETURN_IF_ERROR(
        context
            ->CreateGraph(name, setup_.graph_configs ? setup_.graph_configs(name) : GraphConfigs())
            .status());
  }
  context_ = std::move(context);
  return OkStatus();
}

Status ContextManager::InitContext(const std::vector<std::string>& graph_names) {
  SPILLWAY_RETURN_IF_ERROR(InitBackend());
  const bool loads = !setup_.binary.empty();
  if (loads) {
    // Before the costly load.
    SPILLWAY_RETURN_IF_ERROR(InitContextCache());
    for (const std::string& name : graph_names) {
      if (cache_->FindGraph(name) != nullptr) continue;
      return NotFoundError(
          fmt::format("{}: there is no graph '{}' in it", setup_.binary_name, name));
    }
  }
  if (context_ == nullptr) return loads ? LoadContext() : BuildContext(graph_names);
  for (const std::string& name : graph_names) {
    if (context_->FindGraph(name) != nullptr) continue;
    return FailedPreconditionError(
        fmt::format("graph '{}' is not in the context that exists; destroy that first", name));
  }
  return OkStatus();
}

Result<uint64_t> ContextManager::SpillFillBytes() {
  SPILLWAY_RETURN_IF_ERROR(InitContextCache());
  return cache_->spill_fill_bytes;
}

Status ContextManager::IsSupported(const OpQuery& op) {
  SPILLWAY_RETURN_IF_ERROR(InitBackend());
  return backend_->Validate(op);
}

Graph* ContextManager::FindGraph(std::string_view name) {
  return context_ == nullptr ? nullptr : context_->FindGraph(name);
}

Result<Graph*> ContextManager::NamedGraph(std::string_view name) {
  if (Graph* graph = FindGraph(name)) return graph;
  return NotFoundError(
      fmt::format("there is no graph '{}'; InitContext makes or loads the graphs", name));
}

Result<std::vector<TensorId>> ContextManager::AllocateTensors(std::string_view graph,
                                                              std::span<const TensorDesc> tensors) {
  SPILLWAY_ASSIGN_OR_RETURN(Graph * found, NamedGraph(graph));
  std::vector<TensorId> ids;
  for (const TensorDesc& tensor : tensors) {
    SPILLWAY_ASSIGN_OR_RETURN(ids.emplace_back(), found->AddTensor(tensor));
  }
  return ids;
}

Result<std::span<const std::byte>> ContextManager::Compile(const FinalizeOptions& options) {
  if (context_ == nullptr) {
    return FailedPreconditionError("there is no context to compile; InitContext makes one");
  }
  if (compiled_.empty()) {
    for (const auto& graph : context_->graphs()) {
      if (graph->finalized()) continue;
      SPILLWAY_RETURN_IF_ERROR(graph->Finalize(options).status());
    }
    SPILLWAY_ASSIGN_OR_RETURN(compiled_, context_->GetBinary());
    cache_.reset();
  }
  return std::span<const std::byte>(compiled_);
}

Status ContextManager::Execute(std::string_view graph,
                               std::span<const std::span<const std::byte>> inputs,
                               std::span<const std::span<std::byte>> outputs) {
  SPILLWAY_ASSIGN_OR_RETURN(Graph * found, NamedGraph(graph));
  return found->Execute(inputs, outputs);
}

void ContextManager::Destroy() {
  context_.reset();
  device_.reset();
  backend_.reset();
  log_.reset();
  cache_.reset();
  compiled_.clear();
}

}  // namespace spillway::qnn
