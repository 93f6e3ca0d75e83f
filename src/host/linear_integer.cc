// Kernels of Linears in fixed point (quantized_linear.h): one, several of the same input, a
// pair that gates, and one whose output is added to another tensor.

#include <algorithm>
#include <memory>
#include <vector>

#include "host/fast_kernels.h"
#include "host/fused_kernels.h"
#include "host/integer_functions.h"
#include "host/kernel_table.h"
#include "host/parallel.h"
#include "host/quantized_linear.h"

namespace spillway::host {
namespace {

constexpr size_t kTileValues = QuantizedLinear::kTileRows * QuantizedLinear::kTileColumns;

// A tile and a band of rows, the unit of work of a thread.
struct Item {
  size_t tile, row, rows;
};

// What the kernels have in common: x, and the rows to compute.
class LinearKernel : public Kernel {
 public:
  LinearKernel(const Tensor& x, const KernelOptions& options)
      : x_(x, options), workspace_(*options.workspace), end_(x.shape[2]) {}

  void LimitRows(size_t first, size_t count) override {
    begin_ = first;
    end_ = first + count;
  }

 protected:
  // Calls run(item, thread) for every item of `tiles` tiles. Bands of rows change faster
  // than tiles: a tile's weights stay in the cache.
  template <typename Run>
  void ForEachItem(const std::byte* x, size_t tiles, ThreadPool& pool, const Run& run) {
    constexpr size_t kRows = QuantizedLinear::kTileRows;
    x_.Prepare(x, begin_, end_, pool);
    const size_t bands = (end_ - begin_ + kRows - 1) / kRows;
    const size_t cost =
        std::min(end_ - begin_, kRows) * x_.k() * QuantizedLinear::kTileColumns / 16;
    ParallelFor(pool, tiles * bands, cost, [&](size_t first, size_t last, size_t thread) {
      for (size_t i = first; i < last; ++i) {
        const size_t row = begin_ + i % bands * kRows;
        run(Item{i / bands, row, std::min(kRows, end_ - row)}, thread);
      }
    });
  }

  PreparedRows x_;
  const Workspace& workspace_;

 private:
  size_t begin_ = 0, end_;
};

class LinearsKernel : public LinearKernel {
 public:
  LinearsKernel(const Graph& graph, const std::vector<const Op*>& ops, const KernelOptions& options)
      : LinearKernel(graph.tensor(ops[0]->inputs[0]), options) {
    for (const Op* op : ops) {
      linears_.push_back(std::make_unique<QuantizedLinear>(graph, *op, options));
      tiles_ += linears_.back()->tiles();
    }
  }

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    ForEachItem(buffers.inputs[0], tiles_, pool, [&](Item item, size_t thread) {
      size_t i = 0;
      while (item.tile >= linears_[i]->tiles()) item.tile -= linears_[i++]->tiles();
      const QuantizedLinear& linear = *linears_[i];
      const size_t size = DTypeSize(linear.out().dtype);
      const size_t at = item.row * linear.columns() + item.tile * QuantizedLinear::kTileColumns;
      linear.RunTile(item.tile, x_.Rows(item.row, item.rows), thread,
                     buffers.outputs[i] + at * size, linear.columns() * size);
    });
    return OkStatus();
  }

 private:
  std::vector<std::unique_ptr<QuantizedLinear>> linears_;
  size_t tiles_ = 0;
};

// activation(gate) * up. What lies between is rounded as its tensors say.
class GatedKernel : public LinearKernel {
 public:
  GatedKernel(const Graph& graph, const GatedOps& ops, const KernelOptions& options)
      : LinearKernel(graph.tensor(ops.gate->inputs[0]), options),
        gate_(graph, *ops.gate, options),
        up_(graph, *ops.up, options),
        active_is_first_(ops.product->inputs[0] == ops.activation->outputs[0]),
        out_size_(DTypeSize(graph.tensor(ops.product->outputs[0]).dtype)),
        activation_(ops.activation->type, graph.tensor(ops.activation->inputs[0]),
                    graph.tensor(ops.activation->outputs[0]), *options.table->vectors),
        product_(OpType::kMul, graph.tensor(ops.product->inputs[0]),
                 graph.tensor(ops.product->inputs[1]), graph.tensor(ops.product->outputs[0]),
                 *options.table->vectors),
        values_(options.workspace->TakeOfThread(2 * kTileValues * sizeof(uint16_t))) {}

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    ForEachItem(buffers.inputs[0], gate_.tiles(), pool, [&](const Item& item, size_t thread) {
      std::byte* gate = workspace_.OfThread(thread, values_);
      std::byte* up = gate + kTileValues * sizeof(uint16_t);
      const size_t columns = gate_.Columns(item.tile);
      const size_t gate_stride = columns * DTypeSize(gate_.out().dtype);
      const size_t up_stride = columns * DTypeSize(up_.out().dtype);
      const ProductRows x = x_.Rows(item.row, item.rows);
      gate_.RunTile(item.tile, x, thread, gate, gate_stride);
      up_.RunTile(item.tile, x, thread, up, up_stride);
      for (size_t r = 0; r < item.rows; ++r) {
        const size_t at =
            (item.row + r) * gate_.columns() + item.tile * QuantizedLinear::kTileColumns;
        Combine(gate + r * gate_stride, up + r * up_stride, columns,
                buffers.output + at * out_size_);
      }
    });
    return OkStatus();
  }

 private:
  void Combine(const std::byte* gate, const std::byte* up, size_t n, std::byte* out) const {
    std::byte active[QuantizedLinear::kTileColumns * sizeof(uint16_t)];
    activation_.Run(gate, n, active);
    product_.Run(active_is_first_ ? active : up, active_is_first_ ? up : active, false, n, out);
  }

  QuantizedLinear gate_, up_;
  bool active_is_first_;
  size_t out_size_;  // bytes of a value
  IntegerActivation activation_;
  IntegerBinary product_;
  size_t values_;  // [gate, up][kTileValues] of each thread
};

// residual + linear, in the order of the Add.
class LinearAddKernel : public LinearKernel {
 public:
  LinearAddKernel(const Graph& graph, const Op& linear, const Op& add, const KernelOptions& options)
      : LinearKernel(graph.tensor(linear.inputs[0]), options),
        linear_(graph, linear, options),
        product_is_first_(add.inputs[0] == linear.outputs[0]),
        residual_size_(DTypeSize(graph.tensor(add.inputs[product_is_first_ ? 1 : 0]).dtype)),
        out_size_(DTypeSize(graph.tensor(add.outputs[0]).dtype)),
        sum_(OpType::kAdd, graph.tensor(add.inputs[0]), graph.tensor(add.inputs[1]),
             graph.tensor(add.outputs[0]), *options.table->vectors),
        values_(options.workspace->TakeOfThread(kTileValues * sizeof(uint16_t))) {}

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    ForEachItem(buffers.inputs[0], linear_.tiles(), pool, [&](const Item& item, size_t thread) {
      std::byte* product = workspace_.OfThread(thread, values_);
      const size_t columns = linear_.Columns(item.tile);
      const size_t stride = columns * DTypeSize(linear_.out().dtype);
      linear_.RunTile(item.tile, x_.Rows(item.row, item.rows), thread, product, stride);
      for (size_t r = 0; r < item.rows; ++r) {
        const size_t at =
            (item.row + r) * linear_.columns() + item.tile * QuantizedLinear::kTileColumns;
        const std::byte* row = product + r * stride;
        const std::byte* residual = buffers.inputs[1] + at * residual_size_;
        sum_.Run(product_is_first_ ? row : residual, product_is_first_ ? residual : row, false,
                 columns, buffers.output + at * out_size_);
      }
    });
    return OkStatus();
  }

 private:
  QuantizedLinear linear_;
  bool product_is_first_;
  size_t residual_size_, out_size_;  // bytes of a value
  IntegerBinary sum_;
  size_t values_;  // [kTileValues] of each thread
};

}  // namespace

bool IsFastIntegerLinear(const Graph& graph, const Op& op) {
  return op.type == OpType::kLinear && IsFixedPoint(graph.tensor(op.inputs[0]).dtype) &&
         IsFixedPoint(graph.tensor(op.outputs[0]).dtype) &&
         IsFixedPoint(graph.tensor(op.inputs[1]).dtype) &&
         (graph.tensor(op.inputs[1]).shape[1] + 3) / 4 <= kMaxLinearGroups;
}

std::unique_ptr<Kernel> MakeIntegerLinear(const Graph& graph, const Op& op,
                                          const KernelOptions& options) {
  if (!IsFastIntegerLinear(graph, op)) return nullptr;
  return MakeLinears(graph, {&op}, options);
}

std::unique_ptr<Kernel> MakeLinears(const Graph& graph, const std::vector<const Op*>& ops,
                                    const KernelOptions& options) {
  return std::make_unique<LinearsKernel>(graph, ops, options);
}

std::unique_ptr<Kernel> MakeGatedLinears(const Graph& graph, const GatedOps& ops,
                                         const KernelOptions& options) {
  return std::make_unique<GatedKernel>(graph, ops, options);
}

std::unique_ptr<Kernel> MakeLinearAdd(const Graph& graph, const Op& linear, const Op& add,
                                      const KernelOptions& options) {
  return std::make_unique<LinearAddKernel>(graph, linear, add, options);
}

}  // namespace spillway::host
