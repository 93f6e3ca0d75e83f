// Writes GGUF files for tests: good ones, and ones that are wrong in a chosen
// place.

#ifndef SPILLWAY_TESTS_SUPPORT_GGUF_WRITER_H_
#define SPILLWAY_TESTS_SUPPORT_GGUF_WRITER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/gguf_blocks.h"

namespace spillway::test {

// A metadata value: the format's type number and the bytes that follow it.
struct MetaValue {
  uint32_t type;
  std::string bytes;

  static MetaValue U8(uint8_t v);
  static MetaValue I8(int8_t v);
  static MetaValue U16(uint16_t v);
  static MetaValue I16(int16_t v);
  static MetaValue U32(uint32_t v);
  static MetaValue I32(int32_t v);
  static MetaValue F32(float v);
  static MetaValue Bool(bool v);
  static MetaValue String(std::string_view v);
  static MetaValue U64(uint64_t v);
  static MetaValue I64(int64_t v);
  static MetaValue F64(double v);
  // The elements must all have the type number `element_type`.
  static MetaValue Array(uint32_t element_type, const std::vector<MetaValue>& elements);
  static MetaValue Strings(const std::vector<std::string>& texts);
};

struct WriterTensor {
  std::string name;
  std::vector<uint64_t> dims;  // fastest-varying first
  uint32_t type = 0;
  std::string data;
  std::optional<uint64_t> offset;  // instead of the next aligned one
};

// Keeps what it is given in order. Plain data: copy it, change it, write it.
class GgufWriter {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;  // written as general.alignment unless 32
  std::vector<std::pair<std::string, MetaValue>> metadata;
  std::vector<WriterTensor> tensors;
  // Instead of the true counts.
  std::optional<uint64_t> tensor_count, metadata_count;

  // Replaces or adds.
  void Set(const std::string& key, MetaValue value);
  void Erase(const std::string& key);
  // Stores `values` as `type`.
  void AddTensor(const std::string& name, std::vector<uint64_t> dims, TensorType type,
                 std::span<const float> values);
  // Null when there is none.
  WriterTensor* FindTensor(const std::string& name);
  void EraseTensor(const std::string& name);

  std::string Serialize() const;
  // Writes the file; aborts when it cannot.
  void Write(const std::string& path) const;
};

// Writes `bytes` to `path`, replacing what is there; aborts when it cannot.
void WriteBytes(const std::string& path, std::string_view bytes);

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_SUPPORT_GGUF_WRITER_H_
