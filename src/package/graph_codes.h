// The numbers that graphs.fb uses for the graph's enumerations.

#ifndef SPILLWAY_PACKAGE_GRAPH_CODES_H_
#define SPILLWAY_PACKAGE_GRAPH_CODES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "graph/graph.h"
#include "package/graphs_generated.h"

namespace spillway {

// fb::Constant::sums of a constant without.
inline constexpr uint32_t kNoSums = 0xFFFFFFFF;

inline constexpr std::array<std::pair<fb::NumberType, DType>, 8> kTypeCodes = {{
    {fb::NumberType_F32, DType::kF32},
    {fb::NumberType_F16, DType::kF16},
    {fb::NumberType_U8, DType::kU8},
    {fb::NumberType_U16, DType::kU16},
    {fb::NumberType_S8, DType::kS8},
    {fb::NumberType_S16, DType::kS16},
    {fb::NumberType_S32, DType::kS32},
    {fb::NumberType_I32, DType::kI32},
}};

inline constexpr std::array<std::pair<fb::EncodingKind, Encoding::Kind>, 4> kEncodingCodes = {{
    {fb::EncodingKind_None, Encoding::Kind::kNone},
    {fb::EncodingKind_PerTensor, Encoding::Kind::kPerTensor},
    {fb::EncodingKind_PerChannel, Encoding::Kind::kPerChannel},
    {fb::EncodingKind_Block, Encoding::Kind::kBlock},
}};

inline constexpr std::array<std::pair<fb::Layout, DataLayout>, 3> kLayoutCodes = {{
    {fb::Layout_RowMajor, DataLayout::kRowMajor},
    {fb::Layout_PackedN16K4, DataLayout::kPackedN16K4},
    {fb::Layout_PackedNibbles, DataLayout::kPackedNibbles},
}};

inline constexpr std::array<std::pair<fb::OpCode, OpType>, 16> kOpCodes = {{
    {fb::OpCode_Linear, OpType::kLinear},
    {fb::OpCode_MatMul, OpType::kMatMul},
    {fb::OpCode_Add, OpType::kAdd},
    {fb::OpCode_Mul, OpType::kMul},
    {fb::OpCode_Silu, OpType::kSilu},
    {fb::OpCode_GeluTanh, OpType::kGeluTanh},
    {fb::OpCode_RmsNorm, OpType::kRmsNorm},
    {fb::OpCode_Softmax, OpType::kSoftmax},
    {fb::OpCode_RotaryEmbedding, OpType::kRotaryEmbedding},
    {fb::OpCode_Gather, OpType::kGather},
    {fb::OpCode_Reshape, OpType::kReshape},
    {fb::OpCode_Transpose, OpType::kTranspose},
    {fb::OpCode_Concat, OpType::kConcat},
    {fb::OpCode_Tile, OpType::kTile},
    {fb::OpCode_Convert, OpType::kConvert},
    {fb::OpCode_Slice, OpType::kSlice},
}};

// The code of `value`; nothing when the format has none.
template <typename Code, typename Value, size_t kCount>
std::optional<Code> CodeOf(const std::array<std::pair<Code, Value>, kCount>& codes, Value value) {
  for (const auto& [code, known] : codes) {
    if (known == value) return code;
  }
  return std::nullopt;
}

// What `code` stands for; nothing for a number that the format does not have.
template <typename Code, typename Value, size_t kCount>
std::optional<Value> ValueOf(const std::array<std::pair<Code, Value>, kCount>& codes, Code code) {
  for (const auto& [known, value] : codes) {
    if (known == code) return value;
  }
  return std::nullopt;
}

}  // namespace spillway

#endif  // SPILLWAY_PACKAGE_GRAPH_CODES_H_
