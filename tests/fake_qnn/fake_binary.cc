#include "tests/fake_qnn/fake_binary.h"

#include <cstring>

namespace fake_qnn {
namespace {

constexpr char kMagic[] = "FAKEQNN1";
constexpr size_t kHeader = 16;  // magic and length

class Writer {
 public:
  template <typename T>
  void Put(T value) {
    const char* bytes = reinterpret_cast<const char*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  void PutText(const std::string& text) {
    Put(static_cast<uint32_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  std::vector<char>& bytes() { return bytes_; }

 private:
  std::vector<char> bytes_;
};

class Reader {
 public:
  Reader(const char* data, size_t size) : data_(data), left_(size) {}
  template <typename T>
  T Get() {
    T value{};
    if (left_ < sizeof(T)) {
      ok_ = false;
      return value;
    }
    std::memcpy(&value, data_, sizeof(T));
    data_ += sizeof(T);
    left_ -= sizeof(T);
    return value;
  }
  std::string GetText() {
    const auto size = Get<uint32_t>();
    if (left_ < size) {
      ok_ = false;
      return {};
    }
    std::string text(data_, size);
    data_ += size;
    left_ -= size;
    return text;
  }
  // A count of things that take at least 4 bytes each.
  uint32_t GetCount() {
    const auto count = Get<uint32_t>();
    if (count > left_ / 4) ok_ = false;
    return ok_ ? count : 0;
  }
  bool ok() const { return ok_; }

 private:
  const char* data_;
  size_t left_;
  bool ok_ = true;
};

void PutTensors(Writer& writer, const std::vector<FakeTensor>& tensors) {
  writer.Put(static_cast<uint32_t>(tensors.size()));
  for (const FakeTensor& tensor : tensors) {
    writer.Put(tensor.id);
    writer.PutText(tensor.name);
    writer.Put(tensor.data_type);
    writer.Put(static_cast<uint32_t>(tensor.dims.size()));
    for (const uint32_t dim : tensor.dims) writer.Put(dim);
    writer.Put(tensor.encoded);
    writer.Put(tensor.scale);
    writer.Put(tensor.offset);
  }
}

std::vector<FakeTensor> GetTensors(Reader& reader) {
  std::vector<FakeTensor> tensors(reader.GetCount());
  for (FakeTensor& tensor : tensors) {
    tensor.id = reader.Get<uint32_t>();
    tensor.name = reader.GetText();
    tensor.data_type = reader.Get<uint32_t>();
    tensor.dims.resize(reader.GetCount());
    for (uint32_t& dim : tensor.dims) dim = reader.Get<uint32_t>();
    tensor.encoded = reader.Get<uint32_t>();
    tensor.scale = reader.Get<float>();
    tensor.offset = reader.Get<int32_t>();
  }
  return tensors;
}

}  // namespace

std::vector<char> WriteBinary(const FakeBinary& binary) {
  Writer writer;
  writer.bytes().assign(kMagic, kMagic + 8);
  writer.Put(uint64_t{0});
  writer.Put(binary.soc);
  writer.Put(binary.slc);
  writer.Put(binary.sharing);
  writer.Put(static_cast<uint32_t>(binary.graphs.size()));
  for (const FakeGraph& graph : binary.graphs) {
    writer.PutText(graph.name);
    writer.Put(graph.const_bytes);
    writer.Put(graph.vtcm_bytes);
    writer.Put(graph.level);
    PutTensors(writer, graph.inputs);
    PutTensors(writer, graph.outputs);
  }
  const uint64_t size = writer.bytes().size();
  std::memcpy(writer.bytes().data() + 8, &size, sizeof(size));
  return std::move(writer.bytes());
}

bool ReadBinary(const void* data, uint64_t size, FakeBinary* binary) {
  if (data == nullptr || size < kHeader || std::memcmp(data, kMagic, 8) != 0) return false;
  const char* bytes = static_cast<const char*>(data);
  uint64_t length;
  std::memcpy(&length, bytes + 8, sizeof(length));
  if (length != size) return false;
  Reader reader(bytes + kHeader, size - kHeader);
  binary->soc = reader.Get<uint32_t>();
  binary->slc = reader.Get<uint32_t>();
  binary->sharing = reader.Get<uint32_t>();
  binary->graphs.resize(reader.GetCount());
  for (FakeGraph& graph : binary->graphs) {
    graph.name = reader.GetText();
    graph.const_bytes = reader.Get<uint64_t>();
    graph.vtcm_bytes = reader.Get<uint64_t>();
    graph.level = reader.Get<uint32_t>();
    graph.inputs = GetTensors(reader);
    graph.outputs = GetTensors(reader);
  }
  return reader.ok();
}

}  // namespace fake_qnn
