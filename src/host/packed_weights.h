// The integer weights of a Linear as the products read them.

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

// Weights [N, K], in one of two forms: s8 in kPackedN16K4, block scales multiplied in
// (4-bit values times 1 to 16 fit in s8), or 4-bit ones in kPackedNibbles with their block
// scales beside them. Immutable, thread-safe.
class PackedWeights {
 public:
  // The constant's own bytes when they already have one of the forms, otherwise a packed
  // copy. All graphs of the process that use the same constant share it while one of them
  // lives. `weight` is an s8 [N, K] constant that passed CheckSupported.
  static std::shared_ptr<const PackedWeights> Get(const Tensor& weight, const KernelTable& table,
                                                  ThreadPool& pool);

  // kPackedN16K4; null for 4-bit weights.
  const int8_t* data() const { return data_; }
  bool is_nibbles() const { return nibbles_ != nullptr; }
  // Columns [first, first + count) of 4-bit weights; first is a multiple of 16.
  NibbleColumns Nibbles(size_t first, size_t count) const;
  // The same columns in kPackedN16K4, block scales multiplied in, whole blocks of 16.
  void Unpack(size_t first, size_t count, int8_t* out) const;

  // The sum of each channel's weights, [N].
  const int32_t* sums() const { return sums_; }

 private:
  explicit PackedWeights(const Tensor& weight);
  bool IsOf(const Tensor& weight) const;
  void Pack(const Tensor& weight, ThreadPool& pool);
  void ArrangeMultipliers();
  void Arrange(const Tensor& weight, const KernelTable& table, ThreadPool& pool);
  void Sum(const KernelTable& table, ThreadPool& pool);

  std::shared_ptr<const ConstantData> source_;
  uint32_t block_size_;
  std::vector<uint8_t> block_scales_;
  size_t rows_, cols_;
  AlignedBuffer copy_;
  const int8_t* data_ = nullptr;
  const std::byte* nibbles_ = nullptr;
  std::vector<uint8_t> multipliers_;  // as NibbleColumns has them
  const int32_t* sums_ = nullptr;     // in stored_sums_ or own_sums_
  std::shared_ptr<const ConstantData> stored_sums_;
  std::vector<int32_t> own_sums_;
};

}  // namespace spillway::host

#endif  // SPILLWAY_HOST_PACKED_WEIGHTS_H_
