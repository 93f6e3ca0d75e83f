#include "runtime/package_embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/float16.h"

namespace spillway {
namespace {

Status CheckTable(const Tensor& table) {
  const bool is_f32 = table.dtype == DType::kF32;
  const bool is_f16 = table.dtype == DType::kF16;
  const bool is_s8 = table.dtype == DType::kS8 &&
                     table.encoding.kind == Encoding::Kind::kPerChannel && table.encoding.axis == 0;
  if (table.shape.size() != 2 || table.data == nullptr || !(is_f32 || is_f16 || is_s8)) {
    return UnsupportedError(fmt::format(
        "embedding table \"{}\" is {} {} ({}); expected a constant [vocab, hidden], f32, f16, or "
        "s8 with a scale for each row",
        table.name, DTypeName(table.dtype), ShapeToString(table.shape), table.encoding.ToString()));
  }
  if (is_f32) return OkStatus();
  const size_t rows = table.shape[0];
  if (is_f16) {
    if (table.data->bytes().size() >= table.Bytes()) return OkStatus();
    return CorruptDataError(fmt::format("embedding table \"{}\" has {} bytes; expected {}",
                                        table.name, table.data->bytes().size(), table.Bytes()));
  }
  const size_t need = StoredBytes(table, table.data->layout());
  if (table.data->bytes().size() < need || table.encoding.channel_scales.size() != rows) {
    return CorruptDataError(fmt::format(
        "embedding table \"{}\" has {} bytes and {} scales; expected {} and {}", table.name,
        table.data->bytes().size(), table.encoding.channel_scales.size(), need, rows));
  }
  return OkStatus();
}

}  // namespace

PackageEmbedding::PackageEmbedding(Tensor table, DType dtype, Encoding encoding)
    : table_(std::move(table)), dtype_(dtype), encoding_(std::move(encoding)) {}

Result<std::shared_ptr<const EmbeddingTable>> PackageEmbedding::Create(const Tensor& table,
                                                                       DType dtype,
                                                                       const Encoding& encoding) {
  SPILLWAY_RETURN_IF_ERROR(CheckTable(table));
  const bool is_float = dtype == DType::kF32 || dtype == DType::kF16;
  const bool is_fixed = (dtype == DType::kU8 || dtype == DType::kU16) &&
                        encoding.kind == Encoding::Kind::kPerTensor && encoding.scale > 0.0f;
  if (!is_float && !is_fixed) {
    return UnsupportedError(
        fmt::format("embedding table \"{}\" cannot be written as {} ({}); expected f32, f16, or u8 "
                    "or u16 with a per-tensor encoding",
                    table.name, DTypeName(dtype), encoding.ToString()));
  }
  return std::shared_ptr<const EmbeddingTable>(new PackageEmbedding(table, dtype, encoding));
}

template <typename Write>
void PackageEmbedding::ForRow(uint32_t token, const Write& write) const {
  const size_t cols = table_.shape[1];
  const ConstantData& data = *table_.data;
  if (table_.dtype == DType::kF32) {
    if (data.bytes().empty()) {  // read from the model's file, block by block
      thread_local std::vector<float> row;
      if (row.size() < cols) row.resize(cols);
      data.ReadRows(token, 1, row.data());
      for (size_t c = 0; c < cols; ++c) write(c, row[c]);
    } else {
      const float* row = reinterpret_cast<const float*>(data.bytes().data()) + token * cols;
      for (size_t c = 0; c < cols; ++c) write(c, row[c]);
    }
    return;
  }
  if (table_.dtype == DType::kF16) {
    const auto* row = reinterpret_cast<const uint16_t*>(data.bytes().data()) + token * cols;
    for (size_t c = 0; c < cols; ++c) write(c, HalfToFloat(row[c]));
    return;
  }
  const float scale = table_.encoding.channel_scales[token];
  for (size_t c = 0; c < cols; ++c) {
    write(c, static_cast<float>(MatrixInt(table_, token, c)) * scale);
  }
}

void PackageEmbedding::Lookup(uint32_t token, std::byte* out) const {
  switch (dtype_) {
    case DType::kF32:
      return ForRow(token, [out](size_t c, float x) { reinterpret_cast<float*>(out)[c] = x; });
    case DType::kF16:
      return ForRow(token, [out](size_t c, float x) {
        reinterpret_cast<uint16_t*>(out)[c] = FloatToHalf(x);
      });
    case DType::kU16:
      return ForRow(token, [this, out](size_t c, float x) {
        reinterpret_cast<uint16_t*>(out)[c] =
            static_cast<uint16_t>(QuantizeValue(x, encoding_, DType::kU16));
      });
    default:
      return ForRow(token, [this, out](size_t c, float x) {
        reinterpret_cast<uint8_t*>(out)[c] =
            static_cast<uint8_t>(QuantizeValue(x, encoding_, DType::kU8));
      });
  }
}

void TokenIdTable::Lookup(uint32_t token, std::byte* out) const {
  const int32_t id = static_cast<int32_t>(token);
  std::memcpy(out, &id, sizeof(id));
}

Result<std::shared_ptr<const EmbeddingTable>> MakeEmbedding(const Tensor& table,
                                                            const ModelIo& io) {
  if (io.hidden_dtype == DType::kI32) {
    return std::shared_ptr<const EmbeddingTable>(std::make_shared<TokenIdTable>(io.vocab_size));
  }
  if (table.shape.size() == 2 && table.shape[1] != io.hidden_dim) {
    return CorruptDataError(fmt::format("embedding table \"{}\" is {}; the model's width is {}",
                                        table.name, ShapeToString(table.shape), io.hidden_dim));
  }
  return PackageEmbedding::Create(table, io.hidden_dtype, io.hidden_encoding);
}

}  // namespace spillway
