// GGUF, versions 2 and 3, read-only and memory-mapped.
//
// Format (all little endian): magic "GGUF", u32 version, u64 tensor count, u64
// metadata count; then the metadata: key (u64 length + bytes), u32 value type,
// value; then the tensors: name, u32 number of dimensions, u64 each (the
// fastest-varying first), u32 type, u64 offset from the start of the data; then
// padding to `general.alignment` (32 unless given) and the data. Every length,
// count and offset is checked against the file before use, so a damaged file is
// an error that names the section, the field and its position.

#ifndef SPILLWAY_MODEL_GGUF_H_
#define SPILLWAY_MODEL_GGUF_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "spillway/status.h"

namespace spillway {

// The numbers are the file format's.
enum class GgufType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

// "Q4_1"; "unknown" for a number that is none of the above.
std::string_view GgufTypeName(GgufType type);
// Elements and bytes of one block; {0, 0} for an unsupported type.
struct GgufBlock {
  uint32_t elements, bytes;
};
GgufBlock GgufBlockOf(GgufType type);

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::kF32;
  std::vector<uint64_t> dims;  // as in the file: fastest-varying first
  uint64_t file_offset = 0;    // absolute
  std::span<const std::byte> data;
  // Row length and number of rows: dims[0] and the product of the others.
  uint64_t cols() const { return dims.empty() ? 1 : dims[0]; }
  uint64_t rows() const;
};

// Metadata arrays keep their bytes in the file; strings are views into it.
using GgufStringArray = std::vector<std::string_view>;
using GgufValue =
    std::variant<bool, uint64_t, int64_t, double, std::string, std::vector<bool>,
                 std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, GgufStringArray>;

class GgufFile {
 public:
  static Result<std::shared_ptr<const GgufFile>> Open(const std::string& path);

  const std::string& path() const { return mapping_.path(); }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* FindTensor(std::string_view name) const;
  const MappedFile& mapping() const { return mapping_; }

  // Typed access. Integers of any width and sign convert when the value fits; a
  // missing key is kNotFound, another type or a value out of range kCorruptData;
  // both name the key and the file.
  bool Has(std::string_view key) const;
  Result<uint64_t> GetUint(std::string_view key) const;
  Result<double> GetFloat(std::string_view key) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string> GetString(std::string_view key) const;
  Result<GgufStringArray> GetStringArray(std::string_view key) const;
  Result<std::vector<int64_t>> GetIntArray(std::string_view key) const;
  Result<std::vector<double>> GetFloatArray(std::string_view key) const;

 private:
  friend class GgufParser;
  GgufFile() = default;
  MappedFile mapping_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

// Dequantises `elements` values (a whole number of blocks) of `data` to `out`.
// Formulas: ggml's block formats. The type must be a supported one.
void DequantizeBlocks(GgufType type, const std::byte* data, uint64_t elements, float* out);

}  // namespace spillway

#endif  // SPILLWAY_MODEL_GGUF_H_
