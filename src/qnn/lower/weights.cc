#include "qnn/lower/weights.h"

#include <algorithm>
#include <cstring>

namespace spillway::qnn {
namespace {

constexpr size_t kLanes = 16;  // channels of a packed group
constexpr size_t kDepth = 4;   // K-neighbours of a packed group

void TransposePacked(const std::byte* packed, size_t rows, size_t cols, std::byte* out) {
  const size_t k_groups = (cols + kDepth - 1) / kDepth;
  for (size_t n0 = 0; n0 < rows; n0 += kLanes) {
    const size_t lanes = std::min(kLanes, rows - n0);
    for (size_t k0 = 0; k0 < cols; k0 += kDepth) {
      const std::byte* block = packed + (n0 / kLanes * k_groups + k0 / kDepth) * 64;
      const size_t depth = std::min(kDepth, cols - k0);
      for (size_t k = 0; k < depth; ++k) {
        std::byte* row = out + (k0 + k) * rows + n0;
        for (size_t n = 0; n < lanes; ++n) row[n] = block[n * kDepth + k];
      }
    }
  }
}

}  // namespace

std::vector<std::byte> TransposeWeights(const Tensor& tensor) {
  const size_t rows = tensor.shape[0];
  const size_t cols = tensor.shape[1];
  const size_t size = DTypeSize(tensor.dtype);
  std::vector<std::byte> out(rows * cols * size);
  const std::byte* in = tensor.data->bytes().data();
  if (tensor.data->layout() == DataLayout::kPackedN16K4) {
    TransposePacked(in, rows, cols, out.data());
    return out;
  }
  if (tensor.data->layout() == DataLayout::kPackedNibbles) {
    for (size_t n = 0; n < rows; ++n) {
      for (size_t k = 0; k < cols; ++k) {
        out[k * rows + n] = static_cast<std::byte>(PackedNibble(in, n, k, cols));
      }
    }
    return out;
  }
  for (size_t n = 0; n < rows; ++n) {
    for (size_t k = 0; k < cols; ++k) {
      std::memcpy(&out[(k * rows + n) * size], &in[(n * cols + k) * size], size);
    }
  }
  return out;
}

TensorEncoding WeightEncoding(const Encoding& encoding, int32_t axis) {
  if (encoding.kind == Encoding::Kind::kBlock) {
    TensorEncoding block;
    block.kind = TensorEncoding::Kind::kBlockwise;
    block.axis = axis;
    block.scales = encoding.channel_scales;
    block.block_scales = encoding.block_scales;
    block.blocks_per_axis =
        static_cast<uint32_t>(encoding.block_scales.size() / encoding.channel_scales.size());
    return block;
  }
  if (encoding.bits < 8) {
    return TensorEncoding::BwPerAxis(axis, encoding.bits, encoding.channel_scales);
  }
  return TensorEncoding::PerAxis(axis, encoding.channel_scales);
}

}  // namespace spillway::qnn
