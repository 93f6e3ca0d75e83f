// One Linear in fixed point, tile by tile: what the kernels of single Linears and of groups
// of them share.
//   out = sat(round(factor[n] * (floor(unit * sum_k q_x(r, k) w(n, k)) + correction[n])))
//         - offset
// where correction[n] stands for x.offset * sum_k w(n, k) + bias[n] (quant_math.h), and the
// sums are exact.

#ifndef SPILLWAY_HOST_QUANTIZED_LINEAR_H_
#define SPILLWAY_HOST_QUANTIZED_LINEAR_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "graph/graph.h"
#include "host/int_product.h"
#include "host/kernel.h"
#include "host/kernel_table.h"
#include "host/packed_weights.h"

namespace spillway::host {

// The rows of x [1, 1, R, K] as the products read them.
class PreparedRows {
 public:
  PreparedRows(const Tensor& x, const KernelOptions& options);
  // Prepares rows [begin, end) of `x`.
  void Prepare(const std::byte* x, size_t begin, size_t end, ThreadPool& pool);
  ProductRows Rows(size_t first, size_t count) const {
    return {workspace_.Shared(buffer_) + first * row_bytes_, row_bytes_, count, dtype_};
  }
  size_t k() const { return k_; }

 private:
  const IntegerProducts& products_;
  DType dtype_;
  size_t k_, row_bytes_;
  const Workspace& workspace_;
  size_t buffer_;  // [R][row_bytes], shared
};

// What a Linear computes with besides its weights: a value for each of the N columns, padded
// to whole blocks of 16. The same for all graphs that have this Linear.
struct LinearTerms {
  LinearTerms(const Graph& graph, const Op& op, const KernelTable& table,
              std::shared_ptr<const PackedWeights> packed);

  std::shared_ptr<const PackedWeights> weights;
  float weight_scale;
  std::vector<float> channel_scales;
  double unit;
  std::vector<double> factors, corrections;
  std::vector<double> bases;  // what the products' own base left out; empty: nothing
};

class QuantizedLinear {
 public:
  static constexpr size_t kTileColumns = 64;
  // Rows that a thread takes at a time: they stay in the cache with a tile's weights.
  static constexpr size_t kTileRows = 48;

  QuantizedLinear(const Graph& graph, const Op& op, const KernelOptions& options);

  size_t columns() const { return n_; }
  size_t tiles() const { return (n_ + kTileColumns - 1) / kTileColumns; }
  const OutputSpec& out() const { return out_; }
  size_t Columns(size_t tile) const;  // of that tile

  // Rows `x` by the columns of a tile; row r of the result is at out + r * out_stride bytes.
  // Calls with different `thread` may run at the same time.
  void RunTile(size_t tile, const ProductRows& x, size_t thread, std::byte* out,
               size_t out_stride) const;

 private:
  const KernelTable& table_;
  size_t k_, n_;
  OutputSpec out_;
  std::shared_ptr<const LinearTerms> terms_;
  const PackedWeights& weights_;
  const Workspace& workspace_;
  // In each thread's part:
  size_t scratch_;   // [kProductScratch] f64
  size_t unpacked_;  // a tile of 4-bit weights as s8
};

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_QUANTIZED_LINEAR_H_
