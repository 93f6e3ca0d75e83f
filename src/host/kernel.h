// Kernel: one operation of a graph, prepared to run many times.

#ifndef SPILLWAY_HOST_KERNEL_H_
#define SPILLWAY_HOST_KERNEL_H_

#include <cstddef>
#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "host/dispatch.h"
#include "host/workspace.h"
#include "spillway/status.h"

namespace spillway::host {

// Where an operation's tensors are during one run; each pointer is to a whole
// row-major tensor. A constant without bytes() has a null pointer.
struct StepBuffers {
  std::span<const std::byte* const> inputs;  // in the order of op.inputs
  std::byte* output = nullptr;               // outputs[0]
  std::span<std::byte* const> outputs;
};

// Immutable but for its scratch memory; one thread runs it at a time. Results do
// not depend on the number of threads of the pool.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Does not allocate. Fails only when an index input is out of range.
  virtual Status Run(const StepBuffers& buffers, ThreadPool& pool) = 0;
  // For kernels that make rows [1, 1, R, W], and attention, whose rows are tokens: from now
  // on only rows [first, first + count) are needed. Linear leaves the others as they are;
  // other kernels may compute more.
  virtual void LimitRows(size_t /*first*/, size_t /*count*/) {}
  // For attention: from now on its cache inputs are a PackedCache of CL - 1 tokens, or
  // row-major again.
  virtual void ReadPackedCache(bool /*packed*/) {}
};

// kUnsupported, with the operation and its types, when the host has no kernel;
// kInvalidArgument when a constant's bytes or encoding do not fit its shape.
Status CheckSupported(const Graph& graph, const Op& op);

// The error of a Gather whose index has no row in `table`.
Status CheckIndex(const Op& op, const Tensor& indices, const Tensor& table, int32_t index);

// The kernels of reference.cc: plain scalar loops over the definition of each
// operation. `op` passed CheckSupported; `graph` outlives the kernel.
std::unique_ptr<Kernel> MakeReferenceKernel(const Graph& graph, const Op& op);

// What a fast kernel is built with.
struct KernelOptions {
  const KernelTable* table = nullptr;  // the processor's functions
  ThreadPool* pool = nullptr;          // for preparing; also sizes scratch memory
  Workspace* workspace = nullptr;      // of the executor
};

// The fast kernel of an operation that passed CheckSupported. In fixed point it
// gives the same bits as the reference.
std::unique_ptr<Kernel> MakeFastKernel(const Graph& graph, const Op& op,
                                       const KernelOptions& options);

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_KERNEL_H_
