// Kernels of groups of operations (steps.h). Each gives the bits that its operations
// give one after the other.

#ifndef SPILLWAY_HOST_FUSED_KERNELS_H_
#define SPILLWAY_HOST_FUSED_KERNELS_H_

#include <memory>

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

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_FUSED_KERNELS_H_
