// What lowering hands to the vendor, seen by the fake library.
#include "qnn/lower/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "qnn/lower/weights.h"
#include "tests/fake_qnn/fake_qnn.h"
#include "tests/host/op_graphs.h"
#include "tests/qnn/lower/vendor_session.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Adds an operation whose u16 (or `dtype`) output is an output of the graph.
TensorId AddOutput(Graph& graph, OpType type, std::vector<TensorId> inputs,
                   OpAttributes attributes = {}, DType dtype = DType::kU16) {
  const TensorId id = graph.AddOp(type, "y", std::move(inputs), std::move(attributes));
  graph.mutable_tensor(id).dtype = dtype;
  graph.mutable_tensor(id).encoding = Encoding::PerTensor(dtype, 0.5F, -3);
  graph.MarkOutput(id);
  return id;
}

TensorId AddX(Graph& graph, Shape shape, const std::string& name = "x", DType dtype = DType::kU16) {
  const TensorId id = graph.AddInput(name, dtype, std::move(shape));
  if (IsFixedPoint(dtype)) {
    graph.mutable_tensor(id).encoding = Encoding::PerTensor(dtype, 0.25F, -7);
  }
  return id;
}

TensorId AddConst(Graph& graph, const std::string& name, Shape shape) {
  return graph.AddConstant(name, DType::kU16, shape,
                           MakeConstantOf(std::vector<uint16_t>(NumElements(shape), 9)),
                           Encoding::PerTensor(DType::kU16, 0.125F, 0));
}

// Values 10 * n + k + 1 in row n, column k.
TensorId AddW(Graph& graph, uint32_t n, uint32_t k, DataLayout layout, Encoding encoding) {
  const bool packed = layout == DataLayout::kPackedN16K4;
  std::vector<int8_t> values(packed ? PackedN16K4Size(n, k) : size_t{n} * k, 0);
  for (uint32_t row = 0; row < n; ++row) {
    for (uint32_t col = 0; col < k; ++col) {
      values[packed ? PackedN16K4Index(row, col, k) : size_t{row} * k + col] =
          static_cast<int8_t>(10 * row + col + 1);
    }
  }
  return graph.AddConstant("w", DType::kS8, {n, k}, MakeConstantOf(values, layout),
                           std::move(encoding));
}

class LowerTest : public ::testing::Test {
 protected:
  // The lines of the record that begin with `start`.
  std::vector<std::string> Lines(const std::string& start) {
    std::vector<std::string> lines;
    std::istringstream record(fake_.Record());
    for (std::string line; std::getline(record, line);) {
      if (line.starts_with(start)) lines.push_back(line);
    }
    return lines;
  }
  // The nodes that `graph` becomes.
  std::vector<std::string> Nodes(const Graph& graph) {
    const Status valid = graph.Validate();
    EXPECT_TRUE(valid.ok()) << valid.ToString();
    fake_.Reset();
    test::VendorSession session(test::FakeQnnDir());
    const Result<qnn::LowerResult> lowered = session.Lower(graph);
    EXPECT_TRUE(lowered.ok()) << lowered.status().ToString();
    const std::vector<std::string> nodes = Lines("node ");
    if (lowered.ok()) {
      EXPECT_EQ(lowered->nodes, nodes.size());
    }
    return nodes;
  }

  test::FakeQnn fake_;
};

TEST_F(LowerTest, LinearIsAPointwiseConvolution) {
  for (const DataLayout layout : {DataLayout::kRowMajor, DataLayout::kPackedN16K4}) {
    Graph graph("g");
    const TensorId x = AddX(graph, {1, 1, 4, 5});
    const TensorId w = AddW(graph, 3, 5, layout, Encoding::PerChannel(8, 0, {0.5F, 0.25F, 0.125F}));
    AddOutput(graph, OpType::kLinear, {x, w});
    EXPECT_THAT(Nodes(graph), ElementsAre("node y Conv2d in x,w out y stride=0x132[2]:1,1 "
                                          "pad_amount=0x132[2,2]:0,0,0,0 dilation=0x132[2]:1,1"));
    EXPECT_THAT(Lines("tensor w "),
                ElementsAre("tensor w type 4 dtype 0x308 [1,1,5,3] encoding 1 axis 3 "
                            "0.5:0,0.25:0,0.125:0 data 010b15020c16030d17040e18050f19"));
    EXPECT_THAT(Lines("tensor x "),
                ElementsAre("tensor x type 0 dtype 0x416 [1,1,4,5] encoding 0 0.25:-7"));
    EXPECT_THAT(Lines("tensor y "),
                ElementsAre("tensor y type 1 dtype 0x416 [1,1,4,3] encoding 0 0.5:-3"));
  }
}

TEST_F(LowerTest, LinearWithBiasFourBitsAndBlocks) {
  Graph graph("g");
  const TensorId x = AddX(graph, {1, 1, 4, 4});
  const TensorId w =
      AddW(graph, 2, 4, DataLayout::kPackedN16K4, Encoding::PerChannel(4, 0, {0.5F, 0.25F}));
  const TensorId bias =
      graph.AddConstant("bias", DType::kS32, {2}, MakeConstantOf(std::vector<int32_t>{1, -2}),
                        Encoding::PerChannel(32, 0, {0.125F, 0.0625F}));
  AddOutput(graph, OpType::kLinear, {x, w, bias});
  EXPECT_THAT(Nodes(graph), ElementsAre(HasSubstr("Conv2d in x,w,bias out y")));
  EXPECT_THAT(Lines("tensor w "),
              ElementsAre(HasSubstr("[1,1,4,2] encoding 3 bits 4 axis 3 0.5,0.25 data")));
  EXPECT_THAT(Lines("tensor bias "),
              ElementsAre("tensor bias type 4 dtype 0x332 [2] encoding 1 axis 0 "
                          "0.125:0,0.0625:0 data 01000000feffffff"));

  Graph blocks("g");
  const TensorId bx = AddX(blocks, {1, 1, 4, 4});
  Encoding encoding = Encoding::PerChannel(4, 0, {0.5F, 0.25F});
  encoding.kind = Encoding::Kind::kBlock;
  encoding.block_size = 2;
  encoding.block_scales = {1, 2, 3, 16};
  const TensorId bw = AddW(blocks, 2, 4, DataLayout::kPackedN16K4, encoding);
  AddOutput(blocks, OpType::kLinear, {bx, bw});
  Nodes(blocks);
  EXPECT_THAT(Lines("tensor w "),
              ElementsAre(HasSubstr("[1,1,4,2] encoding 5 axis 3 blocks 2 bits 4 storage 0 "
                                    "0.5:0,0.25:0 times 1,2,3,16 data")));
}

TEST_F(LowerTest, EveryOtherOperation) {
  struct Case {
    OpType type;
    std::vector<Shape> inputs;
    OpAttributes attributes;
    std::string node;
  };
  const std::vector<Case> cases = {
      {OpType::kMatMul,
       {{1, 2, 4, 8}, {1, 2, 8, 6}},
       {},
       "node y MatMul in x0,x1 out y transpose_in0=b8:0 transpose_in1=b8:0"},
      {OpType::kAdd, {{1, 2, 4, 8}, {1, 1, 4, 8}}, {}, "node y ElementWiseAdd in x0,x1 out y"},
      {OpType::kMul, {{1, 1, 4, 8}, {1, 1, 4, 8}}, {}, "node y ElementWiseMultiply in x0,x1 out y"},
      {OpType::kGeluTanh, {{1, 1, 4, 8}}, {}, "node y Gelu in x0 out y"},
      {OpType::kSoftmax, {{1, 2, 4, 8}}, {}, "node y Softmax in x0 out y"},
      {OpType::kRotaryEmbedding,
       {{1, 2, 4, 8}, {1, 4, 4}, {1, 4, 4}},
       {},
       "node y RotaryEmbedding in x0,x1,x2 out y interleaved=b8:0"},
      {OpType::kRotaryEmbedding,
       {{1, 2, 4, 8}, {1, 4, 2}, {1, 4, 2}},
       {},
       "node y RotaryEmbedding in x0,x1,x2 out y interleaved=b8:0 rotary_embedding_dim=ui32:4"},
      {OpType::kConvert, {{1, 1, 4, 8}}, {}, "node y Convert in x0 out y"},
  };
  for (const Case& one : cases) {
    Graph graph("g");
    std::vector<TensorId> inputs;
    for (size_t i = 0; i < one.inputs.size(); ++i) {
      inputs.push_back(AddX(graph, one.inputs[i], "x" + std::to_string(i)));
    }
    AddOutput(graph, one.type, inputs, one.attributes);
    EXPECT_THAT(Nodes(graph), ElementsAre(one.node));
  }
}

TEST_F(LowerTest, OperationsThatCopyIntegers) {
  struct Case {
    OpType type;
    Shape input;
    int inputs;
    OpAttributes attributes;
    std::string node;
  };
  OpAttributes permutation, concat, tile, slice;
  permutation.ints = {0, 2, 1, 3};
  concat.axis = 3;
  tile.ints = {1, 3, 1, 1};
  slice.axis = 2;
  slice.ints = {1, 2};
  const std::vector<Case> cases = {
      {OpType::kTranspose,
       {1, 2, 4, 8},
       1,
       permutation,
       "node y Transpose in x0 out y perm=0x132[4]:0,2,1,3"},
      {OpType::kConcat, {1, 2, 4, 8}, 2, concat, "node y Concat in x0,x1 out y axis=ui32:3"},
      {OpType::kTile, {1, 2, 4, 8}, 1, tile, "node y Tile in x0 out y multiples=0x132[4]:1,3,1,1"},
      {OpType::kSlice,
       {1, 2, 4, 8},
       1,
       slice,
       "node y StridedSlice in x0 out y ranges=0x32[4,3]:0,1,1,0,2,1,1,3,1,0,8,1"},
  };
  const auto output = [](Graph& graph, TensorId id) {
    graph.mutable_tensor(id).encoding = graph.tensor(graph.inputs()[0]).encoding;
    graph.MarkOutput(id);
  };
  for (const Case& one : cases) {
    Graph graph("g");
    std::vector<TensorId> inputs;
    for (int i = 0; i < one.inputs; ++i) {
      inputs.push_back(AddX(graph, one.input, "x" + std::to_string(i)));
    }
    output(graph, graph.AddOp(one.type, "y", inputs, one.attributes));
    EXPECT_THAT(Nodes(graph), ElementsAre(one.node));
  }
  Graph reshape("g");
  output(reshape, reshape.AddReshape("y", AddX(reshape, {1, 1, 4, 8}), {1, 4, 2, 4}));
  EXPECT_THAT(Nodes(reshape), ElementsAre("node y Reshape in x out y"));
  EXPECT_THAT(Lines("tensor y "), ElementsAre(HasSubstr(" [1,4,2,4] ")));
}

TEST_F(LowerTest, GatherTakesRowsOfAConstant) {
  Graph graph("g");
  const TensorId table = AddConst(graph, "table", {16, 4});
  const TensorId index = AddX(graph, {1, 3}, "position", DType::kI32);
  const TensorId y = graph.AddOp(OpType::kGather, "y", {table, index});
  graph.mutable_tensor(y).dtype = DType::kU16;
  graph.mutable_tensor(y).encoding = graph.tensor(table).encoding;
  graph.MarkOutput(y);
  EXPECT_THAT(Nodes(graph), ElementsAre("node y Gather in table,position out y axis=i32:0"));
  EXPECT_THAT(Lines("tensor table "),
              ElementsAre(HasSubstr("type 4 dtype 0x416 [16,4] encoding 0 0.125:0 data 0900")));
  EXPECT_THAT(Lines("tensor position "),
              ElementsAre("tensor position type 0 dtype 0x32 [1,3] encoding none"));
}

TEST_F(LowerTest, SiluIsTwoNodes) {
  for (const DType dtype : {DType::kU16, DType::kU8}) {
    Graph graph("g");
    AddOutput(graph, OpType::kSilu, {AddX(graph, {1, 1, 4, 8}, "x", dtype)}, {}, dtype);
    EXPECT_THAT(Nodes(graph), ElementsAre("node y.sigmoid Sigmoid in x out y.sigmoid",
                                          "node y ElementWiseMultiply in x,y.sigmoid out y"));
    EXPECT_THAT(Lines("tensor y.sigmoid "),
                ElementsAre(dtype == DType::kU16
                                ? "tensor y.sigmoid type 3 dtype 0x416 [1,1,4,8] encoding 0 "
                                  "1.5259e-05:0"
                                : "tensor y.sigmoid type 3 dtype 0x408 [1,1,4,8] encoding 0 "
                                  "0.00392157:0"));
  }
}

TEST_F(LowerTest, RmsNormGetsAZeroBeta) {
  Graph graph("g");
  OpAttributes attributes;
  attributes.epsilon = 1e-5F;
  AddOutput(graph, OpType::kRmsNorm, {AddX(graph, {1, 1, 4, 8}), AddConst(graph, "gamma", {8})},
            attributes);
  EXPECT_THAT(Nodes(graph), ElementsAre("node y RmsNorm in x,gamma,y.beta out y "
                                        "axes=0x132[1]:3 epsilon=f32:1e-05"));
  EXPECT_THAT(Lines("tensor y.beta "),
              ElementsAre("tensor y.beta type 4 dtype 0x332 [8] encoding 0 1:0 data " +
                          std::string(64, '0')));
}

TEST_F(LowerTest, KeepsTheOrderOfInputsAndOutputs) {
  Graph graph("g");
  const TensorId a = AddX(graph, {1, 1, 4, 8}, "a");
  const TensorId unused_first = AddX(graph, {1, 1, 4, 8}, "b");
  const TensorId c = AddX(graph, {1, 1, 4, 8}, "c");
  const auto add = [&](const std::string& name, TensorId left, TensorId right) {
    const TensorId id = graph.AddOp(OpType::kAdd, name, {left, right});
    graph.mutable_tensor(id).encoding = Encoding::PerTensor(DType::kU16, 0.5F, -3);
    return id;
  };
  const TensorId first = add("first", c, a);
  const TensorId second = add("second", first, unused_first);
  const TensorId third = add("third", second, a);
  graph.MarkOutput(third);
  graph.MarkOutput(first);
  EXPECT_THAT(Nodes(graph), ElementsAre("node first ElementWiseAdd in c,a out first",
                                        "node second ElementWiseAdd in first,b out second",
                                        "node third ElementWiseAdd in second,a out third"));
  EXPECT_THAT(Lines("tensor "),
              ElementsAre(HasSubstr("tensor a type 0"), HasSubstr("tensor b type 0"),
                          HasSubstr("tensor c type 0"), HasSubstr("tensor third type 1"),
                          HasSubstr("tensor first type 1"), HasSubstr("tensor second type 3")));
}

TEST_F(LowerTest, WeightsOfTwoOperationsGoOutOnce) {
  Graph graph("g");
  const TensorId x = AddX(graph, {1, 1, 4, 5});
  const TensorId w =
      AddW(graph, 5, 5, DataLayout::kPackedN16K4, Encoding::PerChannel(8, 0, {1, 1, 1, 1, 1}));
  const TensorId middle = graph.AddOp(OpType::kLinear, "middle", {x, w});
  graph.mutable_tensor(middle).encoding = Encoding::PerTensor(DType::kU16, 0.5F, -3);
  AddOutput(graph, OpType::kLinear, {middle, w});
  fake_.Reset();
  test::VendorSession session(test::FakeQnnDir());
  const Result<qnn::LowerResult> lowered = session.Lower(graph);
  ASSERT_TRUE(lowered.ok()) << lowered.status().ToString();
  EXPECT_EQ(lowered->nodes, 2u);
  EXPECT_EQ(lowered->weight_bytes, 25u);
  EXPECT_EQ(Lines("tensor w ").size(), 1u);
}

TEST_F(LowerTest, ARefusedNodeIsNamed) {
  Graph graph("prefill_forward");
  const TensorId x = AddX(graph, {1, 1, 4, 5});
  const TensorId w =
      AddW(graph, 3, 5, DataLayout::kRowMajor, Encoding::PerChannel(8, 0, {1, 1, 1}));
  AddOutput(graph, OpType::kLinear, {x, w});
  fake_.Reset();
  test::VendorSession session(test::FakeQnnDir());
  const test::ScopedEnv fail("FAKE_QNN_FAIL", "backendValidateOpConfig:3110");
  const Status status = session.Lower(graph).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  for (const char* part :
       {"graph prefill_forward, operation y (Linear)", "node 'y' of type Conv2d",
        "x u16 [1, 1, 4, 5]", "w s8 [1, 1, 5, 3]", "y u16 [1, 1, 4, 3]", "stride", "3110"}) {
    EXPECT_THAT(status.message(), HasSubstr(part));
  }
  EXPECT_THAT(Lines("node "), IsEmpty());
}

TEST_F(LowerTest, AFailingCallIsNamed) {
  struct Case {
    const char *call, *part;
  };
  for (const Case& one :
       {Case{"graphAddNode:6005", "6005"}, Case{"tensorCreateGraphTensor:7004", "7004"}}) {
    Graph graph("g");
    AddOutput(graph, OpType::kSoftmax, {AddX(graph, {1, 2, 4, 8})});
    test::VendorSession session(test::FakeQnnDir());
    const test::ScopedEnv fail("FAKE_QNN_FAIL", one.call);
    const Status status = session.Lower(graph).status();
    EXPECT_EQ(status.code(), StatusCode::kVendor) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(one.part));
  }
}

TEST(TransposeWeightsTest, EqualsAnElementwiseTranspose) {
  test::Random random(5);
  for (const auto& [n, k] : std::vector<std::pair<uint32_t, uint32_t>>{
           {1, 1}, {16, 4}, {17, 5}, {15, 3}, {33, 7}, {64, 64}, {5, 130}}) {
    for (const DataLayout layout : {DataLayout::kRowMajor, DataLayout::kPackedN16K4}) {
      Graph graph;
      const Tensor weight =
          graph.tensor(test::AddWeight(graph, random, "w", n, k, {8, 0, layout}, 1));
      const std::vector<std::byte> transposed = qnn::TransposeWeights(weight);
      ASSERT_EQ(transposed.size(), size_t{n} * k);
      const std::byte* from = weight.data->bytes().data();
      for (uint32_t row = 0; row < n; ++row) {
        for (uint32_t col = 0; col < k; ++col) {
          const size_t at = layout == DataLayout::kRowMajor ? size_t{row} * k + col
                                                            : PackedN16K4Index(row, col, k);
          ASSERT_EQ(transposed[size_t{col} * n + row], from[at]) << n << "x" << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace spillway
