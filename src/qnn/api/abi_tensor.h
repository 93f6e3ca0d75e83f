// From our tensors to the vendor's structures and back. Internal to qnn.

#ifndef SPILLWAY_QNN_API_ABI_TENSOR_H_
#define SPILLWAY_QNN_API_ABI_TENSOR_H_

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "qnn/api/abi.h"
#include "qnn/api/tensor.h"

namespace spillway::qnn {

// A vendor tensor and everything that it points at, except static data. Pinned:
// the structure holds pointers into the object.
class AbiTensor {
 public:
  explicit AbiTensor(const TensorDesc& desc);
  AbiTensor(const AbiTensor&) = delete;
  AbiTensor& operator=(const AbiTensor&) = delete;

  // A shallow copy, valid while this object lives.
  const abi::Tensor& tensor() const { return tensor_; }
  // For the vendor to fill in the id.
  abi::Tensor* mutable_tensor() { return &tensor_; }
  void SetData(const void* data, uint64_t size);

  DataType dtype() const { return tensor_.v1.data_type; }
  const std::vector<uint32_t>& dims() const { return dims_; }
  const std::string& name() const { return name_; }
  const TensorEncoding& encoding() const { return encoding_; }
  uint32_t vendor_id() const { return tensor_.v1.id; }

 private:
  void FillEncoding();

  std::string name_;
  std::vector<uint32_t> dims_;
  TensorEncoding encoding_;
  std::vector<abi::ScaleOffset> scale_offsets_;
  abi::BlockwiseExpansion blockwise_ = {};
  abi::Tensor tensor_ = {};
};

// An operation's parameters in the vendor's form. Tensor parameters are static
// tensors named "<op>.<parameter>"; their data must outlive the object.
class AbiParams {
 public:
  AbiParams(const std::string& op_name, const std::vector<OpParam>& params);

  // The static tensors, for creation in a graph (which sets their ids).
  std::deque<AbiTensor>& tensors() { return tensors_; }
  // Rebuilt from the current state of tensors().
  std::vector<abi::Param>& list();

 private:
  const std::vector<OpParam>* params_;
  std::deque<AbiTensor> tensors_;
  std::vector<abi::Param> list_;
};

// What a vendor tensor describes (without data): kCorruptData when it is not
// readable, for example an unknown version or a missing dimension list.
Result<TensorInfo> ReadAbiTensor(const abi::Tensor& tensor);

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_ABI_TENSOR_H_
