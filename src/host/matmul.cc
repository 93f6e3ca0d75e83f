// MatMul of two activations.
//
// Fixed point: with a = a' + ca and b = b' + cb (a', b' what the products
// multiply; ca, cb the zero points that remain),
//   sum_k a b = sum_k a' b' + cb sum_k a' + ca sum_k b' + K ca cb.
// The sums of b's columns come from one more row of a', all ones. Where the vendor
// cuts the sum (quant_math.h), the part of a's stored integers is cut and a's
// zero point is a correction of its own.

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/memory.h"
#include "host/fast_kernels.h"
#include "host/kernel_table.h"
#include "host/parallel.h"

namespace spillway::host {
namespace {

constexpr size_t kTileColumns = 64;
constexpr size_t kTileRows = 32;

struct Sizes {
  Sizes(const Graph& graph, const Op& op) {
    const Shape& a = graph.tensor(op.inputs[0]).shape;
    const Shape& b = graph.tensor(op.inputs[1]).shape;
    rows = a[a.size() - 2];
    k = a.back();
    n = b.back();
    batches = NumElements(a) / (rows * k);
  }
  size_t batches, rows, k, n;
};

class FloatMatMul : public Kernel {
 public:
  FloatMatMul(const Graph& graph, const Op& op, const KernelOptions& options)
      : vectors_(*options.table->vectors), size_(graph, op) {}

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    const float* a = reinterpret_cast<const float*>(buffers.inputs[0]);
    const float* b = reinterpret_cast<const float*>(buffers.inputs[1]);
    float* out = reinterpret_cast<float*>(buffers.output);
    const size_t bands = (size_.rows + kBand - 1) / kBand;
    ParallelFor(pool, size_.batches * bands, std::min(kBand, size_.rows) * size_.k * size_.n / 8,
                [&](size_t first, size_t last, size_t) {
                  for (size_t item = first; item < last; ++item) {
                    const size_t batch = item / bands;
                    const size_t row = item % bands * kBand;
                    vectors_.product_columns_f32(
                        a + (batch * size_.rows + row) * size_.k, std::min(kBand, size_.rows - row),
                        size_.k, b + batch * size_.k * size_.n, size_.n, size_.n,
                        out + (batch * size_.rows + row) * size_.n, size_.n);
                  }
                });
    return OkStatus();
  }

 private:
  static constexpr size_t kBand = 64;  // rows of one product

  const VectorOps& vectors_;
  Sizes size_;
};

class IntegerMatMul : public Kernel {
 public:
  IntegerMatMul(const Graph& graph, const Op& op, const KernelOptions& options)
      : products_(*options.table->products),
        vectors_(*options.table->vectors),
        size_(graph, op),
        stride_((size_.k + 1) / 2 * 2),
        a_dtype_(graph.tensor(op.inputs[0]).dtype),
        b_dtype_(graph.tensor(op.inputs[1]).dtype),
        out_(graph.tensor(op.outputs[0])),
        prepared_(size_.batches * (size_.rows + 1) * stride_ * sizeof(int16_t)),
        row_sums_(size_.batches * size_.rows),
        scratch_bytes_(MatMulScratchBytes(size_.k) + 64),
        scratch_(options.pool->threads() * scratch_bytes_) {
    const Tensor& a = graph.tensor(op.inputs[0]);
    const Tensor& b = graph.tensor(op.inputs[1]);
    a_offset_ = a.encoding.offset;
    a_base_ = MatMulBaseA(a_dtype_);
    b_zero_ = b.encoding.offset + MatMulBaseB(b_dtype_);
    unit_ = ProductUnit(a_dtype_, b_dtype_);
    const double factor = ProductFactor(a.encoding.scale, b.encoding.scale,
                                        graph.tensor(op.outputs[0]).encoding.scale);
    factors_.assign(kTileColumns, factor / unit_);
    std::memset(prepared_.data(), 0, prepared_.size());
    for (size_t batch = 0; batch < size_.batches; ++batch) {
      std::fill_n(PreparedRow(batch, 0), size_.k, int16_t{1});
    }
  }

  Status Run(const StepBuffers& buffers, ThreadPool& pool) override {
    ParallelFor(pool, size_.batches * size_.rows, size_.k, [&](size_t first, size_t last, size_t) {
      for (size_t i = first; i < last; ++i) Prepare(i, buffers.inputs[0]);
    });
    const size_t tiles = (size_.n + kTileColumns - 1) / kTileColumns;
    ParallelFor(pool, size_.batches * tiles, (size_.rows + 1) * size_.k * kTileColumns / 8,
                [&](size_t first, size_t last, size_t thread) {
                  for (size_t item = first; item < last; ++item) {
                    RunTile(item / tiles, item % tiles * kTileColumns, buffers, thread);
                  }
                });
    return OkStatus();
  }

 private:
  // Row 0 of each batch is ones, row r + 1 is a's row r.
  int16_t* PreparedRow(size_t batch, size_t row) {
    return reinterpret_cast<int16_t*>(prepared_.data()) +
           (batch * (size_.rows + 1) + row) * stride_;
  }

  void Prepare(size_t index, const std::byte* a) {
    int16_t* out = PreparedRow(index / size_.rows, index % size_.rows + 1);
    const int32_t base = MatMulBaseA(a_dtype_);
    const std::byte* in = a + index * size_.k * DTypeSize(a_dtype_);
    int64_t sum = 0;
    for (size_t i = 0; i < size_.k; ++i) {
      const int32_t value = LoadInt(in, a_dtype_, i) - base;
      out[i] = static_cast<int16_t>(value);
      sum += value;
    }
    row_sums_[index] = static_cast<double>(sum);
  }

  void RunTile(size_t batch, size_t column, const StepBuffers& buffers, size_t thread) {
    const size_t n = std::min(kTileColumns, size_.n - column);
    const std::byte* b =
        buffers.inputs[1] + (batch * size_.k * size_.n + column) * DTypeSize(b_dtype_);
    std::byte* scratch = scratch_.data() + thread * scratch_bytes_;
    Columns columns;
    double sums[kTileRows * kTileColumns];
    for (size_t first = 0; first <= size_.rows; first += kTileRows) {
      const size_t rows = std::min(kTileRows, size_.rows + 1 - first);
      products_.matmul(PreparedRow(batch, first), stride_, rows, b, b_dtype_, size_.n, size_.k, n,
                       scratch, sums);
      if (first == 0) columns.Set(*this, sums, n);
      for (size_t i = first == 0 ? 1 : 0; i < rows; ++i) {
        const size_t row = batch * size_.rows + first + i - 1;
        Finish(sums + i * n, columns, row, n,
               buffers.output + (row * size_.n + column) * DTypeSize(out_.dtype));
      }
    }
  }

  // What the columns of a tile add to every row.
  struct Columns {
    double base[kTileColumns];        // a_base * sum of b'
    double correction[kTileColumns];  // of a's zero point
    void Set(const IntegerMatMul& product, const double* sums, size_t n) {
      const double k = static_cast<double>(product.size_.k);
      for (size_t i = 0; i < n; ++i) {
        base[i] = product.a_base_ * sums[i];
        correction[i] =
            ZeroPointCorrection(product.a_offset_ * (sums[i] + k * product.b_zero_), product.unit_);
      }
    }
  };

  void Finish(double* sums, const Columns& columns, size_t row, size_t n, std::byte* output) const {
    // b's zero point times the sum of a's stored integers; 0 when b is centred.
    if (b_zero_ != 0.0) {
      const double by_row = b_zero_ * (row_sums_[row] + static_cast<double>(size_.k) * a_base_);
      for (size_t i = 0; i < n; ++i) sums[i] += by_row;
    }
    vectors_.finish_product(sums, columns.base, unit_, columns.correction, factors_.data(), n);
    vectors_.store(sums, n, out_, output);
  }

  const IntegerProducts& products_;
  const VectorOps& vectors_;
  Sizes size_;
  size_t stride_;
  DType a_dtype_, b_dtype_;
  OutputSpec out_;
  double a_offset_ = 0.0, a_base_ = 0.0, b_zero_ = 0.0, unit_ = 1.0;
  std::vector<double> factors_;   // [kTileColumns], all equal
  AlignedBuffer prepared_;        // [batches][1 + rows][stride] s16
  std::vector<double> row_sums_;  // [batches][rows]
  size_t scratch_bytes_;
  AlignedBuffer scratch_;  // [threads][scratch_bytes]
};

}  // namespace

std::unique_ptr<Kernel> MakeMatMul(const Graph& graph, const Op& op, const KernelOptions& options) {
  if (graph.tensor(op.inputs[0]).dtype == DType::kF32) {
    return std::make_unique<FloatMatMul>(graph, op, options);
  }
  return std::make_unique<IntegerMatMul>(graph, op, options);
}

}  // namespace spillway::host
