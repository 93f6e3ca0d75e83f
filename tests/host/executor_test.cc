#include "host/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "base/memory.h"
#include "tests/host/op_graphs.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<size_t> allocations{0};
}  // namespace

// Counts what Run() allocates. Not inlined, or GCC sees free() meet its own new.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (counting) ++allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) std::abort();
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return operator new(size);
}
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace spillway::host {
namespace {

using ::testing::HasSubstr;

template <typename T>
void Fill(std::span<std::byte> buffer, const std::vector<T>& values) {
  ASSERT_EQ(buffer.size(), values.size() * sizeof(T));
  std::memcpy(buffer.data(), values.data(), buffer.size());
}

template <typename T>
std::vector<T> Values(std::span<const std::byte> buffer) {
  std::vector<T> values(buffer.size() / sizeof(T));
  std::memcpy(values.data(), buffer.data(), buffer.size());
  return values;
}

std::unique_ptr<Executor> MustCreate(Graph graph, ThreadPool& pool, ExecutorOptions options = {}) {
  auto executor = Executor::Create(std::make_shared<const Graph>(std::move(graph)), &pool, options);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return std::move(executor).value();
}

Status CreateStatus(Graph graph) {
  ThreadPool pool(1);
  return Executor::Create(std::make_shared<const Graph>(std::move(graph)), &pool).status();
}

Graph FloatLinear(uint32_t rows) {
  Graph graph("g");
  const TensorId x = graph.AddInput("x", DType::kF32, {1, 1, rows, 3});
  const TensorId w =
      graph.AddConstant("w", DType::kF32, {2, 3}, MakeConstantOf<float>({1, 2, 3, -1, 0, 0.5f}));
  const TensorId b = graph.AddConstant("b", DType::kF32, {2}, MakeConstantOf<float>({10, 20}));
  graph.MarkOutput(graph.AddOp(OpType::kLinear, "y", {x, w, b}));
  return graph;
}

TEST(ExecutorTest, FloatLinearByHand) {
  ThreadPool pool(1);
  auto executor = MustCreate(FloatLinear(2), pool);
  Fill<float>(executor->input(0), {1, 1, 1, 2, 0, -4});
  ASSERT_TRUE(executor->Run().ok());
  EXPECT_EQ(Values<float>(executor->output(0)), (std::vector<float>{16, 19.5f, 0, 16}));
}

TEST(ExecutorTest, IntegerLinearRoundsHalfToEvenAndSaturates) {
  for (const bool reference : {false, true}) {
    Graph graph("g");
    const TensorId x = graph.AddInput("x", DType::kU8, {1, 1, 1, 1});
    graph.mutable_tensor(x).encoding = Encoding::PerTensor(DType::kU8, 1.0f, -100);
    const TensorId w =
        graph.AddConstant("w", DType::kS8, {4, 1}, MakeConstantOf<int8_t>({1, 3, 127, -127}),
                          Encoding::PerChannel(8, 0, {0.5f, 0.5f, 1.0f, 1.0f}));
    const TensorId y = graph.AddOp(OpType::kLinear, "y", {x, w});
    graph.mutable_tensor(y).encoding = Encoding::PerTensor(DType::kU8, 1.0f, -128);
    graph.MarkOutput(y);
    ThreadPool pool(1);
    auto executor = MustCreate(std::move(graph), pool, {reference});
    Fill<uint8_t>(executor->input(0), {105});  // 5: 2.5, 7.5, 635, -635
    ASSERT_TRUE(executor->Run().ok());
    EXPECT_EQ(Values<uint8_t>(executor->output(0)), (std::vector<uint8_t>{130, 136, 255, 0}));
  }
}

TEST(ExecutorTest, BuffersAreAlignedAndCanBeBound) {
  ThreadPool pool(1);
  auto executor = MustCreate(FloatLinear(1), pool);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(executor->input(0).data()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(executor->output(0).data()) % 64, 0u);
  AlignedBuffer in(64);
  AlignedBuffer out(64);
  executor->BindInput(0, in.data());
  executor->BindOutput(0, out.data());
  EXPECT_EQ(executor->input(0).data(), in.data());
  EXPECT_EQ(executor->input(0).size(), 12u);
  Fill<float>({in.data(), 12}, {1, 0, 0});
  ASSERT_TRUE(executor->Run().ok());
  EXPECT_EQ(Values<float>({out.data(), 8}), (std::vector<float>{11, 19}));
  AlignedBuffer other(64);
  executor->BindOutput(0, other.data());
  Fill<float>({in.data(), 12}, {0, 0, 2});
  ASSERT_TRUE(executor->Run().ok());
  EXPECT_EQ(Values<float>({other.data(), 8}), (std::vector<float>{16, 21}));
  EXPECT_EQ(Values<float>({out.data(), 8}), (std::vector<float>{11, 19}));
}

TEST(ExecutorTest, LimitOutputRowComputesOneRow) {
  ThreadPool pool(1);
  for (const bool reference : {false, true}) {
    auto executor = MustCreate(FloatLinear(3), pool, {reference});
    Fill<float>(executor->input(0), {1, 0, 0, 0, 1, 0, 0, 0, 1});
    executor->LimitOutputRow(0, 1);
    ASSERT_TRUE(executor->Run().ok());
    EXPECT_EQ(Values<float>(executor->output(0)), (std::vector<float>{0, 0, 12, 20, 0, 0}));
    executor->LimitOutputRow(0, -1);
    ASSERT_TRUE(executor->Run().ok());
    EXPECT_EQ(Values<float>(executor->output(0)), (std::vector<float>{11, 19, 12, 20, 13, 20.5f}));
  }
}

TEST(ExecutorTest, LimitOutputRowOfAnIntegerLinear) {
  test::Random random(3);
  Graph graph("g");
  const TensorId x = test::AddQuantInput(graph, random, "x", DType::kU16, {1, 1, 5, 70});
  const TensorId w = test::AddWeight(graph, random, "w", 90, 70, {}, 1.0);
  const TensorId y = graph.AddOp(OpType::kLinear, "y", {x, w});
  graph.mutable_tensor(y).encoding = test::RandomEncoding(random, DType::kU16, 10.0);
  graph.MarkOutput(y);
  const auto inputs = test::RandomInputs(random, graph);
  ThreadPool pool(1);
  auto executor = MustCreate(std::move(graph), pool);
  Fill<std::byte>(executor->input(0), inputs[0]);
  ASSERT_TRUE(executor->Run().ok());
  auto expected = Values<uint16_t>(executor->output(0));
  std::memset(executor->output(0).data(), 0, executor->output(0).size());
  executor->LimitOutputRow(0, 3);
  ASSERT_TRUE(executor->Run().ok());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i / 90 != 3) expected[i] = 0;
  }
  EXPECT_EQ(Values<uint16_t>(executor->output(0)), expected);
}

TEST(ExecutorTest, ObserverSeesEveryOperationInOrder) {
  Graph graph("g");
  const TensorId x = graph.AddInput("x", DType::kF32, {4});
  const TensorId a = graph.AddOp(OpType::kAdd, "a", {x, x});
  const TensorId b = graph.AddReshape("b", a, {2, 2});
  graph.MarkOutput(graph.AddOp(OpType::kMul, "c", {b, b}));
  ThreadPool pool(1);
  auto executor = MustCreate(std::move(graph), pool);
  Fill<float>(executor->input(0), {1, 2, 3, 4});
  std::vector<std::string> names;
  std::vector<float> last;
  ASSERT_TRUE(executor
                  ->Run([&](const Op& op, const Tensor& tensor, std::span<const std::byte> bytes) {
                    EXPECT_EQ(op.name, tensor.name);
                    names.push_back(tensor.name);
                    last = Values<float>(bytes);
                  })
                  .ok());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(last, (std::vector<float>{4, 16, 36, 64}));
}

TEST(ExecutorTest, IndexOutOfRangeNamesTensorAndValue) {
  for (const bool reference : {false, true}) {
    for (const int32_t bad : {-1, 3}) {
      Graph graph("g");
      const TensorId table = graph.AddConstant("table", DType::kF32, {3, 2},
                                               MakeConstantOf<float>({0, 1, 2, 3, 4, 5}));
      const TensorId ids = graph.AddInput("token_ids", DType::kI32, {1, 2});
      const TensorId y = graph.AddOp(OpType::kGather, "rows", {table, ids});
      graph.MarkOutput(y);
      ThreadPool pool(1);
      auto executor = MustCreate(std::move(graph), pool, {reference});
      Fill<int32_t>(executor->input(0), {2, bad});
      const Status status = executor->Run();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr("token_ids"));
      EXPECT_THAT(status.message(), HasSubstr(std::to_string(bad)));
      Fill<int32_t>(executor->input(0), {2, 0});
      ASSERT_TRUE(executor->Run().ok());
      EXPECT_EQ(Values<float>(executor->output(0)), (std::vector<float>{4, 5, 0, 1}));
    }
  }
}

TEST(ExecutorTest, UnsupportedTypesNameTheOperation) {
  Graph mixed("g");
  const TensorId a = mixed.AddInput("a", DType::kF32, {4});
  const TensorId b = mixed.AddInput("b", DType::kU16, {4});
  mixed.mutable_tensor(b).encoding = Encoding::PerTensor(DType::kU16, 1.0f, 0);
  mixed.MarkOutput(mixed.AddOp(OpType::kAdd, "the_sum", {a, b}));
  const Status status = CreateStatus(std::move(mixed));
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("the_sum"));
  EXPECT_THAT(status.message(), HasSubstr("f32, u16 -> f32"));

  Graph half("g");
  const TensorId c = half.AddInput("c", DType::kF16, {4});
  const TensorId d = half.AddInput("d", DType::kU16, {4});
  half.mutable_tensor(d).encoding = Encoding::PerTensor(DType::kU16, 1.0f, 0);
  half.MarkOutput(half.AddOp(OpType::kMul, "product", {c, d}));
  EXPECT_EQ(CreateStatus(std::move(half)).code(), StatusCode::kUnsupported);
}

// A Linear whose weight is built by `change`.
Status WeightStatus(const std::function<void(Tensor&)>& change) {
  test::Random random(1);
  Graph graph("g");
  const TensorId x = test::AddQuantInput(graph, random, "x", DType::kU16, {1, 1, 1, 8});
  const TensorId w = test::AddWeight(graph, random, "w", 4, 8,
                                     {.bits = 4, .block = 4, .layout = DataLayout::kRowMajor}, 1.0);
  change(graph.mutable_tensor(w));
  const TensorId y = graph.AddOp(OpType::kLinear, "y", {x, w});
  graph.mutable_tensor(y).encoding = test::RandomEncoding(random, DType::kU16, 10.0);
  graph.MarkOutput(y);
  return CreateStatus(std::move(graph));
}

TEST(ExecutorTest, DamagedWeightsAreRefused) {
  EXPECT_TRUE(WeightStatus([](Tensor&) {}).ok());
  const std::vector<std::function<void(Tensor&)>> damages = {
      [](Tensor& w) { w.encoding.channel_scales.pop_back(); },
      [](Tensor& w) { w.encoding.axis = 1; },
      [](Tensor& w) { w.encoding.block_size = 0; },
      [](Tensor& w) { w.encoding.block_scales.pop_back(); },
      [](Tensor& w) { w.encoding.block_scales[2] = 17; },
      [](Tensor& w) { w.encoding.block_scales[2] = 0; },
      [](Tensor& w) { w.data = MakeConstantOf(std::vector<int8_t>(31)); },
      [](Tensor& w) { w.data = MakeConstantOf(std::vector<int8_t>(32, 8)); },
      [](Tensor& w) { w.data = MakeConstantOf(std::vector<int8_t>(32), DataLayout::kPackedN16K4); },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    const Status status = WeightStatus(damages[i]);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << i << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("tensor w")) << i;
  }
}

TEST(ExecutorTest, RunDoesNotAllocate) {
  test::Random random(5);
  Graph graph("g");
  const TensorId x = test::AddQuantInput(graph, random, "x", DType::kU16, {1, 1, 4, 64});
  const TensorId w = test::AddWeight(graph, random, "w", 64, 64, {}, 0.1);
  const Encoding encoding = test::RandomEncoding(random, DType::kU16, 4.0);
  TensorId t = x;
  const auto add = [&](OpType type, const char* name, std::vector<TensorId> inputs,
                       OpAttributes attributes = {}) {
    t = graph.AddOp(type, name, std::move(inputs), std::move(attributes));
    graph.mutable_tensor(t).encoding = encoding;
  };
  const TensorId gamma = test::AddQuantInput(graph, random, "gamma", DType::kU16, {64});
  const TensorId cos = test::AddQuantInput(graph, random, "cos", DType::kU16, {1, 4, 32});
  add(OpType::kLinear, "linear", {t, w});
  add(OpType::kRmsNorm, "norm", {t, gamma}, {.epsilon = 1e-5f});
  add(OpType::kSilu, "silu", {t});
  add(OpType::kRotaryEmbedding, "rope", {t, cos, cos});
  add(OpType::kAdd, "add", {t, t});
  const TensorId before = t;
  add(OpType::kTranspose, "transpose", {t}, {.ints = {0, 1, 3, 2}});
  add(OpType::kMatMul, "matmul", {before, t});
  add(OpType::kTile, "tile", {t}, {.ints = {1, 1, 2, 1}});
  add(OpType::kConcat, "concat", {t, t}, {.axis = 3});
  add(OpType::kSoftmax, "softmax", {t});
  add(OpType::kConvert, "convert", {t});
  graph.MarkOutput(t);
  ThreadPool pool(2);
  auto executor = MustCreate(std::move(graph), pool);
  EXPECT_GT(executor->arena_bytes(), 0u);
  ASSERT_TRUE(executor->Run().ok());
  allocations = 0;
  counting = true;
  const bool ok = executor->Run().ok();
  counting = false;
  EXPECT_TRUE(ok);
  EXPECT_EQ(allocations, 0u);
}

TEST(ExecutorTest, GraphsShareTheirPackedWeights) {
  // Two executors on one row-major constant give equal results; the second packs
  // nothing, and the copy survives the first executor.
  test::Random random(6);
  const auto build = [&](const std::shared_ptr<const ConstantData>& data) {
    test::Random fixed(7);
    Graph graph("g");
    const TensorId x = test::AddQuantInput(graph, fixed, "x", DType::kU16, {1, 1, 1, 33});
    const TensorId w = graph.AddConstant("w", DType::kS8, {20, 33}, data,
                                         Encoding::PerChannel(8, 0, std::vector<float>(20, 0.1f)));
    const TensorId y = graph.AddOp(OpType::kLinear, "y", {x, w});
    graph.mutable_tensor(y).encoding = test::RandomEncoding(fixed, DType::kU16, 50.0);
    graph.MarkOutput(y);
    return graph;
  };
  std::vector<int8_t> values(20 * 33);
  for (int8_t& value : values) value = static_cast<int8_t>(random.Int(-127, 127));
  const auto data = MakeConstantOf(values);
  ThreadPool pool(1);
  auto first = MustCreate(build(data), pool);
  auto second = MustCreate(build(data), pool);
  const auto input = test::RandomValues(random, first->graph().tensor(first->graph().inputs()[0]));
  Fill<std::byte>(first->input(0), input);
  Fill<std::byte>(second->input(0), input);
  ASSERT_TRUE(first->Run().ok());
  const auto expected = Values<uint16_t>(first->output(0));
  first.reset();
  ASSERT_TRUE(second->Run().ok());
  EXPECT_EQ(Values<uint16_t>(second->output(0)), expected);
}

}  // namespace
}  // namespace spillway::host
