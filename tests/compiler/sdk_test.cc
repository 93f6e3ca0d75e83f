// Whole decoder graphs with the older releases of the vendor's libraries, each in the
// worker's process: every operation that we emit is known to every release.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/compiler/tiny_compile.h"

namespace spillway {
namespace {

class SdkCompile : public test::TinyCompileTest,
                   public ::testing::WithParamInterface<const char*> {};

TEST_P(SdkCompile, BothGraphsWithSharedWeights) {
  const std::string dir = test::SourceDir() + "/.deps/qnn-" + GetParam() + "/onnxruntime_qnn";
  if (!FileExists(dir + "/libQnnHtp.so")) {
    GTEST_SKIP() << "no vendor libraries in " << dir << " (scripts/fetch-sdks gets them)";
  }
  options_.qnn_lib_dir = dir;
  options_.htp_build = HtpBuild::kOn;
  options_.use_cache = false;
  const auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  ASSERT_EQ(report_.shards.size(), 1U);
  ASSERT_EQ(report_.shards[0].graphs.size(), 2U);
  for (const GraphReport& graph : report_.shards[0].graphs) {
    // From what releases before 2.50 print, and later ones log.
    EXPECT_GT(graph.read_bytes, 0U) << graph.name;
    EXPECT_GT(graph.vtcm_bytes, 0U) << graph.name;
  }
  EXPECT_TRUE(FileExists(folder_.File("pkg/context_0.bin")));
}

INSTANTIATE_TEST_SUITE_P(Releases, SdkCompile,
                         ::testing::Values("2.3.0", "2.4.0", "2.5.0", "2.6.0"),
                         [](const auto& name) {
                           std::string text = name.param;
                           for (char& c : text) c = c == '.' ? '_' : c;
                           return "Wheel" + text;
                         });

}  // namespace
}  // namespace spillway
