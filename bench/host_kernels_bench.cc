// Speed of the host's matrix products. MAC/s counts one multiply-accumulate per
// weight and row; B/s counts the weights (for R = 1, compare it with ReadMemory).
// SPILLWAY_CPU chooses another processor target, --benchmark_filter the cases.

#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "graph/graph.h"
#include "graph/packed_cache.h"
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

// Attention as one step, three KV heads of 64 with three query heads each. Args: threads,
// tokens of a call, context, tokens before, whether the cache is packed (as the runner keeps
// it). The columns of a row that a call sees count.
void BM_Attention(benchmark::State& state) {
  const auto tokens = static_cast<uint32_t>(state.range(1));
  const auto context = static_cast<uint32_t>(state.range(2));
  const auto before = static_cast<uint32_t>(state.range(3));
  const uint32_t past = context - tokens;
  Graph graph("bench");
  AddAttentionInput(graph, "q", DType::kU16, {1, 3, 3 * tokens, 64});
  const TensorId mask = graph.AddInput("mask", DType::kU16, {1, 1, tokens, context});
  graph.mutable_tensor(mask).encoding = Encoding::PerTensor(DType::kU16, 255.0f / 65535.0f, -65535);
  AddAttentionInput(graph, "k.new", DType::kU8, {1, 3, 64, tokens});
  AddAttentionInput(graph, "v.new", DType::kU8, {1, 3, tokens, 64});
  AddAttentionInput(graph, "k.cache", DType::kU8, {1, 3, 64, past});
  AddAttentionInput(graph, "v.cache", DType::kU8, {1, 3, past, 64});
  const auto add = [&](OpType type, const char* name, std::vector<TensorId> inputs,
                       Encoding encoding, OpAttributes attributes = {}) {
    const TensorId id = graph.AddOp(type, name, std::move(inputs), std::move(attributes));
    graph.mutable_tensor(id).encoding = std::move(encoding);
    return id;
  };
  const Encoding kv = graph.tensor(2).encoding;
  const TensorId k = add(OpType::kConcat, "k", {4, 2}, kv, {.axis = 3});
  const TensorId v = add(OpType::kConcat, "v", {5, 3}, kv, {.axis = 2});
  const TensorId tiled =
      add(OpType::kTile, "tiled", {mask}, graph.tensor(mask).encoding, {.ints = {1, 1, 3, 1}});
  const TensorId scores = add(OpType::kMatMul, "scores", {0, k}, U16(1e-3f));
  const TensorId masked =
      add(OpType::kAdd, "masked", {scores, tiled}, Encoding::PerTensor(DType::kU16, 1e-3f, -45000));
  const TensorId weights = add(OpType::kSoftmax, "weights", {masked},
                               Encoding::PerTensor(DType::kU16, 1.0f / 65535.0f, 0));
  graph.MarkOutput(add(OpType::kMatMul, "mixed", {weights, v}, U16(1e-4f)));

  ThreadPool pool(static_cast<size_t>(state.range(0)));
  auto executor = host::Executor::Create(std::make_shared<const Graph>(std::move(graph)), &pool);
  if (!executor.ok()) {
    state.SkipWithError(executor.status().ToString().c_str());
    return;
  }
  for (size_t i = 0; i < 6; ++i) {
    const auto input = (*executor)->input(i);
    for (size_t j = 0; j < input.size(); ++j) input[j] = static_cast<std::byte>(j * 37 % 251);
  }
  auto* open = reinterpret_cast<uint16_t*>((*executor)->input(1).data());
  for (uint32_t t = 0; t < tokens; ++t) {
    for (uint32_t c = 0; c < context; ++c) {
      open[t * context + c] = c < before || (c >= past && c - past <= t) ? 65535 : 0;
    }
  }
  const PackedCache packed(3, 64, context - 1);
  std::vector<AlignedBuffer> caches;
  for (const size_t input : {4, 5}) {
    if (state.range(4) == 0) continue;
    AlignedBuffer& cache = caches.emplace_back(AlignedBuffer::Zeroed(packed.bytes()));
    for (size_t j = 0; j < cache.size(); ++j)
      cache.data()[j] = static_cast<std::byte>(j * 37 % 251);
    (*executor)->BindPackedCache(input, cache.data());
  }
  for (auto _ : state) {
    if (!(*executor)->Run().ok()) state.SkipWithError("run failed");
  }
  const double columns = tokens * (before + (tokens + 1) / 2.0);
  state.counters["MAC/s"] =
      benchmark::Counter(2 * 9 * 64 * columns, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Attention)
    ->ArgsProduct({{1}, {1}, {8192}, {0, 128, 1024, 8191}, {0, 1}})
    ->ArgsProduct({{1, 2}, {128}, {8192}, {0, 896}, {0, 1}})
    ->UseRealTime();

// A loop of the pool that does nothing: what splitting work costs.
void BM_EmptyLoop(benchmark::State& state) {
  ThreadPool pool(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    pool.ParallelFor(pool.threads(), 1,
                     [](size_t begin, size_t, size_t) { benchmark::DoNotOptimize(begin); });
  }
}
BENCHMARK(BM_EmptyLoop)->Arg(1)->Arg(2)->UseRealTime();

#if defined(__x86_64__)
// The most multiply-adds of f32 that one thread can do: the limit of BM_LinearF32.
template <typename Vector>
[[gnu::always_inline]] inline void MultiplyAdd(Vector (&sums)[10], const Vector& by) {
  for (Vector& sum : sums) sum = sum * by + by;
  for (Vector& sum : sums) asm volatile("" : "+v"(sum));
}
[[gnu::target("avx512f")]] double Peak512(int64_t loops) {
  typedef float V __attribute__((vector_size(64)));
  V sums[10] = {}, by = {};
  for (int64_t i = 0; i < loops; ++i) MultiplyAdd(sums, by);
  return 160.0;
}
[[gnu::target("avx2,fma")]] double Peak256(int64_t loops) {
  typedef float V __attribute__((vector_size(32)));
  V sums[10] = {}, by = {};
  for (int64_t i = 0; i < loops; ++i) MultiplyAdd(sums, by);
  return 80.0;
}
void BM_PeakF32(benchmark::State& state) {
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  if (!wide && __builtin_cpu_supports("fma") == 0) {
    state.SkipWithError("needs FMA");
    return;
  }
  constexpr int64_t kLoops = 100000;
  double each = 0;
  for (auto _ : state) each = wide ? Peak512(kLoops) : Peak256(kLoops);
  state.counters["MAC/s"] =
      benchmark::Counter(each * kLoops, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_PeakF32);
#endif

}  // namespace
}  // namespace spillway

BENCHMARK_MAIN();
