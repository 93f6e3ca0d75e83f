#include "quantize/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "base/memory.h"

namespace spillway {
namespace {

constexpr uint32_t kRowGroup = 16;  // channels that lie together in kPackedN16K4

class PackedConstant : public ConstantData {
 public:
  explicit PackedConstant(AlignedBuffer buffer) : buffer_(std::move(buffer)) {}
  std::span<const std::byte> bytes() const override { return {buffer_.data(), buffer_.size()}; }
  DataLayout layout() const override { return DataLayout::kPackedN16K4; }

 private:
  AlignedBuffer buffer_;
};

void ReadRows(const ConstantData& matrix, uint32_t row, uint32_t count, uint32_t cols, float* out) {
  const std::span<const std::byte> bytes = matrix.bytes();
  if (bytes.empty()) {
    matrix.ReadRows(row, count, out);
  } else {
    std::memcpy(out, bytes.data() + static_cast<size_t>(row) * cols * sizeof(float),
                static_cast<size_t>(count) * cols * sizeof(float));
  }
}

struct RowScale {
  float scale = 1.0f, min = 0.0f, max = 0.0f;
  bool finite = true;
};

// What a group of rows has in common.
struct GroupFacts {
  float min = 0.0f, max = 0.0f;
  std::optional<uint32_t> bad_row;
};

// Quantises one row into its lane of a packed group, which is zeros before.
RowScale QuantizeRow(const float* row, uint32_t cols, int32_t limit, int8_t* group, uint32_t lane) {
  RowScale result;
  for (uint32_t k = 0; k < cols; ++k) {
    result.min = std::min(result.min, row[k]);
    result.max = std::max(result.max, row[k]);
    result.finite = result.finite && std::isfinite(row[k]);
  }
  if (!result.finite) return {.finite = false};
  const float scale = std::max(result.max, -result.min) / static_cast<float>(limit);
  if (scale < std::numeric_limits<float>::min()) return result;
  result.scale = scale;
  const float inverse = 1.0f / result.scale;
  for (uint32_t k = 0; k < cols; ++k) {
    const float q = std::nearbyint(row[k] * inverse);
    group[k / 4 * 64 + lane * 4 + k % 4] =
        static_cast<int8_t>(std::clamp(q, -static_cast<float>(limit), static_cast<float>(limit)));
  }
  return result;
}

}  // namespace

QuantizedMatrix QuantizeMatrix(const ConstantData& matrix, uint32_t rows, uint32_t cols,
                               uint8_t bits, ThreadPool* pool) {
  const int32_t limit = (1 << (bits - 1)) - 1;
  const size_t group_bytes = PackedN16K4Size(kRowGroup, cols);
  const uint32_t groups = (rows + kRowGroup - 1) / kRowGroup;
  AlignedBuffer buffer(groups * group_bytes);
  std::memset(buffer.data(), 0, buffer.size());
  std::vector<float> scales(rows);
  std::vector<GroupFacts> facts(groups);
  std::vector<std::vector<float>> scratch(pool->threads());
  for (auto& rows_of : scratch) rows_of.resize(static_cast<size_t>(kRowGroup) * cols);

  pool->ParallelFor(groups, 1, [&](size_t begin, size_t end, size_t thread) {
    float* floats = scratch[thread].data();
    for (size_t g = begin; g < end; ++g) {
      const auto first = static_cast<uint32_t>(g * kRowGroup);
      const uint32_t count = std::min(kRowGroup, rows - first);
      ReadRows(matrix, first, count, cols, floats);
      auto* group = reinterpret_cast<int8_t*>(buffer.data() + g * group_bytes);
      for (uint32_t lane = 0; lane < count; ++lane) {
        const RowScale row =
            QuantizeRow(floats + static_cast<size_t>(lane) * cols, cols, limit, group, lane);
        scales[first + lane] = row.scale;
        facts[g].min = std::min(facts[g].min, row.min);
        facts[g].max = std::max(facts[g].max, row.max);
        if (!row.finite && !facts[g].bad_row) facts[g].bad_row = first + lane;
      }
    }
  });

  QuantizedMatrix result;
  result.data = std::make_shared<PackedConstant>(std::move(buffer));
  result.encoding = Encoding::PerChannel(bits, 0, std::move(scales));
  for (const GroupFacts& group : facts) {
    result.min = std::min(result.min, group.min);
    result.max = std::max(result.max, group.max);
    if (!result.bad_row) result.bad_row = group.bad_row;
  }
  return result;
}

}  // namespace spillway
