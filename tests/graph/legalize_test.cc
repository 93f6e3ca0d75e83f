#include "graph/legalize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Encoding kA = Encoding::PerTensor(DType::kU16, 0.5f, -100);
const Encoding kB = Encoding::PerTensor(DType::kU16, 0.25f, -100);

// Builds quantised graphs: every tensor gets a type and an encoding.
class Builder {
 public:
  TensorId Input(const std::string& name, Shape shape, DType dtype = DType::kU16,
                 const Encoding& encoding = kA) {
    return Typed(graph.AddInput(name, dtype, std::move(shape)), dtype, encoding);
  }
  TensorId Op(OpType type, const std::string& name, std::vector<TensorId> inputs,
              OpAttributes attributes = {}, DType dtype = DType::kU16,
              const Encoding& encoding = kA) {
    return Typed(graph.AddOp(type, name, std::move(inputs), std::move(attributes)), dtype,
                 encoding);
  }
  TensorId Reshape(const std::string& name, TensorId input, Shape shape) {
    const Tensor from = graph.tensor(input);
    return Typed(graph.AddReshape(name, input, std::move(shape)), from.dtype, from.encoding);
  }
  TensorId Constant(const std::string& name, Shape shape, DType dtype, const Encoding& encoding) {
    const std::vector<std::byte> bytes(NumElements(shape) * DTypeSize(dtype));
    return graph.AddConstant(name, dtype, std::move(shape), MakeConstant(bytes),
                             dtype == DType::kF16 ? Encoding() : encoding);
  }

  Graph graph{"g"};

 private:
  TensorId Typed(TensorId id, DType dtype, const Encoding& encoding) {
    graph.mutable_tensor(id).dtype = dtype;
    if (dtype != DType::kF16) graph.mutable_tensor(id).encoding = encoding;
    return id;
  }
};

Graph Legal(const Graph& graph, int arch = 79) {
  LegalizeTarget target;
  target.htp_arch = arch;
  Result<Graph> legal = Legalize(graph, target);
  EXPECT_TRUE(legal.ok()) << legal.status().ToString();
  return legal.ok() ? std::move(legal).value() : Graph();
}

std::string Refusal(const Graph& graph, int arch = 79) {
  LegalizeTarget target;
  target.htp_arch = arch;
  const Result<Graph> legal = Legalize(graph, target);
  EXPECT_FALSE(legal.ok());
  if (legal.ok()) return "";
  EXPECT_EQ(legal.status().code(), StatusCode::kUnsupported);
  return legal.status().message();
}

std::vector<std::string> OpNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const Op& op : graph.ops()) names.push_back(op.name);
  return names;
}

int Count(const Graph& graph, OpType type) {
  return static_cast<int>(std::count_if(graph.ops().begin(), graph.ops().end(),
                                        [&](const Op& op) { return op.type == type; }));
}

std::string InputOf(const Graph& graph, const std::string& op_name) {
  for (const Op& op : graph.ops()) {
    if (op.name == op_name) return graph.tensor(op.inputs[0]).name;
  }
  return "no operation " + op_name;
}

TEST(LegalizeTest, OnlyConvertsThatChangeSomethingStay) {
  Builder b;
  const TensorId x = b.Input("x", {1, 8});
  const TensorId same = b.Op(OpType::kConvert, "same", {x});
  const TensorId other = b.Op(OpType::kConvert, "other", {same}, {}, DType::kU16, kB);
  const TensorId other_same = b.Op(OpType::kConvert, "other_same", {other}, {}, DType::kU16, kB);
  const Encoding u8 = Encoding::PerTensor(DType::kU8, 1.0f, -128);
  const TensorId narrow = b.Op(OpType::kConvert, "narrow", {other_same}, {}, DType::kU8, u8);
  b.graph.MarkOutput(b.Op(OpType::kSilu, "y", {narrow}, {}, DType::kU8, u8));
  const Graph legal = Legal(b.graph);
  EXPECT_THAT(OpNames(legal), ElementsAre("other", "narrow", "y"));
  EXPECT_EQ(Count(legal, OpType::kConvert), 2);
  EXPECT_EQ(InputOf(legal, "other"), "x");
  EXPECT_EQ(InputOf(legal, "narrow"), "other");
}

TEST(LegalizeTest, AConvertThatMakesAnOutputStays) {
  Builder b;
  b.graph.MarkOutput(b.Op(OpType::kConvert, "y", {b.Input("x", {1, 8})}));
  EXPECT_THAT(OpNames(Legal(b.graph)), ElementsAre("y"));
}

TEST(LegalizeTest, TransposesThatMoveNothing) {
  Builder b;
  const TensorId x = b.Input("x", {1, 1, 4, 8});
  // Same shape: vanishes.
  const TensorId a = b.Op(OpType::kTranspose, "a", {x}, {.ints = {1, 0, 2, 3}});
  // Another shape, same order in memory: a Reshape.
  const TensorId c = b.Op(OpType::kTranspose, "c", {a}, {.ints = {0, 2, 1, 3}});
  const TensorId silu = b.Op(OpType::kSilu, "silu", {c});
  // Really moves.
  b.graph.MarkOutput(b.Op(OpType::kTranspose, "y", {silu}, {.ints = {0, 3, 2, 1}}));
  const Graph legal = Legal(b.graph);
  EXPECT_THAT(OpNames(legal), ElementsAre("c", "silu", "y"));
  EXPECT_EQ(legal.ops()[0].type, OpType::kReshape);
  EXPECT_EQ(InputOf(legal, "c"), "x");
  EXPECT_EQ(legal.tensor(legal.ops()[0].outputs[0]).shape, (Shape{1, 4, 1, 8}));
  EXPECT_EQ(legal.ops()[2].type, OpType::kTranspose);
  EXPECT_EQ(legal.ops()[2].attributes.ints, (std::vector<uint32_t>{0, 3, 2, 1}));
}

TEST(LegalizeTest, ChainsOfReshapesJoin) {
  Builder b;
  const TensorId x = b.Input("x", {1, 2, 3, 4});
  TensorId y = b.Reshape("r0", x, {6, 4});
  y = b.Reshape("r1", y, {24});
  y = b.Reshape("r2", y, {2, 12});
  b.graph.MarkOutput(b.Op(OpType::kSilu, "y", {y}));
  // And one that comes back to where it began.
  TensorId z = b.Reshape("s0", x, {24});
  z = b.Reshape("s1", z, {1, 2, 3, 4});
  b.graph.MarkOutput(b.Op(OpType::kSilu, "z", {z}));
  const Graph legal = Legal(b.graph);
  EXPECT_THAT(OpNames(legal), ElementsAre("r2", "y", "z"));
  EXPECT_EQ(InputOf(legal, "r2"), "x");
  EXPECT_EQ(InputOf(legal, "z"), "x");
}

TEST(LegalizeTest, AReshapeInTheMiddleThatOthersReadStays) {
  Builder b;
  const TensorId x = b.Input("x", {1, 24});
  const TensorId r0 = b.Reshape("r0", x, {4, 6});
  b.graph.MarkOutput(b.Op(OpType::kSilu, "a", {r0}));
  b.graph.MarkOutput(b.Op(OpType::kSilu, "b", {b.Reshape("r1", r0, {6, 4})}));
  EXPECT_THAT(OpNames(Legal(b.graph)), ElementsAre("r0", "a", "r1", "b"));
}

TEST(LegalizeTest, DeadOperationsGo) {
  Builder b;
  const TensorId x = b.Input("x", {1, 8});
  b.Input("unused", {1, 8});
  const TensorId dead = b.Op(OpType::kSilu, "dead", {x});
  const TensorId w = b.Constant("w", {8}, DType::kU16, kA);
  b.Op(OpType::kRmsNorm, "dead_norm", {dead, w});
  b.graph.MarkOutput(b.Op(OpType::kSilu, "y", {x}));
  const Graph legal = Legal(b.graph);
  EXPECT_THAT(OpNames(legal), ElementsAre("y"));
  EXPECT_EQ(legal.Find("w"), std::nullopt) << "a constant that nobody reads is not carried along";
  EXPECT_EQ(legal.inputs().size(), 2u) << "inputs are the contract's, read or not";
}

TEST(LegalizeTest, InputsAndOutputsKeepEverything) {
  Builder b;
  const TensorId x = b.Input("x", {1, 2, 3});
  const TensorId cache = b.Input("cache", {1, 2, 3}, DType::kU16, kB);
  b.graph.mutable_tensor(cache).encoding_of = "k.cached";
  const TensorId second = b.Reshape("second", x, {1, 2, 3});
  const TensorId first =
      b.Op(OpType::kTranspose, "first", {cache}, {.ints = {0, 1, 2}}, DType::kU16, kB);
  b.graph.MarkOutput(first);
  b.graph.MarkOutput(second);
  const Graph legal = Legal(b.graph);
  EXPECT_EQ(legal.name(), "g");
  ASSERT_EQ(legal.inputs().size(), 2u);
  ASSERT_EQ(legal.outputs().size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const Tensor& in = legal.tensor(legal.inputs()[i]);
    const Tensor& was_in = b.graph.tensor(b.graph.inputs()[i]);
    EXPECT_EQ(in.name, was_in.name);
    EXPECT_EQ(in.encoding, was_in.encoding);
    EXPECT_EQ(in.encoding_of, was_in.encoding_of);
    const Tensor& out = legal.tensor(legal.outputs()[i]);
    const Tensor& was_out = b.graph.tensor(b.graph.outputs()[i]);
    EXPECT_EQ(out.name, was_out.name);
    EXPECT_EQ(out.shape, was_out.shape);
    EXPECT_EQ(out.dtype, was_out.dtype);
    EXPECT_EQ(out.encoding, was_out.encoding);
    EXPECT_EQ(out.role, TensorRole::kOutput);
  }
  EXPECT_EQ(Count(legal, OpType::kReshape), 2) << "copies that make outputs stay, as Reshapes";
}

TEST(LegalizeTest, ConstantsAreShared) {
  Builder b;
  const TensorId x = b.Input("x", {1, 8});
  const TensorId w = b.Constant("w", {8}, DType::kU16, kA);
  const TensorId y = b.Op(OpType::kRmsNorm, "y", {x, w});
  b.graph.MarkOutput(b.Op(OpType::kRmsNorm, "z", {y, w}));
  const Graph legal = Legal(b.graph);
  ASSERT_TRUE(legal.Find("w").has_value());
  EXPECT_EQ(legal.tensor(*legal.Find("w")).data, b.graph.tensor(w).data);
  EXPECT_EQ(legal.ops()[0].inputs[1], legal.ops()[1].inputs[1]);
}

TEST(LegalizeTest, AConstantMayBeReshapedOrConverted) {
  Builder b;
  const TensorId x = b.Input("x", {2, 4});
  const TensorId table = b.Constant("table", {8}, DType::kU16, kA);
  const TensorId flat = b.Reshape("flat", table, {2, 4});
  const TensorId same = b.Op(OpType::kConvert, "same", {b.Constant("c", {2, 4}, DType::kU16, kA)});
  const TensorId y = b.Op(OpType::kAdd, "y", {x, flat});
  b.graph.MarkOutput(b.Op(OpType::kMul, "z", {y, same}));
  const Graph legal = Legal(b.graph);
  EXPECT_THAT(OpNames(legal), ElementsAre("flat", "y", "z"));
  EXPECT_EQ(legal.tensor(legal.ops()[2].inputs[1]).name, "c");
}

TEST(LegalizeTest, ABrokenGraphIsAnErrorNotACrash) {
  Builder b;
  const TensorId x = b.Input("x", {1, 8});
  b.graph.MarkOutput(b.Op(OpType::kSilu, "y", {x}));
  b.graph.mutable_ops().clear();
  const Result<Graph> legal = Legalize(b.graph, {});
  ASSERT_FALSE(legal.ok());
  EXPECT_THAT(legal.status().message(), HasSubstr("output y is never made"));
}

// a x b with the given types.
Graph Product(DType a, DType b_type, DType out) {
  Builder b;
  const TensorId left = b.Input("left", {1, 2, 4, 8}, a, Encoding::PerTensor(a, 0.5f, -1));
  const TensorId right =
      b.Input("right", {1, 2, 8, 3}, b_type, Encoding::PerTensor(b_type, 0.5f, -1));
  b.graph.MarkOutput(
      b.Op(OpType::kMatMul, "scores", {left, right}, {}, out, Encoding::PerTensor(out, 1.0f, 0)));
  return b.graph;
}

TEST(LegalizeRulesTest, Products) {
  const Graph wide = Product(DType::kU16, DType::kU16, DType::kU16);
  for (const int arch : {68, 69}) {
    EXPECT_THAT(
        Refusal(wide, arch),
        AllOf(HasSubstr("graph g, operation scores (MatMul"),
              HasSubstr("left u16 [1, 2, 4, 8], right u16 [1, 2, 8, 3]"),
              HasSubstr("scores u16 [1, 2, 4, 3]"), HasSubstr("HTP v" + std::to_string(arch)),
              HasSubstr("v73 or later"), HasSubstr("use an 8-bit KV cache")));
  }
  for (const int arch : {73, 75, 79, 81}) Legal(wide, arch);
  for (const int arch : {68, 69, 79}) {
    Legal(Product(DType::kU16, DType::kU8, DType::kU16), arch);
    Legal(Product(DType::kU8, DType::kU8, DType::kU8), arch);
  }
  EXPECT_THAT(Refusal(Product(DType::kU8, DType::kU16, DType::kU8)), HasSubstr("u16 x u8"));
  EXPECT_THAT(Refusal(Product(DType::kU16, DType::kU8, DType::kU8)),
              HasSubstr("output as the left side"));
  EXPECT_THAT(Refusal(Product(DType::kS16, DType::kU8, DType::kS16)), HasSubstr("left s16"));
}

Graph LinearGraph(DType x_type, DType w_type, DType bias_type, DType out) {
  Builder b;
  const auto encoding = [](DType dtype) {
    if (dtype == DType::kF32) return Encoding();
    if (dtype == DType::kS8 || dtype == DType::kS32) {
      return Encoding::PerChannel(8, 0, std::vector<float>(6, 1.0f));
    }
    return Encoding::PerTensor(dtype, 1.0f, 0);
  };
  const TensorId x = b.Input("x", {1, 1, 4, 8}, x_type, encoding(x_type));
  const TensorId w = b.Constant("w", {6, 8}, w_type, encoding(w_type));
  const TensorId bias = b.Constant("bias", {6}, bias_type, encoding(bias_type));
  b.graph.MarkOutput(b.Op(OpType::kLinear, "y", {x, w, bias}, {}, out, encoding(out)));
  return b.graph;
}

TEST(LegalizeRulesTest, Linears) {
  Legal(LinearGraph(DType::kU16, DType::kS8, DType::kS32, DType::kU16));
  Legal(LinearGraph(DType::kU8, DType::kS8, DType::kS32, DType::kU8));
  Legal(LinearGraph(DType::kF16, DType::kF16, DType::kF16, DType::kF16));
  const char kRule[] = "u16 or u8 activations with s8 weights, f16 with f16";
  EXPECT_THAT(Refusal(LinearGraph(DType::kF16, DType::kS8, DType::kF16, DType::kF16)),
              HasSubstr(kRule));
  EXPECT_THAT(Refusal(LinearGraph(DType::kF16, DType::kF16, DType::kS32, DType::kF16)),
              HasSubstr("with f16 activations f16"));
  EXPECT_THAT(Refusal(LinearGraph(DType::kU16, DType::kU8, DType::kS32, DType::kU16)),
              AllOf(HasSubstr("operation y (Linear"), HasSubstr("w u8 [6, 8]"), HasSubstr(kRule)));
  EXPECT_THAT(Refusal(LinearGraph(DType::kF32, DType::kF32, DType::kF32, DType::kF32)),
              HasSubstr(kRule));
  EXPECT_THAT(Refusal(LinearGraph(DType::kU16, DType::kS8, DType::kS32, DType::kU8)),
              HasSubstr("output as the input"));
  EXPECT_THAT(Refusal(LinearGraph(DType::kU16, DType::kS8, DType::kU16, DType::kU16)),
              HasSubstr("a bias is s32"));
}

TEST(LegalizeRulesTest, Blocks) {
  const auto graph = [](uint32_t size, uint32_t cols) {
    Builder b;
    const TensorId x = b.Input("x", {1, 1, 2, cols});
    Encoding blocks = Encoding::PerChannel(4, 0, std::vector<float>(6, 1.0f));
    blocks.kind = Encoding::Kind::kBlock;
    blocks.block_size = size;
    blocks.block_scales.assign(6 * ((cols + size - 1) / size), 1);
    const TensorId w = b.Constant("w", {6, cols}, DType::kS8, blocks);
    b.graph.MarkOutput(b.Op(OpType::kLinear, "y", {x, w}));
    return b.graph;
  };
  for (const uint32_t size : {16, 32, 64}) Legal(graph(size, 128));
  EXPECT_THAT(Refusal(graph(8, 128)), HasSubstr("found blocks of 8"));
  EXPECT_THAT(Refusal(graph(32, 48)), HasSubstr("divide the input's 48 values"));
}

TEST(LegalizeRulesTest, OneTypeForAddAndMulAndTheRest) {
  const Encoding u8 = Encoding::PerTensor(DType::kU8, 1.0f, 0);
  for (const OpType type : {OpType::kAdd, OpType::kMul}) {
    Builder b;
    const TensorId a = b.Input("a", {1, 8});
    const TensorId narrow = b.Input("narrow", {1, 8}, DType::kU8, u8);
    b.graph.MarkOutput(b.Op(type, "y", {a, narrow}));
    EXPECT_THAT(Refusal(b.graph), HasSubstr("both inputs and the output have one type"));
    Builder c;
    const TensorId x = c.Input("x", {1, 8});
    c.graph.MarkOutput(c.Op(type, "y", {x, x}, {}, DType::kU8, u8));
    EXPECT_THAT(Refusal(c.graph), HasSubstr("both inputs and the output have one type"));
  }
  for (const OpType type : {OpType::kSilu, OpType::kGeluTanh, OpType::kSoftmax}) {
    Builder b;
    b.graph.MarkOutput(b.Op(type, "y", {b.Input("x", {1, 8})}, {}, DType::kU8, u8));
    EXPECT_THAT(Refusal(b.graph), HasSubstr("input and output have one type")) << OpTypeName(type);
  }
  // A dead operation is not judged.
  Builder dead;
  const TensorId x = dead.Input("x", {1, 8});
  dead.Op(OpType::kSilu, "dead", {x}, {}, DType::kU8, u8);
  dead.graph.MarkOutput(dead.Op(OpType::kSilu, "y", {x}));
  Legal(dead.graph);
}

TEST(LegalizeRulesTest, IndicesAreIntegers) {
  Builder b;
  const TensorId table = b.Constant("table", {10, 4}, DType::kU16, kA);
  const TensorId ids = b.Input("ids", {1, 3});
  b.graph.MarkOutput(b.Op(OpType::kGather, "y", {table, ids}));
  EXPECT_THAT(Refusal(b.graph), HasSubstr("indices are i32"));
  Builder good;
  const TensorId good_table = good.Constant("table", {10, 4}, DType::kU16, kA);
  const TensorId good_ids = good.Input("ids", {1, 3}, DType::kI32, {});
  good.graph.MarkOutput(good.Op(OpType::kGather, "y", {good_table, good_ids}));
  Legal(good.graph);
}

TEST(LegalizeRulesTest, Rank) {
  Builder b;
  b.graph.MarkOutput(b.Op(OpType::kSilu, "y", {b.Input("x", {1, 1, 1, 1, 1, 8})}));
  EXPECT_THAT(Refusal(b.graph), HasSubstr("the rank limit is 5"));
  Builder out;
  out.graph.MarkOutput(out.Reshape("y", out.Input("x", {8}), {1, 2, 1, 2, 1, 2}));
  EXPECT_THAT(Refusal(out.graph), HasSubstr("the rank limit is 5"));
  LegalizeTarget target;
  target.max_rank = 4;
  Builder four;
  four.graph.MarkOutput(four.Op(OpType::kSilu, "y", {four.Input("x", {1, 1, 1, 1, 8})}));
  Legal(four.graph);
  const Result<Graph> refused = Legalize(four.graph, target);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("the rank limit is 4"));
}

}  // namespace
}  // namespace spillway
