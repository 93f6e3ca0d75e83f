// A small model, end to end, with the kernels of every processor target that this
// machine can run: the logits are those of the plain kernels, bit for bit.

#include <gtest/gtest.h>

#include <cstdlib>

#include "host/dispatch.h"
#include "tests/runtime/small_model.h"
#include "tests/support/paths.h"
#include "tests/support/random_tokens.h"

namespace spillway {
namespace {

using Rows = std::vector<std::vector<float>>;

// Logits of all tokens: a prompt in padded calls, then one by one.
Rows Logits(const std::shared_ptr<const Package>& package, const HostModelOptions& options,
            std::span<const uint32_t> tokens) {
  auto executor = HostModelExecutor::Open(package, options);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  if (!executor.ok()) return {};
  EXPECT_EQ((*executor)->io().kv.packed, !options.reference_kernels && !options.cache_in_rows);
  Generator generator(executor->get());
  Rows rows = test::FeedAll(generator, tokens.first(21));
  for (auto& row : test::FeedOneByOne(generator, tokens.subspan(21))) rows.push_back(row);
  return rows;
}

class EveryTarget : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryTarget, GivesTheLogitsOfThePlainKernels) {
  const test::TempFolder folder;
  CompileOptions compile = test::TinyCompileOptions();
  compile.recipe = GetParam();
  const std::string path = test::MakeTinyPackage(folder.path(), compile);
  const auto package = Package::Open(path);
  ASSERT_TRUE(package.ok()) << package.status().ToString();
  const std::vector<uint32_t> tokens = test::RandomTokens(30, 300, 5);

  HostModelOptions plain;
  plain.threads = 1;
  plain.reference_kernels = true;
  const Rows expected = Logits(*package, plain, tokens);
  ASSERT_EQ(expected.size(), tokens.size());
  ASSERT_NE(expected.front(), expected.back()) << "logits that never change prove nothing";

  size_t targets = 0;
  for (const host::CpuTarget target : host::kAllCpuTargets) {
    if (!host::IsSupported(target)) continue;
    ++targets;
    ::setenv("SPILLWAY_CPU", std::string(host::CpuTargetName(target)).c_str(), 1);
    EXPECT_EQ(host::SelectTarget(), target);
    for (const size_t threads : {1u, 2u}) {
      HostModelOptions options;
      options.threads = threads;
      const Rows rows = Logits(*package, options, tokens);
      EXPECT_TRUE(rows == expected) << host::CpuTargetName(target) << ", " << threads << " threads";
      options.cache_in_rows = true;
      EXPECT_TRUE(Logits(*package, options, tokens) == expected)
          << host::CpuTargetName(target) << ", cache in rows";
    }
    ::unsetenv("SPILLWAY_CPU");
  }
  EXPECT_GE(targets, 2u) << "scalar, and the baseline of the architecture";
}

INSTANTIATE_TEST_SUITE_P(Recipes, EveryTarget, ::testing::Values("16a8w", "16a4w-block", "8a8w"),
                         [](const auto& recipe) {
                           std::string name = recipe.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace spillway
