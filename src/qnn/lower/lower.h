// Lowering: one legalised operation to one vendor node.
//
// The table (vendor operator names in brackets; operands in the same order):
//
//   Linear [Conv2d]           x [1, 1, R, K] as NHWC; weights transposed to
//                             [1, 1, K, N], channel axis 3; stride 1, no padding
//   MatMul [MatMul]           no transposes
//   Add, Mul                  [ElementWiseAdd, ElementWiseMultiply]
//   Silu                      [Sigmoid, ElementWiseMultiply]: the vendor fuses the
//                             two without rounding in between
//   GeluTanh [Gelu]
//   RmsNorm [RmsNorm]         with a zero s32 beta (libraries before 2.49 want one)
//   Softmax [Softmax]
//   RotaryEmbedding           [RotaryEmbedding], halves rotated; the rotated width
//                             only when it is not the whole head
//   Slice [StridedSlice]      with a step of 1
//   Gather, Reshape, Transpose, Concat, Tile, Convert  by the same names

#ifndef SPILLWAY_QNN_LOWER_LOWER_H_
#define SPILLWAY_QNN_LOWER_LOWER_H_

#include <cstdint>

#include "graph/graph.h"
#include "qnn/api/manager.h"
#include "spillway/status.h"

namespace spillway::qnn {

struct LowerOptions {
  // Internal tensors become outputs too, behind the graph's own, in the order in which
  // they are computed. The vendor then fuses less, so that values may differ in the
  // last step from those of a graph without it. (Not the middle of a Silu, which the
  // host does not have either.)
  bool dump_intermediates = false;
};

struct LowerResult {
  uint64_t nodes = 0;         // vendor nodes added
  uint64_t weight_bytes = 0;  // static data handed over
};

// Adds every tensor and node of `graph` (legalised, quantised) to the vendor
// graph, which is not finalised. Each node is validated; the error names the
// node, its type and the types of its tensors. Weights are unpacked one at a
// time and copied by the vendor.
Result<LowerResult> LowerGraph(const spillway::Graph& graph, Graph* vendor_graph,
                               const LowerOptions& options = {});

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_LOWER_LOWER_H_
