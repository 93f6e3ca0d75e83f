// Lines as releases 2.50 and 2.51 write them.
#include "qnn/api/log_reader.h"

#include <gtest/gtest.h>

namespace spillway::qnn {
namespace {

TEST(LogReader, OptionsBelongToTheirGraph) {
  LogReader reader;
  for (const char* line :
       {" <V> Detected Snapdragon SOC SM8350 with 2 SOCs",
        " <V> Client set SoC 69 (previous SoC was 30).",
        " <W> Performance Estimates unsupported on soc SM8750",
        " <I> QnnGraph_create started for graph first", " <V> Set option 7 : 1.000000",
        " <V> Set option 3 : 3.000000", " <V> SoC model name is SM8750",
        " <V> Prepare: Graph first with init graph option: slc_allocate = 1",
        " <V> Prepare: Graph first with init graph option: vtcm_size = 8388608",
        " <I> QnnGraph_create started for graph second graph",
        " <V> Prepare: Graph second graph with init graph option: slc_allocate = 0",
        " <V> SocModel supports FP16"}) {
    reader.AddLine(line);
  }
  const LogFacts& facts = reader.facts();
  EXPECT_EQ(facts.default_soc, "SM8350");
  EXPECT_EQ(facts.soc_id, 69U);
  EXPECT_EQ(facts.soc_name, "SM8750");
  EXPECT_EQ(facts.soc_without_estimates, "SM8750");
  EXPECT_TRUE(facts.fp16);
  ASSERT_NE(facts.FindGraph("first"), nullptr);
  EXPECT_EQ(facts.FindGraph("first")->slc_allocate(), 1);
  EXPECT_EQ(facts.FindGraph("first")->options.at("vtcm_size"), "8388608");
  EXPECT_EQ(facts.FindGraph("first")->optimizations.at(7), 1.0);
  EXPECT_EQ(facts.FindGraph("first")->optimizations.at(3), 3.0);
  ASSERT_NE(facts.FindGraph("second graph"), nullptr);
  EXPECT_EQ(facts.FindGraph("second graph")->slc_allocate(), 0);
  EXPECT_EQ(facts.FindGraph("third"), nullptr);
}

TEST(LogReader, UnsaidOptionIsNotZero) {
  LogReader reader;
  reader.AddLine("QnnGraph_create started for graph g");
  EXPECT_EQ(reader.facts().FindGraph("g")->slc_allocate(), std::nullopt);
}

TEST(LogReader, StagesAndDdrOfEachPreparation) {
  LogReader reader;
  reader.BeginPrepare("a");
  for (const char* line :
       {"Starting stage: VTCM Allocation", "Completed stage: VTCM Allocation (4283 us)",
        "====== DDR bandwidth summary ======", "spill_bytes=161480704", "fill_bytes=207618048",
        "write_total_bytes=165675008", "read_total_bytes=258539520",
        "graph_prepare.cc:2178:do_prepare2_late",
        "slc_allocator.cc:721:WARNING:no allocation performed: no copies / alloc_mode"}) {
    reader.AddLine(line);
  }
  reader.BeginPrepare("b");
  reader.AddLine("Completed stage: Completion (12 us)");
  const GraphLogFacts& a = *reader.facts().FindGraph("a");
  ASSERT_EQ(a.stages.size(), 1U);
  EXPECT_EQ(a.stages[0].name, "VTCM Allocation");
  EXPECT_EQ(a.stages[0].microseconds, 4283U);
  ASSERT_TRUE(a.ddr.has_value());
  EXPECT_EQ(a.ddr->spill_bytes, 161480704U);
  EXPECT_EQ(a.ddr->fill_bytes, 207618048U);
  EXPECT_EQ(a.ddr->write_total_bytes, 165675008U);
  EXPECT_EQ(a.ddr->read_total_bytes, 258539520U);
  EXPECT_TRUE(a.slc_had_nothing_to_do);
  const GraphLogFacts& b = *reader.facts().FindGraph("b");
  EXPECT_FALSE(b.ddr.has_value());
  EXPECT_FALSE(b.slc_had_nothing_to_do);
  ASSERT_EQ(b.stages.size(), 1U);
}

TEST(LogReader, NumbersOutsideOfTheSummaryAreNotTraffic) {
  LogReader reader;
  reader.BeginPrepare("a");
  reader.AddLine("spill_bytes=5");
  EXPECT_FALSE(reader.facts().FindGraph("a")->ddr.has_value());
}

// What a release prints and what it logs arrive by two ways, in any order.
TEST(LogReader, LogLinesMayStandInTheMiddleOfASummary) {
  LogReader reader;
  reader.BeginPrepare("a");
  for (const char* line :
       {"====== DDR bandwidth summary ======", " <V> something else", "spill_bytes=1",
        "Completed stage: Completion (12 us)", "fill_bytes=2", " <I> more", "write_total_bytes=3",
        "[#####     ]  10%", "read_total_bytes=4"}) {
    reader.AddLine(line);
  }
  const LogFacts facts = reader.facts();
  const GraphLogFacts* graph = facts.FindGraph("a");
  ASSERT_NE(graph, nullptr);
  ASSERT_TRUE(graph->ddr.has_value());
  EXPECT_EQ(graph->ddr->spill_bytes, 1U);
  EXPECT_EQ(graph->ddr->fill_bytes, 2U);
  EXPECT_EQ(graph->ddr->write_total_bytes, 3U);
  EXPECT_EQ(graph->ddr->read_total_bytes, 4U);
}

TEST(LogReader, ProgressNeverFallsAndEndsAtOne) {
  LogReader reader;
  reader.BeginPrepare("a");
  EXPECT_EQ(reader.prepare_fraction(), 0);
  double last = 0;
  int steps = 0;
  const auto add = [&](const std::string& line) {
    reader.AddLine(line);
    EXPECT_GE(reader.prepare_fraction(), last) << line;
    if (reader.prepare_fraction() > last) ++steps;
    last = reader.prepare_fraction();
  };
  for (const char* stage :
       {"Graph Preparation Initializing", "Graph Optimizations", "Post Graph Optimization",
        "Graph Sequencing for Target", "VTCM Allocation", "Parallelization Optimization",
        "Finalizing Graph Sequence", "Completion"}) {
    add(std::string("Starting stage: ") + stage);
    EXPECT_EQ(reader.stage(), stage);
    if (std::string(stage) == "Graph Sequencing for Target") {
      for (int bar = 0; bar < 3; ++bar) {
        add(" [                    ]   0%");
        add(" [##########          ]  50%");
        EXPECT_LT(last, 0.69);
        add(" [####################] 100%");
      }
    }
    add(std::string("Completed stage: ") + stage + " (5 us)");
  }
  EXPECT_NEAR(last, 1, 1e-9);
  EXPECT_GE(steps, 12);
}

TEST(LogReader, LoadedGraphs) {
  LogReader reader;
  reader.AddLine(" <V> SLC_ALLOCATOR is set to 0 for graph 0");
  reader.AddLine(" <V> SLC_ALLOCATOR is set to 1 for graph 1");
  reader.AddLine(" <V> Deserialization: Graph 257 with init graph option: slc_allocate = 1");
  ASSERT_EQ(reader.facts().loaded.size(), 2U);
  EXPECT_EQ(reader.facts().loaded[0].slc_allocate, 0);
  EXPECT_EQ(reader.facts().loaded[1].index, 1U);
  EXPECT_EQ(reader.facts().loaded[1].slc_allocate, 1);
}

TEST(LogReader, OddLinesDoNoHarm) {
  LogReader reader;
  for (const char* line :
       {"", " ", "<", " <V> ", "[", "%", "[]%", "[#] 999999999999%", "Completed stage: ",
        "Completed stage: X (", "Set option ", "Set option x : y", "SLC_ALLOCATOR is set to ",
        "with init graph option: ", "with init graph option: a = ", "Client set SoC x",
        "DDR bandwidth summary", "spill_bytes=", "fill_bytes=-1"}) {
    reader.AddLine(line);
  }
  EXPECT_EQ(reader.facts().soc_id, std::nullopt);
}

TEST(LogReader, TagsAndHarmlessErrors) {
  EXPECT_EQ(LogReader::StripTag(" <E> text"), "text");
  EXPECT_EQ(LogReader::StripTag("a.cc:1:text"), "a.cc:1:text");
  EXPECT_TRUE(LogReader::IsHarmless(" <E> unexpected GraphHtpSettings option 66"));
  EXPECT_FALSE(LogReader::IsHarmless(" <E> Failed to find graph"));
}

}  // namespace
}  // namespace spillway::qnn
