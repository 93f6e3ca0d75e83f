#include "host/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/memory.h"
#include "host/dispatch.h"
#include "host/kernel.h"
#include "host/plan.h"

namespace spillway::host {
namespace {

// Zeroed: a run that limits a row leaves the others as they were.
AlignedBuffer ZeroedBuffer(size_t bytes) {
  AlignedBuffer buffer(std::max<size_t>(bytes, 1));
  std::memset(buffer.data(), 0, buffer.size());
  return buffer;
}

class PlannedExecutor : public Executor {
 public:
  PlannedExecutor(std::shared_ptr<const Graph> graph, ThreadPool* pool)
      : graph_(std::move(graph)), pool_(pool), plan_(PlanMemory(*graph_)) {}

  Status Prepare(const ExecutorOptions& options) {
    SPILLWAY_RETURN_IF_ERROR(CheckOutputsDiffer());
    for (const Op& op : graph_->ops()) SPILLWAY_RETURN_IF_ERROR(CheckSupported(*graph_, op));
    AllocateBuffers();
    const KernelOptions kernel_options{&KernelsFor(SelectTarget()), pool_};
    for (size_t i = 0; i < graph_->ops().size(); ++i) {
      const Op& op = graph_->ops()[i];
      Step step;
      step.op = &op;
      if (!plan_.skip[i]) {
        step.kernel = options.reference_kernels ? MakeReferenceKernel(*graph_, op)
                                                : MakeFastKernel(*graph_, op, kernel_options);
      }
      step.inputs.resize(op.inputs.size(), nullptr);
      steps_.push_back(std::move(step));
    }
    ResolvePointers();
    return OkStatus();
  }

  const Graph& graph() const override { return *graph_; }

  std::span<std::byte> input(size_t index) override {
    return {input_data_[index], graph_->tensor(graph_->inputs()[index]).Bytes()};
  }
  std::span<std::byte> output(size_t index) override {
    return {output_data_[index], graph_->tensor(graph_->outputs()[index]).Bytes()};
  }
  void BindInput(size_t index, std::byte* data) override {
    if (input_data_[index] == data) return;
    input_data_[index] = data;
    stale_ = true;
  }
  void BindOutput(size_t index, std::byte* data) override {
    if (output_data_[index] == data) return;
    output_data_[index] = data;
    stale_ = true;
  }

  Status Run(const TensorObserver& observer) override {
    if (stale_) ResolvePointers();
    for (Step& step : steps_) {
      if (step.kernel != nullptr) {
        SPILLWAY_RETURN_IF_ERROR(step.kernel->Run({step.inputs, step.output}, *pool_));
      }
      if (observer) {
        const Tensor& tensor = graph_->tensor(step.op->outputs[0]);
        observer(*step.op, tensor, {step.output, tensor.Bytes()});
      }
    }
    return OkStatus();
  }

  void LimitOutputRow(size_t index, int row) override {
    // The logits are a Reshape of what the head's Linear makes.
    TensorId id = graph_->outputs()[index];
    for (const Op& op : graph_->ops()) {
      if (op.type == OpType::kReshape && op.outputs[0] == id) id = op.inputs[0];
    }
    for (Step& step : steps_) {
      if (step.op->type != OpType::kLinear || step.op->outputs[0] != id) continue;
      const int rows = static_cast<int>(graph_->tensor(id).shape[2]);
      step.kernel->LimitRow(std::min(row, rows - 1));
    }
  }

  size_t arena_bytes() const override { return plan_.arena_bytes; }

 private:
  struct Step {
    const Op* op = nullptr;
    std::unique_ptr<Kernel> kernel;  // null: a Reshape that shares memory
    std::vector<const std::byte*> inputs;
    std::byte* output = nullptr;
  };

  Status CheckOutputsDiffer() const {
    std::set<TensorId> seen;
    for (const TensorId id : graph_->outputs()) {
      if (!seen.insert(id).second) {
        return UnsupportedError(fmt::format("graph {}: {} is listed twice among the outputs",
                                            graph_->name(), graph_->tensor(id).name));
      }
    }
    return OkStatus();
  }

  void AllocateBuffers() {
    arena_ = ZeroedBuffer(plan_.arena_bytes);
    for (const TensorId id : graph_->inputs()) {
      owned_.push_back(ZeroedBuffer(graph_->tensor(id).Bytes()));
      input_data_.push_back(owned_.back().data());
    }
    for (const TensorId id : graph_->outputs()) {
      owned_.push_back(ZeroedBuffer(graph_->tensor(id).Bytes()));
      output_data_.push_back(owned_.back().data());
    }
  }

  std::byte* Address(TensorId id) {
    const MemoryPlan::Location& location = plan_.tensors[id];
    switch (location.place) {
      case MemoryPlan::Place::kInput:
        return input_data_[location.index];
      case MemoryPlan::Place::kOutput:
        return output_data_[location.index];
      case MemoryPlan::Place::kArena:
        return arena_.data() + location.index;
      case MemoryPlan::Place::kConstant: {
        const auto bytes = graph_->tensor(location.root).data->bytes();
        // Kernels never write their inputs; the type is shared with the others.
        return bytes.empty() ? nullptr : const_cast<std::byte*>(bytes.data());
      }
      case MemoryPlan::Place::kNone:
        break;
    }
    return nullptr;
  }

  void ResolvePointers() {
    for (Step& step : steps_) {
      for (size_t i = 0; i < step.inputs.size(); ++i) step.inputs[i] = Address(step.op->inputs[i]);
      step.output = Address(step.op->outputs[0]);
    }
    stale_ = false;
  }

  std::shared_ptr<const Graph> graph_;
  ThreadPool* pool_;
  MemoryPlan plan_;
  AlignedBuffer arena_;
  std::vector<AlignedBuffer> owned_;  // inputs, then outputs
  std::vector<std::byte*> input_data_, output_data_;
  std::vector<Step> steps_;
  bool stale_ = false;  // a Bind since the pointers were resolved
};

}  // namespace

Result<std::unique_ptr<Executor>> Executor::Create(std::shared_ptr<const Graph> graph,
                                                   ThreadPool* pool, ExecutorOptions options) {
  SPILLWAY_RETURN_IF_ERROR(graph->Validate());
  auto executor = std::make_unique<PlannedExecutor>(std::move(graph), pool);
  SPILLWAY_RETURN_IF_ERROR(executor->Prepare(options));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace spillway::host
