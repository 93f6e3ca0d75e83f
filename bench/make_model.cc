// Writes a GGUF file with the shape of a known model and random weights: what a
// compile costs does not depend on what the weights say.
//
//   make_model SHAPE OUTPUT.gguf [q8_0|q4_0]
//
// Weights come from a fixed table of Gaussian numbers read from changing places, so
// that gigabytes take seconds. Prompts use the 300 tokens of the tests' tiny models;
// the rest of the vocabulary is "[unused N]".

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/float16.h"
#include "tests/support/random.h"
#include "tests/support/tiny_model.h"

namespace spillway {
namespace {

constexpr uint32_t kTokens = 300;
constexpr size_t kBlock = 32;
constexpr size_t kTable = size_t{1} << 20;

struct Shape {
  std::string_view name;
  uint32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
  bool tied;
  float rope_theta;
};
constexpr Shape kShapes[] = {
    {"smollm2-135m", 30, 576, 9, 3, 64, 1536, 49152, true, 100000.0f},
    {"llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, true, 500000.0f},
    {"llama-3.2-3b", 28, 3072, 24, 8, 128, 8192, 128256, true, 500000.0f},
    {"llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256, false, 500000.0f},
};

class ModelFile {
 public:
  ModelFile(const Shape& shape, bool four_bits) : shape_(shape), four_bits_(four_bits) {
    test::TinyModelSpec spec;
    spec.layers = 1;
    spec.vocab = kTokens;
    header_ = test::MakeTinyModel(spec).file;
    header_.tensors.clear();
    test::Random random(1);
    table_.resize(kTable);
    for (float& value : table_) value = static_cast<float>(random.Gauss());
    SetMetadata();
    AddTensors();
  }

  Status Write(const std::string& path) {
    uint64_t offset = 0;
    for (size_t i = 0; i < header_.tensors.size(); ++i) {
      header_.tensors[i].offset = offset;
      offset += (StoredBytes(i) + 31) / 32 * 32;
    }
    SPILLWAY_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
    SPILLWAY_RETURN_IF_ERROR(file.Write(header_.Serialize()));
    for (size_t i = 0; i < header_.tensors.size(); ++i) {
      SPILLWAY_RETURN_IF_ERROR(WriteTensor(file, i));
      SPILLWAY_RETURN_IF_ERROR(file.Align(32));
    }
    return file.Commit();
  }

 private:
  void SetMetadata() {
    const auto set = [&](const char* key, uint32_t value) {
      header_.Set(std::string("llama.") + key, test::MetaValue::U32(value));
    };
    header_.Set("general.name", test::MetaValue::String(fmt::format("random {}", shape_.name)));
    set("block_count", shape_.layers);
    set("context_length", 131072);
    set("embedding_length", shape_.hidden);
    set("feed_forward_length", shape_.ffn);
    set("attention.head_count", shape_.heads);
    set("attention.head_count_kv", shape_.kv_heads);
    set("attention.key_length", shape_.head_dim);
    set("attention.value_length", shape_.head_dim);
    set("rope.dimension_count", shape_.head_dim);
    set("vocab_size", shape_.vocab);
    header_.Set("llama.rope.freq_base", test::MetaValue::F32(shape_.rope_theta));
    for (auto& [key, value] : header_.metadata) {
      if (key == "tokenizer.ggml.tokens") {
        for (uint32_t i = kTokens; i < shape_.vocab; ++i) {
          value.bytes += test::MetaValue::String(fmt::format("[unused {}]", i)).bytes;
        }
      } else if (key == "tokenizer.ggml.token_type") {
        for (uint32_t i = kTokens; i < shape_.vocab; ++i) {
          value.bytes += test::MetaValue::I32(1).bytes;
        }
      } else {
        continue;
      }
      const uint64_t count = shape_.vocab;  // after the type of the elements
      std::memcpy(value.bytes.data() + sizeof(uint32_t), &count, sizeof(count));
    }
  }

  void Matrix(const std::string& name, uint32_t rows, uint32_t cols, double gain) {
    const auto type = four_bits_ ? test::TensorType::kQ4_0 : test::TensorType::kQ8_0;
    header_.tensors.push_back({name, {cols, rows}, static_cast<uint32_t>(type), "", {}});
    deviations_.push_back(gain / std::sqrt(cols));
  }
  void Vector(const std::string& name, uint32_t size) {
    header_.tensors.push_back(
        {name, {size}, static_cast<uint32_t>(test::TensorType::kF32), "", {}});
    deviations_.push_back(0.1);
  }

  // Gains as in tests/support/tiny_model.cc: activations keep a realistic size.
  void AddTensors() {
    const uint32_t q = shape_.heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
    Matrix("token_embd.weight", shape_.vocab, shape_.hidden, 2.5);
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
      const auto name = [&](const char* part) {
        return fmt::format("blk.{}.{}.weight", layer, part);
      };
      Vector(name("attn_norm"), shape_.hidden);
      Matrix(name("attn_q"), q, shape_.hidden, 1.5);
      Matrix(name("attn_k"), kv, shape_.hidden, 1.5);
      Matrix(name("attn_v"), kv, shape_.hidden, 1.0);
      Matrix(name("attn_output"), shape_.hidden, q, 1.5);
      Vector(name("ffn_norm"), shape_.hidden);
      Matrix(name("ffn_gate"), shape_.ffn, shape_.hidden, 1.0);
      Matrix(name("ffn_up"), shape_.ffn, shape_.hidden, 1.0);
      Matrix(name("ffn_down"), shape_.hidden, shape_.ffn, 3.0);
    }
    Vector("output_norm.weight", shape_.hidden);
    if (!shape_.tied) Matrix("output.weight", shape_.vocab, shape_.hidden, 2.5);
  }

  static uint64_t Elements(const test::WriterTensor& tensor) {
    uint64_t elements = 1;
    for (const uint64_t dim : tensor.dims) elements *= dim;
    return elements;
  }
  uint64_t BlockBytes() const { return sizeof(uint16_t) + (four_bits_ ? kBlock / 2 : kBlock); }
  uint64_t StoredBytes(size_t index) const {
    const test::WriterTensor& tensor = header_.tensors[index];
    const uint64_t elements = Elements(tensor);
    return tensor.dims.size() == 1 ? elements * sizeof(float) : elements / kBlock * BlockBytes();
  }

  Status WriteTensor(AtomicFile& file, size_t index) {
    const test::WriterTensor& tensor = header_.tensors[index];
    const uint64_t elements = Elements(tensor);
    const auto deviation = static_cast<float>(deviations_[index]);
    if (tensor.dims.size() == 1) {
      std::vector<float> values(elements);
      for (uint64_t i = 0; i < elements; ++i) values[i] = 1.0f + deviation * table_[i % kTable];
      return file.Write(std::as_bytes(std::span<const float>(values)));
    }
    // Four deviations reach the largest integer.
    const float step = 4.0f * deviation / (four_bits_ ? 7.0f : 127.0f);
    std::string block(BlockBytes(), '\0');
    const uint16_t half = FloatToHalf(step);
    std::memcpy(block.data(), &half, sizeof(half));
    size_t at = random_.Below(kTable);
    for (uint64_t b = 0; b < elements / kBlock; ++b) {
      if (b % 4096 == 0) at = random_.Below(kTable);
      FillBlock(block, at, deviation / step);
      at = (at + kBlock) % kTable;
      SPILLWAY_RETURN_IF_ERROR(file.Write(block));
    }
    return OkStatus();
  }

  void FillBlock(std::string& block, size_t at, float gain) const {
    char* out = block.data() + sizeof(uint16_t);
    const auto value = [&](size_t i, float most) {
      const float x = std::nearbyint(table_[(at + i) % kTable] * gain);
      return static_cast<int>(std::min(std::max(x, -most), most));
    };
    for (size_t i = 0; i < kBlock / 2; ++i) {
      if (four_bits_) {  // element i and i + 16 share a byte, as value + 8
        out[i] = static_cast<char>((value(i, 7) + 8) | (value(i + kBlock / 2, 7) + 8) << 4);
      } else {
        out[i] = static_cast<char>(value(i, 127));
        out[i + kBlock / 2] = static_cast<char>(value(i + kBlock / 2, 127));
      }
    }
  }

  const Shape& shape_;
  const bool four_bits_;
  test::GgufWriter header_;
  std::vector<double> deviations_;
  std::vector<float> table_;
  test::Random random_{2};
};

int Main(int argc, char** argv) {
  std::string known;
  for (const Shape& shape : kShapes) {
    known += " " + std::string(shape.name);
    if (argc < 3 || shape.name != argv[1]) continue;
    const std::string_view type = argc > 3 ? argv[3] : "q8_0";
    if (type != "q8_0" && type != "q4_0") break;
    const Status status = ModelFile(shape, type == "q4_0").Write(argv[2]);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return status.ok() ? 0 : 1;
  }
  std::fprintf(stderr, "usage: %s SHAPE OUTPUT.gguf [q8_0|q4_0]; shapes:%s\n", argv[0],
               known.c_str());
  return 2;
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) { return spillway::Main(argc, argv); }
