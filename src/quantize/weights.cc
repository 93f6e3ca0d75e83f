#include "quantize/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "base/memory.h"
#include "quantize/gptq.h"
#include "quantize/lpbq.h"
#include "quantize/weights_round.h"

namespace spillway {
namespace {

constexpr uint32_t kLanes = 16;  // channels that lie together in kPackedN16K4
constexpr uint32_t kGroupRows = kGptqRows;
static_assert(kGroupRows % kLanes == 0);

class OwnedConstant : public ConstantData {
 public:
  OwnedConstant(AlignedBuffer buffer, DataLayout layout)
      : buffer_(std::move(buffer)), layout_(layout) {}
  std::span<const std::byte> bytes() const override { return {buffer_.data(), buffer_.size()}; }
  DataLayout layout() const override { return layout_; }

 private:
  AlignedBuffer buffer_;
  DataLayout layout_;
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

// What a group of rows has in common.
struct GroupFacts {
  float min = 0.0f, max = 0.0f;
  std::optional<uint32_t> bad_row;
};

// Quantises one matrix, a group of 64 rows at a time.
class MatrixQuantizer {
 public:
  MatrixQuantizer(const ConstantData& matrix, uint32_t rows, uint32_t cols,
                  const WeightScheme& scheme, const InputHessian* hessian, ThreadPool* pool)
      : matrix_(matrix),
        rows_(rows),
        cols_(cols),
        scheme_(scheme),
        hessian_(hessian),
        limit_(static_cast<float>((1 << (scheme.bits - 1)) - 1)),
        blocks_(scheme.block == 0 ? 0 : (cols + scheme.block - 1) / scheme.block),
        gptq_(scheme.method == WeightMethod::kGptq && hessian != nullptr && hessian->factorised()),
        packed_(PackedN16K4Size(rows, cols)),
        scales_(rows, 1.0f),
        block_scales_(static_cast<size_t>(rows) * blocks_, 1) {
    std::memset(packed_.data(), 0, packed_.size());
    if (hessian != nullptr && scheme.method != WeightMethod::kRtn) SetImportance();
    for (size_t i = 0; i < pool->threads(); ++i) scratch_.push_back(MakeScratch());
  }

  QuantizedMatrix Run(ThreadPool* pool) {
    const uint32_t groups = (rows_ + kGroupRows - 1) / kGroupRows;
    facts_.resize(groups);
    pool->ParallelFor(groups, 1, [&](size_t begin, size_t end, size_t thread) {
      for (size_t g = begin; g < end; ++g) Quantize(static_cast<uint32_t>(g), scratch_[thread]);
    });
    QuantizedMatrix result;
    result.data = std::make_shared<OwnedConstant>(std::move(packed_), DataLayout::kPackedN16K4);
    result.encoding = Encoding::PerChannel(scheme_.bits, 0, std::move(scales_));
    if (blocks_ > 0) {
      result.encoding.kind = Encoding::Kind::kBlock;
      result.encoding.block_size = scheme_.block;
      result.encoding.block_scales = std::move(block_scales_);
    }
    for (const GroupFacts& group : facts_) {
      result.min = std::min(result.min, group.min);
      result.max = std::max(result.max, group.max);
      if (!result.bad_row) result.bad_row = group.bad_row;
    }
    return result;
  }

 private:
  struct Scratch {
    std::vector<float> floats;  // [64, cols]
    std::unique_ptr<GptqGroup> group;
  };

  Scratch MakeScratch() const {
    return {std::vector<float>(static_cast<size_t>(kGroupRows) * cols_),
            gptq_ ? std::make_unique<GptqGroup>(hessian_) : nullptr};
  }

  // An input that calibration never saw still counts a little.
  void SetImportance() {
    importance_ = hessian_->second_moments();
    double mean = 0.0;
    for (const float moment : importance_) mean += moment / static_cast<double>(cols_);
    for (float& moment : importance_) moment += static_cast<float>(0.01 * mean);
  }

  uint8_t* BlockScales(uint32_t row) {
    return block_scales_.data() + static_cast<size_t>(row) * blocks_;
  }
  float Step(uint32_t row, uint32_t k) const {
    if (blocks_ == 0) return scales_[row];
    return scales_[row] *
           static_cast<float>(
               block_scales_[static_cast<size_t>(row) * blocks_ + k / scheme_.block]);
  }
  void Put(uint32_t row, uint32_t k, float q) {
    reinterpret_cast<int8_t*>(packed_.data())[PackedN16K4Index(row, k, cols_)] =
        static_cast<int8_t>(q);
  }

  void Quantize(uint32_t g, Scratch& scratch) {
    const uint32_t first = g * kGroupRows;
    const uint32_t count = std::min(kGroupRows, rows_ - first);
    float* floats = scratch.floats.data();
    ReadRows(matrix_, first, count, cols_, floats);
    for (uint32_t i = 0; i < count; ++i) {
      float* row = floats + static_cast<size_t>(i) * cols_;
      if (!Measure(row, facts_[g])) {
        if (!facts_[g].bad_row) facts_[g].bad_row = first + i;
        std::fill(row, row + cols_, 0.0f);
      }
      ChooseScales(first + i, row);
      if (!gptq_) RoundRow(first + i, row);
    }
    if (gptq_) RoundGroup(first, count, floats, *scratch.group);
  }

  // False when a value is not finite.
  bool Measure(const float* row, GroupFacts& facts) const {
    float min = 0.0f, max = 0.0f;
    bool finite = true;
    for (uint32_t k = 0; k < cols_; ++k) {
      min = std::min(min, row[k]);
      max = std::max(max, row[k]);
      finite = finite && std::isfinite(row[k]);
    }
    if (!finite) return false;
    facts.min = std::min(facts.min, min);
    facts.max = std::max(facts.max, max);
    return true;
  }

  void ChooseScales(uint32_t row, const float* values) {
    const RowView view{{values, cols_}, importance_, limit_};
    const bool widest = scheme_.method == WeightMethod::kRtn;
    if (blocks_ == 0) {
      scales_[row] = widest ? WidestScale(view) : BestScale(view);
    } else {
      scales_[row] = widest ? WidestBlockScales(view, scheme_.block, BlockScales(row))
                            : BestBlockScales(view, scheme_.block, BlockScales(row));
    }
  }

  void RoundRow(uint32_t row, const float* values) {
    const uint32_t block = blocks_ == 0 ? cols_ : scheme_.block;
    for (uint32_t begin = 0; begin < cols_; begin += block) {
      const float inverse = 1.0f / Step(row, begin);
      for (uint32_t k = begin; k < std::min(cols_, begin + block); ++k) {
        Put(row, k, RoundClamped(values[k] * inverse, limit_));
      }
    }
  }

  void RoundGroup(uint32_t first, uint32_t count, const float* floats, GptqGroup& group) {
    const std::vector<uint32_t>& order = hessian_->order();
    std::fill(group.weights.begin(), group.weights.end(), 0.0f);
    std::fill(group.steps.begin(), group.steps.end(), 1.0f);
    for (uint32_t j = 0; j < cols_; ++j) {
      for (uint32_t i = 0; i < count; ++i) {
        group.weights[j * kGptqRows + i] = floats[static_cast<size_t>(i) * cols_ + order[j]];
        group.steps[j * kGptqRows + i] = Step(first + i, order[j]);
      }
    }
    group.Round(limit_);
    float factors[kGptqRows];
    group.BestScales(factors);
    for (size_t at = 0; at < group.steps.size(); ++at) group.steps[at] *= factors[at % kGptqRows];
    for (uint32_t i = 0; i < count; ++i) scales_[first + i] *= factors[i];
    group.Descend(limit_, 1);
    for (uint32_t j = 0; j < cols_; ++j) {
      for (uint32_t i = 0; i < count; ++i) {
        Put(first + i, order[j], group.integers[j * kGptqRows + i]);
      }
    }
  }

  const ConstantData& matrix_;
  const uint32_t rows_, cols_;
  const WeightScheme scheme_;
  const InputHessian* hessian_;
  const float limit_;
  const uint32_t blocks_;  // a row; 0: per channel
  const bool gptq_;
  AlignedBuffer packed_;
  std::vector<float> scales_;
  std::vector<uint8_t> block_scales_;
  std::vector<float> importance_;
  std::vector<GroupFacts> facts_;
  std::vector<Scratch> scratch_;
};

}  // namespace

QuantizedMatrix QuantizeMatrix(const ConstantData& matrix, uint32_t rows, uint32_t cols,
                               const WeightScheme& scheme, const InputHessian* hessian,
                               ThreadPool* pool) {
  return MatrixQuantizer(matrix, rows, cols, scheme, hessian, pool).Run(pool);
}

std::shared_ptr<const ConstantData> DequantizeMatrix(const QuantizedMatrix& matrix, uint32_t rows,
                                                     uint32_t cols, ThreadPool* pool) {
  AlignedBuffer buffer(static_cast<size_t>(rows) * cols * sizeof(float));
  auto* out = reinterpret_cast<float*>(buffer.data());
  const auto* packed = reinterpret_cast<const int8_t*>(matrix.data->bytes().data());
  const Encoding& encoding = matrix.encoding;
  const bool has_blocks = encoding.kind == Encoding::Kind::kBlock;
  const uint32_t block = has_blocks ? encoding.block_size : cols;
  const size_t blocks = (cols + block - 1) / block;
  pool->ParallelFor(rows, kLanes, [&](size_t begin, size_t end, size_t) {
    for (size_t n = begin; n < end; ++n) {
      for (size_t b = 0; b < blocks; ++b) {
        const float multiplier = has_blocks ? encoding.block_scales[n * blocks + b] : 1.0f;
        const float step = encoding.channel_scales[n] * multiplier;
        for (size_t k = b * block; k < std::min<size_t>(cols, (b + 1) * block); ++k) {
          out[n * cols + k] = step * static_cast<float>(packed[PackedN16K4Index(n, k, cols)]);
        }
      }
    }
  });
  return std::make_shared<OwnedConstant>(std::move(buffer), DataLayout::kRowMajor);
}

std::shared_ptr<const ConstantData> ReadMatrix(const ConstantData& matrix, uint32_t rows,
                                               uint32_t cols, ThreadPool* pool) {
  AlignedBuffer buffer(static_cast<size_t>(rows) * cols * sizeof(float));
  auto* out = reinterpret_cast<float*>(buffer.data());
  pool->ParallelFor(rows, kLanes, [&](size_t begin, size_t end, size_t) {
    ReadRows(matrix, static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin), cols,
             out + begin * cols);
  });
  return std::make_shared<OwnedConstant>(std::move(buffer), DataLayout::kRowMajor);
}

}  // namespace spillway
