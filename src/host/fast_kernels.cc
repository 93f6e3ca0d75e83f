#include "host/fast_kernels.h"

#include "host/half_kernel.h"

namespace spillway::host {
namespace {

std::unique_ptr<Kernel> Make(const Graph& graph, const Op& op, const KernelOptions& options) {
  switch (op.type) {
    case OpType::kLinear:
      return graph.tensor(op.inputs[0]).dtype == DType::kF32
                 ? MakeFloatLinear(graph, op, options)
                 : MakeIntegerLinear(graph, op, options);
    case OpType::kMatMul:
      return MakeMatMul(graph, op, options);
    case OpType::kAdd:
    case OpType::kMul:
      return MakeBinary(graph, op, options);
    case OpType::kSilu:
    case OpType::kGeluTanh:
    case OpType::kConvert:
      return MakeUnary(graph, op, options);
    case OpType::kRmsNorm:
      return MakeRmsNorm(graph, op, options);
    case OpType::kSoftmax:
      return MakeSoftmax(graph, op, options);
    case OpType::kRotaryEmbedding:
      return MakeRotaryEmbedding(graph, op, options);
    case OpType::kTranspose:
    case OpType::kConcat:
    case OpType::kTile:
    case OpType::kSlice:
      return MakeCopy(graph, op);
    case OpType::kGather:
    case OpType::kReshape:
      return nullptr;  // the reference copies whole rows already
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Kernel> MakeFastKernel(const Graph& graph, const Op& op,
                                       const KernelOptions& options) {
  if (ComputesInHalf(graph, op)) {
    return MakeHalfKernel(graph, op, [&](const Graph& floats, const Op& same) {
      return MakeFastKernel(floats, same, options);
    });
  }
  std::unique_ptr<Kernel> kernel = Make(graph, op, options);
  return kernel != nullptr ? std::move(kernel) : MakeReferenceKernel(graph, op);
}

}  // namespace spillway::host
