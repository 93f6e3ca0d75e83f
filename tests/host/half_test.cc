// Operations on f16: the f32 operation on the same values, rounded once.
#include <gtest/gtest.h>

#include <cstring>

#include "base/float16.h"
#include "tests/host/op_graphs.h"

namespace spillway {
namespace {

using test::Bytes;

Bytes ToHalves(const Bytes& floats) {
  Bytes halves(floats.size() / 2);
  for (size_t i = 0; i < halves.size() / 2; ++i) {
    float value;
    std::memcpy(&value, floats.data() + 4 * i, 4);
    const uint16_t half = FloatToHalf(value);
    std::memcpy(halves.data() + 2 * i, &half, 2);
  }
  return halves;
}

Bytes ToFloats(std::span<const std::byte> halves) {
  Bytes floats(halves.size() * 2);
  for (size_t i = 0; i < halves.size() / 2; ++i) {
    uint16_t half;
    std::memcpy(&half, halves.data() + 2 * i, 2);
    const float value = HalfToFloat(half);
    std::memcpy(floats.data() + 4 * i, &value, 4);
  }
  return floats;
}

// The graph with f32 in the place of f16.
Graph InFloats(const Graph& graph) {
  Graph floats("floats");
  for (const Tensor& tensor : graph.tensors()) {
    Tensor copy = tensor;
    if (tensor.dtype == DType::kF16) {
      copy.dtype = DType::kF32;
      if (tensor.data != nullptr) copy.data = MakeConstant(ToFloats(tensor.data->bytes()));
    }
    if (tensor.role == TensorRole::kInput) {
      floats.AddInput(copy.name, copy.dtype, copy.shape);
    } else {
      copy.role =
          tensor.role == TensorRole::kConstant ? TensorRole::kConstant : TensorRole::kInternal;
      floats.AddTensor(std::move(copy));
    }
  }
  for (const Op& op : graph.ops()) floats.AppendOp(op);
  for (const TensorId id : graph.outputs()) floats.MarkOutput(id);
  return floats;
}

class HalfGraph {
 public:
  TensorId Input(Shape shape) {
    return graph.AddInput("in" + std::to_string(graph.inputs().size()), DType::kF16,
                          std::move(shape));
  }
  TensorId Constant(const std::string& name, Shape shape) {
    Tensor tensor;
    tensor.dtype = DType::kF16;
    tensor.shape = shape;
    return graph.AddConstant(name, DType::kF16, std::move(shape),
                             MakeConstant(test::RandomValues(random, tensor)));
  }
  void Add(OpType type, std::vector<TensorId> inputs, OpAttributes attributes = {}) {
    graph.MarkOutput(graph.AddOp(type, "op" + std::to_string(graph.ops().size()), std::move(inputs),
                                 std::move(attributes)));
  }

  test::Random random{5};
  Graph graph{"halves"};
};

TEST(HalfKernelTest, RoundsWhatF32Gives) {
  HalfGraph h;
  OpAttributes norm, concat;
  norm.epsilon = 1e-5F;
  concat.axis = 2;
  h.Add(OpType::kLinear, {h.Input({1, 1, 5, 36}), h.Constant("w", {33, 36})});
  h.Add(OpType::kLinear,
        {h.Input({1, 1, 5, 64}), h.Constant("w2", {48, 64}), h.Constant("b", {48})});
  h.Add(OpType::kMatMul, {h.Input({1, 2, 5, 16}), h.Input({1, 2, 16, 20})});
  h.Add(OpType::kAdd, {h.Input({1, 2, 5, 16}), h.Input({1, 1, 5, 16})});
  h.Add(OpType::kMul, {h.Input({1, 2, 5, 16}), h.Input({1, 2, 5, 16})});
  h.Add(OpType::kSilu, {h.Input({1, 1, 5, 100})});
  h.Add(OpType::kGeluTanh, {h.Input({1, 1, 5, 100})});
  h.Add(OpType::kRmsNorm, {h.Input({1, 1, 5, 64}), h.Constant("gamma", {64})}, norm);
  h.Add(OpType::kSoftmax, {h.Input({1, 2, 5, 33})});
  h.Add(OpType::kRotaryEmbedding, {h.Input({1, 2, 5, 16}), h.Input({1, 5, 8}), h.Input({1, 5, 8})});
  h.Add(OpType::kConcat, {h.Input({1, 2, 5, 16}), h.Input({1, 2, 3, 16})}, concat);
  const Status valid = h.graph.Validate();
  ASSERT_TRUE(valid.ok()) << valid.ToString();
  const std::vector<Bytes> inputs = test::RandomInputs(h.random, h.graph);
  std::vector<Bytes> float_inputs;
  for (const Bytes& input : inputs) float_inputs.push_back(ToFloats(input));
  const auto floats = std::make_shared<const Graph>(InFloats(h.graph));
  for (const bool reference : {false, true}) {
    test::RunOptions options;
    options.threads = 2;
    options.reference = reference;
    const auto found = test::RunAll(std::make_shared<const Graph>(h.graph), inputs, options);
    const auto expected = test::RunAll(floats, float_inputs, options);
    ASSERT_EQ(found.size(), h.graph.ops().size()) << found.begin()->first;
    for (const auto& [name, values] : found) EXPECT_EQ(values, ToHalves(expected.at(name))) << name;
  }
}

TEST(HalfKernelTest, OneRowLeavesTheOthers) {
  HalfGraph h;
  h.Add(OpType::kLinear, {h.Input({1, 1, 4, 32}), h.Constant("w", {48, 32})});
  const std::vector<Bytes> inputs = test::RandomInputs(h.random, h.graph);
  ThreadPool pool(1);
  auto executor = host::Executor::Create(std::make_shared<const Graph>(h.graph), &pool);
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  std::memcpy((*executor)->input(0).data(), inputs[0].data(), inputs[0].size());
  ASSERT_TRUE((*executor)->Run().ok());
  const auto output = (*executor)->output(0);
  const Bytes all(output.begin(), output.end());
  std::memset(output.data(), 0, output.size());
  (*executor)->LimitOutputRow(0, 2);
  ASSERT_TRUE((*executor)->Run().ok());
  const size_t row = 48 * 2;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(output[i], i / row == 2 ? all[i] : std::byte{0}) << i;
  }
}

}  // namespace
}  // namespace spillway
