// One context, from its options or its binary to its last execution.
//
// A thin layer over manager.h and binary_info.h for a caller that has one context and
// wants to say what it needs, not in which order: every step makes those before it
// itself, does nothing when it is done already, and leaves everything as it was
// when it fails, so that it can be called again. Callers with several contexts on one
// device, or with other lifetimes, use Backend, Device and Context themselves.
//
//   ContextManager manager({.library_dir = dir, .binary = bytes, .binary_name = path});
//   SPILLWAY_ASSIGN_OR_RETURN(uint64_t bytes, manager.SpillFillBytes());  // no context yet
//   SPILLWAY_RETURN_IF_ERROR(manager.InitContext({"kv_forward"}));
//   SPILLWAY_RETURN_IF_ERROR(manager.Execute("kv_forward", inputs, outputs));

#ifndef SPILLWAY_QNN_API_CONTEXT_MANAGER_H_
#define SPILLWAY_QNN_API_CONTEXT_MANAGER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qnn/api/binary_info.h"
#include "qnn/api/manager.h"
#include "spillway/status.h"

namespace spillway::qnn {

struct ContextSetup {
  std::string library_dir;  // as FindLibraryDir takes it
  abi::LogLevel log_level = abi::kLogWarn;
  LogSink log_sink;
  // Called each time that the object is made; empty: the vendor's defaults.
  std::function<Result<DeviceConfigs>(const Library& library)> device_configs;
  std::function<ContextConfigs()> context_configs;
  std::function<GraphConfigs(const std::string& graph)> graph_configs;
  // The context binary; empty: the graphs are built. Not copied.
  std::span<const std::byte> binary;
  std::string binary_name = "the context binary";  // for errors
};

// Not thread-safe.
class ContextManager {
 public:
  explicit ContextManager(ContextSetup setup) : setup_(std::move(setup)) {}
  ~ContextManager() { Destroy(); }
  ContextManager(const ContextManager&) = delete;
  ContextManager& operator=(const ContextManager&) = delete;

  // Library, log, backend and device.
  Status InitBackend();
  // Only what is known about the binary: no backend and no context is made. The binary
  // is that of the setup or, once Compile() succeeded, the compiled one.
  // kFailedPrecondition when there is neither.
  Status InitContextCache();
  // From the binary of the setup: loads it; every name must be in it, none means all.
  // Without one: an empty context with a new graph for each name. When there is a
  // context already, kFailedPrecondition for a name that it does not have.
  Status InitContext(const std::vector<std::string>& graph_names);

  // The largest spill-fill buffer of all graphs; after InitContextCache().
  Result<uint64_t> SpillFillBytes();
  // Null before InitContextCache().
  const BinaryInfo* cache() const { return cache_ ? &*cache_ : nullptr; }

  // Backend::Validate after InitBackend().
  Status IsSupported(const OpQuery& op);
  // Graph::AddTensor for each; ids in the same order. kNotFound for an unknown graph, here
  // and below.
  Result<std::vector<TensorId>> AllocateTensors(std::string_view graph,
                                                std::span<const TensorDesc> tensors);
  // Finalises the graphs that are not, and returns the context binary, which the object
  // keeps. Again: the same one.
  Result<std::span<const std::byte>> Compile(const FinalizeOptions& options);
  Status Execute(std::string_view graph, std::span<const std::span<const std::byte>> inputs,
                 std::span<const std::span<std::byte>> outputs);
  // Null when there is no context or no such graph.
  Graph* FindGraph(std::string_view name);

  // Context, device, backend and log, in this order. Everything can be made again.
  void Destroy();

 private:
  Result<Graph*> NamedGraph(std::string_view name);
  Status LoadContext();
  Status BuildContext(const std::vector<std::string>& graph_names);

  ContextSetup setup_;
  std::optional<BinaryInfo> cache_;
  std::vector<std::byte> compiled_;
  // Members die in the reverse of this order.
  std::shared_ptr<VendorLog> log_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<Context> context_;
};

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_CONTEXT_MANAGER_H_
