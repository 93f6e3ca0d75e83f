// Small graphs with every operation, type, encoding and layout, and a manifest
// that goes with them.

#ifndef SPILLWAY_TESTS_PACKAGE_SAMPLE_H_
#define SPILLWAY_TESTS_PACKAGE_SAMPLE_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "package/graph_file.h"
#include "package/package.h"

namespace spillway::test {

inline constexpr uint32_t kHidden = 8;
inline constexpr uint32_t kVocab = 20;
inline constexpr uint32_t kContext = 16;

// Bytes that count up from `seed`.
inline std::shared_ptr<const ConstantData> Pattern(size_t bytes, uint8_t seed,
                                                   DataLayout layout = DataLayout::kRowMajor) {
  std::vector<uint8_t> values(bytes);
  for (size_t i = 0; i < bytes; ++i) values[i] = static_cast<uint8_t>(seed + 7 * i);
  return MakeConstantOf(values, layout);
}

inline std::vector<float> Scales(size_t count, float first) {
  std::vector<float> scales(count);
  for (size_t i = 0; i < count; ++i) scales[i] = first * static_cast<float>(i + 1);
  return scales;
}

inline Tensor ConstantTensor(std::string name, DType dtype, Shape shape,
                             std::shared_ptr<const ConstantData> data, Encoding encoding = {}) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.role = TensorRole::kConstant;
  tensor.data = std::move(data);
  tensor.encoding = std::move(encoding);
  return tensor;
}

// The constants that the graphs of a sample share.
class SampleConstants {
 public:
  SampleConstants() {
    const Encoding table = Encoding::PerTensor(DType::kU16, 2.0f / 65535, -32768);
    Add("cos", DType::kU16, {kContext, kHidden / 2}, Pattern(kContext * kHidden, 1), table);
    Add("sin", DType::kU16, {kContext, kHidden / 2}, Pattern(kContext * kHidden, 2), table);
    Add("gamma", DType::kU16, {kHidden}, Pattern(2 * kHidden, 3),
        Encoding::PerTensor(DType::kU16, 0.001f, 0));
    Add("wq", DType::kS8, {kHidden, kHidden}, Packed(kHidden, kHidden, 4),
        Encoding::PerChannel(8, 0, Scales(kHidden, 0.01f)));
    Add("bq", DType::kS32, {kHidden}, Pattern(4 * kHidden, 5),
        Encoding::PerChannel(32, 0, Scales(kHidden, 1e-6f)));
    Encoding blocks = Encoding::PerChannel(4, 0, Scales(kHidden, 0.02f));
    blocks.kind = Encoding::Kind::kBlock;
    blocks.block_size = 4;
    for (size_t i = 0; i < kHidden * 2; ++i) {
      blocks.block_scales.push_back(static_cast<uint8_t>(1 + i));
    }
    Add("wo", DType::kS8, {kHidden, kHidden}, Pattern(kHidden * kHidden, 6), blocks);
    Add("head", DType::kS8, {kVocab, kHidden}, Packed(kVocab, kHidden, 7),
        Encoding::PerChannel(8, 0, Scales(kVocab, 0.003f)));
    Add("wf", DType::kF32, {4, kHidden}, Pattern(16 * kHidden, 8));
    Add("bf", DType::kF16, {4}, Pattern(8, 9));
  }
  TensorId In(Graph& graph, const std::string& name) const {
    return graph.AddTensor(tensors_.at(name));
  }
  const Tensor& at(const std::string& name) const { return tensors_.at(name); }
  void Replace(const std::string& name, std::shared_ptr<const ConstantData> data) {
    tensors_.at(name).data = std::move(data);
  }

 private:
  static std::shared_ptr<const ConstantData> Packed(size_t rows, size_t cols, uint8_t seed) {
    return Pattern(PackedN16K4Size(rows, cols), seed, DataLayout::kPackedN16K4);
  }
  void Add(const std::string& name, DType dtype, Shape shape,
           std::shared_ptr<const ConstantData> data, Encoding encoding = {}) {
    tensors_.emplace(
        name, ConstantTensor(name, dtype, std::move(shape), std::move(data), std::move(encoding)));
  }
  std::map<std::string, Tensor> tensors_;
};

// An attention layer and a head in fixed point.
inline std::shared_ptr<const Graph> FixedPointGraph(const std::string& name, uint32_t ar_len,
                                                    const SampleConstants& constants) {
  Graph graph(name);
  const Encoding u16 = Encoding::PerTensor(DType::kU16, 0.0005f, -30000);
  const Encoding u8 = Encoding::PerTensor(DType::kU8, 0.05f, -128);
  const auto encode = [&](TensorId id, const Encoding& encoding) {
    graph.mutable_tensor(id).encoding = encoding;
    return id;
  };
  const auto copy = [&](TensorId id, TensorId from) {  // an operation that keeps the encoding
    graph.mutable_tensor(id).encoding_of = graph.tensor(from).name;
    return encode(id, graph.tensor(from).encoding);
  };
  const uint32_t past = kContext - ar_len;
  const TensorId x = encode(graph.AddInput("x", DType::kU16, {1, 1, ar_len, kHidden}), u16);
  const TensorId mask = encode(graph.AddInput("mask", DType::kU16, {1, 1, ar_len, kContext}),
                               Encoding::PerTensor(DType::kU16, 255.0f / 65535, -65535));
  const TensorId positions = graph.AddInput("positions", DType::kI32, {1, ar_len});
  const TensorId cos_table = constants.In(graph, "cos");
  const TensorId sin_table = constants.In(graph, "sin");
  const TensorId cache = encode(graph.AddInput("k_cache", DType::kU8, {1, 1, kHidden, past}), u8);
  const TensorId cos =
      copy(graph.AddOp(OpType::kGather, "cos_rows", {cos_table, positions}), cos_table);
  graph.mutable_tensor(cos).dtype = DType::kU16;
  const TensorId sin =
      copy(graph.AddOp(OpType::kGather, "sin_rows", {sin_table, positions}), sin_table);
  const TensorId norm = encode(
      graph.AddOp(OpType::kRmsNorm, "norm", {x, constants.In(graph, "gamma")}, {.epsilon = 1e-5f}),
      u16);
  const TensorId q =
      encode(graph.AddOp(OpType::kLinear, "q",
                         {norm, constants.In(graph, "wq"), constants.In(graph, "bq")}),
             u16);
  const TensorId rotated =
      encode(graph.AddOp(OpType::kRotaryEmbedding, "rope", {q, cos, sin}), u16);
  const TensorId k = encode(graph.AddOp(OpType::kConvert, "k", {rotated}), u8);
  graph.mutable_tensor(k).dtype = DType::kU8;
  const TensorId k_new =
      copy(graph.AddOp(OpType::kTranspose, "k_new", {k}, {.ints = {0, 1, 3, 2}}), k);
  const TensorId k_all =
      copy(graph.AddOp(OpType::kConcat, "k_all", {cache, k_new}, {.axis = 3}), k);
  const TensorId scores = encode(graph.AddOp(OpType::kMatMul, "scores", {rotated, k_all}), u16);
  const TensorId tiled =
      copy(graph.AddOp(OpType::kTile, "tiled", {mask}, {.ints = {1, 1, 1, 1}}), mask);
  const TensorId masked = encode(graph.AddOp(OpType::kAdd, "masked", {scores, tiled}), u16);
  const TensorId probs = encode(graph.AddOp(OpType::kSoftmax, "probs", {masked}),
                                Encoding::PerTensor(DType::kU16, 1.0f / 65535, 0));
  const TensorId weighted = encode(graph.AddOp(OpType::kMul, "weighted", {probs, tiled}), u16);
  const TensorId flat =
      copy(graph.AddReshape("flat", weighted, {1, 1, 2 * ar_len, kHidden}), weighted);
  const TensorId out =
      encode(graph.AddOp(OpType::kLinear, "out", {flat, constants.In(graph, "wo")}), u16);
  const TensorId silu = encode(graph.AddOp(OpType::kSilu, "silu", {out}), u16);
  const TensorId gelu = encode(graph.AddOp(OpType::kGeluTanh, "gelu", {silu}),
                               Encoding::PerTensor(DType::kS16, 0.0004f, 0));
  graph.mutable_tensor(gelu).dtype = DType::kS16;
  const TensorId logits =
      encode(graph.AddOp(OpType::kLinear, "logits", {gelu, constants.In(graph, "head")}), u16);
  graph.mutable_tensor(logits).dtype = DType::kU16;
  graph.MarkOutput(logits);
  graph.MarkOutput(k_new);
  EXPECT_TRUE(graph.Validate().ok()) << graph.Validate().ToString();
  return std::make_shared<const Graph>(std::move(graph));
}

inline std::shared_ptr<const Graph> FloatGraph(const std::string& name,
                                               const SampleConstants& constants) {
  Graph graph(name);
  const TensorId x = graph.AddInput("x_float", DType::kF32, {1, 1, 3, kHidden});
  const TensorId y = graph.AddOp(OpType::kLinear, "y", {x, constants.In(graph, "wf")});
  const TensorId half = graph.AddOp(OpType::kConvert, "half", {y});
  graph.mutable_tensor(half).dtype = DType::kF16;
  const TensorId z = graph.AddOp(OpType::kRmsNorm, "z", {half, constants.In(graph, "bf")});
  graph.MarkOutput(z);
  EXPECT_TRUE(graph.Validate().ok()) << graph.Validate().ToString();
  return std::make_shared<const Graph>(std::move(graph));
}

using Shards = std::vector<std::vector<std::shared_ptr<const Graph>>>;

// Shard 0: prefill and decode, sharing constants. Shard 1: a float graph.
inline Shards SampleShards(const SampleConstants& constants = SampleConstants()) {
  return {{FixedPointGraph(kPrefillGraphName, 4, constants),
           FixedPointGraph(kDecodeGraphName, 1, constants)},
          {FloatGraph(kPrefillGraphName, constants)}};
}

inline PackageManifest SampleManifest() {
  PackageManifest manifest;
  manifest.producer = "spillway test";
  ModelConfig& config = manifest.config;
  config.architecture = "llama";
  config.name = "Sample \"quoted\"";
  config.num_layers = 3;
  config.hidden_dim = kHidden;
  config.ffn_dim = 16;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 4;
  config.vocab_size = kVocab;
  config.max_context = 2048;
  config.rms_norm_eps = 1e-5f;
  config.rope = {.theta = 100000.0f, .dim = 4, .factors = {1.0f, 8.123f}, .attention_factor = 1.1f};
  manifest.model_file = "sample.gguf";
  manifest.model_hash = "0123456789abcdef0123456789abcdef";
  manifest.mode = "hybrid";
  manifest.context_len = kContext;
  manifest.prefill_ar_len = 4;
  manifest.recipe = "16a8w";
  manifest.embedding_tensor = "head";
  manifest.soc = "SM8750";
  manifest.htp_options_json = R"({"dlbc":false,"vtcm_mb":8})";
  manifest.slc_allocator = true;
  manifest.shards.resize(2);
  manifest.shards[0].num_layers = 2;
  manifest.shards[0].context_file = "context_0.bin";
  manifest.shards[0].spill_fill_bytes = 4096;
  manifest.shards[1].first_layer = 2;
  manifest.shards[1].num_layers = 1;
  for (ShardInfo& shard : manifest.shards) shard.max_spill_fill_bytes = 4096;
  return manifest;
}

inline TokenizerData SampleTokenizer() {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  for (uint32_t i = 0; i < kVocab; ++i) {
    data.tokens.emplace_back(1, static_cast<char>('a' + i));
    data.types.push_back(1);
  }
  data.eos_id = 1;
  return data;
}

// Writes graphs.fb and weights.bin into `folder`.
inline Status WriteGraphFiles(const std::string& folder, const ShardGraphs& shards,
                              const std::vector<Tensor>& extra) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto writer, GraphFileWriter::Create(folder));
  for (const auto& shard : shards) SPILLWAY_RETURN_IF_ERROR(writer->AddShard(shard));
  for (const Tensor& tensor : extra) SPILLWAY_RETURN_IF_ERROR(writer->AddExtra(tensor));
  return writer->Finish();
}

// Fills a writer with the sample; Commit is left to the caller.
inline void FillSample(PackageWriter& writer, const std::string& context = "the context binary") {
  const SampleConstants constants;
  const Tensor extra =
      ConstantTensor("spare", DType::kS8, {kVocab, kHidden}, Pattern(kVocab * kHidden, 90),
                     Encoding::PerChannel(8, 0, Scales(kVocab, 0.1f)));
  for (const auto& shard : SampleShards(constants)) {
    const Status added = writer.AddShard(shard);
    ASSERT_TRUE(added.ok()) << added.ToString();
  }
  ASSERT_TRUE(writer.FinishGraphs({extra}).ok());
  ASSERT_TRUE(writer.AddTokenizer(SampleTokenizer()).ok());
  ASSERT_TRUE(writer.AddFile("context_0.bin", context).ok());
  ASSERT_TRUE(writer.AddFile("report.json", "{}").ok());
}

inline void WriteSample(const std::string& path,
                        const PackageManifest& manifest = SampleManifest()) {
  Result<PackageWriter> writer = PackageWriter::Create(path);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  FillSample(*writer);
  const Status status = writer->Commit(manifest);
  ASSERT_TRUE(status.ok()) << status.ToString();
}

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_PACKAGE_SAMPLE_H_
