#include "host/packed_weights.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "host/parallel.h"

namespace spillway::host {
namespace {

// The packed copies that are alive.
struct Copies {
  std::mutex mutex;
  std::vector<std::weak_ptr<const PackedWeights>> list;
};

Copies& AllCopies() {
  static Copies* const copies = new Copies;  // never destroyed: graphs may outlive statics
  return *copies;
}

}  // namespace

std::shared_ptr<const PackedWeights> PackedWeights::Get(const Tensor& weight, ThreadPool& pool) {
  auto packed = std::make_shared<PackedWeights>();
  packed->source_ = weight.data;
  packed->encoding_ = weight.encoding;
  if (weight.data->layout() == DataLayout::kPackedN16K4 &&
      weight.encoding.kind != Encoding::Kind::kBlock) {
    packed->data_ = reinterpret_cast<const int8_t*>(weight.data->bytes().data());
    return packed;
  }
  Copies& copies = AllCopies();
  const std::lock_guard<std::mutex> lock(copies.mutex);
  std::erase_if(copies.list, [](const auto& entry) { return entry.expired(); });
  for (const auto& entry : copies.list) {
    const auto known = entry.lock();
    if (known != nullptr && known->source_ == weight.data &&
        known->encoding_.block_size == weight.encoding.block_size &&
        known->encoding_.block_scales == weight.encoding.block_scales) {
      return known;
    }
  }
  packed->Pack(weight, pool);
  copies.list.push_back(packed);
  return packed;
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
