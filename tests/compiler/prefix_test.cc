// --prefix-tokens from the option to the package.

#include <gmock/gmock.h>

#include "tests/compiler/tiny_compile.h"

namespace spillway::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class PrefixCompileTest : public TinyCompileTest {};

TEST_F(PrefixCompileTest, IdsGoIntoThePackage) {
  options_.prefix_tokens = "1,40";
  const auto package = CompileAndOpen();
  ASSERT_NE(package, nullptr);
  EXPECT_THAT(package->manifest().prefix_tokens, ElementsAre(1, 40));
  EXPECT_THAT(report_.prefix_tokens, ElementsAre(1, 40));
  EXPECT_THAT(report_.ToText(), HasSubstr("1, 40"));
  const ModelConfig& config = package->manifest().config;
  ASSERT_EQ(package->prefix_k().size(), config.num_layers);
  ASSERT_EQ(package->prefix_v().size(), config.num_layers);
  const auto graph = package->FindGraph(0, kDecodeGraphName);
  ASSERT_TRUE(graph.ok());
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const Tensor& k = package->prefix_k()[layer];
    EXPECT_EQ(k.shape, (Shape{1, config.num_kv_heads, config.head_dim, 2}));
    const auto cache = (*graph)->Find("k_cache_" + std::to_string(layer));
    ASSERT_TRUE(cache.has_value());
    EXPECT_EQ(k.encoding, (*graph)->tensor(*cache).encoding);
    EXPECT_EQ(package->prefix_v()[layer].shape,
              (Shape{1, config.num_kv_heads, 2, config.head_dim}));
  }
}

TEST_F(PrefixCompileTest, NoneAndAnOrdinaryModelHaveNoPrefix) {
  for (const char* choice : {"none", "auto"}) {
    SCOPED_TRACE(choice);
    options_.prefix_tokens = choice;
    const auto package = CompileAndOpen();
    ASSERT_NE(package, nullptr);
    EXPECT_THAT(package->manifest().prefix_tokens, IsEmpty());
    EXPECT_THAT(package->prefix_k(), IsEmpty());
  }
}

TEST_F(PrefixCompileTest, WrongIdsAreRefused) {
  for (const char* choice : {"", "x", "1,", ",1", "1;2", "-1", "999999", "1 2"}) {
    SCOPED_TRACE(choice);
    options_.prefix_tokens = choice;
    const Status status = CompileError();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("prefix tokens"));
  }
  options_.prefix_tokens = "1";
  options_.io_profile = "executorch";
  EXPECT_THAT(CompileError().message(), HasSubstr("executorch"));
}

}  // namespace
}  // namespace spillway::test
