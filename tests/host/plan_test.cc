#include "host/plan.h"

#include <gtest/gtest.h>

#include <random>

namespace spillway::host {
namespace {

void ExpectNoOverlap(const std::vector<Lifetime>& blocks, const ArenaLayout& layout) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    ASSERT_EQ(layout.offsets[i] % kArenaAlignment, 0u);
    ASSERT_LE(layout.offsets[i] + blocks[i].bytes, layout.bytes);
    for (size_t j = 0; j < i; ++j) {
      const bool alive_together =
          blocks[i].first <= blocks[j].last && blocks[j].first <= blocks[i].last;
      const bool apart = layout.offsets[i] + blocks[i].bytes <= layout.offsets[j] ||
                         layout.offsets[j] + blocks[j].bytes <= layout.offsets[i];
      ASSERT_TRUE(!alive_together || apart) << i << " and " << j;
    }
  }
}

TEST(LayOutArenaTest, LiveBlocksNeverOverlap) {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return random() % n; };
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> blocks(1 + below(60));
    for (Lifetime& block : blocks) {
      block.bytes = 1 + below(round % 2 == 0 ? 200 : 100000);
      block.first = below(40);
      block.last = block.first + below(10);
    }
    ExpectNoOverlap(blocks, LayOutArena(blocks));
  }
}

TEST(LayOutArenaTest, ReusesMemoryOfTheDead) {
  // A chain: two blocks are alive at a time.
  std::vector<Lifetime> chain;
  for (size_t i = 0; i < 50; ++i) chain.push_back({1024, i, i + 1});
  EXPECT_EQ(LayOutArena(chain).bytes, 2048u);
}

TEST(LayOutArenaTest, NothingNeedsNothing) { EXPECT_EQ(LayOutArena({}).bytes, 0u); }

// A chain of Silu with reshapes between.
TEST(PlanMemoryTest, ReshapeSharesMemory) {
  Graph graph("g");
  const TensorId x = graph.AddInput("x", DType::kF32, {1, 1, 2, 6});
  const TensorId seen_input = graph.AddReshape("seen_input", x, {1, 2, 6});
  const TensorId a = graph.AddOp(OpType::kSilu, "a", {seen_input});
  const TensorId b = graph.AddReshape("b", a, {12});
  const TensorId c = graph.AddOp(OpType::kSilu, "c", {b});
  const TensorId d = graph.AddReshape("d", c, {1, 12});  // written by c in place
  graph.MarkOutput(d);
  const TensorId e = graph.AddReshape("e", x, {12});  // an output cannot be the input: a copy
  graph.MarkOutput(e);
  const MemoryPlan plan = PlanMemory(graph, SingleSteps(graph));
  using Place = MemoryPlan::Place;
  EXPECT_EQ(plan.tensors[seen_input].place, Place::kInput);
  EXPECT_EQ(plan.tensors[b].root, plan.tensors[a].root);
  EXPECT_EQ(plan.tensors[b].place, Place::kArena);
  EXPECT_EQ(plan.tensors[c].place, Place::kOutput);
  EXPECT_EQ(plan.tensors[c].index, 0u);
  EXPECT_EQ(plan.tensors[e].place, Place::kOutput);
  EXPECT_EQ(plan.skip, (std::vector<bool>{true, false, true, false, true, false}));
  EXPECT_EQ(plan.arena_bytes, 64u);
}

// The last use of a shared block counts, whichever name it goes by.
TEST(PlanMemoryTest, SharedMemoryLivesUntilItsLastUse) {
  Graph graph("g");
  const TensorId x = graph.AddInput("x", DType::kF32, {64});
  const TensorId a = graph.AddOp(OpType::kSilu, "a", {x});
  const TensorId alias = graph.AddReshape("alias", a, {8, 8});
  const TensorId b = graph.AddOp(OpType::kSilu, "b", {a});
  const TensorId c = graph.AddOp(OpType::kSilu, "c", {b});
  const TensorId flat = graph.AddReshape("flat", alias, {64});
  graph.MarkOutput(graph.AddOp(OpType::kAdd, "sum", {flat, c}));
  const MemoryPlan plan = PlanMemory(graph, SingleSteps(graph));
  EXPECT_EQ(plan.tensors[flat].index, plan.tensors[a].index);
  EXPECT_NE(plan.tensors[a].index, plan.tensors[b].index);
  EXPECT_NE(plan.tensors[a].index, plan.tensors[c].index);
  EXPECT_NE(plan.tensors[b].index, plan.tensors[c].index);
  EXPECT_EQ(plan.arena_bytes, 3 * 256u);
}

}  // namespace
}  // namespace spillway::host
