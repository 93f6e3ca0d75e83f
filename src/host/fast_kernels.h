// Makers of the fast kernels, one a family of operations. Each takes an operation
// that passed CheckSupported. Null: the family has no fast form of this case; the
// caller falls back on the reference.

#ifndef SPILLWAY_HOST_FAST_KERNELS_H_
#define SPILLWAY_HOST_FAST_KERNELS_H_

#include <memory>

#include "host/kernel.h"

namespace spillway::host {

std::unique_ptr<Kernel> MakeIntegerLinear(const Graph& graph, const Op& op,
                                          const KernelOptions& options);
std::unique_ptr<Kernel> MakeFloatLinear(const Graph& graph, const Op& op,
                                        const KernelOptions& options);
std::unique_ptr<Kernel> MakeMatMul(const Graph& graph, const Op& op, const KernelOptions& options);
std::unique_ptr<Kernel> MakeBinary(const Graph& graph, const Op& op, const KernelOptions& options);
// Silu, GeluTanh, Convert.
std::unique_ptr<Kernel> MakeUnary(const Graph& graph, const Op& op, const KernelOptions& options);
std::unique_ptr<Kernel> MakeRmsNorm(const Graph& graph, const Op& op, const KernelOptions& options);
std::unique_ptr<Kernel> MakeSoftmax(const Graph& graph, const Op& op, const KernelOptions& options);
std::unique_ptr<Kernel> MakeRotaryEmbedding(const Graph& graph, const Op& op,
                                            const KernelOptions& options);
// Transpose, Concat, Tile.
std::unique_ptr<Kernel> MakeCopy(const Graph& graph, const Op& op);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_FAST_KERNELS_H_
