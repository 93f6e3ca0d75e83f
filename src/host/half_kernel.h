// Operations on 16-bit floats: computed in f32, every result rounded to f16.

#ifndef SPILLWAY_HOST_HALF_KERNEL_H_
#define SPILLWAY_HOST_HALF_KERNEL_H_

#include <functional>
#include <memory>

#include "host/kernel.h"

namespace spillway::host {

// True when the operation computes (rather than copies) and one of its tensors is
// f16.
bool ComputesInHalf(const Graph& graph, const Op& op);

// The kernel of such an operation: that which `make` gives for the same operation
// with f32 in the place of f16, between conversions.
using KernelMaker = std::function<std::unique_ptr<Kernel>(const Graph& graph, const Op& op)>;
std::unique_ptr<Kernel> MakeHalfKernel(const Graph& graph, const Op& op, const KernelMaker& make);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_HALF_KERNEL_H_
