// Embedding tables: token ids to the first graph's input.

#ifndef SPILLWAY_RUNTIME_PACKAGE_EMBEDDING_H_
#define SPILLWAY_RUNTIME_PACKAGE_EMBEDDING_H_

#include <cstdint>
#include <memory>

#include "graph/graph.h"
#include "runtime/model_executor.h"
#include "spillway/status.h"

namespace spillway {

// Rows of a constant [vocab, hidden]: s8 with a scale for each row (kPackedN16K4
// or row-major) or f32. Thread-safe.
class PackageEmbedding : public EmbeddingTable {
 public:
  // Rows come out as `dtype` (u8 or u16 with the per-tensor `encoding`, f16 or
  // f32): round(q * row scale / encoding.scale) - encoding.offset, half to even,
  // saturated. kUnsupported for another table or type, naming the tensor. Keeps
  // the table's constant alive.
  static Result<std::shared_ptr<const EmbeddingTable>> Create(const Tensor& table, DType dtype,
                                                              const Encoding& encoding);

  uint32_t vocab_size() const override { return table_.shape[0]; }
  void Lookup(uint32_t token, std::byte* out) const override;

 private:
  PackageEmbedding(Tensor table, DType dtype, Encoding encoding);
  // Calls write(column, real value) for each column of a row.
  template <typename Write>
  void ForRow(uint32_t token, const Write& write) const;

  Tensor table_;
  DType dtype_;
  Encoding encoding_;
};

// For graphs that look the row up themselves: the "row" is the id as i32.
class TokenIdTable : public EmbeddingTable {
 public:
  explicit TokenIdTable(uint32_t vocab_size) : vocab_size_(vocab_size) {}
  uint32_t vocab_size() const override { return vocab_size_; }
  void Lookup(uint32_t token, std::byte* out) const override;

 private:
  uint32_t vocab_size_;
};

// The table that feeds a model with this `io`: `table`, or the ids themselves
// when io.hidden_dtype is kI32. kCorruptData when the table's width is not
// io.hidden_dim.
Result<std::shared_ptr<const EmbeddingTable>> MakeEmbedding(const Tensor& table, const ModelIo& io);

}  // namespace spillway

#endif  // SPILLWAY_RUNTIME_PACKAGE_EMBEDDING_H_
