// The whole way of one context on the fake library, with a failure at every step.
#include "qnn/api/context_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "qnn/api/handle_counts.h"
#include "tests/fake_qnn/fake_qnn.h"
#include "tests/qnn/api/tiny_graph.h"

namespace spillway::qnn {
namespace {

using test::FakeQnnDir;
using test::ScopedEnv;
using test::TinyConv;
using ::testing::HasSubstr;
using ::testing::Not;

ContextSetup MakeSetup(std::span<const std::byte> binary = {}) {
  ContextSetup setup;
  setup.library_dir = FakeQnnDir();
  setup.binary = binary;
  setup.binary_name = "tiny.bin";
  return setup;
}

Status AddConv(ContextManager& manager, const std::string& graph) {
  const TinyConv conv;
  const TensorDesc tensors[] = {conv.Activation("x", TensorRole::kAppWrite, conv.k, conv.x_scale),
                                conv.Weights("w"),
                                conv.Activation("y", TensorRole::kAppRead, conv.n, conv.y_scale)};
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<TensorId> ids,
                            manager.AllocateTensors(graph, tensors));
  return manager.FindGraph(graph)->AddNode(test::ConvOp("conv", ids[0], ids[1], ids[2]));
}

Status RunTiny(ContextManager& manager, const std::string& graph) {
  const TinyConv conv;
  const std::vector<uint16_t> x = conv.Input();
  std::vector<uint16_t> y(conv.rows * conv.n);
  const std::span<const std::byte> inputs[] = {std::as_bytes(std::span(x))};
  const std::span<std::byte> outputs[] = {std::as_writable_bytes(std::span(y))};
  return manager.Execute(graph, inputs, outputs);
}

Result<std::vector<std::byte>> CompileTwoGraphs() {
  ContextManager manager(MakeSetup());
  SPILLWAY_RETURN_IF_ERROR(manager.InitContext({"prefill", "decode"}));
  for (const char* name : {"prefill", "decode"}) SPILLWAY_RETURN_IF_ERROR(AddConv(manager, name));
  SPILLWAY_ASSIGN_OR_RETURN(const auto binary, manager.Compile({}));
  return std::vector<std::byte>(binary.begin(), binary.end());
}

class ContextManagerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.Reset();
    ASSERT_EQ(CountHandles().ToString(), "none");
  }
  void TearDown() override {
    EXPECT_EQ(CountHandles().ToString(), "none");
    EXPECT_EQ(fake_.LiveHandles(), 0);
  }
  test::FakeQnn fake_;
};

TEST_F(ContextManagerTest, BuildsCompilesAndExecutes) {
  ContextManager manager(MakeSetup());
  EXPECT_EQ(manager.FindGraph("prefill"), nullptr);
  ASSERT_TRUE(manager.InitContext({"prefill", "decode"}).ok());
  for (const char* name : {"prefill", "decode"}) {
    const Status added = AddConv(manager, name);
    ASSERT_TRUE(added.ok()) << added.ToString();
  }
  const auto binary = manager.Compile({});
  ASSERT_TRUE(binary.ok()) << binary.status().ToString();
  EXPECT_EQ(manager.Compile({})->data(), binary->data());  // the same one
  EXPECT_TRUE(RunTiny(manager, "decode").ok());
  // The compiled binary is the cache.
  EXPECT_EQ(manager.SpillFillBytes().value(), 8192U);
  EXPECT_EQ(manager.cache()->graphs.size(), 2U);
}

TEST_F(ContextManagerTest, CacheAloneMakesNoContextAndNoBackend) {
  const auto binary = CompileTwoGraphs();
  ASSERT_TRUE(binary.ok()) << binary.status().ToString();
  fake_.Reset();
  ContextManager manager(MakeSetup(*binary));
  EXPECT_EQ(manager.cache(), nullptr);
  EXPECT_EQ(manager.SpillFillBytes().value(), 8192U);  // the larger of 4096 and 8192
  EXPECT_EQ(CountHandles().ToString(), "none");
  EXPECT_THAT(fake_.Record(), Not(HasSubstr("Create")));
}

// Whichever comes first, and however often: the same result, each step once.
TEST_F(ContextManagerTest, StepsInAnyOrder) {
  const auto binary = CompileTwoGraphs();
  ASSERT_TRUE(binary.ok());
  for (const bool cache_first : {true, false}) {
    fake_.Reset();
    ContextManager manager(MakeSetup(*binary));
    for (int i = 0; i < 2; ++i) {
      if (cache_first) {
        EXPECT_TRUE(manager.InitContextCache().ok());
      }
      EXPECT_TRUE(manager.InitContext({"decode"}).ok());
      EXPECT_TRUE(manager.InitContext({}).ok());
      EXPECT_TRUE(manager.InitBackend().ok());
      EXPECT_TRUE(manager.InitContextCache().ok());
      EXPECT_EQ(manager.SpillFillBytes().value(), 8192U);
    }
    EXPECT_TRUE(RunTiny(manager, "prefill").ok());
    const std::string record = fake_.Record();
    for (const char* call :
         {"call backendCreate\n", "call deviceCreate\n", "call contextCreateFromBinary\n"}) {
      const size_t first = record.find(call);
      ASSERT_NE(first, std::string::npos) << call;
      EXPECT_EQ(record.find(call, first + 1), std::string::npos) << call;
    }
    EXPECT_EQ(CountHandles().total(), 4);
    manager.Destroy();
    EXPECT_EQ(CountHandles().ToString(), "none");
    // And all again.
    EXPECT_TRUE(manager.InitContext({"prefill"}).ok());
    EXPECT_TRUE(RunTiny(manager, "prefill").ok());
  }
}

TEST_F(ContextManagerTest, DestroysFromTheInsideOut) {
  const auto binary = CompileTwoGraphs();
  ASSERT_TRUE(binary.ok());
  ContextManager manager(MakeSetup(*binary));
  ASSERT_TRUE(manager.InitContext({}).ok());
  fake_.Reset();
  manager.Destroy();
  manager.Destroy();
  EXPECT_EQ(test::CallsOf(fake_.Record()), "contextFree deviceFree backendFree logFree ");
}

struct FailingStep {
  const char* call;
  int code;
  const char* message;
};

std::ostream& operator<<(std::ostream& out, const FailingStep& c) {
  return out << c.call << ' ' << c.code;
}

class EveryStep : public ContextManagerTest, public ::testing::WithParamInterface<FailingStep> {};

// A step that fails says so, leaves what was made before, and works when called again.
TEST_P(EveryStep, FailsCleanlyAndCanBeRepeated) {
  const FailingStep& step = GetParam();
  const auto run = [](ContextManager& builder, ContextManager& loader) {
    SPILLWAY_RETURN_IF_ERROR(builder.InitContext({"prefill"}));
    if (builder.FindGraph("prefill")->inputs().empty()) {
      SPILLWAY_RETURN_IF_ERROR(AddConv(builder, "prefill"));
    }
    SPILLWAY_RETURN_IF_ERROR(builder.Compile({}).status());
    SPILLWAY_RETURN_IF_ERROR(loader.InitContext({"decode"}));
    return RunTiny(loader, "decode");
  };
  const auto binary = CompileTwoGraphs();
  ASSERT_TRUE(binary.ok());
  fake_.Reset();
  ContextManager builder(MakeSetup()), loader(MakeSetup(*binary));
  {
    const ScopedEnv env("FAKE_QNN_FAIL", std::string(step.call) + ":" + std::to_string(step.code));
    const Status status = run(builder, loader);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr(step.message));
    EXPECT_THAT(status.message(), HasSubstr("error " + std::to_string(step.code)));
  }
  const Status again = run(builder, loader);
  EXPECT_TRUE(again.ok()) << again.ToString();
}

INSTANTIATE_TEST_SUITE_P(
    ContextManager, EveryStep,
    ::testing::Values(FailingStep{"logCreate", 11002, "creating the vendor's log"},
                      FailingStep{"backendCreate", 4000, "creating the HTP backend"},
                      FailingStep{"deviceCreate", 14001, "creating the HTP device"},
                      FailingStep{"contextCreate", 5010, "creating a context"},
                      FailingStep{"graphCreate", 6020, "creating graph 'prefill'"},
                      FailingStep{"graphFinalize", 1002, "finalising graph 'prefill'"},
                      FailingStep{"contextGetBinarySize", 5006, "the context binary's size"},
                      FailingStep{"contextGetBinary", 5007, "getting the context binary"},
                      FailingStep{"systemContextCreate", 30002, "creating a system context"},
                      FailingStep{"systemContextGetMetaData", 30010, "tiny.bin: reading"},
                      FailingStep{"contextCreateFromBinary", 5005, "loading a context binary"},
                      FailingStep{"graphRetrieve", 6003, "retrieving graph 'prefill'"},
                      FailingStep{"graphExecute", 1100, "executing graph 'decode'"}));

TEST_F(ContextManagerTest, AsksForSupportWithoutAContext) {
  ContextManager manager(MakeSetup());
  OpQuery query;
  query.name = "q";
  query.type = "Relu";
  query.inputs = {TinyConv().Activation("x", TensorRole::kAppWrite, 64, 1)};
  query.outputs = {TinyConv().Activation("y", TensorRole::kAppRead, 64, 1)};
  EXPECT_TRUE(manager.IsSupported(query).ok());
  EXPECT_EQ(CountHandles()[HandleKind::kContext], 0);
  const ScopedEnv env("FAKE_QNN_FAIL", "backendValidateOpConfig:3110");
  EXPECT_EQ(manager.IsSupported(query).code(), StatusCode::kUnsupported);
}

TEST_F(ContextManagerTest, WrongUseIsSaid) {
  const auto binary = CompileTwoGraphs();
  ASSERT_TRUE(binary.ok());
  ContextManager loader(MakeSetup(*binary));
  Status status = loader.InitContext({"decode", "nobody"});
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("tiny.bin: there is no graph 'nobody'"));
  EXPECT_EQ(CountHandles()[HandleKind::kContext], 0);
  ContextManager builder(MakeSetup());
  EXPECT_EQ(builder.InitContextCache().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(builder.Compile({}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(builder.Execute("prefill", {}, {}).code(), StatusCode::kNotFound);
  EXPECT_EQ(builder.AllocateTensors("prefill", {}).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(builder.InitContext({"prefill"}).ok());
  status = builder.InitContext({"decode"});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("graph 'decode'"));
}

TEST_F(ContextManagerTest, OptionsReachTheVendor) {
  struct Words {
    uint32_t words[16];
  };
  ContextSetup setup = MakeSetup();
  int graphs = 0;
  setup.device_configs = [](const Library& library) -> Result<DeviceConfigs> {
    EXPECT_EQ(library.build_id(), "fake.1");
    DeviceConfigs configs;
    configs.AddCustom<Words>(0U).words[2] = 72;
    return configs;
  };
  setup.graph_configs = [&graphs](const std::string& name) {
    EXPECT_EQ(name, graphs++ == 0 ? "a" : "b");
    return GraphConfigs();
  };
  std::string logged;
  setup.log_level = abi::kLogVerbose;
  setup.log_sink = [&logged](abi::LogLevel, std::string_view line) { logged += line; };
  ContextManager manager(std::move(setup));
  ASSERT_TRUE(manager.InitContext({"a", "b"}).ok());
  EXPECT_EQ(graphs, 2);
  EXPECT_THAT(logged, HasSubstr("Client set SoC 72"));
  setup = MakeSetup();
  setup.device_configs = [](const Library&) -> Result<DeviceConfigs> {
    return InvalidArgumentError("no such SoC");
  };
  ContextManager refused(std::move(setup));
  EXPECT_EQ(refused.InitBackend().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace spillway::qnn
