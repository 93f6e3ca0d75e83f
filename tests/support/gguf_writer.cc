#include "tests/support/gguf_writer.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace spillway::test {
namespace {

template <typename T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendString(std::string* out, std::string_view text) {
  Append<uint64_t>(out, text.size());
  out->append(text);
}

template <typename T>
MetaValue Number(uint32_t type, T value) {
  MetaValue result{type, {}};
  Append(&result.bytes, value);
  return result;
}

uint64_t RoundUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

MetaValue MetaValue::U8(uint8_t v) { return Number(0, v); }
MetaValue MetaValue::I8(int8_t v) { return Number(1, v); }
MetaValue MetaValue::U16(uint16_t v) { return Number(2, v); }
MetaValue MetaValue::I16(int16_t v) { return Number(3, v); }
MetaValue MetaValue::U32(uint32_t v) { return Number(4, v); }
MetaValue MetaValue::I32(int32_t v) { return Number(5, v); }
MetaValue MetaValue::F32(float v) { return Number(6, v); }
MetaValue MetaValue::Bool(bool v) { return Number<uint8_t>(7, v ? 1 : 0); }
MetaValue MetaValue::U64(uint64_t v) { return Number(10, v); }
MetaValue MetaValue::I64(int64_t v) { return Number(11, v); }
MetaValue MetaValue::F64(double v) { return Number(12, v); }

MetaValue MetaValue::String(std::string_view v) {
  MetaValue result{8, {}};
  AppendString(&result.bytes, v);
  return result;
}

MetaValue MetaValue::Array(uint32_t element_type, const std::vector<MetaValue>& elements) {
  MetaValue result{9, {}};
  Append(&result.bytes, element_type);
  Append<uint64_t>(&result.bytes, elements.size());
  for (const MetaValue& element : elements) {
    if (element.type != element_type) std::abort();
    result.bytes += element.bytes;
  }
  return result;
}

MetaValue MetaValue::Strings(const std::vector<std::string>& texts) {
  std::vector<MetaValue> elements;
  elements.reserve(texts.size());
  for (const std::string& text : texts) elements.push_back(String(text));
  return Array(8, elements);
}

void GgufWriter::Set(const std::string& key, MetaValue value) {
  for (auto& [present, old] : metadata) {
    if (present == key) {
      old = std::move(value);
      return;
    }
  }
  metadata.emplace_back(key, std::move(value));
}

void GgufWriter::Erase(const std::string& key) {
  std::erase_if(metadata, [&key](const auto& entry) { return entry.first == key; });
}

void GgufWriter::AddTensor(const std::string& name, std::vector<uint64_t> dims, TensorType type,
                           std::span<const float> values) {
  uint64_t elements = 1;
  for (const uint64_t dim : dims) elements *= dim;
  if (elements != values.size()) std::abort();
  tensors.push_back({name, std::move(dims), static_cast<uint32_t>(type),
                     QuantizeValues(type, values), std::nullopt});
}

WriterTensor* GgufWriter::FindTensor(const std::string& name) {
  for (WriterTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

void GgufWriter::EraseTensor(const std::string& name) {
  std::erase_if(tensors, [&name](const WriterTensor& tensor) { return tensor.name == name; });
}

std::string GgufWriter::Serialize() const {
  std::string out = "GGUF";
  auto entries = metadata;
  const bool has_alignment = std::any_of(entries.begin(), entries.end(), [](const auto& entry) {
    return entry.first == "general.alignment";
  });
  if (alignment != 32 && !has_alignment) {
    entries.emplace_back("general.alignment", MetaValue::U32(static_cast<uint32_t>(alignment)));
  }
  Append(&out, version);
  Append<uint64_t>(&out, tensor_count.value_or(tensors.size()));
  Append<uint64_t>(&out, metadata_count.value_or(entries.size()));
  for (const auto& [key, value] : entries) {
    AppendString(&out, key);
    Append(&out, value.type);
    out += value.bytes;
  }
  uint64_t next = 0;
  std::string data;
  for (const WriterTensor& tensor : tensors) {
    AppendString(&out, tensor.name);
    Append(&out, static_cast<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) Append(&out, dim);
    Append(&out, tensor.type);
    Append(&out, tensor.offset.value_or(next));
    data += tensor.data;
    next = RoundUp(data.size(), alignment);
    data.resize(next, '\0');
  }
  out.resize(RoundUp(out.size(), alignment), '\0');
  return out + data;
}

void GgufWriter::Write(const std::string& path) const { WriteBytes(path, Serialize()); }

void WriteBytes(const std::string& path, std::string_view bytes) {
  // A new file each time: one that is still mapped keeps its bytes, and file
  // systems make rewriting in place wait for the disk.
  std::remove(path.c_str());
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() ||
      std::fclose(file) != 0) {
    std::abort();
  }
}

}  // namespace spillway::test
