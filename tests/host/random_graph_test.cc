// Random graphs of many operations: fast kernels against the reference, on every
// target and with one and two threads, tensor by tensor.

#include <gtest/gtest.h>

#include "host/steps.h"
#include "tests/host/op_graphs.h"

namespace spillway::test {
namespace {

// Grows a fixed-point graph: keeps tensors of rank 4 and applies an operation that
// fits to a random one of them.
class Grower {
 public:
  explicit Grower(uint32_t seed) : random_(seed), graph_("random") {}

  Graph Grow(int ops) {
    const uint32_t rows = static_cast<uint32_t>(random_.Int(1, 9));
    for (int i = 0; i < 3; ++i) {
      tensors_.push_back(
          AddQuantInput(graph_, random_, "in" + std::to_string(i), Type(), {1, 1, rows, Width()}));
    }
    for (int i = 0; i < ops; ++i) Step("t" + std::to_string(i));
    // Everything that nobody reads is an output.
    std::vector<bool> read(graph_.tensors().size(), false);
    for (const Op& op : graph_.ops()) {
      for (const TensorId id : op.inputs) read[id] = true;
    }
    for (TensorId id = 0; id < read.size(); ++id) {
      if (!read[id] && graph_.tensor(id).role == TensorRole::kInternal) graph_.MarkOutput(id);
    }
    return std::move(graph_);
  }

  // Layers as decoders have them: Linears of one input, gated ones, sums with what was there.
  Graph GrowLayers(int layers) {
    const uint32_t rows = random_.Pick<uint32_t>({1, 1, 3, 60}), width = Width();
    TensorId x = AddQuantInput(graph_, random_, "in", DType::kU16, {1, 1, rows, width});
    for (int i = 0; i < layers; ++i) {
      const std::string name = "layer" + std::to_string(i);
      const uint32_t inner = Width() * random_.Pick<uint32_t>({1, 3});
      const TensorId gate = Linear(name + ".gate", x, inner);
      const TensorId up = Linear(name + ".up", x, inner);
      const TensorId active = Output(
          graph_.AddOp(random_.Int(0, 1) ? OpType::kSilu : OpType::kGeluTanh, name + ".a", {gate}));
      const TensorId product =
          Output(random_.Int(0, 1) ? graph_.AddOp(OpType::kMul, name + ".product", {active, up})
                                   : graph_.AddOp(OpType::kMul, name + ".product", {up, active}));
      const TensorId down = Linear(name + ".down", product, width);
      const TensorId sum =
          Output(random_.Int(0, 1) ? graph_.AddOp(OpType::kAdd, name + ".sum", {x, down})
                                   : graph_.AddOp(OpType::kAdd, name + ".sum", {down, x}));
      // Several of one input, some of which the caller sees.
      for (int j = 0; j < 3; ++j) {
        const TensorId y = Linear(name + ".y" + std::to_string(j), sum, Width());
        graph_.MarkOutput(
            j == 0 ? y : Output(graph_.AddOp(OpType::kSilu, name + ".s" + std::to_string(j), {y})));
      }
      if (random_.Int(0, 4) == 0) graph_.MarkOutput(up);  // then it is kept
      x = sum;
    }
    graph_.MarkOutput(x);
    return std::move(graph_);
  }

 private:
  TensorId Output(TensorId id) {
    Tensor& tensor = graph_.mutable_tensor(id);
    tensor.dtype = random_.Int(0, 3) == 0 ? DType::kU8 : DType::kU16;
    tensor.encoding = RandomEncoding(random_, tensor.dtype, 3.0);
    return id;
  }
  TensorId Linear(const std::string& name, TensorId x, uint32_t n) {
    WeightSpec spec;
    spec.bits = random_.Int(0, 1) ? 8 : 4;
    if (spec.bits == 4) {
      spec.block = random_.Pick<uint32_t>({0, 8});
      spec.layout =
          random_.Pick<DataLayout>({DataLayout::kPackedN16K4, DataLayout::kPackedNibbles});
    }
    const TensorId w = AddWeight(graph_, random_, name + ".w", n, At(x).shape[3], spec, 0.2);
    return Output(graph_.AddOp(OpType::kLinear, name, {x, w}));
  }

  DType Type() {
    return random_.Pick<DType>({DType::kU16, DType::kU16, DType::kU8, DType::kS16, DType::kS8});
  }
  uint32_t Width() { return static_cast<uint32_t>(2 * random_.Int(1, 40)); }
  const Tensor& At(TensorId id) const { return graph_.tensor(id); }

  // Gives a new tensor a type and an encoding, or those of `like`.
  void Keep(TensorId id, double range) {
    Tensor& tensor = graph_.mutable_tensor(id);
    tensor.dtype = Type();
    tensor.encoding = RandomEncoding(random_, tensor.dtype, range);
    tensors_.push_back(id);
  }
  void KeepLike(TensorId id, TensorId like) {
    graph_.mutable_tensor(id).dtype = At(like).dtype;
    graph_.mutable_tensor(id).encoding = At(like).encoding;
    tensors_.push_back(id);
  }

  void Step(const std::string& name) {
    const TensorId x = random_.Pick(tensors_);
    const Shape shape = At(x).shape;
    const uint32_t width = shape[3];
    switch (random_.Int(0, 12)) {
      case 0:
      case 1: {
        if (shape[1] != 1) return;
        const uint32_t n = Width();
        WeightSpec spec;
        spec.bits = random_.Int(0, 1) ? 8 : 4;
        spec.block = spec.bits == 4 && random_.Int(0, 1) ? 8 : 0;
        const TensorId w = AddWeight(graph_, random_, name + ".w", n, width, spec, 0.2);
        std::vector<TensorId> inputs = {x, w};
        if (random_.Int(0, 1)) inputs.push_back(AddBias(graph_, random_, name + ".b", n));
        return Keep(graph_.AddOp(OpType::kLinear, name, inputs), 3.0);
      }
      case 2: {  // x times its own transpose
        const TensorId t =
            graph_.AddOp(OpType::kTranspose, name + ".t", {x}, {.ints = {0, 1, 3, 2}});
        KeepLike(t, x);
        return Keep(graph_.AddOp(OpType::kMatMul, name, {x, t}), 4.0);
      }
      case 3:
      case 4: {
        const OpType type = random_.Int(0, 1) ? OpType::kAdd : OpType::kMul;
        for (const TensorId other : tensors_) {
          if (other != x && At(other).shape == shape && random_.Int(0, 1)) {
            return Keep(graph_.AddOp(type, name, {x, other}), 3.0);
          }
        }
        return Keep(graph_.AddOp(type, name, {x, x}), 3.0);
      }
      case 5:
        return Keep(graph_.AddOp(OpType::kSilu, name, {x}), 2.0);
      case 6:
        return Keep(graph_.AddOp(OpType::kGeluTanh, name, {x}), 2.0);
      case 7: {
        const TensorId gamma = AddQuantInput(graph_, random_, name + ".g", DType::kU16, {width});
        return Keep(graph_.AddOp(OpType::kRmsNorm, name, {x, gamma}, {.epsilon = 1e-5f}), 2.0);
      }
      case 8: {
        const TensorId y = graph_.AddOp(OpType::kSoftmax, name, {x});
        return Keep(y, 0.5);
      }
      case 9: {
        const uint32_t half = std::max(1u, width / 4);
        if (width < 2) return;
        const TensorId cos =
            AddQuantInput(graph_, random_, name + ".c", DType::kU16, {1, shape[2], half}, 1.0);
        const TensorId sin =
            AddQuantInput(graph_, random_, name + ".s", DType::kU16, {1, shape[2], half}, 1.0);
        return Keep(graph_.AddOp(OpType::kRotaryEmbedding, name, {x, cos, sin}), 2.0);
      }
      case 10: {
        const TensorId y = graph_.AddReshape(name, x, {1, shape[2], shape[1], width});
        return KeepLike(y, x);
      }
      case 11: {
        const TensorId y = random_.Int(0, 1)
                               ? graph_.AddOp(OpType::kConcat, name, {x, x}, {.axis = 3})
                               : graph_.AddOp(OpType::kTile, name, {x}, {.ints = {1, 1, 2, 1}});
        KeepLike(y, x);
        if (NumElements(At(y).shape) > 20000) tensors_.pop_back();  // grows no further
        return;
      }
      default:
        return Keep(graph_.AddOp(OpType::kConvert, name, {x}), 2.5);
    }
  }

  Random random_;
  Graph graph_;
  std::vector<TensorId> tensors_;
};

TEST(RandomGraphTest, FastKernelsEqualTheReference) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const auto graph = std::make_shared<const Graph>(Grower(seed).Grow(25));
    ASSERT_TRUE(graph->Validate().ok()) << graph->Validate().ToString();
    Random random(seed + 1000);
    const std::vector<Bytes> inputs = RandomInputs(random, *graph);
    const auto expected = RunAll(graph, inputs, {.reference = true});
    ASSERT_GE(expected.size(), 15u) << expected.begin()->first;
    for (const host::CpuTarget target : SupportedTargets()) {
      for (const size_t threads : {1, 2}) {
        const auto found = RunAll(graph, inputs, {.threads = threads, .target = target});
        ASSERT_EQ(found.size(), expected.size()) << found.begin()->first;
        for (const auto& [name, bytes] : expected) {
          ASSERT_EQ(found.at(name), bytes) << name << " " << host::CpuTargetName(target);
        }
      }
    }
  }
}

// Without an observer operations run in groups.
TEST(RandomGraphTest, GroupsOfOperationsEqualTheReference) {
  size_t groups = 0;
  for (uint32_t seed = 100; seed < 160; ++seed) {
    SCOPED_TRACE(seed);
    const auto graph = std::make_shared<const Graph>(Grower(seed).GrowLayers(6));
    ASSERT_TRUE(graph->Validate().ok()) << graph->Validate().ToString();
    for (const host::Step& step : host::FusedSteps(*graph)) {
      groups += step.kind != host::Step::Kind::kSingle ? 1 : 0;
    }
    Random random(seed + 1000);
    const std::vector<Bytes> inputs = RandomInputs(random, *graph);
    const auto expected = RunOutputs(graph, inputs, {.reference = true});
    ASSERT_FALSE(expected.empty());
    for (const host::CpuTarget target : SupportedTargets()) {
      for (const size_t threads : {1, 2}) {
        ASSERT_EQ(RunOutputs(graph, inputs, {.threads = threads, .target = target}), expected)
            << host::CpuTargetName(target) << ", " << threads << " threads";
      }
    }
  }
  EXPECT_GT(groups, 300u);
}

}  // namespace
}  // namespace spillway::test
