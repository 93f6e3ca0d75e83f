#include "host/packed_weights.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "host/int_product.h"
#include "host/parallel.h"
#include "host/shared_values.h"

namespace spillway::host {
PackedWeights::PackedWeights(const Tensor& weight)
    : source_(weight.data),
      block_size_(weight.encoding.kind == Encoding::Kind::kBlock ? weight.encoding.block_size : 0),
      block_scales_(weight.encoding.block_scales),
      rows_(weight.shape[0]),
      cols_(weight.shape[1]) {}

bool PackedWeights::IsOf(const Tensor& weight) const {
  return weight.encoding.block_size == block_size_ && weight.encoding.block_scales == block_scales_;
}

std::shared_ptr<const PackedWeights> PackedWeights::Get(const Tensor& weight,
                                                        const KernelTable& table,
                                                        ThreadPool& pool) {
  static auto* const known = new SharedValues<const ConstantData*, PackedWeights>;
  const auto make = [&] {
    const std::shared_ptr<PackedWeights> made(new PackedWeights(weight));
    made->Arrange(weight, table, pool);
    return made;
  };
  const std::shared_ptr<const PackedWeights> shared = known->Get(weight.data.get(), make);
  // The same bytes with other scales: a graph of its own kind, which shares nothing.
  return shared->IsOf(weight) ? shared : make();
}

void PackedWeights::Arrange(const Tensor& weight, const KernelTable& table, ThreadPool& pool) {
  const DataLayout layout = weight.data->layout();
  const std::byte* bytes = weight.data->bytes().data();
  if (layout == DataLayout::kPackedN16K4 && block_size_ == 0) {
    data_ = reinterpret_cast<const int8_t*>(bytes);
  } else if (layout == DataLayout::kPackedNibbles && cols_ % 8 == 0 && block_size_ % 8 == 0) {
    nibbles_ = bytes;
    ArrangeMultipliers();
  } else {
    Pack(weight, pool);
  }
  if (weight.sums != nullptr) {
    stored_sums_ = weight.sums;
    sums_ = reinterpret_cast<const int32_t*>(stored_sums_->bytes().data());
  } else {
    Sum(table, pool);
  }
}

NibbleColumns PackedWeights::Nibbles(size_t first, size_t count) const {
  NibbleColumns columns;
  columns.k_groups = cols_ / 8;
  columns.count = count;
  columns.data = nibbles_ + first / 16 * columns.k_groups * 64;
  columns.block_groups = columns.k_groups;
  if (block_size_ > 0) {
    columns.block_groups = block_size_ / 8;
    const size_t blocks = (cols_ + block_size_ - 1) / block_size_;
    columns.multipliers = multipliers_.data() + first / 16 * blocks * 16;
  }
  return columns;
}

void PackedWeights::Unpack(size_t first, size_t count, int8_t* out) const {
  const NibbleColumns from = Nibbles(first, count);
  const size_t k_blocks = (from.k_groups + from.block_groups - 1) / from.block_groups;
  for (size_t b = 0; b < (count + 15) / 16; ++b) {
    for (size_t g = 0; g < from.k_groups; ++g) {
      const std::byte* pairs = from.data + (b * from.k_groups + g) * 64;
      int8_t* low = out + (b * from.k_groups + g) * 128;
      uint8_t by[64];
      std::memset(by, 1, sizeof(by));
      if (from.multipliers != nullptr) {
        const uint8_t* scales = from.multipliers + (b * k_blocks + g / from.block_groups) * 16;
        for (size_t i = 0; i < 64; ++i) by[i] = scales[i / 4];
      }
      for (size_t i = 0; i < 64; ++i) {
        const auto pair = std::to_integer<uint8_t>(pairs[i]);
        low[i] = static_cast<int8_t>(((pair & 15) - 8) * by[i]);
        low[64 + i] = static_cast<int8_t>(((pair >> 4) - 8) * by[i]);
      }
    }
  }
}

void PackedWeights::ArrangeMultipliers() {
  if (block_size_ == 0) return;
  const size_t blocks = (cols_ + block_size_ - 1) / block_size_;
  multipliers_.assign((rows_ + 15) / 16 * blocks * 16, 1);
  for (size_t n = 0; n < rows_; ++n) {
    for (size_t b = 0; b < blocks; ++b) {
      multipliers_[(n / 16 * blocks + b) * 16 + n % 16] = block_scales_[n * blocks + b];
    }
  }
}

void PackedWeights::Sum(const KernelTable& table, ThreadPool& pool) {
  const size_t blocks = (rows_ + 15) / 16;
  const size_t k_groups = (cols_ + 3) / 4;
  const size_t row_bytes = table.products->linear_row_bytes(DType::kU8, k_groups * 4);
  const size_t unpacked = is_nibbles() ? k_groups * 64 : 0;
  const size_t of_thread = k_groups * 4 + row_bytes + unpacked;
  own_sums_.resize(blocks * 16);
  sums_ = own_sums_.data();
  AlignedBuffer scratch(pool.threads() * of_thread);
  ParallelFor(pool, blocks, k_groups * 64, [&](size_t begin, size_t end, size_t thread) {
    std::byte* ones = scratch.data() + thread * of_thread;
    auto* copy = reinterpret_cast<int8_t*>(ones + k_groups * 4 + row_bytes);
    for (size_t b = begin; b < end; ++b) {
      if (is_nibbles()) Unpack(b * 16, 16, copy);
      double sums[16];
      ColumnSums(table, {is_nibbles() ? copy : data_ + b * k_groups * 64, k_groups, 16}, ones,
                 sums);
      std::copy(std::begin(sums), std::end(sums), own_sums_.begin() + b * 16);
    }
  });
}

void PackedWeights::Pack(const Tensor& weight, ThreadPool& pool) {
  copy_ = AlignedBuffer(PackedN16K4Size(rows_, cols_));
  auto* out = reinterpret_cast<int8_t*>(copy_.data());
  const size_t group_bytes = (cols_ + 3) / 4 * 64;
  const size_t blocks = block_size_ > 0 ? (cols_ + block_size_ - 1) / block_size_ : 0;
  ParallelFor(pool, (rows_ + 15) / 16, 32 * cols_, [&](size_t begin, size_t end, size_t) {
    std::memset(out + begin * group_bytes, 0, (end - begin) * group_bytes);
    for (size_t n = begin * 16; n < std::min(rows_, end * 16); ++n) {
      for (size_t k = 0; k < cols_; ++k) {
        const int32_t multiplier = blocks > 0 ? block_scales_[n * blocks + k / block_size_] : 1;
        out[PackedN16K4Index(n, k, cols_)] =
            static_cast<int8_t>(MatrixInt(weight, n, k) * multiplier);
      }
    }
  });
  data_ = out;
}

}  // namespace spillway::host
