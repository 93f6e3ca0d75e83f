// The host executor: runs a graph on the CPU, float graphs in f32, quantised
// graphs with the NPU's integer arithmetic.

#ifndef SPILLWAY_HOST_EXECUTOR_H_
#define SPILLWAY_HOST_EXECUTOR_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "spillway/status.h"

namespace spillway::host {

// Called after each operation with its output: `values` are the tensor's bytes,
// valid during the call. For observers and comparisons.
using TensorObserver =
    std::function<void(const Op& op, const Tensor& tensor, std::span<const std::byte> values)>;

struct ExecutorOptions {
  // Use the plain scalar reference kernels everywhere: slow, the yardstick.
  bool reference_kernels = false;
  // Run each operation by itself, none as part of a group (steps.h).
  bool single_operations = false;
};

// One graph, planned: steps in order, one arena for internal tensors (sized by
// lifetime), caller-visible buffers for inputs and outputs. Not thread-safe; the
// graph and the pool must outlive it. Run() does not allocate.
class Executor {
 public:
  // `graph` must be valid. Fails (kUnsupported) on an operation or type
  // combination that the host has no kernel for, naming it.
  static Result<std::unique_ptr<Executor>> Create(std::shared_ptr<const Graph> graph,
                                                  ThreadPool* pool, ExecutorOptions options = {});
  virtual ~Executor() = default;

  virtual const Graph& graph() const = 0;

  // Buffers of inputs()[i] / outputs()[i] of the graph: row-major, 64-byte
  // aligned, the size of the tensor. Owned by the executor unless bound.
  virtual std::span<std::byte> input(size_t index) = 0;
  virtual std::span<std::byte> output(size_t index) = 0;
  // Makes the executor read (write) the caller's memory instead; it must be
  // 64-byte aligned, at least as large as the tensor, and outlive the executor
  // or the next Bind. May be changed between runs.
  virtual void BindInput(size_t index, std::byte* data) = 0;
  // Whether attention alone reads input `index`, as the keys or values of its cache, so that
  // they can be bound as a PackedCache of the context's length less one token: all that an
  // executor reads so, or none.
  virtual bool TakesPackedCache(size_t index) const = 0;
  virtual void BindPackedCache(size_t index, std::byte* data) = 0;
  virtual void BindOutput(size_t index, std::byte* data) = 0;

  // Executes every step. kInvalidArgument when an index input is out of range
  // of its table (names the tensor and the value). With an observer, operations run
  // one by one, with the same results (and memory for it is allocated once);
  // kFailedPrecondition when a cache is bound packed.
  virtual Status Run(const TensorObserver& observer = nullptr) = 0;

  // For the next runs, of all tensors [1, 1, of, W] only the first `rows` rows are needed
  // (the tokens of a step that are no padding); the others may hold anything.
  virtual void LimitRows(uint32_t of, uint32_t rows) = 0;

  // For the next runs, computes only row `row` of the Linear that produces
  // outputs()[index], possibly through a Reshape (the others keep old values): a prompt needs
  // logits for its last token only. A negative row computes all again. No effect when that output
  // does not come straight from a Linear.
  virtual void LimitOutputRow(size_t index, int row) = 0;

  // Bytes of the arena.
  virtual size_t arena_bytes() const = 0;
};

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_EXECUTOR_H_
