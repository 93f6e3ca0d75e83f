// Graph: the typed IR that calibration, the host executor, the vendor lowering
// and the package share.
//
// A graph is a list of tensors and a list of operations in execution order.
// Each operation has one meaning, in float and in fixed point, written down in
// docs/operations.md and checked by Validate(). In a float graph every
// activation is f32; in a quantised graph every activation is fixed point with
// an encoding, and an operation computes real values from its inputs' integers,
// then rounds once, half to even, and saturates to its output's encoding.

#ifndef SPILLWAY_GRAPH_GRAPH_H_
#define SPILLWAY_GRAPH_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/types.h"
#include "spillway/status.h"

namespace spillway {

using TensorId = uint32_t;

// How the bytes of a constant lie in memory.
enum class DataLayout : uint8_t {
  kRowMajor,
  // Weights of Linear, logically [N, K] s8: [ceil(N/16)][ceil(K/4)][16][4],
  // zero-padded: the four K-neighbours of one output channel lie together, 16
  // channels next to each other, so a 64-byte vector feeds a dot-product unit.
  kPackedN16K4,
  // 4-bit weights of Linear, logically [N, K] s8 from -8 to 7: [ceil(N/16)][ceil(K/8)][16][4].
  // Of a channel's eight K-neighbours, byte i holds the i-th in its low half and the
  // (4 + i)-th in its high half, each as value + 8; padded with zeros.
  kPackedNibbles,
};

// Where element (n, k) of a [rows, cols] matrix is in kPackedN16K4.
inline size_t PackedN16K4Index(size_t n, size_t k, size_t cols) {
  const size_t k_groups = (cols + 3) / 4;
  return (n / 16 * k_groups + k / 4) * 64 + n % 16 * 4 + k % 4;
}
// Bytes of a [rows, cols] s8 matrix in kPackedN16K4.
inline size_t PackedN16K4Size(size_t rows, size_t cols) {
  return (rows + 15) / 16 * ((cols + 3) / 4) * 64;
}

inline size_t PackedNibblesSize(size_t rows, size_t cols) {
  return (rows + 15) / 16 * ((cols + 7) / 8) * 64;
}
inline int32_t PackedNibble(const std::byte* data, size_t n, size_t k, size_t cols) {
  const std::byte pair = data[(n / 16 * ((cols + 7) / 8) + k / 8) * 64 + n % 16 * 4 + k % 4];
  return (std::to_integer<int32_t>(pair) >> (k % 8 < 4 ? 0 : 4) & 15) - 8;
}

// The values of a constant tensor. Immutable, shared between graphs (two
// tensors share weights when they point at the same object). Thread-safe.
class ConstantData {
 public:
  virtual ~ConstantData() = default;
  // All bytes in `layout()`, 64-byte aligned; empty when the values can only be
  // read row by row (weights that stay quantised in the model's file).
  virtual std::span<const std::byte> bytes() const = 0;
  virtual DataLayout layout() const { return DataLayout::kRowMajor; }
  // f32 matrices only: rows [row, row + count) of the last dimension's length.
  virtual void ReadRows(uint64_t row, uint64_t count, float* out) const;
};

// Owns a copy of `bytes`.
std::shared_ptr<const ConstantData> MakeConstant(std::span<const std::byte> bytes,
                                                 DataLayout layout = DataLayout::kRowMajor);
template <typename T>
std::shared_ptr<const ConstantData> MakeConstantOf(const std::vector<T>& values,
                                                   DataLayout layout = DataLayout::kRowMajor) {
  return MakeConstant(std::as_bytes(std::span<const T>(values)), layout);
}

enum class TensorRole : uint8_t { kInput, kOutput, kConstant, kInternal };

struct Tensor {
  std::string name;  // unique in the graph; the same in every graph of a model
  DType dtype = DType::kF32;
  Shape shape;
  Encoding encoding;
  TensorRole role = TensorRole::kInternal;
  std::shared_ptr<const ConstantData> data;  // kConstant only
  // ChannelSums() of a packed weight where they are known, s32 [N]; may be null.
  std::shared_ptr<const ConstantData> sums;
  // When set, this tensor always has the encoding of the tensor with that name
  // (a cache input and the step's own K; the output of a Reshape).
  std::string encoding_of;

  uint64_t Bytes() const { return NumElements(shape) * DTypeSize(dtype); }
};

// What an operation does; shapes as [outermost, ..., innermost].
enum class OpType : uint8_t {
  // x [1, 1, R, K], weight [N, K] constant, (bias [N] constant) -> [1, 1, R, N].
  // weight: f32, s8 per channel (axis 0), s8 with 4 significant bits per channel
  // or block. bias: f32, or s32 in units of x.scale * channel scale. On HTP: a
  // 1x1 convolution with weights [1, 1, K, N].
  kLinear,
  // a [..., M, K] x b [..., K, N] -> [..., M, N]; leading dimensions equal.
  kMatMul,
  kAdd,       // a, b (b broadcast to a: each dimension equal or 1) -> shape of a
  kMul,       // likewise
  kSilu,      // x * sigmoid(x)
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kRmsNorm,   // x, gamma [D]: x / sqrt(mean(x^2) + epsilon) * gamma, last dimension D
  kSoftmax,   // over the last dimension
  // x [1, H, S, D], cos [1, S, R/2], sin [1, S, R/2], R <= D: rotates the pairs
  // (i, i + R/2) of the first R values; the others pass.
  kRotaryEmbedding,
  kGather,     // table [V, D] constant, indices [1, S] i32 -> [1, S, D]; encoding kept
  kReshape,    // same elements, another shape; encoding kept
  kTranspose,  // attributes.ints = permutation; encoding kept
  kConcat,     // along attributes.axis; inputs share the output's encoding
  kTile,       // repeats along each dimension attributes.ints times; encoding kept
  kConvert,    // another fixed-point encoding or type of the same real values
  kSlice,      // ints = {begin, count}: that part of attributes.axis; encoding kept
};

std::string_view OpTypeName(OpType type);  // "Linear"
// True for operations that copy integers: the output has the first input's
// encoding and type.
bool KeepsEncoding(OpType type);

struct OpAttributes {
  float epsilon = 0.0f;        // kRmsNorm
  uint32_t axis = 0;           // kConcat, kSlice
  std::vector<uint32_t> ints;  // kTranspose, kTile, kSlice

  bool operator==(const OpAttributes&) const = default;
};

struct Op {
  OpType type = OpType::kReshape;
  std::string name;  // unique in the graph
  std::vector<TensorId> inputs, outputs;
  OpAttributes attributes;
};

class Graph {
 public:
  explicit Graph(std::string name = "") : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  // Building. A name that is taken is a bug of the caller (asserted).
  TensorId AddTensor(Tensor tensor);
  TensorId AddInput(std::string name, DType dtype, Shape shape);  // appended to inputs()
  TensorId AddConstant(std::string name, DType dtype, Shape shape,
                       std::shared_ptr<const ConstantData> data, Encoding encoding = {});
  // Adds an operation with one new internal output tensor, named like the
  // operation, whose shape follows from the inputs; its dtype is that of the
  // first non-constant input.
  TensorId AddOp(OpType type, std::string name, std::vector<TensorId> inputs,
                 OpAttributes attributes = {});
  // kReshape to `shape`.
  TensorId AddReshape(std::string name, TensorId input, Shape shape);
  void AppendOp(Op op) { ops_.push_back(std::move(op)); }
  void MarkOutput(TensorId id);  // role kOutput, appended to outputs()

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor& tensor(TensorId id) const { return tensors_[id]; }
  Tensor& mutable_tensor(TensorId id) { return tensors_[id]; }
  const std::vector<Op>& ops() const { return ops_; }
  std::vector<Op>& mutable_ops() { return ops_; }
  const std::vector<TensorId>& inputs() const { return inputs_; }
  const std::vector<TensorId>& outputs() const { return outputs_; }
  std::optional<TensorId> Find(std::string_view name) const;
  void Rename(TensorId id, std::string name);

  // Checks that every tensor is produced once and before it is used, and that
  // every operation's arity, shapes, dtypes and encodings are what its meaning
  // asks for. The error names the operation and the tensor.
  Status Validate() const;

  // A listing for people: one line a tensor that matters, one line an operation.
  std::string ToString() const;

 private:
  std::string name_;
  std::vector<Tensor> tensors_;
  std::vector<Op> ops_;
  std::vector<TensorId> inputs_, outputs_;
  std::unordered_map<std::string, TensorId> by_name_;
};

// Bytes that the values of a constant take in `layout`. Packed layouts are for s8 matrices.
uint64_t StoredBytes(const Tensor& tensor, DataLayout layout);
// Element (n, k) of an s8 matrix in whatever layout its values have.
int32_t MatrixInt(const Tensor& matrix, size_t n, size_t k);
// The sum of the integers of each row of an s8 matrix, block scales multiplied in, [N].
std::vector<int32_t> ChannelSums(const Tensor& matrix);
// The same values as kPackedNibbles; for s8 matrices with 4 significant bits.
std::shared_ptr<const ConstantData> PackNibbles(const Tensor& matrix);

// Bytes of the constants of all graphs, each ConstantData once.
uint64_t ConstantBytes(const std::vector<std::shared_ptr<const Graph>>& graphs);

// The output shape of an operation, or why its inputs do not fit.
Result<Shape> InferShape(OpType type, const std::vector<Shape>& inputs,
                         const OpAttributes& attributes);

}  // namespace spillway

#endif  // SPILLWAY_GRAPH_GRAPH_H_
