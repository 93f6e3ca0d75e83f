#include <fmt/format.h>

#include "base/log.h"
#include "qnn/api/abi_tensor.h"
#include "qnn/api/errors.h"
#include "qnn/api/handle_counts.h"
#include "qnn/api/manager.h"

namespace spillway::qnn {
namespace {

constexpr bool kIsSimulator =
#if defined(__x86_64__)
    true;
#else
    false;
#endif

// The x86-64 library of QAIRT 2.50 and 2.51 dies with a segmentation fault on such
// binaries, older ones answer 1000.
Status CheckLoadable(const BinaryInfo& info) {
  if (!kIsSimulator) return OkStatus();
  for (const BinaryGraph& graph : info.graphs) {
    if (graph.memory && graph.memory->shared_weight_bytes > 0 && info.graphs.size() > 1) {
      return UnsupportedError(fmt::format(
          "the context binary shares {} bytes of weights between its {} graphs, which the x86-64 "
          "simulator cannot load. Compile a context without weight sharing for the simulator, or "
          "run this one on a device.",
          graph.memory->shared_weight_bytes, info.graphs.size()));
    }
  }
  return OkStatus();
}

std::string GraphNames(const BinaryInfo& info) {
  std::string names;
  for (const BinaryGraph& graph : info.graphs) {
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", graph.name);
  }
  return names;
}

}  // namespace

Context::Context(std::shared_ptr<Backend> backend, std::shared_ptr<Device> device)
    : backend_(std::move(backend)), device_(std::move(device)) {}

const abi::Functions& Context::fn() const { return backend_->log()->library().fn(); }

Result<std::unique_ptr<Context>> Context::Create(std::shared_ptr<Backend> backend,
                                                 std::shared_ptr<Device> device,
                                                 ContextConfigs configs) {
  std::unique_ptr<Context> context(new Context(std::move(backend), std::move(device)));
  VendorLog& log = *context->backend_->log();
  const uint64_t mark = log.Mark();
  const abi::Error error = context->fn().context_create(
      context->backend_->handle(), context->device_->handle(), configs.list(), &context->handle_);
  if (error != 0) {
    context->handle_ = nullptr;
    return VendorFailure("creating a context", error, log.ProblemsSince(mark));
  }
  CountCreated(HandleKind::kContext);
  return context;
}

Result<std::unique_ptr<Context>> Context::Load(std::shared_ptr<Backend> backend,
                                               std::shared_ptr<Device> device,
                                               std::span<const std::byte> binary,
                                               const BinaryInfo& info, ContextConfigs configs) {
  SPILLWAY_RETURN_IF_ERROR(CheckLoadable(info));
  std::unique_ptr<Context> context(new Context(std::move(backend), std::move(device)));
  context->loaded_ = true;
  VendorLog& log = *context->backend_->log();
  const uint64_t mark = log.Mark();
  const abi::Error error = context->fn().context_create_from_binary(
      context->backend_->handle(), context->device_->handle(), configs.list(), binary.data(),
      binary.size(), &context->handle_, nullptr);
  if (error != 0) {
    context->handle_ = nullptr;
    return VendorFailure(fmt::format("loading a context binary of {} bytes made by {}",
                                     binary.size(), info.build_id),
                         error, log.ProblemsSince(mark));
  }
  CountCreated(HandleKind::kContext);
  SPILLWAY_RETURN_IF_ERROR(context->RetrieveGraphs(info, mark));
  return context;
}

Status Context::RetrieveGraphs(const BinaryInfo& info, uint64_t mark) {
  VendorLog& log = *backend_->log();
  for (const BinaryGraph& source : info.graphs) {
    std::unique_ptr<Graph> graph(new Graph(this, source.name));
    const abi::Error error = fn().graph_retrieve(handle_, source.name.c_str(), &graph->handle_);
    if (error != 0) {
      return VendorFailure(
          fmt::format("retrieving graph '{}' from a loaded context binary that should hold {}",
                      source.name, GraphNames(info)),
          error, log.ProblemsSince(mark),
          "the library loaded the context without its graphs. The x86-64 simulator does that "
          "with a context made with the SLC allocator (number 6003, and 4003 in the log): "
          "compile a context without it for the simulator, or run this one on a device");
    }
    graph->loaded_ = true;
    graph->SetInterface(source.inputs, source.outputs);
    graphs_.push_back(std::move(graph));
  }
  return OkStatus();
}

Context::~Context() {
  graphs_.clear();
  if (handle_ == nullptr) return;
  const abi::Error error = fn().context_free(handle_, nullptr);
  if (error == 0) {
    CountFreed(HandleKind::kContext);
  } else {
    Log(LogLevel::kWarning, "freeing a context: {}", DescribeError(error));
  }
}

Result<abi::Handle> Context::RegisterMemory(const abi::MemDescriptor& descriptor) {
  VendorLog& log = *backend_->log();
  const uint64_t mark = log.Mark();
  abi::Handle handle = nullptr;
  const abi::Error error = fn().mem_register(handle_, &descriptor, 1, &handle);
  if (error != 0) {
    return VendorFailure("registering shared memory", error, log.ProblemsSince(mark));
  }
  CountCreated(HandleKind::kMemory);
  return handle;
}

void Context::DeregisterMemory(std::span<const abi::Handle> handles) {
  for (const abi::Handle handle : handles) {
    const abi::Error error = fn().mem_deregister(&handle, 1);
    if (error == 0) {
      CountFreed(HandleKind::kMemory);
    } else {
      Log(LogLevel::kWarning, "deregistering shared memory: {}", DescribeError(error));
    }
  }
}

Result<Graph*> Context::CreateGraph(const std::string& name, GraphConfigs configs) {
  if (loaded_) {
    return FailedPreconditionError(
        fmt::format("graph '{}' cannot be created in a context that was loaded", name));
  }
  std::unique_ptr<Graph> graph(new Graph(this, name));
  VendorLog& log = *backend_->log();
  const uint64_t mark = log.Mark();
  const abi::Error error =
      fn().graph_create(handle_, name.c_str(), configs.list(), &graph->handle_);
  if (error != 0) {
    return VendorFailure(fmt::format("creating graph '{}'", name), error, log.ProblemsSince(mark));
  }
  graphs_.push_back(std::move(graph));
  return graphs_.back().get();
}

Graph* Context::FindGraph(std::string_view name) {
  for (const auto& graph : graphs_) {
    if (graph->name() == name) return graph.get();
  }
  return nullptr;
}

Result<uint64_t> Context::GetBinarySize() {
  if (loaded_) {
    return FailedPreconditionError(
        "a loaded context does not give its binary back: keep the bytes it was loaded from");
  }
  VendorLog& log = *backend_->log();
  const uint64_t mark = log.Mark();
  uint64_t size = 0;
  const abi::Error error = fn().context_get_binary_size(handle_, &size);
  if (error != 0) {
    return VendorFailure("asking for the context binary's size", error, log.ProblemsSince(mark));
  }
  return size;
}

Result<uint64_t> Context::GetBinary(std::span<std::byte> buffer) {
  VendorLog& log = *backend_->log();
  const uint64_t mark = log.Mark();
  uint64_t written = 0;
  const abi::Error error = fn().context_get_binary(handle_, buffer.data(), buffer.size(), &written);
  if (error != 0) {
    return VendorFailure("getting the context binary", error, log.ProblemsSince(mark));
  }
  if (written > buffer.size()) {
    return VendorError(
        fmt::format("getting the context binary: the library claims {} bytes in a "
                    "buffer of {}",
                    written, buffer.size()));
  }
  return written;
}

Result<std::vector<std::byte>> Context::GetBinary() {
  SPILLWAY_ASSIGN_OR_RETURN(const uint64_t size, GetBinarySize());
  std::vector<std::byte> binary(size);
  SPILLWAY_ASSIGN_OR_RETURN(const uint64_t written, GetBinary(std::span<std::byte>(binary)));
  binary.resize(written);
  return binary;
}

}  // namespace spillway::qnn
