#include "decoder/evictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/float16.h"
#include "model/rope.h"

namespace spillway {
namespace {

constexpr int32_t kFineSteps = 256;  // of a turned key in one step of an 8-bit cache

class EvictorBuilder {
 public:
  explicit EvictorBuilder(const EvictorOptions& options)
      : options_(options),
        graph_(options.name),
        moved_(options.columns - options.sink - options.batch) {}

  Result<Graph> Build() {
    for (uint32_t layer = 0; layer < options_.layers; ++layer) {
      keys_.push_back(AddCache("k_cache", layer, options_.k,
                               {1, options_.kv_heads, options_.head_dim, options_.columns}));
    }
    for (uint32_t layer = 0; layer < options_.layers; ++layer) {
      values_.push_back(AddCache("v_cache", layer, options_.v,
                                 {1, options_.kv_heads, options_.columns, options_.head_dim}));
    }
    AddAngles();
    std::vector<TensorId> kept;
    for (uint32_t layer = 0; layer < options_.layers; ++layer) kept.push_back(AddKeys(layer));
    for (uint32_t layer = 0; layer < options_.layers; ++layer) {
      const TensorId moved = Cut(fmt::format("v_moved_{}", layer), values_[layer], 2,
                                 options_.sink + options_.batch, moved_);
      kept.push_back(Join(fmt::format("v_kept_{}", layer), values_[layer], moved, 2));
    }
    for (const TensorId id : kept) graph_.MarkOutput(id);
    SPILLWAY_RETURN_IF_ERROR(graph_.Validate());
    return std::move(graph_);
  }

 private:
  bool is_half() const { return options_.dtype == DType::kF16; }

  TensorId AddCache(const char* name, uint32_t layer, const std::vector<Encoding>& encodings,
                    Shape shape) {
    const TensorId id =
        graph_.AddInput(fmt::format("{}_{}", name, layer), options_.dtype, std::move(shape));
    if (!is_half()) graph_.mutable_tensor(id).encoding = encodings[layer];
    return id;
  }

  // An operation whose output has this type and encoding.
  TensorId Op(OpType type, const std::string& name, std::vector<TensorId> inputs, DType dtype,
              const Encoding& encoding, OpAttributes attributes = {}) {
    const TensorId id = graph_.AddOp(type, name, std::move(inputs), std::move(attributes));
    graph_.mutable_tensor(id).dtype = dtype;
    graph_.mutable_tensor(id).encoding = encoding;
    return id;
  }
  // The same type and encoding as its first input.
  TensorId Copy(OpType type, const std::string& name, std::vector<TensorId> inputs,
                OpAttributes attributes = {}) {
    const Tensor first = graph_.tensor(inputs[0]);
    return Op(type, name, std::move(inputs), first.dtype, first.encoding, std::move(attributes));
  }
  TensorId Shaped(const std::string& name, TensorId input, Shape shape) {
    const TensorId id = graph_.AddReshape(name, input, std::move(shape));
    graph_.mutable_tensor(id).encoding = graph_.tensor(input).encoding;
    return id;
  }

  TensorId Cut(const std::string& name, TensorId input, uint32_t axis, uint32_t begin,
               uint32_t count) {
    return Copy(OpType::kSlice, name, {input}, {.axis = axis, .ints = {begin, count}});
  }

  // The sink of `cache`, then `moved`, then anything.
  TensorId Join(const std::string& name, TensorId cache, TensorId moved, uint32_t axis) {
    std::vector<TensorId> parts;
    if (options_.sink > 0) parts.push_back(Cut(name + ".sink", cache, axis, 0, options_.sink));
    parts.push_back(moved);
    parts.push_back(
        Cut(name + ".rest", cache, axis, options_.columns - options_.batch, options_.batch));
    return Copy(OpType::kConcat, name, std::move(parts), {.axis = axis});
  }

  // cos and sin [1, moved, pairs] of the turn back, the same for every key.
  void AddAngles() {
    const RopeTurn turn = MakeRopeTurn(options_.rope, options_.batch);
    if (turn.cos.empty()) return;
    cos_ = AddAngle("turn.cos", turn.cos, 1.0f);
    sin_ = AddAngle("turn.sin", turn.sin, -1.0f);
  }
  TensorId AddAngle(const std::string& name, const std::vector<float>& of_pairs, float sign) {
    const Encoding encoding = SymmetricEncoding(DType::kU16, 1.0f);
    std::vector<uint16_t> row;
    for (const float value : of_pairs) {
      row.push_back(
          is_half() ? FloatToHalf(sign * value)
                    : static_cast<uint16_t>(QuantizeValue(sign * value, encoding, DType::kU16)));
    }
    std::vector<uint16_t> rows;
    for (uint32_t i = 0; i < moved_; ++i) rows.insert(rows.end(), row.begin(), row.end());
    return graph_.AddConstant(name, is_half() ? DType::kF16 : DType::kU16,
                              {1, moved_, static_cast<uint32_t>(row.size())}, MakeConstantOf(rows),
                              is_half() ? Encoding() : encoding);
  }

  // What keys are turned in: finer than an 8-bit cache; `wider` times the range.
  Encoding FineEncoding(const Encoding& cache, float wider) const {
    if (is_half()) return {};
    if (options_.dtype == DType::kU8) {
      return Encoding::PerTensor(DType::kU16, wider * cache.scale / kFineSteps,
                                 cache.offset * kFineSteps);
    }
    return Encoding::PerTensor(DType::kU16, wider * cache.scale, cache.offset);
  }

  // x [1, heads, moved, head_dim] times O, or its transpose.
  TensorId Multiply(const std::string& name, TensorId x, const std::string& matrix, bool transposed,
                    const Encoding& encoding) {
    const uint32_t dim = options_.head_dim, heads = options_.kv_heads;
    const DType type = graph_.tensor(x).dtype;
    x = Shaped(name + ".rows", x, {1, 1, heads * moved_, dim});
    x = Op(OpType::kLinear, name, {x, MatrixOf(matrix, transposed)}, type, encoding);
    return Shaped(name + ".heads", x, {1, heads, moved_, dim});
  }

  TensorId MatrixOf(const std::string& name, bool transposed) {
    if (const auto found = graph_.Find(name)) return *found;
    const uint32_t dim = options_.head_dim;
    const auto element = [&](uint32_t n, uint32_t d) {
      return options_.key_rotation[transposed ? d * dim + n : n * dim + d];
    };
    if (is_half()) {
      std::vector<uint16_t> values;
      for (uint32_t n = 0; n < dim; ++n) {
        for (uint32_t d = 0; d < dim; ++d) values.push_back(FloatToHalf(element(n, d)));
      }
      return graph_.AddConstant(name, DType::kF16, {dim, dim}, MakeConstantOf(values));
    }
    std::vector<int8_t> values(PackedN16K4Size(dim, dim), 0);
    std::vector<float> scales;
    for (uint32_t n = 0; n < dim; ++n) {
      float most = 1e-6f;
      for (uint32_t d = 0; d < dim; ++d) most = std::max(most, std::abs(element(n, d)));
      scales.push_back(most / 127.0f);
      for (uint32_t d = 0; d < dim; ++d) {
        values[PackedN16K4Index(n, d, dim)] =
            static_cast<int8_t>(std::nearbyint(element(n, d) / scales.back()));
      }
    }
    return graph_.AddConstant(name, DType::kS8, {dim, dim},
                              MakeConstantOf(values, DataLayout::kPackedN16K4),
                              Encoding::PerChannel(8, 0, std::move(scales)));
  }

  TensorId AddKeys(uint32_t layer) {
    const auto name = [&](const char* part) { return fmt::format("k_moved_{}.{}", layer, part); };
    const TensorId cache = keys_[layer];
    const Encoding encoding = graph_.tensor(cache).encoding;
    TensorId k = Cut(name("cut"), cache, 3, options_.sink + options_.batch, moved_);
    if (cos_ != sin_) {
      const bool rotated = !options_.key_rotation.empty();
      // Before the matrix, one value can be as long as the whole vector.
      const float wider = rotated ? std::sqrt(static_cast<float>(options_.head_dim)) : 1.0f;
      const Encoding fine = FineEncoding(encoding, 1.0f), turned = FineEncoding(encoding, wider);
      const DType wide = is_half() ? DType::kF16 : DType::kU16;
      k = Copy(OpType::kTranspose, name("rows"), {k}, {.ints = {0, 1, 3, 2}});
      if (options_.dtype == DType::kU8) k = Op(OpType::kConvert, name("fine"), {k}, wide, fine);
      if (rotated) k = Multiply(name("plain"), k, "turn.matrix_t", true, turned);
      k = Op(OpType::kRotaryEmbedding, name("turned"), {k, cos_, sin_}, wide, turned);
      if (rotated) k = Multiply(name("rotated"), k, "turn.matrix", false, fine);
      if (options_.dtype == DType::kU8) {
        k = Op(OpType::kConvert, name("cached"), {k}, options_.dtype, encoding);
      }
      k = Copy(OpType::kTranspose, name("columns"), {k}, {.ints = {0, 1, 3, 2}});
    }
    return Join(fmt::format("k_kept_{}", layer), cache, k, 3);
  }

  const EvictorOptions& options_;
  Graph graph_;
  uint32_t moved_;              // columns that move
  TensorId cos_ = 0, sin_ = 0;  // equal: nothing turns
  std::vector<TensorId> keys_, values_;
};

}  // namespace

Result<Graph> BuildEvictor(const EvictorOptions& options) {
  if (options.batch == 0) {
    return InvalidArgumentError("attention sink: a batch of 0 tokens frees nothing");
  }
  if (uint64_t{options.sink} + options.batch >= options.columns) {
    return InvalidArgumentError(
        fmt::format("attention sink {},{}: the two together must be less than the {} tokens that "
                    "the cache has room for; take a smaller batch",
                    options.sink, options.batch, options.columns));
  }
  if (options.dtype != DType::kU8 && options.dtype != DType::kU16 && options.dtype != DType::kF16) {
    return UnsupportedError(
        fmt::format("attention sink: a cache of type {}; expected u8, u16 or "
                    "f16",
                    DTypeName(options.dtype)));
  }
  const size_t encodings = options.dtype == DType::kF16 ? 0 : options.layers;
  if (options.k.size() < encodings || options.v.size() < encodings) {
    return InvalidArgumentError(
        fmt::format("attention sink: encodings of {} and {} caches for {} layers", options.k.size(),
                    options.v.size(), options.layers));
  }
  return EvictorBuilder(options).Build();
}

}  // namespace spillway
