// What each operation asks of its tensors: names, shapes and types.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "graph/graph.h"

namespace spillway {
namespace {

struct OpFacts {
  OpType type;
  std::string_view name;
  size_t min_inputs, max_inputs;
};

constexpr size_t kAnyNumber = 1u << 20;

constexpr std::array<OpFacts, 16> kOps = {{
    {OpType::kLinear, "Linear", 2, 3},
    {OpType::kMatMul, "MatMul", 2, 2},
    {OpType::kAdd, "Add", 2, 2},
    {OpType::kMul, "Mul", 2, 2},
    {OpType::kSilu, "Silu", 1, 1},
    {OpType::kGeluTanh, "GeluTanh", 1, 1},
    {OpType::kRmsNorm, "RmsNorm", 2, 2},
    {OpType::kSoftmax, "Softmax", 1, 1},
    {OpType::kRotaryEmbedding, "RotaryEmbedding", 3, 3},
    {OpType::kGather, "Gather", 2, 2},
    {OpType::kReshape, "Reshape", 1, 1},
    {OpType::kTranspose, "Transpose", 1, 1},
    {OpType::kConcat, "Concat", 1, kAnyNumber},
    {OpType::kTile, "Tile", 1, 1},
    {OpType::kConvert, "Convert", 1, 1},
    {OpType::kSlice, "Slice", 1, 1},
}};

// The table is in the order of the enumeration.
const OpFacts& FactsOf(OpType type) { return kOps[static_cast<size_t>(type)]; }

Status Misfit(const std::vector<Shape>& inputs, std::string_view expected) {
  std::string found;
  for (const Shape& shape : inputs) found += (found.empty() ? "" : " ") + ShapeToString(shape);
  return InvalidArgumentError(fmt::format("shapes {} do not fit; expected {}", found, expected));
}

Result<Shape> LinearShape(const std::vector<Shape>& in) {
  const bool fits = in[0].size() == 4 && in[0][0] == 1 && in[0][1] == 1 && in[1].size() == 2 &&
                    in[1][1] == in[0][3] && (in.size() == 2 || in[2] == Shape{in[1][0]});
  if (!fits) return Misfit(in, "x [1, 1, R, K], weight [N, K], bias [N]");
  return Shape{1, 1, in[0][2], in[1][0]};
}

Result<Shape> MatMulShape(const std::vector<Shape>& in) {
  const size_t rank = in[0].size();
  const bool fits = rank >= 2 && in[1].size() == rank && in[0][rank - 1] == in[1][rank - 2] &&
                    std::equal(in[0].begin(), in[0].end() - 2, in[1].begin());
  if (!fits) return Misfit(in, "a [..., M, K], b [..., K, N]");
  Shape out = in[0];
  out[rank - 1] = in[1][rank - 1];
  return out;
}

Result<Shape> BroadcastShape(const std::vector<Shape>& in) {
  bool fits = in[0].size() == in[1].size();
  for (size_t i = 0; fits && i < in[0].size(); ++i) {
    fits = in[1][i] == in[0][i] || in[1][i] == 1;
  }
  if (!fits) return Misfit(in, "b of a's rank, each dimension equal to a's or 1");
  return in[0];
}

Result<Shape> RotaryShape(const std::vector<Shape>& in) {
  const bool fits = in[0].size() == 4 && in[0][0] == 1 && in[1].size() == 3 && in[1] == in[2] &&
                    in[1][0] == 1 && in[1][1] == in[0][2] && 2 * in[1][2] <= in[0][3];
  if (!fits) return Misfit(in, "x [1, H, S, D], cos and sin [1, S, R/2] with R <= D");
  return in[0];
}

Result<Shape> TransposeShape(const std::vector<Shape>& in, const std::vector<uint32_t>& order) {
  Shape out;
  std::vector<bool> used(in[0].size(), false);
  for (const uint32_t axis : order) {
    if (axis >= in[0].size() || used[axis]) break;
    used[axis] = true;
    out.push_back(in[0][axis]);
  }
  if (out.size() != in[0].size() || order.size() != out.size()) {
    return Misfit(in, "a permutation of the input's axes");
  }
  return out;
}

Result<Shape> ConcatShape(const std::vector<Shape>& in, uint32_t axis) {
  Shape out = in[0];
  if (axis >= out.size()) return Misfit(in, "an axis within the rank");
  for (size_t i = 1; i < in.size(); ++i) {
    bool fits = in[i].size() == out.size();
    for (size_t d = 0; fits && d < out.size(); ++d) fits = d == axis || in[i][d] == out[d];
    if (!fits) return Misfit(in, "shapes that differ along the axis only");
    out[axis] += in[i][axis];
  }
  return out;
}

Result<Shape> TileShape(const std::vector<Shape>& in, const std::vector<uint32_t>& multiples) {
  if (multiples.size() != in[0].size()) return Misfit(in, "one multiple a dimension");
  Shape out = in[0];
  for (size_t d = 0; d < out.size(); ++d) out[d] *= multiples[d];
  return out;
}

Result<Shape> SliceShape(const std::vector<Shape>& in, const OpAttributes& attributes) {
  const uint32_t axis = attributes.axis;
  const std::vector<uint32_t>& ints = attributes.ints;
  const bool fits = axis < in[0].size() && ints.size() == 2 && ints[1] > 0 &&
                    uint64_t{ints[0]} + ints[1] <= in[0][axis];
  if (!fits) return Misfit(in, "an axis within the rank, and {begin, count} within it");
  Shape out = in[0];
  out[axis] = ints[1];
  return out;
}

}  // namespace

std::string_view OpTypeName(OpType type) { return FactsOf(type).name; }

bool KeepsEncoding(OpType type) {
  switch (type) {
    case OpType::kReshape:
    case OpType::kTranspose:
    case OpType::kGather:
    case OpType::kConcat:
    case OpType::kTile:
    case OpType::kSlice:
      return true;
    default:
      return false;
  }
}

Result<Shape> InferShape(OpType type, const std::vector<Shape>& in,
                         const OpAttributes& attributes) {
  const OpFacts& facts = FactsOf(type);
  if (in.size() < facts.min_inputs || in.size() > facts.max_inputs) {
    return InvalidArgumentError(fmt::format("{} has {} inputs; expected {} to {}", facts.name,
                                            in.size(), facts.min_inputs, facts.max_inputs));
  }
  switch (type) {
    case OpType::kLinear:
      return LinearShape(in);
    case OpType::kMatMul:
      return MatMulShape(in);
    case OpType::kAdd:
    case OpType::kMul:
      return BroadcastShape(in);
    case OpType::kRmsNorm:
      if (in[0].empty() || in[1] != Shape{in[0].back()}) return Misfit(in, "x [..., D], gamma [D]");
      return in[0];
    case OpType::kRotaryEmbedding:
      return RotaryShape(in);
    case OpType::kGather:
      if (in[0].size() != 2 || in[1].size() != 2 || in[1][0] != 1) {
        return Misfit(in, "table [V, D], indices [1, S]");
      }
      return Shape{1, in[1][1], in[0][1]};
    case OpType::kTranspose:
      return TransposeShape(in, attributes.ints);
    case OpType::kConcat:
      return ConcatShape(in, attributes.axis);
    case OpType::kTile:
      return TileShape(in, attributes.ints);
    case OpType::kSlice:
      return SliceShape(in, attributes);
    case OpType::kSilu:
    case OpType::kGeluTanh:
    case OpType::kSoftmax:
    case OpType::kConvert:
    case OpType::kReshape:  // the caller's shape; the element count is checked by Validate
      return in[0];
  }
  return InternalError("unknown operation");
}

}  // namespace spillway
