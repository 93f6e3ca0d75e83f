#include "graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::shared_ptr<const ConstantData> Zeros(size_t floats) {
  return MakeConstantOf(std::vector<float>(floats));
}

// x [1, 1, 4, 8] -> Linear with 6 channels -> Silu.
Graph SmallGraph() {
  Graph graph("small");
  const TensorId x = graph.AddInput("x", DType::kF32, {1, 1, 4, 8});
  const TensorId w = graph.AddConstant("w", DType::kF32, {6, 8}, Zeros(48));
  const TensorId y = graph.AddOp(OpType::kLinear, "y", {x, w});
  graph.MarkOutput(graph.AddOp(OpType::kSilu, "z", {y}));
  return graph;
}

TEST(ConstantTest, CopiesAlignedBytes) {
  std::vector<float> values = {1.0f, 2.0f, 3.0f};
  const auto constant = MakeConstantOf(values, DataLayout::kPackedN16K4);
  values[0] = 9.0f;
  ASSERT_EQ(constant->bytes().size(), 12u);
  float first;
  std::memcpy(&first, constant->bytes().data(), sizeof(first));
  EXPECT_EQ(first, 1.0f);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(constant->bytes().data()) % 64, 0u);
  EXPECT_EQ(constant->layout(), DataLayout::kPackedN16K4);
  EXPECT_EQ(MakeConstant({})->bytes().size(), 0u);
}

TEST(PackedLayoutTest, EveryElementHasItsOwnPlace) {
  for (const auto& [rows, cols] : {std::pair{1u, 1u}, {16u, 4u}, {17u, 5u}, {40u, 70u}}) {
    std::vector<bool> taken(PackedN16K4Size(rows, cols), false);
    EXPECT_EQ(taken.size() % 64, 0u);
    EXPECT_GE(taken.size(), size_t{rows} * cols);
    for (size_t n = 0; n < rows; ++n) {
      for (size_t k = 0; k < cols; ++k) {
        const size_t at = PackedN16K4Index(n, k, cols);
        ASSERT_LT(at, taken.size());
        EXPECT_FALSE(taken[at]) << n << ", " << k;
        taken[at] = true;
      }
    }
  }
  // Four neighbours of one channel lie together, then the next channel.
  EXPECT_EQ(PackedN16K4Index(0, 3, 8), 3u);
  EXPECT_EQ(PackedN16K4Index(1, 0, 8), 4u);
  EXPECT_EQ(PackedN16K4Index(0, 4, 8), 64u);
  EXPECT_EQ(PackedN16K4Index(16, 0, 8), 128u);
}

TEST(GraphTest, Building) {
  Graph graph = SmallGraph();
  EXPECT_EQ(graph.name(), "small");
  ASSERT_EQ(graph.inputs().size(), 1u);
  ASSERT_EQ(graph.outputs().size(), 1u);
  EXPECT_EQ(graph.tensor(graph.inputs()[0]).role, TensorRole::kInput);
  EXPECT_EQ(graph.tensor(graph.outputs()[0]).role, TensorRole::kOutput);
  const auto y = graph.Find("y");
  ASSERT_TRUE(y.has_value());
  EXPECT_EQ(graph.tensor(*y).shape, (Shape{1, 1, 4, 6}));
  EXPECT_EQ(graph.tensor(*y).dtype, DType::kF32);
  EXPECT_EQ(graph.tensor(*y).role, TensorRole::kInternal);
  EXPECT_EQ(graph.tensor(*y).Bytes(), 96u);
  EXPECT_TRUE(graph.Validate().ok());

  graph.Rename(*y, "why");
  EXPECT_EQ(graph.Find("y"), std::nullopt);
  EXPECT_EQ(graph.Find("why"), y);
  const TensorId flat = graph.AddReshape("flat", *y, {24});
  EXPECT_EQ(graph.tensor(flat).shape, Shape{24});
  EXPECT_TRUE(graph.Validate().ok());
}

TEST(GraphTest, Listing) {
  Graph graph = SmallGraph();
  graph.mutable_tensor(graph.inputs()[0]).dtype = DType::kU16;
  graph.mutable_tensor(graph.inputs()[0]).encoding = Encoding::PerTensor(DType::kU16, 0.5f, -3);
  EXPECT_EQ(graph.ToString(),
            "graph small\n"
            "  input  x u16[1, 1, 4, 8] {scale 0.5 offset -3}\n"
            "  output z f32[1, 1, 4, 6]\n"
            "  y f32[1, 1, 4, 6] = Linear(x, w)\n"
            "  z f32[1, 1, 4, 6] = Silu(y)\n");
}

TEST(OpTypeTest, NamesAndEncodings) {
  EXPECT_EQ(OpTypeName(OpType::kLinear), "Linear");
  EXPECT_EQ(OpTypeName(OpType::kRotaryEmbedding), "RotaryEmbedding");
  EXPECT_EQ(OpTypeName(OpType::kConvert), "Convert");
  for (const OpType type : {OpType::kReshape, OpType::kTranspose, OpType::kGather, OpType::kConcat,
                            OpType::kTile, OpType::kSlice}) {
    EXPECT_TRUE(KeepsEncoding(type)) << OpTypeName(type);
  }
  for (const OpType type : {OpType::kLinear, OpType::kMatMul, OpType::kAdd, OpType::kMul,
                            OpType::kSilu, OpType::kGeluTanh, OpType::kRmsNorm, OpType::kSoftmax,
                            OpType::kRotaryEmbedding, OpType::kConvert}) {
    EXPECT_FALSE(KeepsEncoding(type)) << OpTypeName(type);
  }
}

struct ShapeCase {
  OpType type;
  std::vector<Shape> inputs;
  Shape expected;
  OpAttributes attributes;
};

TEST(InferShapeTest, WhatFits) {
  const ShapeCase cases[] = {
      {OpType::kLinear, {{1, 1, 4, 8}, {6, 8}}, {1, 1, 4, 6}},
      {OpType::kLinear, {{1, 1, 4, 8}, {6, 8}, {6}}, {1, 1, 4, 6}},
      {OpType::kMatMul, {{1, 3, 4, 8}, {1, 3, 8, 5}}, {1, 3, 4, 5}},
      {OpType::kMatMul, {{4, 8}, {8, 5}}, {4, 5}},
      {OpType::kAdd, {{1, 3, 4, 8}, {1, 1, 4, 8}}, {1, 3, 4, 8}},
      {OpType::kMul, {{2, 3}, {1, 1}}, {2, 3}},
      {OpType::kSilu, {{2, 3}}, {2, 3}},
      {OpType::kGeluTanh, {{2, 3}}, {2, 3}},
      {OpType::kSoftmax, {{2, 3}}, {2, 3}},
      {OpType::kConvert, {{2, 3}}, {2, 3}},
      {OpType::kRmsNorm, {{1, 4, 2, 16}, {16}}, {1, 4, 2, 16}},
      {OpType::kRotaryEmbedding, {{1, 2, 4, 16}, {1, 4, 8}, {1, 4, 8}}, {1, 2, 4, 16}},
      {OpType::kRotaryEmbedding, {{1, 2, 4, 16}, {1, 4, 3}, {1, 4, 3}}, {1, 2, 4, 16}},
      {OpType::kGather, {{100, 8}, {1, 4}}, {1, 4, 8}},
      {OpType::kTranspose, {{1, 2, 3}}, {3, 1, 2}, {.ints = {2, 0, 1}}},
      {OpType::kConcat, {{1, 2, 3}, {1, 5, 3}}, {1, 7, 3}, {.axis = 1}},
      {OpType::kConcat, {{1, 2}}, {1, 2}, {.axis = 0}},
      {OpType::kTile, {{1, 2, 3}}, {1, 8, 3}, {.ints = {1, 4, 1}}},
      {OpType::kSlice, {{1, 8, 3}}, {1, 5, 3}, {.axis = 1, .ints = {3, 5}}},
  };
  for (const ShapeCase& c : cases) {
    const Result<Shape> shape = InferShape(c.type, c.inputs, c.attributes);
    ASSERT_TRUE(shape.ok()) << OpTypeName(c.type) << ": " << shape.status().ToString();
    EXPECT_EQ(*shape, c.expected) << OpTypeName(c.type);
  }
}

struct MisfitCase {
  OpType type;
  std::vector<Shape> inputs;
  const char* message;
  OpAttributes attributes;
};

TEST(InferShapeTest, WhatDoesNotFit) {
  const MisfitCase cases[] = {
      {OpType::kLinear, {{1, 1, 4, 8}, {6, 7}}, "[1, 1, 4, 8] [6, 7] do not fit; expected x [1, 1"},
      {OpType::kLinear, {{1, 2, 4, 8}, {6, 8}}, "weight [N, K]"},
      {OpType::kLinear, {{4, 8}, {6, 8}}, "weight [N, K]"},
      {OpType::kLinear, {{1, 1, 4, 8}, {6, 8, 1}}, "weight [N, K]"},
      {OpType::kLinear, {{1, 1, 4, 8}, {6, 8}, {8}}, "bias [N]"},
      {OpType::kLinear, {{1, 1, 4, 8}}, "Linear has 1 inputs; expected 2 to 3"},
      {OpType::kMatMul, {{1, 3, 4, 8}, {1, 3, 7, 5}}, "a [..., M, K]"},
      {OpType::kMatMul, {{1, 3, 4, 8}, {1, 2, 8, 5}}, "a [..., M, K]"},
      {OpType::kMatMul, {{3, 4, 8}, {1, 3, 8, 5}}, "a [..., M, K]"},
      {OpType::kMatMul, {{8}, {8}}, "a [..., M, K]"},
      {OpType::kAdd, {{2, 3}, {2, 2}}, "equal to a's or 1"},
      {OpType::kAdd, {{1, 3}, {2, 3}}, "equal to a's or 1"},
      {OpType::kMul, {{2, 3}, {3}}, "b of a's rank"},
      {OpType::kMul, {{2, 3}}, "Mul has 1 inputs"},
      {OpType::kSilu, {}, "Silu has 0 inputs"},
      {OpType::kGeluTanh, {{2}, {2}}, "GeluTanh has 2 inputs"},
      {OpType::kSoftmax, {}, "Softmax has 0 inputs"},
      {OpType::kConvert, {{2}, {2}}, "Convert has 2 inputs"},
      {OpType::kReshape, {}, "Reshape has 0 inputs"},
      {OpType::kRmsNorm, {{1, 4, 16}, {8}}, "gamma [D]"},
      {OpType::kRmsNorm, {{1, 4, 16}, {1, 16}}, "gamma [D]"},
      {OpType::kRmsNorm, {{}, {1}}, "gamma [D]"},
      {OpType::kRotaryEmbedding, {{1, 2, 4, 16}, {1, 4, 9}, {1, 4, 9}}, "R <= D"},
      {OpType::kRotaryEmbedding, {{1, 2, 4, 16}, {1, 4, 8}, {1, 4, 7}}, "cos and sin"},
      {OpType::kRotaryEmbedding, {{1, 2, 4, 16}, {1, 5, 8}, {1, 5, 8}}, "cos and sin"},
      {OpType::kRotaryEmbedding, {{2, 4, 16}, {1, 4, 8}, {1, 4, 8}}, "x [1, H, S, D]"},
      {OpType::kRotaryEmbedding, {{1, 2, 4, 16}, {1, 4, 8}}, "RotaryEmbedding has 2 inputs"},
      {OpType::kGather, {{100}, {1, 4}}, "table [V, D]"},
      {OpType::kGather, {{100, 8}, {4}}, "indices [1, S]"},
      {OpType::kGather, {{100, 8}, {2, 4}}, "indices [1, S]"},
      {OpType::kTranspose, {{1, 2, 3}}, "a permutation", {.ints = {0, 1}}},
      {OpType::kTranspose, {{1, 2, 3}}, "a permutation", {.ints = {0, 1, 1}}},
      {OpType::kTranspose, {{1, 2, 3}}, "a permutation", {.ints = {0, 1, 3}}},
      {OpType::kTranspose, {{1, 2}}, "a permutation", {.ints = {0, 1, 0}}},
      {OpType::kConcat, {{1, 2}, {1, 3}}, "differ along the axis only", {.axis = 0}},
      {OpType::kConcat, {{1, 2}, {1, 2, 1}}, "differ along the axis only", {.axis = 1}},
      {OpType::kConcat, {{1, 2}, {1, 2}}, "an axis within the rank", {.axis = 2}},
      {OpType::kConcat, {}, "Concat has 0 inputs"},
      {OpType::kTile, {{1, 2}}, "one multiple a dimension", {.ints = {2}}},
      {OpType::kSlice, {{1, 8}}, "{begin, count} within it", {.axis = 1, .ints = {4, 5}}},
      {OpType::kSlice, {{1, 8}}, "{begin, count} within it", {.axis = 1, .ints = {~0u, 1}}},
      {OpType::kSlice, {{1, 8}}, "{begin, count} within it", {.axis = 1, .ints = {4, 0}}},
      {OpType::kSlice, {{1, 8}}, "{begin, count} within it", {.axis = 1, .ints = {4}}},
      {OpType::kSlice, {{1, 8}}, "an axis within the rank", {.axis = 2, .ints = {0, 1}}},
  };
  for (const MisfitCase& c : cases) {
    const Result<Shape> shape = InferShape(c.type, c.inputs, c.attributes);
    ASSERT_FALSE(shape.ok()) << OpTypeName(c.type) << " gave " << ShapeToString(*shape);
    EXPECT_EQ(shape.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(shape.status().message(), HasSubstr(c.message)) << OpTypeName(c.type);
  }
}

std::string ErrorOf(const Graph& graph) {
  const Status status = graph.Validate();
  EXPECT_FALSE(status.ok());
  return status.message();
}

TEST(ValidateTest, UsedBeforeMade) {
  Graph graph = SmallGraph();
  std::swap(graph.mutable_ops()[0], graph.mutable_ops()[1]);
  EXPECT_THAT(ErrorOf(graph), AllOf(HasSubstr("graph small, operation z (Silu)"),
                                    HasSubstr("input y is used before it is made")));
}

TEST(ValidateTest, MadeTwice) {
  Graph graph = SmallGraph();
  graph.AppendOp(graph.ops()[1]);
  EXPECT_THAT(ErrorOf(graph), AllOf(HasSubstr("operation z"), HasSubstr("z is made twice")));

  Graph over_input = SmallGraph();
  over_input.mutable_ops()[0].outputs = over_input.inputs();
  EXPECT_THAT(ErrorOf(over_input), HasSubstr("x is made twice"));
}

TEST(ValidateTest, NeverMade) {
  Graph graph = SmallGraph();
  graph.mutable_ops().pop_back();
  EXPECT_THAT(ErrorOf(graph), HasSubstr("output z is never made"));
}

TEST(ValidateTest, NumbersOutOfRange) {
  Graph graph = SmallGraph();
  graph.mutable_ops()[1].inputs = {77};
  EXPECT_THAT(ErrorOf(graph), HasSubstr("input number 77"));
  graph = SmallGraph();
  graph.mutable_ops()[1].outputs = {77};
  EXPECT_THAT(ErrorOf(graph), HasSubstr("no tensor number 77"));
  graph.mutable_ops()[1].outputs = {};
  EXPECT_THAT(ErrorOf(graph), HasSubstr("0 outputs; expected 1"));
}

TEST(ValidateTest, WrongShape) {
  Graph graph = SmallGraph();
  graph.mutable_tensor(*graph.Find("y")).shape = {1, 1, 4, 7};
  EXPECT_THAT(ErrorOf(graph), HasSubstr("output y has shape [1, 1, 4, 7]; expected [1, 1, 4, 6]"));

  graph = SmallGraph();
  const TensorId flat = graph.AddReshape("flat", *graph.Find("y"), {24});
  graph.mutable_tensor(flat).shape = {23};
  EXPECT_THAT(ErrorOf(graph), HasSubstr("output flat has shape [23]"));

  graph = SmallGraph();
  graph.mutable_tensor(*graph.Find("w")).shape = {6, 9};
  EXPECT_THAT(ErrorOf(graph), AllOf(HasSubstr("operation y (Linear)"), HasSubstr("do not fit")));
}

TEST(ValidateTest, Tensors) {
  Graph graph = SmallGraph();
  graph.mutable_tensor(graph.inputs()[0]).shape = {1, 1, 0, 8};
  EXPECT_THAT(ErrorOf(graph), AllOf(HasSubstr("graph small"), HasSubstr("tensor x has shape"),
                                    HasSubstr("none of zero")));
  graph.mutable_tensor(graph.inputs()[0]).shape = {};
  EXPECT_THAT(ErrorOf(graph), HasSubstr("at least one dimension"));

  graph = SmallGraph();
  graph.mutable_tensor(*graph.Find("w")).data = nullptr;
  EXPECT_THAT(ErrorOf(graph), HasSubstr("constant w has no data"));

  graph = SmallGraph();
  graph.mutable_tensor(graph.inputs()[0]).dtype = DType::kU16;
  EXPECT_THAT(ErrorOf(graph), HasSubstr("tensor x is u16 with encoding none"));
  for (const float scale : {0.0f, -1.0f, std::nanf("")}) {
    graph.mutable_tensor(graph.inputs()[0]).encoding = Encoding::PerTensor(DType::kU16, scale, 0);
    EXPECT_THAT(ErrorOf(graph), AllOf(HasSubstr("tensor x has scale"), HasSubstr("expected > 0")));
  }

  graph = SmallGraph();
  graph.mutable_tensor(graph.inputs()[0]).encoding = Encoding::PerTensor(DType::kU16, 1.0f, 0);
  EXPECT_THAT(ErrorOf(graph), HasSubstr("tensor x is f32 with encoding scale 1 offset 0"));
}

// A graph of one operation whose tensors are all u16 with one encoding.
Graph CopyGraph(OpType type, const OpAttributes& attributes) {
  Graph graph("copy");
  std::vector<TensorId> inputs = {graph.AddInput("a", DType::kU16, {1, 2, 3})};
  if (type == OpType::kConcat) inputs.push_back(graph.AddInput("b", DType::kU16, {1, 2, 3}));
  const TensorId y = type == OpType::kReshape ? graph.AddReshape("y", inputs[0], {6})
                                              : graph.AddOp(type, "y", inputs, attributes);
  graph.MarkOutput(y);
  for (TensorId id = 0; id <= y; ++id) {
    graph.mutable_tensor(id).encoding = Encoding::PerTensor(DType::kU16, 0.5f, -9);
  }
  return graph;
}

TEST(ValidateTest, CopiesKeepTheEncoding) {
  const std::pair<OpType, OpAttributes> cases[] = {{OpType::kReshape, {}},
                                                   {OpType::kTranspose, {.ints = {0, 2, 1}}},
                                                   {OpType::kTile, {.ints = {1, 2, 1}}},
                                                   {OpType::kConcat, {.axis = 2}}};
  for (const auto& [type, attributes] : cases) {
    Graph graph = CopyGraph(type, attributes);
    EXPECT_TRUE(graph.Validate().ok()) << OpTypeName(type);
    Tensor& output = graph.mutable_tensor(graph.outputs()[0]);
    output.encoding.offset = -10;
    EXPECT_THAT(ErrorOf(graph), AllOf(HasSubstr("copies integers, but a is u16"),
                                      HasSubstr("y is u16 scale 0.5 offset -10")))
        << OpTypeName(type);
    output.encoding = Encoding::PerTensor(DType::kU8, 0.5f, -9);
    output.dtype = DType::kU8;
    EXPECT_THAT(ErrorOf(graph), HasSubstr("y is u8")) << OpTypeName(type);
  }
  // Every input of a Concat counts, not only the first.
  Graph concat = CopyGraph(OpType::kConcat, {.axis = 2});
  concat.mutable_tensor(concat.inputs()[1]).encoding.scale = 0.25f;
  EXPECT_THAT(ErrorOf(concat), HasSubstr("but b is u16 scale 0.25"));
}

TEST(PackNibblesTest, KeepsEveryValue) {
  for (const auto& [rows, cols] : {std::pair{1u, 1u}, {16u, 8u}, {17u, 9u}, {40u, 77u}}) {
    std::vector<int8_t> values(size_t{rows} * cols);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int8_t>(i * 7 % 16) - 8;
    Graph graph;
    Encoding encoding = Encoding::PerChannel(4, 0, std::vector<float>(rows, 1.0f));
    const TensorId id =
        graph.AddConstant("w", DType::kS8, {rows, cols}, MakeConstantOf(values), encoding);
    Tensor packed = graph.tensor(id);
    packed.data = PackNibbles(packed);
    EXPECT_EQ(packed.data->layout(), DataLayout::kPackedNibbles);
    EXPECT_EQ(packed.data->bytes().size(), StoredBytes(packed, DataLayout::kPackedNibbles));
    for (size_t n = 0; n < rows; ++n) {
      for (size_t k = 0; k < cols; ++k) {
        ASSERT_EQ(MatrixInt(packed, n, k), values[n * cols + k]) << n << ", " << k;
      }
    }
    // What is not there counts as nothing.
    const size_t padded = (rows + 15) / 16 * 16;
    const std::byte last = packed.data->bytes()[packed.data->bytes().size() - 1];
    if (padded > rows) {
      EXPECT_EQ(last, std::byte{0x88});
    }
  }
}

}  // namespace
}  // namespace spillway
