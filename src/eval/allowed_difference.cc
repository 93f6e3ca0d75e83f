#include "eval/allowed_difference.h"

namespace spillway {

double AllowedLsb(const Graph& graph, const Op& op, int htp_arch) {
  const Tensor& output = graph.tensor(op.outputs[0]);
  const bool wide = output.dtype == DType::kU16 || output.dtype == DType::kS16;
  switch (op.type) {
    case OpType::kLinear: {
      if (!wide) return 1;
      if (htp_arch < 73) return 20;
      const Encoding& weight = graph.tensor(op.inputs[1]).encoding;
      return weight.bits == 4 && weight.kind == Encoding::Kind::kPerChannel ? 14 : 1;
    }
    case OpType::kMatMul:
      return graph.tensor(op.inputs[1]).dtype == DType::kU16 ? 160 : 1;
    case OpType::kSoftmax:
      return wide ? 11 : 1;
    case OpType::kSilu:
      return wide ? 3 : 1;
    case OpType::kGeluTanh:
      return wide ? 24 : 1;
    case OpType::kAdd:
    case OpType::kMul:
    case OpType::kRmsNorm:
    case OpType::kRotaryEmbedding:
    case OpType::kConvert:
      return 1;
    case OpType::kGather:
    case OpType::kReshape:
    case OpType::kTranspose:
    case OpType::kConcat:
    case OpType::kTile:
      return 0;
  }
  return 0;
}

}  // namespace spillway
