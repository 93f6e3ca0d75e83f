// Speed of the host's matrix products. MAC/s counts one multiply-accumulate per
// weight and row; B/s counts the weights (for R = 1, compare it with ReadMemory).
// SPILLWAY_CPU chooses another processor target, --benchmark_filter the cases.

#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "host/executor.h"

namespace spillway {
namespace {

// Enough weights to leave the second-level cache between two uses.
constexpr size_t kWorkingSet = size_t{128} << 20;

Encoding U16(float scale) { return Encoding::PerTensor(DType::kU16, scale, -32768); }

// Runs `graph` until the clock is satisfied.
void RunGraph(benchmark::State& state, Graph graph, int64_t macs, int64_t weight_bytes) {
  ThreadPool pool(static_cast<size_t>(state.range(0)));
  auto executor = host::Executor::Create(std::make_shared<const Graph>(std::move(graph)), &pool);
  if (!executor.ok()) {
    state.SkipWithError(executor.status().ToString().c_str());
    return;
  }
  for (size_t i = 0; i < (*executor)->graph().inputs().size(); ++i) {
    const auto input = (*executor)->input(i);
    if ((*executor)->graph().tensor((*executor)->graph().inputs()[i]).dtype == DType::kF32) {
      const std::vector<float> values(input.size() / sizeof(float), 0.25f);
      std::memcpy(input.data(), values.data(), input.size());
      continue;
    }
    for (size_t j = 0; j < input.size(); ++j) input[j] = static_cast<std::byte>(j * 37 % 251);
  }
  for (auto _ : state) {
    if (!(*executor)->Run().ok()) state.SkipWithError("run failed");
  }
  state.counters["MAC/s"] =
      benchmark::Counter(static_cast<double>(macs), benchmark::Counter::kIsIterationInvariantRate);
  state.counters["B/s"] = benchmark::Counter(static_cast<double>(weight_bytes),
                                             benchmark::Counter::kIsIterationInvariantRate);
}

// Several equal Linears on one input, args: threads, R, K, N.
void BM_LinearU16(benchmark::State& state) {
  const uint32_t rows = static_cast<uint32_t>(state.range(1));
  const uint32_t k = static_cast<uint32_t>(state.range(2));
  const uint32_t n = static_cast<uint32_t>(state.range(3));
  const size_t count = rows == 1 ? kWorkingSet / (size_t{k} * n) : 1;
  Graph graph("bench");
  const TensorId x = graph.AddInput("x", DType::kU16, {1, 1, rows, k});
  graph.mutable_tensor(x).encoding = U16(1e-3f);
  for (size_t i = 0; i < count; ++i) {
    std::vector<int8_t> weights(PackedN16K4Size(n, k));
    for (size_t j = 0; j < weights.size(); ++j)
      weights[j] = static_cast<int8_t>(j * 31 % 255 - 127);
    const TensorId w = graph.AddConstant("w" + std::to_string(i), DType::kS8, {n, k},
                                         MakeConstantOf(weights, DataLayout::kPackedN16K4),
                                         Encoding::PerChannel(8, 0, std::vector<float>(n, 1e-3f)));
    const TensorId y = graph.AddOp(OpType::kLinear, "y" + std::to_string(i), {x, w});
    graph.mutable_tensor(y).encoding = U16(1e-2f);
    graph.MarkOutput(y);
  }
  const int64_t weights = int64_t{k} * n * static_cast<int64_t>(count);
  RunGraph(state, std::move(graph), weights * rows, weights);
}
BENCHMARK(BM_LinearU16)
    ->ArgsProduct({{1, 2}, {1, 32, 128}, {576}, {1536}})
    ->ArgsProduct({{1, 2}, {1, 32, 128}, {2048}, {8192}})
    ->UseRealTime();

void BM_LinearF32(benchmark::State& state) {
  const uint32_t rows = static_cast<uint32_t>(state.range(1));
  const uint32_t k = static_cast<uint32_t>(state.range(2));
  const uint32_t n = static_cast<uint32_t>(state.range(3));
  Graph graph("bench");
  const TensorId x = graph.AddInput("x", DType::kF32, {1, 1, rows, k});
  std::vector<float> weights(size_t{n} * k, 0.5f);
  const TensorId w = graph.AddConstant("w", DType::kF32, {n, k}, MakeConstantOf(weights));
  graph.MarkOutput(graph.AddOp(OpType::kLinear, "y", {x, w}));
  const int64_t count = int64_t{k} * n;
  RunGraph(state, std::move(graph), count * rows, count * 4);
}
BENCHMARK(BM_LinearF32)
    ->ArgsProduct({{1, 2}, {1, 32, 128}, {576}, {1536}})
    ->ArgsProduct({{1, 2}, {1, 32, 128}, {2048}, {8192}})
    ->UseRealTime();

// Three KV heads of 64, args: threads, rows a head, context, bits of K and V.
void AddAttentionInput(Graph& graph, const char* name, DType dtype, Shape shape) {
  const TensorId id = graph.AddInput(name, dtype, std::move(shape));
  graph.mutable_tensor(id).encoding =
      Encoding::PerTensor(dtype, 1e-2f, dtype == DType::kU8 ? -128 : -32768);
}

void Attention(benchmark::State& state, Shape a, Shape b) {
  const DType kv = state.range(3) == 8 ? DType::kU8 : DType::kU16;
  const int64_t macs = static_cast<int64_t>(NumElements(a)) * b.back();
  const int64_t bytes = static_cast<int64_t>(NumElements(b) * DTypeSize(kv));
  Graph graph("bench");
  AddAttentionInput(graph, "a", DType::kU16, std::move(a));
  AddAttentionInput(graph, "b", kv, std::move(b));
  const TensorId y = graph.AddOp(OpType::kMatMul, "y", {0, 1});
  graph.mutable_tensor(y).encoding = U16(1e-1f);
  graph.MarkOutput(y);
  RunGraph(state, std::move(graph), macs, bytes);
}

void BM_AttentionScores(benchmark::State& state) {
  const uint32_t rows = static_cast<uint32_t>(state.range(1));
  const uint32_t context = static_cast<uint32_t>(state.range(2));
  Attention(state, {1, 3, rows, 64}, {1, 3, 64, context});
}
BENCHMARK(BM_AttentionScores)->ArgsProduct({{1, 2}, {3, 96}, {512}, {8, 16}})->UseRealTime();

void BM_AttentionValues(benchmark::State& state) {
  const uint32_t rows = static_cast<uint32_t>(state.range(1));
  const uint32_t context = static_cast<uint32_t>(state.range(2));
  Attention(state, {1, 3, rows, context}, {1, 3, context, 64});
}
BENCHMARK(BM_AttentionValues)->ArgsProduct({{1, 2}, {3, 96}, {512}, {8, 16}})->UseRealTime();

// The bandwidth that a decode step cannot exceed.
void BM_ReadMemory(benchmark::State& state) {
  ThreadPool pool(static_cast<size_t>(state.range(0)));
  std::vector<uint64_t> memory(kWorkingSet / sizeof(uint64_t), 1);
  for (auto _ : state) {
    pool.ParallelFor(memory.size(), 1 << 16, [&](size_t begin, size_t end, size_t) {
      uint64_t sums[8] = {};
      for (size_t i = begin; i + 8 <= end; i += 8) {
        for (size_t j = 0; j < 8; ++j) sums[j] += memory[i + j];
      }
      benchmark::DoNotOptimize(sums);
    });
  }
  state.counters["B/s"] = benchmark::Counter(static_cast<double>(kWorkingSet),
                                             benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_ReadMemory)->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace spillway

BENCHMARK_MAIN();
