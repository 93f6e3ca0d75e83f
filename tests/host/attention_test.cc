// Attention as one step: bit for bit what its operations give one after the other, on
// every processor target.

#include <gtest/gtest.h>

#include "host/steps.h"
#include "tests/host/op_graphs.h"

namespace spillway::test {
namespace {

struct Case {
  uint32_t kv_heads = 1, group = 1, head_dim = 16, tokens = 1, context = 1;
  double score_range = 30;  // of the masked scores: small ones end near to zero
  DType mixed = DType::kU16;
};

// The decoder's own attention, with random encodings.
class AttentionGraph {
 public:
  AttentionGraph(const Case& sizes, Random& random) : sizes_(sizes), random_(random) {
    const uint32_t past = sizes.context - sizes.tokens, rows = sizes.group * sizes.tokens;
    const uint32_t h = sizes.kv_heads, d = sizes.head_dim;
    const TensorId q = AddQuantInput(graph_, random, "q", DType::kU16, {1, h, rows, d}, 3.0);
    const TensorId mask = graph_.AddInput("mask", DType::kU16, {1, 1, sizes.tokens, sizes.context});
    graph_.mutable_tensor(mask).encoding =
        Encoding::PerTensor(DType::kU16, 255.0f / 65535.0f, -65535);
    TensorId k = AddKeysOrValues("k", {1, h, d, past}, {1, h, d, sizes.tokens}, 3);
    TensorId v = AddKeysOrValues("v", {1, h, past, d}, {1, h, sizes.tokens, d}, 2);
    TensorId tiled = mask;
    if (sizes.group > 1) {
      tiled = graph_.AddOp(OpType::kTile, "tiled", {mask}, {.ints = {1, 1, sizes.group, 1}});
      Set(tiled, graph_.tensor(mask).encoding);
    }
    const TensorId scores = graph_.AddOp(OpType::kMatMul, "scores", {q, k});
    Set(scores, RandomEncoding(random, DType::kU16, 6.0 * std::sqrt(d)));
    const TensorId masked = graph_.AddOp(OpType::kAdd, "masked", {scores, tiled});
    Set(masked, RandomEncoding(random, DType::kU16, sizes.score_range));
    const TensorId weights = graph_.AddOp(OpType::kSoftmax, "weights", {masked});
    Set(weights, Encoding::PerTensor(DType::kU16, 1.0f / 65535.0f, 0));
    const TensorId mixed = graph_.AddOp(OpType::kMatMul, "mixed", {weights, v});
    graph_.mutable_tensor(mixed).dtype = sizes.mixed;
    Set(mixed, RandomEncoding(random, sizes.mixed, 1.0));
    graph_.MarkOutput(mixed);
  }

  std::shared_ptr<const Graph> graph() const { return std::make_shared<const Graph>(graph_); }

  // `past` cached tokens and the step's own before each; with `odd`, some columns are opened
  // by chance and some by half.
  std::vector<Bytes> Inputs(uint32_t past, bool odd) {
    std::vector<Bytes> inputs = RandomInputs(random_, graph_);
    std::vector<uint16_t> mask(size_t{sizes_.tokens} * sizes_.context, 0);
    for (uint32_t t = 0; t < sizes_.tokens; ++t) {
      for (uint32_t c = 0; c < sizes_.context; ++c) {
        uint16_t& value = mask[size_t{t} * sizes_.context + c];
        const uint32_t first = sizes_.context - sizes_.tokens;
        if (c < past || (c >= first && c - first <= t)) value = 65535;
        if (odd && random_.Int(0, 9) == 0) value = static_cast<uint16_t>(random_.Int(0, 65535));
        if (odd && t % 5 == 4) value = 0;  // sees nothing
      }
    }
    std::memcpy(inputs[1].data(), mask.data(), inputs[1].size());
    return inputs;
  }

 private:
  void Set(TensorId id, Encoding encoding) {
    graph_.mutable_tensor(id).encoding = std::move(encoding);
  }

  TensorId AddKeysOrValues(const std::string& name, Shape cached, Shape fresh, uint32_t axis) {
    const Encoding encoding = Encoding::PerTensor(DType::kU8, 0.02f, -128);
    const TensorId added = graph_.AddInput(name + ".new", DType::kU8, std::move(fresh));
    Set(added, encoding);
    if (cached[axis] == 0) return added;
    const TensorId cache = graph_.AddInput(name + ".cache", DType::kU8, std::move(cached));
    Set(cache, encoding);
    const TensorId all =
        graph_.AddOp(OpType::kConcat, name + ".all", {cache, added}, {.axis = axis});
    Set(all, encoding);
    return all;
  }

  Case sizes_;
  Random& random_;
  Graph graph_{"attention"};
};

void Check(const Case& sizes, Random& random, uint32_t past, bool odd) {
  SCOPED_TRACE(testing::Message() << sizes.kv_heads << " heads x " << sizes.group << ", "
                                  << sizes.head_dim << " wide, " << sizes.tokens << " of "
                                  << sizes.context << " tokens after " << past << ", range "
                                  << sizes.score_range << (odd ? ", odd mask" : ""));
  AttentionGraph builder(sizes, random);
  const auto graph = builder.graph();
  ASSERT_TRUE(graph->Validate().ok()) << graph->Validate().ToString();
  ASSERT_EQ(host::FusedSteps(*graph).size(), 1u);
  const std::vector<Bytes> inputs = builder.Inputs(past, odd);
  const std::vector<Bytes> expected = RunOutputs(graph, inputs, {.reference = true});
  ASSERT_FALSE(expected.empty());
  for (const host::CpuTarget target : SupportedTargets()) {
    for (const size_t threads : {1, 2}) {
      for (const bool packed : {false, true}) {
        ASSERT_EQ(RunOutputs(graph, inputs,
                             {.threads = threads, .target = target, .packed_caches = packed}),
                  expected)
            << host::CpuTargetName(target) << ", " << threads << " threads"
            << (packed ? ", packed caches" : "");
      }
    }
  }
}

TEST(AttentionTest, EqualsItsOperations) {
  Random random(1);
  Check({.kv_heads = 3, .group = 3, .head_dim = 64, .tokens = 1, .context = 200}, random, 0, false);
  Check({.kv_heads = 3, .group = 3, .head_dim = 64, .tokens = 1, .context = 200}, random, 130,
        false);
  Check({.kv_heads = 2, .group = 4, .head_dim = 32, .tokens = 40, .context = 300}, random, 100,
        false);
  Check({.kv_heads = 1, .group = 2, .head_dim = 16, .tokens = 64, .context = 64}, random, 0, false);
  Check({.kv_heads = 2, .group = 1, .head_dim = 128, .tokens = 5, .context = 70}, random, 65,
        false);
  Check(
      {.kv_heads = 1, .group = 3, .head_dim = 16, .tokens = 17, .context = 81, .mixed = DType::kU8},
      random, 33, false);
}

TEST(AttentionTest, OfAnyMask) {
  Random random(2);
  for (int i = 0; i < 12; ++i) {
    const auto tokens = static_cast<uint32_t>(random.Int(1, 20));
    const Case sizes = {.kv_heads = static_cast<uint32_t>(random.Int(1, 3)),
                        .group = static_cast<uint32_t>(random.Int(1, 3)),
                        .head_dim = random.Pick<uint32_t>({16, 32, 48}),
                        .tokens = tokens,
                        .context = tokens + static_cast<uint32_t>(random.Int(0, 150))};
    Check(sizes, random, static_cast<uint32_t>(random.Int(0, sizes.context - tokens)), true);
  }
}

// Masked scores that end near to zero: hidden columns have weights.
TEST(AttentionTest, HiddenColumnsCountWhereTheirScoresAreNotLow) {
  Random random(3);
  for (const double range : {0.5, 2.0, 8.0}) {
    Check({.kv_heads = 2,
           .group = 2,
           .head_dim = 32,
           .tokens = 3,
           .context = 150,
           .score_range = range},
          random, 70, false);
  }
}

TEST(AttentionTest, OnlyCachesThatNothingElseReadsArePacked) {
  Random random(6);
  ThreadPool pool(1);
  const Case sizes = {.kv_heads = 2, .tokens = 2, .context = 9};
  const auto graph = AttentionGraph(sizes, random).graph();
  const auto input = [&](const Graph& of, const char* name) {
    const auto at = std::find(of.inputs().begin(), of.inputs().end(), *of.Find(name));
    return static_cast<size_t>(at - of.inputs().begin());
  };
  auto executor = host::Executor::Create(graph, &pool);
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  for (const char* name : {"k.cache", "v.cache"}) {
    EXPECT_TRUE((*executor)->TakesPackedCache(input(*graph, name))) << name;
  }
  for (const char* name : {"q", "mask", "k.new", "v.new"}) {
    EXPECT_FALSE((*executor)->TakesPackedCache(input(*graph, name))) << name;
  }
  // What an observer sees are single operations, which read rows.
  AlignedBuffer cache = AlignedBuffer::Zeroed(PackedCache(2, 16, 8).bytes());
  (*executor)->BindPackedCache(input(*graph, "k.cache"), cache.data());
  (*executor)->BindPackedCache(input(*graph, "v.cache"), cache.data());
  EXPECT_TRUE((*executor)->Run().ok());
  const Status observed =
      (*executor)->Run([](const Op&, const Tensor&, std::span<const std::byte>) {});
  EXPECT_EQ(observed.code(), StatusCode::kFailedPrecondition);

  Graph other = *graph;
  const TensorId more =
      other.AddOp(OpType::kReshape, "more", {*other.Find("v.cache")}, {.ints = {1, 2, 7 * 16}});
  other.mutable_tensor(more).encoding = other.tensor(*other.Find("v.cache")).encoding;
  other.MarkOutput(more);
  ASSERT_TRUE(other.Validate().ok()) << other.Validate().ToString();
  executor = host::Executor::Create(std::make_shared<const Graph>(other), &pool);
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  for (size_t i = 0; i < other.inputs().size(); ++i) {
    EXPECT_FALSE((*executor)->TakesPackedCache(i)) << i;
  }
  executor = host::Executor::Create(graph, &pool, {.reference_kernels = true});
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  EXPECT_FALSE((*executor)->TakesPackedCache(input(*graph, "k.cache")));
}

TEST(AttentionTest, OtherTypesRunAsSingleOperations) {
  Random random(4);
  AttentionGraph builder({.head_dim = 20, .tokens = 2, .context = 9}, random);
  EXPECT_EQ(host::FusedSteps(*builder.graph()).size(), builder.graph()->ops().size());
}

// What lies between is asked for, so it is kept.
TEST(AttentionTest, AGraphOutputInsideKeepsTheOperationsApart) {
  Random random(5);
  AttentionGraph builder({.tokens = 2, .context = 9}, random);
  Graph graph = *builder.graph();
  graph.MarkOutput(*graph.Find("masked"));
  EXPECT_EQ(host::FusedSteps(graph).size(), graph.ops().size());
}

}  // namespace
}  // namespace spillway::test
