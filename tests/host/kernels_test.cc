// Every kernel: against real arithmetic, and on every processor target, with one
// and two threads, bit for bit against the reference kernels.

#include <gtest/gtest.h>

#include "tests/host/op_graphs.h"

namespace spillway::test {
namespace {

constexpr DType kActivations[] = {DType::kU8, DType::kU16, DType::kS8, DType::kS16};

// Graph inputs and constants as real numbers, in the order of op.inputs.
std::vector<Reals> RealInputs(const Graph& graph, const Op& op, const std::vector<Bytes>& inputs) {
  std::vector<Reals> reals;
  for (const TensorId id : op.inputs) {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.role == TensorRole::kConstant) {
      const bool readable = !tensor.data->bytes().empty() &&
                            tensor.data->layout() == DataLayout::kRowMajor &&
                            tensor.encoding.kind != Encoding::Kind::kBlock &&
                            tensor.encoding.kind != Encoding::Kind::kPerChannel;
      reals.push_back(readable ? RealValues(tensor, tensor.data->bytes().data()) : Reals());
      if (!readable && op.type == OpType::kGather) reals.back() = RealWeight(tensor);
      continue;
    }
    const size_t number = static_cast<size_t>(
        std::find(graph.inputs().begin(), graph.inputs().end(), id) - graph.inputs().begin());
    reals.push_back(RealValues(tensor, inputs[number].data()));
  }
  return reals;
}

// A fixed-point output must be the nearest step to the real value (`down`: the
// nearest one below), saturated. `slack` allows for what the host's doubles lose.
void ExpectNearestSteps(const Tensor& tensor, const Bytes& bytes, const Reals& expected,
                        double slack, bool down) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const long double step =
        std::clamp<long double>(expected[i] / tensor.encoding.scale - tensor.encoding.offset,
                                DTypeMin(tensor.dtype), DTypeMax(tensor.dtype));
    const int64_t found = ReadInt(bytes.data(), tensor.dtype, i);
    const auto error = static_cast<double>(static_cast<long double>(found) - step);
    ASSERT_GE(error, (down ? -1.0 : -0.5) - slack) << tensor.name << "[" << i << "]";
    ASSERT_LE(error, (down ? 0.0 : 0.5) + slack) << tensor.name << "[" << i << "]";
  }
}

void ExpectClose(const Bytes& bytes, const Reals& expected, double tolerance) {
  long double largest = 1e-3L;
  for (const long double value : expected) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    float found;
    std::memcpy(&found, bytes.data() + i * sizeof(found), sizeof(found));
    ASSERT_NEAR(found, static_cast<double>(expected[i]), tolerance * static_cast<double>(largest))
        << i;
  }
}

// `graph` has one operation, whose output is the graph's output "y".
void Check(Graph graph, Random& random, double slack = 1e-6) {
  graph.MarkOutput(graph.ops()[0].outputs[0]);
  const auto shared = std::make_shared<const Graph>(std::move(graph));
  const std::vector<Bytes> inputs = RandomInputs(random, *shared);
  const Op& op = shared->ops()[0];
  const Tensor& y = shared->tensor(op.outputs[0]);
  const Reals expected = Evaluate(*shared, op, RealInputs(*shared, op, inputs));
  const auto reference = RunAll(shared, inputs, {.reference = true});
  ASSERT_EQ(reference.count("y"), 1u) << reference.begin()->first;
  const bool is_float = y.dtype == DType::kF32;
  if (is_float) {
    ExpectClose(reference.at("y"), expected, 2e-7);
  } else {
    const bool cut_softmax = op.type == OpType::kSoftmax && y.dtype == DType::kU16 &&
                             shared->tensor(op.inputs[0]).dtype == DType::kU16;
    ExpectNearestSteps(y, reference.at("y"), expected, slack,
                       op.type == OpType::kRmsNorm || cut_softmax);
  }
  for (const host::CpuTarget target : SupportedTargets()) {
    SCOPED_TRACE(host::CpuTargetName(target));
    const auto one = RunAll(shared, inputs, {.threads = 1, .target = target});
    const auto two = RunAll(shared, inputs, {.threads = 2, .target = target});
    ASSERT_EQ(one.count("y"), 1u) << one.begin()->first;
    ASSERT_EQ(one, two);
    if (is_float) {
      ExpectClose(one.at("y"), expected, 4e-6);
    } else {
      ASSERT_EQ(one, reference);
    }
  }
}

void SetOutput(Graph& graph, Random& random, TensorId id, DType dtype, double range) {
  Tensor& tensor = graph.mutable_tensor(id);
  tensor.dtype = dtype;
  if (IsFixedPoint(dtype)) tensor.encoding = RandomEncoding(random, dtype, range);
}

// ------------------------------------------------------------------ Linear

struct LinearCase {
  uint32_t rows, k, n;
};

void CheckIntegerLinear(Random& random, const LinearCase& size, DType in, DType out,
                        const WeightSpec& weight, bool bias) {
  Graph graph("linear");
  const TensorId x = AddQuantInput(graph, random, "x", in, {1, 1, size.rows, size.k});
  std::vector<TensorId> inputs = {x, AddWeight(graph, random, "w", size.n, size.k, weight, 1.0)};
  if (bias) inputs.push_back(AddBias(graph, random, "b", size.n));
  const TensorId y = graph.AddOp(OpType::kLinear, "y", inputs);
  // About the spread of the sums, so that a part of them saturates.
  const double blocks = weight.block > 0 ? 8.0 : 1.0;
  SetOutput(graph, random, y, out, 1.0 * blocks * std::sqrt(size.k));
  Check(std::move(graph), random, 1e-4);
}

TEST(LinearKernelTest, IntegerOverShapes) {
  Random random(1);
  for (const uint32_t k : {1u, 2u, 3u, 4u, 5u, 63u, 64u, 130u, 577u, 1100u}) {
    for (const uint32_t n : {1u, 15u, 16u, 17u, 33u, 80u}) {
      const uint32_t rows = static_cast<uint32_t>(random.Int(1, 9));
      SCOPED_TRACE(testing::Message() << rows << " x " << k << " x " << n);
      CheckIntegerLinear(random, {rows, k, n}, DType::kU16, DType::kU16, {}, k % 2 == 0);
    }
  }
}

TEST(LinearKernelTest, IntegerOverRows) {
  Random random(2);
  for (uint32_t rows = 1; rows <= 14; ++rows) {
    SCOPED_TRACE(rows);
    CheckIntegerLinear(random, {rows, 37, 21}, DType::kU16, DType::kU16, {}, false);
  }
  for (const uint32_t rows : {40u, 48u, 49u, 55u, 101u}) {
    SCOPED_TRACE(rows);
    CheckIntegerLinear(random, {rows, 37, 70}, DType::kU16, DType::kU16, {}, true);
  }
}

TEST(LinearKernelTest, IntegerOverTypes) {
  Random random(3);
  for (const DType in : kActivations) {
    for (const DType out : kActivations) {
      for (const DataLayout layout : {DataLayout::kRowMajor, DataLayout::kPackedN16K4}) {
        SCOPED_TRACE(testing::Message() << DTypeName(in) << " -> " << DTypeName(out));
        CheckIntegerLinear(random, {7, 101, 35}, in, out, {.bits = 8, .layout = layout}, true);
        CheckIntegerLinear(random, {5, 65, 19}, in, out, {.bits = 4, .layout = layout}, false);
        CheckIntegerLinear(random, {3, 96, 18}, in, out, {.bits = 4, .block = 32, .layout = layout},
                           true);
      }
    }
  }
}

TEST(LinearKernelTest, FourBitWeightsInHalvesOfBytes) {
  Random random(31);
  const auto spec = [](uint32_t block) {
    return WeightSpec{.bits = 4, .block = block, .layout = DataLayout::kPackedNibbles};
  };
  for (const uint32_t k : {1u, 8u, 12u, 64u, 88u, 160u}) {
    for (const uint32_t block : {0u, 8u, 12u, 16u, 32u, 64u}) {
      for (const uint32_t n : {1u, 16u, 50u, 100u}) {
        const uint32_t rows = random.Pick<uint32_t>({1, 1, 2, 5, 50});
        const DType type = random.Pick<DType>({DType::kU16, DType::kU8, DType::kS16});
        SCOPED_TRACE(testing::Message()
                     << rows << " x " << k << " x " << n << ", blocks of " << block);
        CheckIntegerLinear(random, {rows, k, n}, type, DType::kU16, spec(block), n == 16);
      }
    }
  }
}

TEST(LinearKernelTest, LongestSumsDoNotOverflow) {
  // Every product at its largest size, same sign.
  for (const uint32_t k : {16384u, 65536u, 65540u}) {
    for (const uint16_t value : {uint16_t{0}, uint16_t{65535}}) {
      Graph graph("long");
      const TensorId x = graph.AddInput("x", DType::kU16, {1, 1, 1, k});
      graph.mutable_tensor(x).encoding =
          Encoding::PerTensor(DType::kU16, 1.0f, value == 0 ? -65535 : 0);
      std::vector<int8_t> w(static_cast<size_t>(k) * 2, 127);
      std::fill(w.begin(), w.begin() + k, int8_t{-127});
      const TensorId weight = graph.AddConstant("w", DType::kS8, {2, k}, MakeConstantOf(w),
                                                Encoding::PerChannel(8, 0, {1.0f, 1.0f}));
      const TensorId y = graph.AddOp(OpType::kLinear, "y", {x, weight});
      graph.mutable_tensor(y).encoding = Encoding::PerTensor(
          DType::kU16, 127.0f * 65535.0f * static_cast<float>(k) / 32768.0f, -32768);
      graph.MarkOutput(y);
      const auto shared = std::make_shared<const Graph>(std::move(graph));
      Bytes input(k * 2);
      for (uint32_t i = 0; i < k; ++i) WriteInt(input.data(), DType::kU16, i, value);
      const auto reference = RunAll(shared, {input}, {.reference = true});
      const int64_t low = ReadInt(reference.at("y").data(), DType::kU16, value == 0 ? 1 : 0);
      const int64_t high = ReadInt(reference.at("y").data(), DType::kU16, value == 0 ? 0 : 1);
      EXPECT_NEAR(static_cast<double>(low), 0.0, 1.0);
      EXPECT_NEAR(static_cast<double>(high), 65535.0, 1.0);
      for (const host::CpuTarget target : SupportedTargets()) {
        EXPECT_EQ(RunAll(shared, {input}, {.target = target}), reference)
            << k << " " << host::CpuTargetName(target);
      }
    }
  }
}

// Rows that can only be read by ReadRows.
class RowConstant : public ConstantData {
 public:
  RowConstant(std::vector<float> values, size_t cols) : values_(std::move(values)), cols_(cols) {}
  std::span<const std::byte> bytes() const override { return {}; }
  void ReadRows(uint64_t row, uint64_t count, float* out) const override {
    std::copy_n(values_.begin() + static_cast<ptrdiff_t>(row * cols_), count * cols_, out);
  }

 private:
  std::vector<float> values_;
  size_t cols_;
};

void CheckFloatLinear(Random& random, const LinearCase& size, bool by_rows, bool bias) {
  Graph graph("linear");
  const TensorId x = graph.AddInput("x", DType::kF32, {1, 1, size.rows, size.k});
  std::vector<float> w(static_cast<size_t>(size.n) * size.k);
  for (float& value : w) value = static_cast<float>(random.Real(-1.0, 1.0));
  const TensorId weight =
      graph.AddConstant("w", DType::kF32, {size.n, size.k},
                        by_rows ? std::make_shared<RowConstant>(w, size.k) : MakeConstantOf(w));
  std::vector<TensorId> inputs = {x, weight};
  if (bias) {
    std::vector<float> b(size.n);
    for (float& value : b) value = static_cast<float>(random.Real(-1.0, 1.0));
    inputs.push_back(graph.AddConstant("b", DType::kF32, {size.n}, MakeConstantOf(b)));
  }
  graph.AddOp(OpType::kLinear, "y", inputs);
  Check(std::move(graph), random);
}

TEST(LinearKernelTest, FloatOverShapes) {
  Random random(4);
  for (const uint32_t k : {1u, 3u, 64u, 577u, 3000u}) {
    for (const uint32_t n : {1u, 17u, 130u, 300u}) {
      for (const uint32_t rows : {1u, 2u, 5u}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << k << " x " << n);
        CheckFloatLinear(random, {rows, k, n}, (rows + n) % 2 == 0, rows == 2);
      }
    }
  }
}

TEST(LinearKernelTest, FloatWithIntegerWeights) {
  Random random(5);
  for (const uint32_t block : {0u, 32u}) {
    for (const DataLayout layout : {DataLayout::kRowMajor, DataLayout::kPackedN16K4}) {
      Graph graph("linear");
      const TensorId x = graph.AddInput("x", DType::kF32, {1, 1, 4, 70});
      const TensorId w =
          AddWeight(graph, random, "w", 37, 70, {.bits = 4, .block = block, .layout = layout}, 1.0);
      graph.AddOp(OpType::kLinear, "y", {x, w});
      Check(std::move(graph), random);
    }
  }
}

// ------------------------------------------------------------------ MatMul

void CheckMatMul(Random& random, const Shape& a, const Shape& b, DType a_type, DType b_type,
                 DType out) {
  SCOPED_TRACE(testing::Message() << ShapeToString(a) << DTypeName(a_type) << " x "
                                  << ShapeToString(b) << DTypeName(b_type));
  Graph graph("matmul");
  const TensorId left = AddQuantInput(graph, random, "a", a_type, a);
  const TensorId right = AddQuantInput(graph, random, "b", b_type, b);
  const TensorId y = graph.AddOp(OpType::kMatMul, "y", {left, right});
  SetOutput(graph, random, y, out, 3.0 * std::sqrt(a.back()));
  Check(std::move(graph), random, 1e-4);
}

TEST(MatMulKernelTest, IntegerOverTypes) {
  Random random(6);
  for (const DType a : kActivations) {
    for (const DType b : kActivations) {
      CheckMatMul(random, {1, 3, 5, 17}, {1, 3, 17, 23}, a, b, random.Pick<DType>({a, b}));
    }
  }
}

TEST(MatMulKernelTest, IntegerOverShapes) {
  Random random(7);
  for (const uint32_t k : {1u, 2u, 3u, 255u, 256u, 257u, 600u}) {
    for (const uint32_t n : {1u, 4u, 15u, 16u, 64u, 70u, 128u}) {
      const uint32_t m = random.Pick<uint32_t>({1, 2, 3, 7, 8, 9});
      const DType b = random.Pick<DType>({DType::kU8, DType::kU16});
      CheckMatMul(random, {2, m, k}, {2, k, n}, DType::kU16, b, DType::kU16);
    }
  }
  for (const uint32_t m : {31u, 32u, 33u, 97u}) {
    CheckMatMul(random, {1, m, 64}, {1, 64, 33}, DType::kU16, DType::kU16, DType::kU16);
    CheckMatMul(random, {m, 65}, {65, 20}, DType::kU8, DType::kU8, DType::kU8);
  }
}

TEST(MatMulKernelTest, Float) {
  Random random(8);
  for (const uint32_t m : {1u, 2u, 3u, 70u}) {
    for (const uint32_t k : {1u, 64u, 129u}) {
      Graph graph("matmul");
      const TensorId a = graph.AddInput("a", DType::kF32, {1, 3, m, k});
      const TensorId b = graph.AddInput("b", DType::kF32, {1, 3, k, 37});
      graph.AddOp(OpType::kMatMul, "y", {a, b});
      Check(std::move(graph), random);
    }
  }
}

// ------------------------------------------------------------- elementwise

TEST(ElementwiseKernelTest, AddAndMulBroadcast) {
  Random random(9);
  const std::vector<std::pair<Shape, Shape>> shapes = {{{1, 3, 5, 70}, {1, 3, 5, 70}},
                                                       {{1, 3, 5, 70}, {1, 1, 5, 70}},
                                                       {{1, 3, 5, 70}, {1, 1, 1, 70}},
                                                       {{1, 3, 5, 70}, {1, 1, 1, 1}},
                                                       {{1, 3, 5, 70}, {1, 3, 1, 1}},
                                                       {{1, 3, 5, 70}, {1, 3, 5, 1}},
                                                       {{2, 3, 4}, {1, 3, 1}},
                                                       {{2, 3, 4}, {2, 1, 4}},
                                                       {{1}, {1}},
                                                       {{1, 1, 1, 9}, {1, 1, 1, 1}},
                                                       {{3, 1, 4}, {1, 1, 1}},
                                                       {{1300}, {1300}}};
  for (const OpType type : {OpType::kAdd, OpType::kMul}) {
    for (const auto& [a_shape, b_shape] : shapes) {
      for (const bool is_float : {false, true}) {
        SCOPED_TRACE(testing::Message() << OpTypeName(type) << ShapeToString(a_shape)
                                        << ShapeToString(b_shape) << is_float);
        const auto pick = [&] {
          return is_float ? DType::kF32
                          : random.Pick<DType>({std::begin(kActivations), std::end(kActivations)});
        };
        Graph graph("binary");
        const TensorId a = AddQuantInput(graph, random, "a", pick(), a_shape);
        const TensorId b = AddQuantInput(graph, random, "b", pick(), b_shape);
        const TensorId y = graph.AddOp(type, "y", {a, b});
        SetOutput(graph, random, y, pick(), 2.5);
        Check(std::move(graph), random);
      }
    }
  }
}

TEST(ElementwiseKernelTest, UnaryOverTypes) {
  Random random(10);
  for (const OpType type : {OpType::kSilu, OpType::kGeluTanh, OpType::kConvert}) {
    for (const DType in : kActivations) {
      for (const DType out : kActivations) {
        SCOPED_TRACE(testing::Message() << OpTypeName(type) << DTypeName(in) << DTypeName(out));
        Graph graph("unary");
        const TensorId x = AddQuantInput(graph, random, "x", in, {1, 2, 3, 401}, 6.0);
        const TensorId y = graph.AddOp(type, "y", {x});
        SetOutput(graph, random, y, out, 4.0);
        Check(std::move(graph), random);
      }
    }
  }
}

TEST(ElementwiseKernelTest, FloatUnary) {
  Random random(11);
  for (const OpType type : {OpType::kSilu, OpType::kGeluTanh, OpType::kConvert}) {
    Graph graph("unary");
    const TensorId x = graph.AddInput("x", DType::kF32, {1, 1, 3, 401});
    graph.AddOp(type, "y", {x});
    Check(std::move(graph), random);
  }
}

TEST(ElementwiseKernelTest, FloatSiluAndGeluAtTheEnds) {
  for (const OpType type : {OpType::kSilu, OpType::kGeluTanh}) {
    Graph graph("unary");
    const TensorId x = graph.AddInput("x", DType::kF32, {1, 1, 1, 8});
    graph.MarkOutput(graph.AddOp(type, "y", {x}));
    const auto shared = std::make_shared<const Graph>(std::move(graph));
    const std::vector<float> values = {-1e30f, -1000.0f, -90.0f,  -0.0f,
                                       0.0f,   90.0f,    1000.0f, 1e10f};
    const auto* raw = reinterpret_cast<const std::byte*>(values.data());
    for (const host::CpuTarget target : SupportedTargets()) {
      const auto found = RunAll(shared, {Bytes(raw, raw + 32)}, {.target = target});
      const Reals y = RealValues(shared->tensor(shared->outputs()[0]), found.at("y").data());
      for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(static_cast<double>(y[i]), 0.0, 1e-6) << i;
      for (size_t i = 5; i < 8; ++i) EXPECT_EQ(static_cast<float>(y[i]), values[i]) << i;
    }
  }
}

TEST(ElementwiseKernelTest, ConvertFromAndToFloat) {
  Random random(12);
  for (const DType dtype : kActivations) {
    for (const bool to_float : {false, true}) {
      Graph graph("convert");
      const TensorId x =
          AddQuantInput(graph, random, "x", to_float ? dtype : DType::kF32, {1, 1, 1, 300});
      const TensorId y = graph.AddOp(OpType::kConvert, "y", {x});
      graph.mutable_tensor(y).encoding = {};
      SetOutput(graph, random, y, to_float ? DType::kF32 : dtype, 1.5);
      Check(std::move(graph), random);
    }
  }
}

TEST(ElementwiseKernelTest, TiesGoToEvenAndEndsSaturate) {
  Graph graph("convert");
  const TensorId x = graph.AddInput("x", DType::kS16, {1, 1, 1, 40});
  graph.mutable_tensor(x).encoding = Encoding::PerTensor(DType::kS16, 0.5f, 0);
  const TensorId y = graph.AddOp(OpType::kConvert, "y", {x});
  graph.mutable_tensor(y).dtype = DType::kU8;
  graph.mutable_tensor(y).encoding = Encoding::PerTensor(DType::kU8, 1.0f, -100);
  graph.MarkOutput(y);
  const auto shared = std::make_shared<const Graph>(std::move(graph));
  const std::vector<int> in = {-3, -2, -1, 0, 1, 2, 3, 5, 7, 309, 310, 311, 312, -201, -200, -199};
  // Halves: -1.5 -1 -0.5 0 0.5 1 1.5 2.5 3.5 154.5 155 155.5 156 -100.5 -100 -99.5
  const std::vector<int> out = {98,  99,  100, 100, 100, 101, 102, 102,
                                104, 254, 255, 255, 255, 0,   0,   0};
  Bytes input(80);
  for (size_t i = 0; i < 40; ++i) WriteInt(input.data(), DType::kS16, i, in[i % in.size()]);
  for (const host::CpuTarget target : SupportedTargets()) {
    const auto found = RunAll(shared, {input}, {.target = target});
    for (size_t i = 0; i < 40; ++i) {
      EXPECT_EQ(ReadInt(found.at("y").data(), DType::kU8, i), out[i % out.size()])
          << i << " " << host::CpuTargetName(target);
    }
  }
}

// --------------------------------------------------------------------- rows

TEST(RowKernelTest, RmsNorm) {
  Random random(13);
  for (const uint32_t width : {1u, 2u, 7u, 64u, 577u}) {
    for (const DType in : {DType::kU8, DType::kU16, DType::kS16, DType::kF32}) {
      SCOPED_TRACE(testing::Message() << width << DTypeName(in));
      const bool is_float = in == DType::kF32;
      const DType gamma_type =
          is_float ? DType::kF32 : random.Pick<DType>({DType::kU8, DType::kU16});
      Graph graph("norm");
      const TensorId x = AddQuantInput(graph, random, "x", in, {1, 1, 5, width});
      const TensorId gamma = AddQuantInput(graph, random, "gamma", gamma_type, {width}, 1.5);
      const TensorId y = graph.AddOp(OpType::kRmsNorm, "y", {x, gamma}, {.epsilon = 1e-5f});
      SetOutput(graph, random, y, is_float ? DType::kF32 : random.Pick<DType>({in, DType::kU16}),
                2.5);
      Check(std::move(graph), random);
    }
  }
}

TEST(RowKernelTest, RmsNormOfZeros) {
  Graph graph("norm");
  const TensorId x = graph.AddInput("x", DType::kF32, {1, 1, 1, 9});
  const TensorId gamma =
      graph.AddConstant("gamma", DType::kF32, {9}, MakeConstantOf(std::vector<float>(9, 1.0f)));
  graph.MarkOutput(graph.AddOp(OpType::kRmsNorm, "y", {x, gamma}, {.epsilon = 1e-6f}));
  const auto shared = std::make_shared<const Graph>(std::move(graph));
  EXPECT_EQ(RunAll(shared, {Bytes(36)}, {}).at("y"), Bytes(36));
}

TEST(RowKernelTest, Softmax) {
  Random random(14);
  for (const uint32_t width : {1u, 3u, 32u, 129u, 2000u}) {
    for (const DType in : {DType::kU8, DType::kU16, DType::kS8, DType::kS16, DType::kF32}) {
      for (const double range : {0.01, 4.0, 300.0}) {
        SCOPED_TRACE(testing::Message() << width << DTypeName(in) << range);
        Graph graph("softmax");
        const TensorId x = AddQuantInput(graph, random, "x", in, {1, 3, 2, width}, range);
        const TensorId y = graph.AddOp(OpType::kSoftmax, "y", {x});
        if (in != DType::kF32) {
          graph.mutable_tensor(y).dtype = DType::kU16;
          graph.mutable_tensor(y).encoding = Encoding::PerTensor(DType::kU16, 1.0f / 65535.0f, 0);
        }
        Check(std::move(graph), random, 1e-3);
      }
    }
  }
}

TEST(RowKernelTest, RotaryEmbedding) {
  Random random(15);
  for (const uint32_t half : {1u, 8u, 32u}) {
    for (const DType in : {DType::kU8, DType::kU16, DType::kS16, DType::kF32}) {
      SCOPED_TRACE(testing::Message() << half << DTypeName(in));
      const bool is_float = in == DType::kF32;
      const DType table = is_float ? DType::kF32 : DType::kU16;
      Graph graph("rope");
      const uint32_t width = 2 * half + (half == 8 ? 5 : 0);  // some pass unchanged
      const TensorId x = AddQuantInput(graph, random, "x", in, {1, 3, 4, width});
      const TensorId cos = AddQuantInput(graph, random, "cos", table, {1, 4, half}, 1.0);
      const TensorId sin = AddQuantInput(graph, random, "sin", table, {1, 4, half}, 1.0);
      const TensorId y = graph.AddOp(OpType::kRotaryEmbedding, "y", {x, cos, sin});
      SetOutput(graph, random, y, is_float ? DType::kF32 : random.Pick<DType>({in, DType::kU16}),
                2.0);
      Check(std::move(graph), random);
    }
  }
}

// -------------------------------------------------------------------- copies

void CheckCopy(Random& random, OpType type, DType dtype, const std::vector<Shape>& shapes,
               OpAttributes attributes) {
  SCOPED_TRACE(testing::Message() << OpTypeName(type) << DTypeName(dtype)
                                  << ShapeToString(shapes[0]));
  Graph graph("copy");
  std::vector<TensorId> inputs;
  for (const Shape& shape : shapes) {
    const TensorId id =
        AddQuantInput(graph, random, "x" + std::to_string(inputs.size()), dtype, shape);
    inputs.push_back(id);
    graph.mutable_tensor(id).encoding = graph.tensor(inputs[0]).encoding;
  }
  const TensorId y = graph.AddOp(type, "y", inputs, std::move(attributes));
  graph.mutable_tensor(y).encoding = graph.tensor(inputs[0]).encoding;
  Check(std::move(graph), random);
}

TEST(CopyKernelTest, TransposeConcatTileSlice) {
  Random random(16);
  for (const DType dtype : {DType::kU8, DType::kU16, DType::kF32}) {
    for (const std::vector<uint32_t>& order : std::vector<std::vector<uint32_t>>{
             {0, 1, 2, 3}, {0, 2, 1, 3}, {0, 1, 3, 2}, {3, 2, 1, 0}, {1, 0, 2, 3}}) {
      CheckCopy(random, OpType::kTranspose, dtype, {{2, 3, 4, 5}}, {.ints = order});
    }
    for (uint32_t axis = 0; axis < 4; ++axis) {
      std::vector<Shape> shapes(3, Shape{2, 3, 4, 5});
      shapes[1][axis] = 1;
      shapes[2][axis] = 7;
      CheckCopy(random, OpType::kConcat, dtype, shapes, {.axis = axis});
    }
    for (const std::vector<uint32_t>& times : std::vector<std::vector<uint32_t>>{
             {1, 1, 3, 1}, {2, 1, 1, 1}, {1, 2, 1, 3}, {2, 2, 2, 2}, {1, 1, 1, 1}}) {
      CheckCopy(random, OpType::kTile, dtype, {{1, 3, 2, 5}}, {.ints = times});
    }
    for (uint32_t axis = 0; axis < 4; ++axis) {
      for (const std::vector<uint32_t>& range :
           std::vector<std::vector<uint32_t>>{{0, 1}, {1, 2}, {0, 3}, {2, 1}}) {
        CheckCopy(random, OpType::kSlice, dtype, {{3, 4, 3, 5}}, {.axis = axis, .ints = range});
      }
    }
  }
}

TEST(CopyKernelTest, GatherFromBytesAndFromRows) {
  Random random(17);
  for (const DType dtype : {DType::kU8, DType::kU16, DType::kF32}) {
    Graph graph("gather");
    Tensor table;
    table.dtype = dtype;
    table.shape = {7, 13};
    if (dtype != DType::kF32) table.encoding = RandomEncoding(random, dtype, 1.0);
    const Bytes values = RandomValues(random, table);
    const TensorId id =
        graph.AddConstant("table", dtype, table.shape, MakeConstant(values), table.encoding);
    const TensorId indices = graph.AddInput("indices", DType::kI32, {1, 9});
    const TensorId y = graph.AddOp(OpType::kGather, "y", {id, indices});
    graph.mutable_tensor(y).dtype = dtype;
    graph.mutable_tensor(y).encoding = table.encoding;
    Check(std::move(graph), random);
  }
  std::vector<float> rows(7 * 13);
  for (float& value : rows) value = static_cast<float>(random.Real(-1.0, 1.0));
  Graph graph("gather");
  const TensorId table =
      graph.AddConstant("table", DType::kF32, {7, 13}, std::make_shared<RowConstant>(rows, 13));
  const TensorId indices = graph.AddInput("indices", DType::kI32, {1, 9});
  graph.AddOp(OpType::kGather, "y", {table, indices});
  Check(std::move(graph), random);
}

}  // namespace
}  // namespace spillway::test
