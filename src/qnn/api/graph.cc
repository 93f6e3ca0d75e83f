#include <fmt/format.h>

#include <chrono>

#include "base/log.h"
#include "qnn/api/abi_tensor.h"
#include "qnn/api/describe_node.h"
#include "qnn/api/errors.h"
#include "qnn/api/manager.h"
#include "qnn/api/stdout_capture.h"

namespace spillway::qnn {
namespace {

TensorInfo InfoOf(const AbiTensor& tensor) {
  return {tensor.name(), tensor.dtype(), tensor.dims(), tensor.encoding(), tensor.vendor_id()};
}

// A tensor for Execute: the vendor matches it by id and reads its buffer.
abi::Tensor ExecuteTensor(const TensorInfo& info, abi::TensorType type) {
  abi::Tensor tensor = {};
  tensor.version = 1;
  tensor.v1.id = info.vendor_id;
  tensor.v1.name = info.name.c_str();
  tensor.v1.type = type;
  tensor.v1.data_type = info.dtype;
  tensor.v1.quantize.definition = abi::kUndefinedDefinition;
  tensor.v1.quantize.encoding = abi::kUndefinedEncoding;
  tensor.v1.rank = static_cast<uint32_t>(info.dims.size());
  tensor.v1.dims = const_cast<uint32_t*>(info.dims.data());
  tensor.v1.mem_type = abi::kMemRaw;
  return tensor;
}

template <typename Byte>
Status FillSide(const std::string& graph, const char* side, const std::vector<TensorInfo>& infos,
                std::span<const std::span<Byte>> buffers, std::vector<abi::Tensor>* tensors) {
  if (buffers.size() != infos.size()) {
    return InvalidArgumentError(fmt::format("graph '{}': {} {} buffers, expected {}", graph,
                                            buffers.size(), side, infos.size()));
  }
  for (size_t i = 0; i < infos.size(); ++i) {
    if (buffers[i].size() != infos[i].byte_size()) {
      return InvalidArgumentError(
          fmt::format("graph '{}': {} '{}' got a buffer of {} bytes, expected {} ({})", graph, side,
                      infos[i].name, buffers[i].size(), infos[i].byte_size(),
                      DescribeTensor(infos[i].dtype, infos[i].dims)));
    }
    if ((*tensors)[i].v1.mem_type == abi::kMemHandle) continue;
    abi::ClientBuffer& client = (*tensors)[i].v1.client;
    client.data = const_cast<std::byte*>(static_cast<const std::byte*>(buffers[i].data()));
    client.size = static_cast<uint32_t>(buffers[i].size());
  }
  return OkStatus();
}

}  // namespace

Graph::Graph(Context* context, std::string name) : context_(context), name_(std::move(name)) {}
Graph::~Graph() = default;

const abi::Functions& Graph::fn() const { return log().library().fn(); }
VendorLog& Graph::log() const { return *context_->backend()->log(); }

Status Graph::CreateVendorTensor(AbiTensor* tensor) {
  const uint64_t mark = log().Mark();
  const abi::Error error = fn().tensor_create_graph_tensor(handle_, tensor->mutable_tensor());
  if (error == 0) return OkStatus();
  return VendorFailure(fmt::format("graph '{}': creating tensor '{}' ({})", name_, tensor->name(),
                                   DescribeTensor(tensor->dtype(), tensor->dims())),
                       error, log().ProblemsSince(mark));
}

Result<TensorId> Graph::AddTensor(const TensorDesc& tensor) {
  if (loaded_ || finalized_) {
    return FailedPreconditionError(
        fmt::format("graph '{}' is finished: tensor '{}' cannot be added", name_, tensor.name));
  }
  const Status checked = CheckTensor(tensor);
  if (!checked.ok()) return checked.WithContext(fmt::format("graph '{}'", name_));
  auto owned = std::make_unique<AbiTensor>(tensor);
  SPILLWAY_RETURN_IF_ERROR(CreateVendorTensor(owned.get()));
  owned->SetData(nullptr, 0);  // the vendor has its copy
  if (tensor.role == TensorRole::kAppWrite) inputs_.push_back(InfoOf(*owned));
  if (tensor.role == TensorRole::kAppRead) outputs_.push_back(InfoOf(*owned));
  tensors_.push_back(std::move(owned));
  return static_cast<TensorId>(tensors_.size() - 1);
}

Status Graph::CollectTensors(const OpDesc& op, const std::vector<TensorId>& ids,
                             std::vector<abi::Tensor>* tensors) const {
  for (const TensorId id : ids) {
    if (id >= tensors_.size()) {
      return InvalidArgumentError(
          fmt::format("graph '{}': node '{}' of type {} uses tensor {}, but the graph has {}",
                      name_, op.name, op.type, id, tensors_.size()));
    }
    tensors->push_back(tensors_[id]->tensor());
  }
  return OkStatus();
}

Status Graph::AddNode(const OpDesc& op) {
  if (loaded_ || finalized_) {
    return FailedPreconditionError(
        fmt::format("graph '{}' is finished: node '{}' cannot be added", name_, op.name));
  }
  const Status checked = CheckParams(op.name, op.params);
  if (!checked.ok()) return checked.WithContext(fmt::format("graph '{}'", name_));
  std::vector<abi::Tensor> inputs, outputs;
  SPILLWAY_RETURN_IF_ERROR(CollectTensors(op, op.inputs, &inputs));
  SPILLWAY_RETURN_IF_ERROR(CollectTensors(op, op.outputs, &outputs));
  AbiParams params(op.name, op.params);
  abi::OpConfig config = {1,
                          op.name.c_str(),
                          op.package.c_str(),
                          op.type.c_str(),
                          static_cast<uint32_t>(op.params.size()),
                          params.list().data(),
                          static_cast<uint32_t>(inputs.size()),
                          inputs.data(),
                          static_cast<uint32_t>(outputs.size()),
                          outputs.data()};
  const std::string graph = fmt::format("graph '{}', ", name_);
  const uint64_t mark = log().Mark();
  const abi::Error refused = fn().backend_validate_op_config(context_->backend()->handle(), config);
  if (refused != 0) {
    return RefusedNode(graph + DescribeAbiNode(config), refused, log().ProblemsSince(mark));
  }
  for (AbiTensor& tensor : params.tensors()) SPILLWAY_RETURN_IF_ERROR(CreateVendorTensor(&tensor));
  config.params = params.list().data();  // now with ids
  const abi::Error error = fn().graph_add_node(handle_, config);
  if (error == 0) return OkStatus();
  return VendorFailure(graph + DescribeAbiNode(config) + ": adding the node", error,
                       log().ProblemsSince(mark));
}

// With what an old library prints taken into the log.
abi::Error Graph::FinalizeCaptured(abi::Handle profile) {
  std::unique_ptr<StdoutCapture> capture;
  if (log().library().prints_to_stdout()) {
    Result<std::unique_ptr<StdoutCapture>> started =
        StdoutCapture::Start([this](std::string_view line) { log().AddPrintedLine(line); });
    // Without it the report lacks facts; that is no reason not to compile.
    if (started.ok()) {
      capture = std::move(started).value();
    } else {
      Log(LogLevel::kWarning, "{}", started.status().message());
    }
  }
  return fn().graph_finalize(handle_, profile, nullptr);
}

Result<FinalizeResult> Graph::Finalize(const FinalizeOptions& options) {
  if (loaded_ || finalized_) {
    return FailedPreconditionError(fmt::format("graph '{}' is finalised already", name_));
  }
  SPILLWAY_ASSIGN_OR_RETURN(const Profile profile,
                            Profile::Create(context_->backend()->log(),
                                            context_->backend()->handle(), options.profile_level));
  log().BeginPrepare(name_, options.progress);
  const uint64_t mark = log().Mark();
  const auto start = std::chrono::steady_clock::now();
  const abi::Error error = FinalizeCaptured(profile.handle());
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  log().EndPrepare();
  if (error != 0) {
    return VendorFailure(fmt::format("finalising graph '{}'", name_), error,
                         log().ProblemsSince(mark));
  }
  finalized_ = true;
  SetInterface(std::move(inputs_), std::move(outputs_));
  FinalizeResult result;
  result.seconds = elapsed.count();
  SPILLWAY_ASSIGN_OR_RETURN(result.events, profile.ReadEvents());
  result.estimates = ReadEstimates(result.events);
  return result;
}

void Graph::SetInterface(std::vector<TensorInfo> inputs, std::vector<TensorInfo> outputs) {
  inputs_ = std::move(inputs);
  outputs_ = std::move(outputs);
  execute_inputs_.clear();
  execute_outputs_.clear();
  for (const TensorInfo& info : inputs_) {
    execute_inputs_.push_back(ExecuteTensor(info, abi::kAppWrite));
  }
  for (const TensorInfo& info : outputs_) {
    execute_outputs_.push_back(ExecuteTensor(info, abi::kAppRead));
  }
}

Status Graph::FillBuffers(std::span<const std::span<const std::byte>> inputs,
                          std::span<const std::span<std::byte>> outputs) {
  if (!loaded_ && !finalized_) {
    return FailedPreconditionError(
        fmt::format("graph '{}' cannot run: it is not finalised", name_));
  }
  SPILLWAY_RETURN_IF_ERROR(FillSide(name_, "input", inputs_, inputs, &execute_inputs_));
  return FillSide(name_, "output", outputs_, outputs, &execute_outputs_);
}

void Graph::UseMemory(std::span<const abi::Handle> inputs, std::span<const abi::Handle> outputs) {
  const auto set = [](std::span<const abi::Handle> handles, std::vector<abi::Tensor>& tensors) {
    for (size_t i = 0; i < tensors.size() && i < handles.size(); ++i) {
      tensors[i].v1.mem_type = abi::kMemHandle;
      tensors[i].v1.mem_handle = handles[i];
    }
  };
  set(inputs, execute_inputs_);
  set(outputs, execute_outputs_);
}

void Graph::UseBuffers() {
  for (auto* tensors : {&execute_inputs_, &execute_outputs_}) {
    for (abi::Tensor& tensor : *tensors) {
      tensor.v1.mem_type = abi::kMemRaw;
      tensor.v1.client = {};
    }
  }
}

Status Graph::Execute(std::span<const std::span<const std::byte>> inputs,
                      std::span<const std::span<std::byte>> outputs) {
  return ExecuteProfiled(inputs, outputs, 0, nullptr);
}

Status Graph::ExecuteProfiled(std::span<const std::span<const std::byte>> inputs,
                              std::span<const std::span<std::byte>> outputs, uint32_t profile_level,
                              std::vector<ProfileEvent>* events) {
  SPILLWAY_RETURN_IF_ERROR(FillBuffers(inputs, outputs));
  SPILLWAY_ASSIGN_OR_RETURN(
      const Profile profile,
      Profile::Create(context_->backend()->log(), context_->backend()->handle(), profile_level));
  const uint64_t mark = log().Mark();
  const abi::Error error =
      fn().graph_execute(handle_, execute_inputs_.data(),
                         static_cast<uint32_t>(execute_inputs_.size()), execute_outputs_.data(),
                         static_cast<uint32_t>(execute_outputs_.size()), profile.handle(), nullptr);
  if (error != 0) {
    return VendorFailure(fmt::format("executing graph '{}'", name_), error,
                         log().ProblemsSince(mark));
  }
  if (events == nullptr) return OkStatus();
  SPILLWAY_ASSIGN_OR_RETURN(*events, profile.ReadEvents());
  return OkStatus();
}

}  // namespace spillway::qnn
