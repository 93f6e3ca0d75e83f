#include "eval/allowed_difference.h"

namespace spillway {
namespace {

// f16, in units of 2^-10 of the output's largest value.
double AllowedHalf(OpType type) {
  if (type == OpType::kSoftmax) return 3;
  return type == OpType::kGeluTanh ? 2 : 1;
}

}  // namespace

double AllowedLsb(const Graph& graph, const Op& op, int htp_arch) {
  if (KeepsEncoding(op.type)) return 0;
  const Tensor& output = graph.tensor(op.outputs[0]);
  if (output.dtype == DType::kF16) return AllowedHalf(op.type);
  const bool wide = output.dtype == DType::kU16 || output.dtype == DType::kS16;
  switch (op.type) {
    case OpType::kLinear:
      return wide && htp_arch < 73 ? 20 : 1;
    case OpType::kMatMul:
      return graph.tensor(op.inputs[1]).dtype == DType::kU16 ? 160 : 1;
    case OpType::kSoftmax:
      return wide ? 11 : 1;
    case OpType::kSilu:
      return wide ? 3 : 1;
    case OpType::kGeluTanh:
      return wide ? 24 : 1;
    default:
      return 1;
  }
}

}  // namespace spillway
