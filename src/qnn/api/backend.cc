#include <fmt/format.h>

#include <deque>

#include "base/log.h"
#include "qnn/api/abi_tensor.h"
#include "qnn/api/describe_node.h"
#include "qnn/api/errors.h"
#include "qnn/api/handle_counts.h"
#include "qnn/api/manager.h"

namespace spillway::qnn {

Result<std::shared_ptr<Backend>> Backend::Create(std::shared_ptr<VendorLog> log) {
  std::shared_ptr<Backend> backend(new Backend(std::move(log)));
  VendorLog& vendor_log = *backend->log_;
  const uint64_t mark = vendor_log.Mark();
  const abi::Error error =
      vendor_log.library().fn().backend_create(vendor_log.handle(), nullptr, &backend->handle_);
  if (error != 0) {
    backend->handle_ = nullptr;
    return VendorFailure("creating the HTP backend", error, vendor_log.ProblemsSince(mark));
  }
  CountCreated(HandleKind::kBackend);
  return backend;
}

Backend::~Backend() {
  if (handle_ == nullptr) return;
  const abi::Error error = log_->library().fn().backend_free(handle_);
  if (error == 0) {
    CountFreed(HandleKind::kBackend);
  } else {
    Log(LogLevel::kWarning, "freeing the HTP backend: {}", DescribeError(error));
  }
}

Status Backend::Validate(const OpQuery& op) const {
  SPILLWAY_RETURN_IF_ERROR(CheckParams(op.name, op.params));
  for (const auto* side : {&op.inputs, &op.outputs}) {
    for (const TensorDesc& desc : *side) SPILLWAY_RETURN_IF_ERROR(CheckTensorWithoutData(desc));
  }
  std::deque<AbiTensor> owned;
  const auto convert = [&owned](const std::vector<TensorDesc>& descs,
                                std::vector<abi::Tensor>* tensors) {
    for (const TensorDesc& desc : descs) tensors->push_back(owned.emplace_back(desc).tensor());
  };
  std::vector<abi::Tensor> inputs, outputs;
  convert(op.inputs, &inputs);
  convert(op.outputs, &outputs);
  AbiParams params(op.name, op.params);
  std::vector<abi::Param>& param_list = params.list();
  abi::OpConfig config = {1,
                          op.name.c_str(),
                          op.package.c_str(),
                          op.type.c_str(),
                          static_cast<uint32_t>(param_list.size()),
                          param_list.data(),
                          static_cast<uint32_t>(inputs.size()),
                          inputs.data(),
                          static_cast<uint32_t>(outputs.size()),
                          outputs.data()};
  const uint64_t mark = log_->Mark();
  const abi::Error error = log_->library().fn().backend_validate_op_config(handle_, config);
  if (error == 0) return OkStatus();
  return RefusedNode(DescribeAbiNode(config), error, log_->ProblemsSince(mark));
}

Status Backend::RegisterOpPackage(const std::string& path, const std::string& interface_provider,
                                  const std::string& target) {
  // A bare name would be looked up in the loader's path.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  const uint64_t mark = log_->Mark();
  const abi::Error error = log_->library().fn().backend_register_op_package(
      handle_, file.c_str(), interface_provider.c_str(), target.empty() ? nullptr : target.c_str());
  if (error == 0) return OkStatus();
  return VendorFailure(fmt::format("registering the op package {} (provider {}{}{})", path,
                                   interface_provider, target.empty() ? "" : ", target ", target),
                       error, log_->ProblemsSince(mark));
}

Result<std::vector<std::string>> Backend::SupportedOperations() const {
  uint32_t count = 0;
  const abi::OperationName* names = nullptr;
  const abi::Error error =
      log_->library().fn().backend_get_supported_operations(handle_, &count, &names);
  if (error != 0) return VendorFailure("asking for the supported operations", error, {});
  std::vector<std::string> result;
  for (uint32_t i = 0; names != nullptr && i < count; ++i) {
    if (names[i].name != nullptr) result.emplace_back(names[i].name);
  }
  return result;
}

Result<std::shared_ptr<Device>> Device::Create(std::shared_ptr<VendorLog> log,
                                               DeviceConfigs configs) {
  std::shared_ptr<Device> device(new Device(std::move(log)));
  VendorLog& vendor_log = *device->log_;
  const uint64_t mark = vendor_log.Mark();
  const abi::Error error = vendor_log.library().fn().device_create(
      vendor_log.handle(), configs.list(), &device->handle_);
  if (error != 0) {
    device->handle_ = nullptr;
    return VendorFailure("creating the HTP device", error, vendor_log.ProblemsSince(mark));
  }
  CountCreated(HandleKind::kDevice);
  return device;
}

Device::~Device() {
  if (handle_ == nullptr) return;
  const abi::Error error = log_->library().fn().device_free(handle_);
  if (error == 0) {
    CountFreed(HandleKind::kDevice);
  } else {
    Log(LogLevel::kWarning, "freeing the HTP device: {}", DescribeError(error));
  }
}

}  // namespace spillway::qnn
