#include "host/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/memory.h"
#include "host/dispatch.h"
#include "host/fused_kernels.h"
#include "host/kernel.h"
#include "host/plan.h"
#include "host/steps.h"

namespace spillway::host {
namespace {

class PlannedExecutor : public Executor {
 public:
  PlannedExecutor(std::shared_ptr<const Graph> graph, ThreadPool* pool, ExecutorOptions options)
      : graph_(std::move(graph)),
        pool_(pool),
        options_(options),
        table_(KernelsFor(SelectTarget())),
        workspace_(pool->threads()),
        steps_(IsFused() ? FusedSteps(*graph_) : SingleSteps(*graph_)),
        plan_(PlanMemory(*graph_, steps_)) {
    if (IsFused()) caches_ = FindCacheInputs(*graph_, steps_);
    caches_.resize(graph_->inputs().size(), false);
    packed_.resize(graph_->inputs().size(), false);
  }

  Status Prepare() {
    SPILLWAY_RETURN_IF_ERROR(CheckOutputsDiffer());
    for (const Op& op : graph_->ops()) SPILLWAY_RETURN_IF_ERROR(CheckSupported(*graph_, op));
    AllocateBuffers();
    for (size_t i = 0; i < steps_.size(); ++i) {
      workspace_.BeginKernel();
      PreparedStep step;
      step.op = &graph_->ops()[steps_[i].ops.back()];
      step.outputs.resize(steps_[i].outputs.size(), nullptr);
      if (!plan_.skip[i]) step.kernel = MakeKernel(steps_[i]);
      step.inputs.resize(steps_[i].inputs.size(), nullptr);
      prepared_.push_back(std::move(step));
    }
    workspace_.Allocate();
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
  void BindInput(size_t index, std::byte* data) override { Bind(index, data, false); }
  bool TakesPackedCache(size_t index) const override { return caches_[index]; }
  void BindPackedCache(size_t index, std::byte* data) override { Bind(index, data, true); }
  void BindOutput(size_t index, std::byte* data) override {
    if (output_data_[index] == data) return;
    output_data_[index] = data;
    stale_ = true;
  }

  Status Run(const TensorObserver& observer) override {
    if (observer && IsFused()) return RunEveryOperation(observer);
    if (stale_) ResolvePointers();
    for (PreparedStep& step : prepared_) {
      if (step.kernel != nullptr) {
        SPILLWAY_RETURN_IF_ERROR(
            step.kernel->Run({step.inputs, step.outputs[0], step.outputs}, *pool_));
      }
      if (observer) {
        const Tensor& tensor = graph_->tensor(step.op->outputs[0]);
        observer(*step.op, tensor, {step.outputs[0], tensor.Bytes()});
      }
    }
    return OkStatus();
  }

  void LimitRows(uint32_t of, uint32_t rows) override {
    limited_ = {of, rows};
    ApplyLimits();
  }

  void LimitOutputRow(size_t index, int row) override {
    row_limits_[index] = row;
    ApplyLimits();
  }

  size_t arena_bytes() const override { return plan_.arena_bytes; }

 private:
  struct PreparedStep {
    const Op* op = nullptr;          // the last one
    std::unique_ptr<Kernel> kernel;  // null: a Reshape that shares memory
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
  };

  void Bind(size_t index, std::byte* data, bool packed) {
    if (input_data_[index] == data && packed_[index] == packed) return;
    input_data_[index] = data;
    packed_[index] = packed;
    stale_ = true;
  }

  bool IsFused() const { return !options_.reference_kernels && !options_.single_operations; }

  std::unique_ptr<Kernel> MakeKernel(const Step& step) {
    const Op& op = graph_->ops()[step.ops.back()];
    if (options_.reference_kernels) return MakeReferenceKernel(*graph_, op);
    const KernelOptions options{&table_, pool_, &workspace_};
    std::vector<const Op*> ops;
    for (const size_t i : step.ops) ops.push_back(&graph_->ops()[i]);
    switch (step.kind) {
      case Step::Kind::kAttention:
        return MakeAttention(*graph_, *step.attention, options);
      case Step::Kind::kLinears:
        return MakeLinears(*graph_, ops, options);
      case Step::Kind::kGatedLinears:
        return MakeGatedLinears(*graph_, {ops[0], ops[1], ops[2], ops[3]}, options);
      case Step::Kind::kLinearAdd:
        return MakeLinearAdd(*graph_, *ops[0], *ops[1], options);
      case Step::Kind::kSingle:
        break;
    }
    return MakeFastKernel(*graph_, op, options);
  }

  // What a group of operations keeps to itself is seen by running them one by one.
  Status RunEveryOperation(const TensorObserver& observer) {
    if (std::find(packed_.begin(), packed_.end(), true) != packed_.end()) {
      return FailedPreconditionError(
          fmt::format("graph {}: single operations, which an observer sees, read no packed cache; "
                      "bind its rows",
                      graph_->name()));
    }
    if (single_ == nullptr) {
      ExecutorOptions options = options_;
      options.single_operations = true;
      SPILLWAY_ASSIGN_OR_RETURN(single_, Create(graph_, pool_, options));
    }
    if (limited_.of > 0) single_->LimitRows(limited_.of, limited_.rows);
    for (size_t i = 0; i < row_limits_.size(); ++i) single_->LimitOutputRow(i, row_limits_[i]);
    for (size_t i = 0; i < input_data_.size(); ++i) single_->BindInput(i, input_data_[i]);
    for (size_t i = 0; i < output_data_.size(); ++i) single_->BindOutput(i, output_data_[i]);
    return single_->Run(observer);
  }

  // R of a step that makes rows [1, 1, R, W]; of attention the tokens. 0: neither.
  uint32_t RowsOf(const Step& step) const {
    if (step.attention) return graph_->tensor(step.attention->mask).shape[2];
    const Shape& shape = graph_->tensor(step.outputs[0]).shape;
    return shape.size() == 4 && shape[0] * shape[1] == 1 ? shape[2] : 0;
  }

  void ApplyLimits() {
    for (size_t i = 0; i < steps_.size(); ++i) {
      const uint32_t rows = RowsOf(steps_[i]);
      if (prepared_[i].kernel == nullptr || rows == 0) continue;
      prepared_[i].kernel->LimitRows(0, rows == limited_.of ? std::min(limited_.rows, rows) : rows);
    }
    for (size_t index = 0; index < row_limits_.size(); ++index) {
      if (row_limits_[index] >= 0) LimitLinear(graph_->outputs()[index], row_limits_[index]);
    }
  }

  void LimitLinear(TensorId id, int row) {
    // The logits are a Reshape of what the head's Linear makes.
    for (const Op& op : graph_->ops()) {
      if (op.type == OpType::kReshape && op.outputs[0] == id) id = op.inputs[0];
    }
    for (PreparedStep& step : prepared_) {
      if (step.op->type != OpType::kLinear || step.op->outputs[0] != id) continue;
      const int rows = static_cast<int>(graph_->tensor(id).shape[2]);
      step.kernel->LimitRows(static_cast<size_t>(std::min(row, rows - 1)), 1);
    }
  }

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
    arena_ = AlignedBuffer::Zeroed(std::max<size_t>(plan_.arena_bytes, 1));
    row_limits_.assign(graph_->outputs().size(), -1);
    // Zeroed: a run that limits rows leaves the others as they were.
    const auto buffer_of = [&](TensorId id) {
      return AlignedBuffer::Zeroed(std::max<size_t>(graph_->tensor(id).Bytes(), 1));
    };
    for (const TensorId id : graph_->inputs()) {
      owned_.push_back(buffer_of(id));
      input_data_.push_back(owned_.back().data());
    }
    for (const TensorId id : graph_->outputs()) {
      owned_.push_back(buffer_of(id));
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
    for (size_t s = 0; s < steps_.size(); ++s) {
      for (size_t i = 0; i < steps_[s].inputs.size(); ++i) {
        prepared_[s].inputs[i] = Address(steps_[s].inputs[i]);
      }
      for (size_t i = 0; i < steps_[s].outputs.size(); ++i) {
        prepared_[s].outputs[i] = Address(steps_[s].outputs[i]);
      }
      if (steps_[s].attention && steps_[s].attention->k_cache) {
        const MemoryPlan::Location& keys = plan_.tensors[*steps_[s].attention->k_cache];
        prepared_[s].kernel->ReadPackedCache(keys.place == MemoryPlan::Place::kInput &&
                                             packed_[keys.index]);
      }
    }
    stale_ = false;
  }

  std::shared_ptr<const Graph> graph_;
  ThreadPool* pool_;
  ExecutorOptions options_;
  const KernelTable& table_;
  Workspace workspace_;
  std::vector<Step> steps_;
  MemoryPlan plan_;
  AlignedBuffer arena_;
  std::vector<AlignedBuffer> owned_;  // inputs, then outputs
  std::vector<std::byte*> input_data_, output_data_;
  std::vector<bool> caches_;  // inputs that FindCacheInputs() found
  std::vector<bool> packed_;  // inputs that are bound as a PackedCache
  std::vector<PreparedStep> prepared_;
  struct {
    uint32_t of = 0, rows = 0;
  } limited_;                         // of LimitRows()
  std::vector<int> row_limits_;       // of LimitOutputRow(), by output
  std::unique_ptr<Executor> single_;  // made when an observer asks for it
  bool stale_ = false;                // a Bind since the pointers were resolved
};

}  // namespace

Result<std::unique_ptr<Executor>> Executor::Create(std::shared_ptr<const Graph> graph,
                                                   ThreadPool* pool, ExecutorOptions options) {
  SPILLWAY_RETURN_IF_ERROR(graph->Validate());
  auto executor = std::make_unique<PlannedExecutor>(std::move(graph), pool, options);
  SPILLWAY_RETURN_IF_ERROR(executor->Prepare());
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace spillway::host
