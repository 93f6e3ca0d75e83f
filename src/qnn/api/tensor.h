// Tensors and operations as we describe them to the vendor: plain data, no
// vendor pointers.

#ifndef SPILLWAY_QNN_API_TENSOR_H_
#define SPILLWAY_QNN_API_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "qnn/api/abi.h"
#include "spillway/status.h"

namespace spillway::qnn {

using abi::DataType;

// Bytes of one value; 0 for a type that has no fixed size of whole bytes.
size_t DataTypeSize(DataType type);
// "u16", "s8", "f32", "i32", "ui32", "b8"; "type 0x...." when unknown. Fixed-point
// types are u/s, plain integers i/ui.
std::string DataTypeName(DataType type);
bool IsFixedPoint(DataType type);

// How stored integers stand for real numbers: real = scale * (q + offset).
struct TensorEncoding {
  enum class Kind {
    kNone,         // integers or floats that stand for themselves
    kPerTensor,    // one scale and offset
    kPerAxis,      // one scale and offset per index of `axis`
    kBwPerTensor,  // like kPerTensor, values use only `bitwidth` bits of their byte
    kBwPerAxis,    // like kPerAxis, values use only `bitwidth` bits of their byte
    kBlockwise,    // a scale per index of `axis`, times an integer per block (LPBQ)
  };

  Kind kind = Kind::kNone;
  int32_t axis = 0;
  uint32_t bitwidth = 0;
  std::vector<float> scales;
  // As many as scales; empty means all 0.
  std::vector<int32_t> offsets;
  // kBlockwise only: [scales.size()][blocks_per_axis], each 1..2^block_scale_bitwidth.
  std::vector<uint8_t> block_scales;
  uint32_t blocks_per_axis = 0;
  uint32_t block_scale_bitwidth = 4;

  static TensorEncoding PerTensor(float scale, int32_t offset);
  static TensorEncoding PerAxis(int32_t axis, std::vector<float> scales);
  static TensorEncoding BwPerAxis(int32_t axis, uint32_t bitwidth, std::vector<float> scales);
};

enum class TensorRole {
  kAppWrite,  // a graph input
  kAppRead,   // a graph output
  kNative,    // between two operations
  kStatic,    // a constant
};

struct TensorDesc {
  std::string name;  // unique in the graph
  TensorRole role = TensorRole::kNative;
  DataType dtype = DataType::kUfixed16;
  std::vector<uint32_t> dims;  // 1 to 5, none 0
  TensorEncoding encoding;     // fixed-point types need one
  // kStatic only: the values, row-major, ByteSize() bytes. The vendor copies
  // them while the tensor is created; they may go away afterwards.
  std::span<const std::byte> data;
};

// Product of the dimensions times the size of a value. Valid descriptions only.
uint64_t ByteSize(DataType dtype, std::span<const uint32_t> dims);

// The vendor accepts much that it cannot mean (static data that is too short, a
// dimension of 0, a scale of 0): this refuses it, naming the tensor, with
// kInvalidArgument.
Status CheckTensor(const TensorDesc& tensor);
// The same without looking at `data`, for questions that need none.
Status CheckTensorWithoutData(const TensorDesc& tensor);

// "u16 [1, 1, 32, 576]"
std::string DescribeTensor(DataType dtype, std::span<const uint32_t> dims);

// A constant tensor that is a parameter of an operation.
struct TensorParam {
  DataType dtype = DataType::kUint32;
  std::vector<uint32_t> dims;
  std::vector<std::byte> data;

  static TensorParam Uint32(std::vector<uint32_t> dims, std::span<const uint32_t> values);
  static TensorParam Int32(std::vector<uint32_t> dims, std::span<const int32_t> values);
};

struct OpParam {
  std::string name;
  // A bool goes out as an 8-bit boolean.
  std::variant<uint32_t, int32_t, float, bool, TensorParam> value;
};

// Checks the tensors among an operation's parameters as CheckTensor does.
Status CheckParams(const std::string& op_name, const std::vector<OpParam>& params);

inline constexpr char kHtpPackage[] = "qti.aisw";

// A tensor of one Graph: what Graph::AddTensor returned.
using TensorId = uint32_t;

struct OpDesc {
  std::string name;  // unique in the graph
  std::string type;  // "Conv2d"
  std::vector<TensorId> inputs, outputs;
  std::vector<OpParam> params;
  std::string package = kHtpPackage;
};

// An operation on tensors that belong to no graph; for asking whether the target
// supports it.
struct OpQuery {
  std::string name, type;
  std::vector<TensorDesc> inputs, outputs;
  std::vector<OpParam> params;
  std::string package = kHtpPackage;
};

// An input or output of a finished graph.
struct TensorInfo {
  std::string name;
  DataType dtype = DataType::kUfixed16;
  std::vector<uint32_t> dims;
  TensorEncoding encoding;
  uint32_t vendor_id = 0;

  uint64_t byte_size() const { return ByteSize(dtype, dims); }
};

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_TENSOR_H_
