#include "quantize/quantize_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "decoder/decoder.h"

namespace spillway {
namespace {

// A hidden score lies at least this far below the smallest visible one, so its
// share after softmax is below e^-20 = 2e-9, far under the 1/65535 of the
// output; the mask's full -255 would waste the range of the sum.
constexpr float kHiddenMargin = 20.0f;
constexpr Range kMaskRange = {-255.0f, 0.0f};

bool EndsWithCached(const std::string& name) { return name.ends_with(".cached"); }

}  // namespace

Encoding MaskEncoding() { return Encoding::PerTensor(DType::kU16, 255.0f / 65535.0f, -65535); }

Encoding ActivationEncoding(const ActivationScheme& scheme, const Range& range) {
  if (scheme.dtype == DType::kF16) return {};
  if (scheme.symmetric) return SymmetricEncoding(scheme.dtype, std::max(range.max, -range.min));
  return AffineEncoding(scheme.dtype, range.min, range.max);
}

GraphQuantizer::GraphQuantizer(Recipe recipe, TensorRanges ranges, ThreadPool* pool)
    : recipe_(std::move(recipe)), ranges_(std::move(ranges)), pool_(pool) {}

Result<Range> GraphQuantizer::RangeOf(const std::string& name) const {
  if (recipe_.is_float()) return Range{};  // nobody asks for its encoding
  const auto found = ranges_.find(name);
  if (found == ranges_.end()) {
    return InternalError(fmt::format("calibration did not see the tensor {}", name));
  }
  return found->second;
}

// One float graph on its way to the quantised one.
class GraphRewrite {
 public:
  GraphRewrite(GraphQuantizer& owner, const Graph& graph)
      : owner_(owner), recipe_(owner.recipe_), in_(graph), out_(graph.name()) {
    map_.resize(in_.tensors().size());
    readers_.resize(in_.tensors().size());
    for (const Op& op : in_.ops()) {
      for (const TensorId id : op.inputs) readers_[id].push_back(&op);
    }
  }

  Result<Graph> Run() {
    for (const TensorId id : in_.inputs()) SPILLWAY_RETURN_IF_ERROR(AddInput(id));
    for (const Op& op : in_.ops()) SPILLWAY_RETURN_IF_ERROR(AddOp(op));
    for (const TensorId id : in_.outputs()) out_.MarkOutput(*map_[id]);
    SPILLWAY_RETURN_IF_ERROR(out_.Validate());
    return std::move(out_);
  }

 private:
  // K and V are the right sides of products at run time, and the vendor's products
  // with 8-bit right sides are exact only when the zero point is in the middle:
  // with 127 instead of 128 they are up to 100 steps off, with 64 up to 160.
  ActivationScheme CacheScheme() const { return {recipe_.kv, true}; }

  Status AddInput(TensorId id) {
    const Tensor& tensor = in_.tensor(id);
    const TensorId made = out_.AddInput(tensor.name, tensor.dtype, tensor.shape);
    Tensor& input = out_.mutable_tensor(made);
    input.encoding_of = tensor.encoding_of;
    Range range = kMaskRange;
    if (tensor.dtype != DType::kF32) {
      range = {};
    } else if (tensor.name == kMaskInputName) {
      input.dtype = recipe_.is_float() ? DType::kF16 : DType::kU16;
      if (!recipe_.is_float()) input.encoding = MaskEncoding();
    } else {
      const bool cache = !tensor.encoding_of.empty();
      const ActivationScheme scheme = cache ? CacheScheme() : recipe_.ActivationOf(tensor.name);
      SPILLWAY_ASSIGN_OR_RETURN(range, owner_.RangeOf(cache ? tensor.encoding_of : tensor.name));
      input.dtype = scheme.dtype;
      input.encoding = ActivationEncoding(scheme, range);
    }
    map_[id] = made;
    SetRange(made, range);
    return OkStatus();
  }

  void SetRange(TensorId id, const Range& range) {
    ranges_.resize(std::max<size_t>(ranges_.size(), id + 1));
    ranges_[id] = range;
  }

  Status AddOp(const Op& op) {
    if (KeepsEncoding(op.type)) return AddCopy(op);
    SPILLWAY_ASSIGN_OR_RETURN(const ActivationScheme scheme, SchemeOf(op));
    Op made = op;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const bool constant = in_.tensor(op.inputs[i]).role == TensorRole::kConstant;
      if (constant) {
        SPILLWAY_RETURN_IF_ERROR(AddConstant(op, i, scheme, made));
      } else if (op.type == OpType::kConvert || (op.type == OpType::kMatMul && i == 1)) {
        made.inputs[i] = *map_[op.inputs[i]];  // a cache has its own type
      } else {
        made.inputs[i] = Converted(*map_[op.inputs[i]], scheme.dtype);
      }
    }
    SPILLWAY_ASSIGN_OR_RETURN(const Range range, RangeOf(op));
    Tensor output = in_.tensor(op.outputs[0]);
    output.role = TensorRole::kInternal;
    output.dtype = scheme.dtype;
    // The softmax's outputs have the whole range of the type between 0 and 1.
    output.encoding = op.type == OpType::kSoftmax && !recipe_.is_float()
                          ? Encoding::PerTensor(scheme.dtype, 1.0f / SoftmaxSteps(scheme.dtype), 0)
                          : ActivationEncoding(scheme, range);
    Append(std::move(made), std::move(output), op.outputs[0], range);
    return OkStatus();
  }

  static float SoftmaxSteps(DType dtype) { return static_cast<float>(DTypeMax(dtype)); }

  void Append(Op op, Tensor output, TensorId old, const Range& range) {
    op.outputs[0] = out_.AddTensor(std::move(output));
    map_[old] = op.outputs[0];
    SetRange(op.outputs[0], range);
    out_.AppendOp(std::move(op));
  }

  // Moves integers: everything is like the first input (or the table).
  Status AddCopy(const Op& op) {
    Op made = op;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const TensorId id = op.inputs[i];
      if (in_.tensor(id).role == TensorRole::kConstant) {
        SPILLWAY_RETURN_IF_ERROR(AddConstant(op, i, recipe_.ActivationOf(op.name), made));
      } else {
        made.inputs[i] = *map_[id];
      }
    }
    const Tensor& source = out_.tensor(made.inputs[0]);
    Tensor output = in_.tensor(op.outputs[0]);
    output.role = TensorRole::kInternal;
    output.dtype = source.dtype;
    output.encoding = source.encoding;
    const Range range = ranges_[made.inputs[0]];
    Append(std::move(made), std::move(output), op.outputs[0], range);
    return OkStatus();
  }

  // The type and kind of encoding of what an operation makes.
  Result<ActivationScheme> SchemeOf(const Op& op) const {
    const Tensor& output = in_.tensor(op.outputs[0]);
    if (EndsWithCached(output.name)) return CacheScheme();
    const ActivationScheme scheme = recipe_.ActivationOf(output.name);
    const bool becomes_cache = CacheOf(output.name, op.outputs[0]) != nullptr;
    if (becomes_cache && scheme.dtype == recipe_.kv) return CacheScheme();
    return scheme;
  }

  // The "...cached" tensor that is all this one is read for; null when there is none.
  const Tensor* CacheOf(const std::string& name, TensorId id) const {
    if (EndsWithCached(name) || readers_[id].size() != 1) return nullptr;
    const Op& reader = *readers_[id][0];
    const Tensor& cached = in_.tensor(reader.outputs[0]);
    return reader.type == OpType::kConvert && EndsWithCached(cached.name) ? &cached : nullptr;
  }

  bool FeedsSoftmax(TensorId id) const {
    return std::any_of(readers_[id].begin(), readers_[id].end(),
                       [](const Op* op) { return op->type == OpType::kSoftmax; });
  }

  Result<Range> RangeOf(const Op& op) const {
    const Tensor& output = in_.tensor(op.outputs[0]);
    if (op.type == OpType::kSoftmax) return Range{0.0f, 1.0f};
    if (op.type == OpType::kAdd && FeedsSoftmax(op.outputs[0])) {
      SPILLWAY_ASSIGN_OR_RETURN(const Range scores, owner_.RangeOf(in_.tensor(op.inputs[0]).name));
      return Range{scores.min - kHiddenMargin, scores.max};
    }
    const Tensor* cached = CacheOf(output.name, op.outputs[0]);
    const bool shared = cached != nullptr && recipe_.ActivationOf(output.name).dtype == recipe_.kv;
    return owner_.RangeOf(shared ? cached->name : output.name);
  }

  // A tensor in another type, over the same range.
  TensorId Converted(TensorId id, DType dtype) {
    if (out_.tensor(id).dtype == dtype) return id;
    const auto found = converted_.find({id, dtype});
    if (found != converted_.end()) return found->second;
    Tensor tensor = out_.tensor(id);
    tensor.name = fmt::format("{}.{}", tensor.name, DTypeName(dtype));
    tensor.role = TensorRole::kInternal;
    tensor.encoding_of.clear();
    const bool symmetric = tensor.encoding.offset == -(DTypeMax(tensor.dtype) + 1) / 2;
    tensor.dtype = dtype;
    const Range range = ranges_[id];
    tensor.encoding = ActivationEncoding({dtype, symmetric}, range);
    const std::string name = tensor.name;
    const TensorId made = out_.AddTensor(std::move(tensor));
    out_.AppendOp({OpType::kConvert, name, {id}, {made}, {}});
    SetRange(made, range);
    converted_[{id, dtype}] = made;
    return made;
  }

  Status AddConstant(const Op& op, size_t index, const ActivationScheme& scheme, Op& made) {
    const TensorId id = op.inputs[index];
    Tensor tensor = in_.tensor(id);
    if (tensor.dtype == DType::kF32) {
      if (op.type == OpType::kLinear && index == 1) {
        const bool keep = tensor.name == kHeadWeightName;
        SPILLWAY_RETURN_IF_ERROR(owner_.SetMatrix(recipe_.WeightOf(op.name), keep, tensor));
      } else if (op.type == OpType::kLinear && !recipe_.is_float()) {
        SPILLWAY_RETURN_IF_ERROR(
            owner_.SetBias(out_.tensor(made.inputs[0]), out_.tensor(made.inputs[1]), tensor));
      } else {
        owner_.SetVector(scheme, tensor);
      }
    }
    // A constant that operations of two types read is there twice.
    const std::optional<TensorId> known = map_[id];
    if (known && out_.tensor(*known).dtype == tensor.dtype) {
      made.inputs[index] = *known;
      return OkStatus();
    }
    if (known) tensor.name = fmt::format("{}.{}", tensor.name, DTypeName(tensor.dtype));
    made.inputs[index] = out_.AddTensor(std::move(tensor));
    if (!known) map_[id] = made.inputs[index];
    const Encoding& encoding = out_.tensor(made.inputs[index]).encoding;
    Range range;
    if (encoding.kind == Encoding::Kind::kPerTensor) {
      const DType dtype = out_.tensor(made.inputs[index]).dtype;
      range = {DequantizeValue(static_cast<int32_t>(DTypeMin(dtype)), encoding),
               DequantizeValue(static_cast<int32_t>(DTypeMax(dtype)), encoding)};
    }
    SetRange(made.inputs[index], range);
    return OkStatus();
  }

  GraphQuantizer& owner_;
  const Recipe& recipe_;
  const Graph& in_;
  Graph out_;
  std::vector<std::optional<TensorId>> map_;     // tensor of in_ -> tensor of out_
  std::vector<std::vector<const Op*>> readers_;  // of in_
  std::vector<Range> ranges_;                    // of out_'s tensors
  std::map<std::pair<TensorId, DType>, TensorId> converted_;
};

Result<Graph> GraphQuantizer::Quantize(const Graph& graph) {
  SPILLWAY_RETURN_IF_ERROR(bad_);
  return GraphRewrite(*this, graph).Run();
}

}  // namespace spillway
