// The vendor's objects as classes that free themselves in the right order, also
// when something fails half-way.
//
// Compile a graph:
//
//   SPILLWAY_ASSIGN_OR_RETURN(auto library, Library::Load(dir));
//   SPILLWAY_ASSIGN_OR_RETURN(auto log, VendorLog::Create(library, abi::kLogVerbose));
//   SPILLWAY_ASSIGN_OR_RETURN(auto backend, Backend::Create(log));
//   SPILLWAY_ASSIGN_OR_RETURN(const htp::Soc* soc, htp::CheckOptions(options));
//   SPILLWAY_ASSIGN_OR_RETURN(
//       auto device, Device::Create(log, htp::MakeDeviceConfigs(*soc, options.pd_session,
//                                                               library->version().backend)));
//   SPILLWAY_ASSIGN_OR_RETURN(
//       auto context, Context::Create(backend, device, htp::MakeContextConfigs(options)));
//   SPILLWAY_ASSIGN_OR_RETURN(
//       Graph* graph,
//       context->CreateGraph("kv_forward", htp::MakeGraphConfigs(options, *soc)));
//   SPILLWAY_ASSIGN_OR_RETURN(TensorId x, graph->AddTensor(x_desc));     // and so on
//   SPILLWAY_RETURN_IF_ERROR(graph->AddNode(conv_desc));
//   SPILLWAY_ASSIGN_OR_RETURN(auto prepared, graph->Finalize({}));
//   SPILLWAY_ASSIGN_OR_RETURN(auto binary, context->GetBinary());
//
// Load a binary and execute:
//
//   SPILLWAY_ASSIGN_OR_RETURN(auto info, ReadBinaryInfo(*system_library, bytes, path));
//   SPILLWAY_ASSIGN_OR_RETURN(auto context, Context::Load(backend, device, bytes, info, ...));
//   Graph* graph = context->FindGraph("kv_forward");
//   SPILLWAY_RETURN_IF_ERROR(graph->Execute(inputs, outputs));
//
// Every vendor failure is kVendor and says the step, the number (decimal and
// hexadecimal), what it means, what to do about it, and the vendor's own log
// lines of that step. The library may also crash: a caller that must survive
// that runs all of this in a child process.

#ifndef SPILLWAY_QNN_API_MANAGER_H_
#define SPILLWAY_QNN_API_MANAGER_H_

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
#include "qnn/api/config_list.h"
#include "qnn/api/library.h"
#include "qnn/api/profile_reader.h"
#include "qnn/api/tensor.h"
#include "qnn/api/vendor_log.h"
#include "spillway/status.h"

namespace spillway::qnn {

class AbiTensor;

// Safe to share between threads.
class Backend {
 public:
  static Result<std::shared_ptr<Backend>> Create(std::shared_ptr<VendorLog> log);
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const std::shared_ptr<VendorLog>& log() const { return log_; }
  abi::Handle handle() const { return handle_; }

  // Whether the target supports an operation: ok, or kUnsupported with the
  // node's name and type and the data types and shapes of all its tensors.
  // The SoC is that of the device created last. Needs no graph, and static tensors
  // need no data. kInvalidArgument for a tensor that CheckTensor refuses.
  Status Validate(const OpQuery& op) const;
  // Makes the operations of another library known; before the first graph that uses
  // them. `interface_provider` is the function that it exports, `target` where it
  // runs ("CPU", "HTP"; empty: the vendor decides). The file is loaded by the vendor.
  Status RegisterOpPackage(const std::string& path, const std::string& interface_provider,
                           const std::string& target);
  // The operation types of the HTP package, in the vendor's order.
  Result<std::vector<std::string>> SupportedOperations() const;

 private:
  explicit Backend(std::shared_ptr<VendorLog> log) : log_(std::move(log)) {}
  std::shared_ptr<VendorLog> log_;
  abi::Handle handle_ = nullptr;
};

class Device {
 public:
  // `configs` is read during the call only. Without a SoC option an x86-64
  // library assumes SM8350.
  static Result<std::shared_ptr<Device>> Create(std::shared_ptr<VendorLog> log,
                                                DeviceConfigs configs);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  abi::Handle handle() const { return handle_; }
  const std::shared_ptr<VendorLog>& log() const { return log_; }

 private:
  explicit Device(std::shared_ptr<VendorLog> log) : log_(std::move(log)) {}
  std::shared_ptr<VendorLog> log_;
  abi::Handle handle_ = nullptr;
};

class Context;

struct FinalizeOptions {
  // abi::ProfileLevel, or 0 for no profile. kProfileDetailed gives estimates on
  // the SoCs that have them.
  uint32_t profile_level = 0;
  // Called with the vendor's stage and the finished part of the preparation,
  // from a thread of the vendor.
  std::function<void(std::string_view stage, double fraction)> progress;
};

struct FinalizeResult {
  double seconds = 0;
  std::optional<GraphEstimates> estimates;
  std::vector<ProfileEvent> events;
};

// One graph of a Context, which owns it. Not thread-safe; two graphs may be used
// from two threads (the vendor runs one at a time).
class Graph {
 public:
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const std::string& name() const { return name_; }

  // ---- Building: only in a context from Context::Create, before Finalize.

  // Static data is copied by the vendor during the call.
  Result<TensorId> AddTensor(const TensorDesc& tensor);
  // Asks the vendor first whether the target supports the node (see
  // Backend::Validate for the error) and then adds it. The first use of a
  // tensor as an output defines it: nodes come in execution order.
  Status AddNode(const OpDesc& op);
  // Compiles the graph; seconds to minutes. A library that prints to standard output
  // has that taken into the log, and with it what other threads print meanwhile.
  Result<FinalizeResult> Finalize(const FinalizeOptions& options);
  bool finalized() const { return finalized_; }

  // ---- Running: after Finalize, or in a context from Context::Load.

  // In the order in which the graph's maker added them.
  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  const std::vector<TensorInfo>& outputs() const { return outputs_; }
  // Runs once. Buffers in the order of inputs() and outputs(), of exactly their
  // byte sizes (checked: the vendor does not), row-major. Blocks until done.
  Status Execute(std::span<const std::span<const std::byte>> inputs,
                 std::span<const std::span<std::byte>> outputs);
  // The same, and fills in the times; `profile_level` is an abi::ProfileLevel.
  Status ExecuteProfiled(std::span<const std::span<const std::byte>> inputs,
                         std::span<const std::span<std::byte>> outputs, uint32_t profile_level,
                         std::vector<ProfileEvent>* events);
  // From now on Execute reads and writes memory that is registered with the context, one handle
  // a tensor, and its buffers only say sizes; until UseBuffers().
  void UseMemory(std::span<const abi::Handle> inputs, std::span<const abi::Handle> outputs);
  void UseBuffers();

 private:
  friend class Context;
  Graph(Context* context, std::string name);
  const abi::Functions& fn() const;
  VendorLog& log() const;
  Status CreateVendorTensor(AbiTensor* tensor);
  Status CollectTensors(const OpDesc& op, const std::vector<TensorId>& ids,
                        std::vector<abi::Tensor>* tensors) const;
  abi::Error FinalizeCaptured(abi::Handle profile);
  void SetInterface(std::vector<TensorInfo> inputs, std::vector<TensorInfo> outputs);
  Status FillBuffers(std::span<const std::span<const std::byte>> inputs,
                     std::span<const std::span<std::byte>> outputs);

  Context* context_;
  std::string name_;
  abi::Handle handle_ = nullptr;
  bool loaded_ = false;
  bool finalized_ = false;
  std::vector<std::unique_ptr<AbiTensor>> tensors_;  // by TensorId
  std::vector<TensorInfo> inputs_, outputs_;
  std::vector<abi::Tensor> execute_inputs_, execute_outputs_;
};

// A context and its graphs. Freed as a whole. Creating and loading contexts from
// several threads is safe; one context is used by one thread at a time, except
// as Graph says.
class Context {
 public:
  // An empty context for compiling.
  static Result<std::unique_ptr<Context>> Create(std::shared_ptr<Backend> backend,
                                                 std::shared_ptr<Device> device,
                                                 ContextConfigs configs);
  // From a context binary; `binary` may go away afterwards. Retrieves every
  // graph that `info` (of the same bytes) names: a context that loads without
  // its graphs, which the simulator does for binaries made with the SLC
  // allocator, is an error. Binaries with shared weights of more than one graph
  // are refused on x86-64 before the vendor sees them (it would crash).
  static Result<std::unique_ptr<Context>> Load(std::shared_ptr<Backend> backend,
                                               std::shared_ptr<Device> device,
                                               std::span<const std::byte> binary,
                                               const BinaryInfo& info, ContextConfigs configs);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Only in a context from Create. The graph lives as long as the context.
  Result<Graph*> CreateGraph(const std::string& name, GraphConfigs configs);
  // Null when there is none of that name.
  Graph* FindGraph(std::string_view name);
  const std::vector<std::unique_ptr<Graph>>& graphs() const { return graphs_; }

  // Only in a context from Create, when all its graphs are finalised. The size
  // may be a little more than what GetBinary then writes.
  Result<uint64_t> GetBinarySize();
  // Writes the binary into `buffer`, at least GetBinarySize() bytes, and returns
  // how many bytes it has.
  Result<uint64_t> GetBinary(std::span<std::byte> buffer);
  Result<std::vector<std::byte>> GetBinary();

  // For tensors of its graphs, and only while the context lives. kVendor when the platform has
  // no such memory.
  Result<abi::Handle> RegisterMemory(const abi::MemDescriptor& descriptor);
  void DeregisterMemory(std::span<const abi::Handle> handles);

  abi::Handle handle() const { return handle_; }
  const std::shared_ptr<Backend>& backend() const { return backend_; }

 private:
  Context(std::shared_ptr<Backend> backend, std::shared_ptr<Device> device);
  const abi::Functions& fn() const;
  // `mark` is that of the load: its log lines explain a graph that is missing.
  Status RetrieveGraphs(const BinaryInfo& info, uint64_t mark);

  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Device> device_;
  abi::Handle handle_ = nullptr;
  bool loaded_ = false;
  std::vector<std::unique_ptr<Graph>> graphs_;
};

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_MANAGER_H_
