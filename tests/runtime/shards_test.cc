// Packages of several shards: whatever the number, the model is the same.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "package/package.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "tests/runtime/tiny_package.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

struct Case {
  std::string mode = "hybrid", recipe = "16a8w", io = "spillway";
  bool tied = true;
  uint32_t decode_ar = 1;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.mode << ", " << c.recipe << ", " << c.io << (c.tied ? "" : ", untied");
}

class ShardsTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr uint32_t kLayers = 5;

  std::shared_ptr<const Package> Make(uint32_t shards) {
    const Case& c = GetParam();
    CompileOptions options = test::TinyCompileOptions();
    options.num_shards = shards;
    options.mode = c.mode;
    options.recipe = c.recipe;
    options.io_profile = c.io;
    if (c.mode == "lookahead") options.lookahead = {3, 2, 2};
    test::TinyModelSpec spec;
    spec.layers = kLayers;
    spec.tied = c.tied;
    const std::string path = test::MakeTinyPackage(folder_.path(), options, spec);
    Result<std::shared_ptr<const Package>> package = Package::Open(path);
    EXPECT_TRUE(package.ok()) << package.status().ToString();
    return package.ok() ? *package : nullptr;
  }

  // The raw logits of a prompt and of some greedy tokens.
  static std::vector<std::string> Run(std::shared_ptr<const Package> package) {
    HostModelOptions options;
    options.threads = 2;
    auto executor = HostModelExecutor::Open(std::move(package), options);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    if (!executor.ok()) return {};
    Generator generator(executor->get());
    const ModelIo& io = (*executor)->io();
    std::vector<std::string> logits;
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < 37; ++i) tokens.push_back(3 + (i * 71) % 250);
    for (int step = 0; step < 6; ++step) {
      const Status status = generator.Feed(tokens);
      EXPECT_TRUE(status.ok()) << status.ToString();
      logits.emplace_back(reinterpret_cast<const char*>(generator.raw_logits()),
                          io.vocab_size * DTypeSize(io.logits_dtype));
      const auto best = std::max_element(generator.logits().begin(), generator.logits().end());
      tokens = {static_cast<uint32_t>(best - generator.logits().begin())};
    }
    return logits;
  }

  test::TempFolder folder_;
};

TEST_P(ShardsTest, GiveTheSameLogitsBitForBit) {
  const auto whole = Make(1);
  ASSERT_TRUE(whole);
  ASSERT_EQ(whole->manifest().shards.size(), 1U);
  const std::vector<std::string> expected = Run(whole);
  for (const uint32_t number : {2U, 3U, kLayers}) {
    const auto package = Make(number);
    ASSERT_TRUE(package);
    ASSERT_EQ(package->manifest().shards.size(), number);
    EXPECT_EQ(Run(package), expected) << number << " shards";
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, ShardsTest,
                         ::testing::Values(Case{}, Case{"kv"}, Case{"lookahead"},
                                           Case{"hybrid", "16a8w", "executorch"},
                                           Case{"hybrid", "16a8w", "spillway", false},
                                           Case{"hybrid", "16a4w"}, Case{"hybrid", "8a8w"},
                                           Case{"hybrid", "fp16"}),
                         [](const auto& test) {
                           std::string name = test.param.mode + "_" + test.param.recipe + "_" +
                                              test.param.io + (test.param.tied ? "" : "_untied");
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace spillway
