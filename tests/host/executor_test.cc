#include "host/executor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace spillway::host {
namespace {

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

TEST(ExecutorTest, FloatLinearByHand) {
  Graph graph("g");
  const TensorId x = graph.AddInput("x", DType::kF32, {1, 1, 2, 3});
  const TensorId w =
      graph.AddConstant("w", DType::kF32, {2, 3}, MakeConstantOf<float>({1, 2, 3, -1, 0, 0.5f}));
  const TensorId b = graph.AddConstant("b", DType::kF32, {2}, MakeConstantOf<float>({10, 20}));
  graph.MarkOutput(graph.AddOp(OpType::kLinear, "y", {x, w, b}));
  ThreadPool pool(1);
  auto executor = MustCreate(std::move(graph), pool);
  Fill<float>(executor->input(0), {1, 1, 1, 2, 0, -4});
  ASSERT_TRUE(executor->Run().ok());
  EXPECT_EQ(Values<float>(executor->output(0)), (std::vector<float>{16, 19.5f, 0, 16}));
}

TEST(ExecutorTest, IntegerLinearRoundsHalfToEvenAndSaturates) {
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
  auto executor = MustCreate(std::move(graph), pool);
  Fill<uint8_t>(executor->input(0), {105});  // 5: 2.5, 7.5, 635, -635
  ASSERT_TRUE(executor->Run().ok());
  EXPECT_EQ(Values<uint8_t>(executor->output(0)), (std::vector<uint8_t>{130, 136, 255, 0}));
}

}  // namespace
}  // namespace spillway::host
