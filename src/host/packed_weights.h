// The integer weights of a Linear in the layout that the products read.

#ifndef SPILLWAY_HOST_PACKED_WEIGHTS_H_
#define SPILLWAY_HOST_PACKED_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "graph/graph.h"
#include "host/kernel_table.h"

namespace spillway::host {

// s8 weights in kPackedN16K4, block scales multiplied in (4-bit values times 1 to
// 16 fit in s8). Immutable, thread-safe.
class PackedWeights {
 public:
  const int8_t* data() const { return data_; }
  // The sum of each channel's weights, [N] and zeros up to whole blocks of 16.
  const double* sums() const { return sums_.data(); }

  // The constant's own bytes when they already have this form, otherwise a packed copy.
  // All graphs of the process that use the same constant share it while one of them
  // lives. `weight` is an s8 [N, K] constant that passed CheckSupported.
  static std::shared_ptr<const PackedWeights> Get(const Tensor& weight, const KernelTable& table,
                                                  ThreadPool& pool);

 private:
  void Pack(const Tensor& weight, ThreadPool& pool);
  void Sum(const Tensor& weight, const KernelTable& table, ThreadPool& pool);

  std::shared_ptr<const ConstantData> source_;
  Encoding encoding_;
  AlignedBuffer copy_;
  const int8_t* data_ = nullptr;
  std::vector<double> sums_;
};

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_PACKED_WEIGHTS_H_
