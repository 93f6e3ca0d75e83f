#include "host/packed_weights.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "host/int_product.h"
#include "host/parallel.h"

namespace spillway::host {
namespace {

// Those that are alive, by their constant.
struct Known {
  std::mutex mutex;
  std::unordered_multimap<const ConstantData*, std::weak_ptr<const PackedWeights>> weights;
};

Known& AllKnown() {
  static Known* const known = new Known;  // never destroyed: graphs may outlive statics
  return *known;
}

}  // namespace

std::shared_ptr<const PackedWeights> PackedWeights::Get(const Tensor& weight,
                                                        const KernelTable& table,
                                                        ThreadPool& pool) {
  Known& known = AllKnown();
  const std::lock_guard<std::mutex> lock(known.mutex);
  const auto [first, last] = known.weights.equal_range(weight.data.get());
  for (auto entry = first; entry != last; ++entry) {
    const auto packed = entry->second.lock();
    if (packed != nullptr && packed->encoding_.block_size == weight.encoding.block_size &&
        packed->encoding_.block_scales == weight.encoding.block_scales) {
      return packed;
    }
  }
  std::erase_if(known.weights, [](const auto& entry) { return entry.second.expired(); });
  auto packed = std::make_shared<PackedWeights>();
  packed->source_ = weight.data;
  packed->encoding_.block_size = weight.encoding.block_size;
  packed->encoding_.block_scales = weight.encoding.block_scales;
  if (weight.data->layout() == DataLayout::kPackedN16K4 &&
      weight.encoding.kind != Encoding::Kind::kBlock) {
    packed->data_ = reinterpret_cast<const int8_t*>(weight.data->bytes().data());
  } else {
    packed->Pack(weight, pool);
  }
  packed->Sum(weight, table, pool);
  known.weights.emplace(weight.data.get(), packed);
  return packed;
}

void PackedWeights::Sum(const Tensor& weight, const KernelTable& table, ThreadPool& pool) {
  const size_t blocks = (weight.shape[0] + 15) / 16;
  const size_t k_groups = (weight.shape[1] + 3) / 4;
  const IntegerProducts& products = *table.products;
  const size_t row_bytes = products.linear_row_bytes(DType::kU8, k_groups * 4);
  sums_.resize(blocks * 16);
  AlignedBuffer scratch(pool.threads() * (k_groups * 4 + row_bytes));
  ParallelFor(pool, blocks, k_groups * 64, [&](size_t begin, size_t end, size_t thread) {
    ColumnSums(table, {data_ + begin * k_groups * 64, k_groups, (end - begin) * 16},
               scratch.data() + thread * (k_groups * 4 + row_bytes), sums_.data() + begin * 16);
  });
}

void PackedWeights::Pack(const Tensor& weight, ThreadPool& pool) {
  const size_t rows = weight.shape[0];
  const size_t cols = weight.shape[1];
  const bool is_packed = weight.data->layout() == DataLayout::kPackedN16K4;
  const size_t block = weight.encoding.block_size;
  const bool has_blocks = weight.encoding.kind == Encoding::Kind::kBlock;
  const auto* in = reinterpret_cast<const int8_t*>(weight.data->bytes().data());
  copy_ = AlignedBuffer(PackedN16K4Size(rows, cols));
  auto* out = reinterpret_cast<int8_t*>(copy_.data());
  const size_t group_bytes = (cols + 3) / 4 * 64;
  ParallelFor(pool, (rows + 15) / 16, 32 * cols, [&](size_t begin, size_t end, size_t) {
    std::memset(out + begin * group_bytes, 0, (end - begin) * group_bytes);
    for (size_t n = begin * 16; n < std::min(rows, end * 16); ++n) {
      for (size_t k = 0; k < cols; ++k) {
        const size_t to = PackedN16K4Index(n, k, cols);
        const int32_t q = in[is_packed ? to : n * cols + k];
        const int32_t multiplier =
            has_blocks ? weight.encoding.block_scales[n * ((cols + block - 1) / block) + k / block]
                       : 1;
        out[to] = static_cast<int8_t>(q * multiplier);
      }
    }
  });
  data_ = out;
}

}  // namespace spillway::host
