// Kernels of groups of operations (steps.h). Each gives the bits that its operations
// give one after the other.

#ifndef SPILLWAY_HOST_FUSED_KERNELS_H_
#define SPILLWAY_HOST_FUSED_KERNELS_H_

#include <memory>
#include <vector>

#include "host/kernel.h"
#include "host/steps.h"

namespace spillway::host {

// True when the types and encodings are those that MakeAttention computes: u16 queries,
// scores, mask and weights, u8 keys and values around 128, weights of offset 0.
bool CanFuseAttention(const Graph& graph, const AttentionTensors& tensors);

// Attention over the columns that the mask opens. Buffers: inputs and output of the step.
// The time that a row takes grows with the columns it sees, not with the context.
std::unique_ptr<Kernel> MakeAttention(const Graph& graph, const AttentionTensors& tensors,
                                      const KernelOptions& options);

// A Linear in fixed point that the kernels below take.
bool IsFastIntegerLinear(const Graph& graph, const Op& op);

// Several Linears of one input. Buffers: x; their outputs in order.
std::unique_ptr<Kernel> MakeLinears(const Graph& graph, const std::vector<const Op*>& ops,
                                    const KernelOptions& options);

// product = activation(gate x) * (up x); gate and up have equally many channels.
// Buffers: x; the product.
struct GatedOps {
  const Op *gate, *up, *activation, *product;
};
std::unique_ptr<Kernel> MakeGatedLinears(const Graph& graph, const GatedOps& ops,
                                         const KernelOptions& options);

// The sum of a Linear's output and another tensor of its shape. Buffers: x, that tensor;
// the sum.
std::unique_ptr<Kernel> MakeLinearAdd(const Graph& graph, const Op& linear, const Op& add,
                                      const KernelOptions& options);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_FUSED_KERNELS_H_
