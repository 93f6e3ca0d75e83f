// The whole way through the manager on the fake library: what goes out, what
// comes back, and what is left when a call fails.
#include "qnn/api/manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/log.h"
#include "qnn/api/handle_counts.h"
#include "qnn/api/vendor_log.h"
#include "tests/fake_qnn/fake_qnn.h"
#include "tests/qnn/api/tiny_graph.h"

namespace spillway::qnn {
namespace {

using test::FakeQnnDir;
using test::ScopedEnv;
using test::TinyConv;
using ::testing::HasSubstr;
using ::testing::Not;

// The vendor's objects up to a context.
struct Session {
  std::shared_ptr<const Library> library;
  std::shared_ptr<const SystemLibrary> system;
  std::shared_ptr<VendorLog> log;
  std::shared_ptr<Backend> backend;
  std::shared_ptr<Device> device;
};

// SA8797, which has estimates: the fake reads the third word.
DeviceConfigs Soc72() {
  struct Words {
    uint32_t words[16];
  };
  DeviceConfigs configs;
  configs.AddCustom<Words>(0U).words[2] = 72;
  return configs;
}

Result<Session> Open() {
  Session session;
  SPILLWAY_ASSIGN_OR_RETURN(session.library, Library::Load(FakeQnnDir()));
  SPILLWAY_ASSIGN_OR_RETURN(session.system, SystemLibrary::Load(FakeQnnDir()));
  SPILLWAY_ASSIGN_OR_RETURN(session.log, VendorLog::Create(session.library, abi::kLogVerbose));
  SPILLWAY_ASSIGN_OR_RETURN(session.backend, Backend::Create(session.log));
  SPILLWAY_ASSIGN_OR_RETURN(session.device, Device::Create(session.log, Soc72()));
  return session;
}

Result<std::vector<std::byte>> CompileTiny(const Session& session) {
  SPILLWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context,
                            Context::Create(session.backend, session.device, {}));
  SPILLWAY_ASSIGN_OR_RETURN(Graph * graph, context->CreateGraph("tiny", {}));
  SPILLWAY_RETURN_IF_ERROR(test::BuildTinyConv(TinyConv(), graph));
  FinalizeOptions options;
  options.profile_level = abi::kProfileDetailed;
  SPILLWAY_ASSIGN_OR_RETURN(const FinalizeResult prepared, graph->Finalize(options));
  if (!prepared.estimates) return InternalError("no estimates");
  return context->GetBinary();
}

// Compiles, loads and runs.
Status RunAll() {
  SPILLWAY_ASSIGN_OR_RETURN(const Session session, Open());
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<std::byte> binary, CompileTiny(session));
  SPILLWAY_ASSIGN_OR_RETURN(const BinaryInfo info,
                            ReadBinaryInfo(*session.system, binary, "tiny.bin"));
  SPILLWAY_ASSIGN_OR_RETURN(
      const std::unique_ptr<Context> context,
      Context::Load(session.backend, session.device, binary, info, ContextConfigs()));
  return test::RunTinyConv(TinyConv(), context->FindGraph("tiny")).status();
}

class ManagerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.Reset();
    ASSERT_EQ(CountHandles().ToString(), "none");
    ASSERT_EQ(fake_.LiveHandles(), 0);
  }
  void TearDown() override {
    EXPECT_EQ(CountHandles().ToString(), "none");
    EXPECT_EQ(fake_.LiveHandles(), 0);
  }
  test::FakeQnn fake_;
};

TEST_F(ManagerTest, CompilesLoadsRunsAndFreesEverything) {
  const Status status = RunAll();
  ASSERT_TRUE(status.ok()) << status.ToString();
  const std::string record = fake_.Record();
  // The frees come in the reverse order of the creations.
  EXPECT_EQ(test::CallsOf(record.substr(record.rfind("call graphExecute"))),
            "graphExecute contextFree deviceFree backendFree logFree ");
}

struct FailingCall {
  const char* call;
  int code;
  const char* message;
};

std::ostream& operator<<(std::ostream& out, const FailingCall& c) {
  return out << c.call << ' ' << c.code;
}

class EveryCall : public ManagerTest, public ::testing::WithParamInterface<FailingCall> {};

TEST_P(EveryCall, FailsWithItsStepAndLeavesNothing) {
  const FailingCall& failing = GetParam();
  const ScopedEnv env("FAKE_QNN_FAIL",
                      std::string(failing.call) + ":" + std::to_string(failing.code));
  const Status status = RunAll();
  EXPECT_FALSE(status.ok());
  const bool refused = failing.code == 3110 || failing.code == 4005;
  const bool damaged = failing.code == 30010;
  EXPECT_EQ(status.code(), refused   ? StatusCode::kUnsupported
                           : damaged ? StatusCode::kCorruptData
                                     : StatusCode::kVendor);
  EXPECT_THAT(status.message(), HasSubstr(failing.message));
  EXPECT_THAT(status.message(), HasSubstr("error " + std::to_string(failing.code)));
}

INSTANTIATE_TEST_SUITE_P(
    Manager, EveryCall,
    ::testing::Values(
        FailingCall{"logCreate", 11002, "creating the vendor's log"},
        FailingCall{"backendCreate", 1003, "creating the HTP backend"},
        FailingCall{"deviceCreate", 14001, "Unknown config socModel 72"},
        FailingCall{"contextCreate", 5010, "creating a context"},
        FailingCall{"graphCreate", 6000, "creating graph 'tiny'"},
        FailingCall{"tensorCreateGraphTensor", 7004,
                    "graph 'tiny': creating tensor 'x' (u16 [1, 1, 4, 64])"},
        FailingCall{"backendValidateOpConfig", 3110,
                    "graph 'tiny', node 'conv' of type Conv2d: inputs x u16 [1, 1, 4, 64] "
                    "(encoding 0), w s8 [1, 1, 64, 32] (encoding 1); outputs y u16 [1, 1, 4, 32] "
                    "(encoding 0); parameters stride ui32 [2], pad_amount ui32 [2, 2], group 1"},
        FailingCall{"backendValidateOpConfig", 4005, "unknown operation"},
        FailingCall{"backendValidateOpConfig", 1100, "node 'conv'"},
        FailingCall{"graphAddNode", 6005, "adding the node"},
        FailingCall{"profileCreate", 1002, "creating a profile of level 2"},
        FailingCall{"graphFinalize", 1002, "Vendor's log: \"Failed to finalize graph tiny\""},
        FailingCall{"profileGetEvents", 12000, "reading a profile"},
        FailingCall{"profileGetEventData", 12002, "reading a profile event"},
        FailingCall{"profileGetSubEvents", 12002, "reading a profile event's parts"},
        FailingCall{"contextGetBinarySize", 5006, "asking for the context binary's size"},
        FailingCall{"contextGetBinary", 5007, "getting the context binary"},
        FailingCall{"systemContextCreate", 30002, "tiny.bin: creating a system context"},
        FailingCall{"systemContextGetMetaData", 30010, "tiny.bin: reading"},
        FailingCall{"contextCreateFromBinary", 5005, "loading a context binary of"},
        FailingCall{"graphRetrieve", 6003, "retrieving graph 'tiny'"},
        FailingCall{"graphExecute", 1100, "executing graph 'tiny'"}));

// The second and third tensors and calls fail too.
TEST_F(ManagerTest, LaterTensorsFailAlike) {
  for (int n = 2; n <= 5; ++n) {
    fake_.Reset();
    const ScopedEnv env("FAKE_QNN_FAIL", "tensorCreateGraphTensor:7004:" + std::to_string(n));
    const Status status = RunAll();
    EXPECT_EQ(status.code(), StatusCode::kVendor) << n;
    const char* names[] = {"'w'", "'y'", "'conv.stride'", "'conv.pad_amount'"};
    EXPECT_THAT(status.message(), HasSubstr(names[n - 2]));
  }
}

TEST_F(ManagerTest, HarmlessErrorLineIsNotQuoted) {
  const ScopedEnv env("FAKE_QNN_FAIL", "graphFinalize:1002");
  EXPECT_THAT(RunAll().message(), Not(HasSubstr("GraphHtpSettings")));
}

TEST_F(ManagerTest, FailedFreeStaysCounted) {
  const int64_t before = CountHandles().total();
  std::string warning;
  SetLogSink([&warning](LogLevel, std::string_view text) { warning += text; });
  {
    const ScopedEnv env("FAKE_QNN_FAIL", "contextFree:5002:1");
    EXPECT_TRUE(RunAll().ok());
  }
  SetLogSink({});
  EXPECT_EQ(CountHandles().total(), before + 1);
  EXPECT_EQ(CountHandles()[HandleKind::kContext], 1);
  EXPECT_THAT(warning, HasSubstr("freeing a context: error 5002"));
  CountFreed(HandleKind::kContext);  // for the next test
  EXPECT_EQ(fake_.LiveHandles(), 1);
  fake_.DropHandles();
}

TEST_F(ManagerTest, EstimatesOfTheProfile) {
  const Result<Session> session = Open();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const auto context = Context::Create(session->backend, session->device, {});
  ASSERT_TRUE(context.ok());
  Graph* graph = (*context)->CreateGraph("tiny", {}).value();
  ASSERT_TRUE(test::BuildTinyConv(TinyConv(), graph).ok());
  std::vector<std::pair<std::string, double>> progress;
  FinalizeOptions options;
  options.profile_level = abi::kProfileDetailed;
  options.progress = [&progress](std::string_view stage, double fraction) {
    progress.emplace_back(stage, fraction);
  };
  const Result<FinalizeResult> prepared = graph->Finalize(options);
  ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
  ASSERT_TRUE(prepared->estimates.has_value());
  EXPECT_EQ(prepared->estimates->cycles.value, 2000000U);
  EXPECT_EQ(prepared->estimates->cycles.lower, 1900000U);
  EXPECT_EQ(prepared->estimates->cycles.upper, 2100000U);
  EXPECT_EQ(prepared->estimates->microseconds.value, 2000U);
  EXPECT_EQ(prepared->estimates->input_fill_bytes, 100U);
  EXPECT_EQ(prepared->estimates->intermediate_fill_bytes, 101U);
  EXPECT_EQ(prepared->estimates->intermediate_spill_bytes, 102U);
  EXPECT_EQ(prepared->estimates->inter_htp_fill_bytes, 103U);
  EXPECT_EQ(prepared->estimates->inter_htp_spill_bytes, 104U);
  EXPECT_EQ(prepared->estimates->output_spill_bytes, 105U);
  EXPECT_EQ(prepared->estimates->missing_cost_ops, 7U);
  ASSERT_GE(progress.size(), 9U);
  EXPECT_EQ(progress.front().first, "Graph Preparation Initializing");
  EXPECT_NEAR(progress.back().second, 1, 1e-9);
  const LogFacts all = session->log->facts();
  const GraphLogFacts* facts = all.FindGraph("tiny");
  ASSERT_NE(facts, nullptr);
  EXPECT_EQ(facts->stages.size(), 8U);
  EXPECT_EQ(facts->ddr->spill_bytes, 4096U);
  EXPECT_EQ(facts->slc_allocate(), 0);
  EXPECT_EQ(all.soc_id, 72U);
}

// Releases before 2.50 print the preparation instead of logging it.
TEST_F(ManagerTest, PrintedPreparationIsTakenIntoTheLog) {
  const ScopedEnv env("FAKE_QNN_CORE", "2.38");
  std::vector<std::string> lines;
  const auto library = Library::Load(FakeQnnDir()).value();
  const auto log = VendorLog::Create(library, abi::kLogError,
                                     [&lines](abi::LogLevel level, std::string_view line) {
                                       if (level == abi::kLogInfo) lines.emplace_back(line);
                                     })
                       .value();
  const auto backend = Backend::Create(log).value();
  const auto device = Device::Create(log, Soc72()).value();
  const auto context = Context::Create(backend, device, {}).value();
  Graph* graph = context->CreateGraph("tiny", {}).value();
  ASSERT_TRUE(test::BuildTinyConv(TinyConv(), graph).ok());
  double fraction = 0;
  FinalizeOptions options;
  options.progress = [&fraction](std::string_view, double part) { fraction = part; };
  ::testing::internal::CaptureStdout();
  const auto prepared = graph->Finalize(options);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
  const LogFacts all = log->facts();
  const GraphLogFacts* facts = all.FindGraph("tiny");
  ASSERT_NE(facts, nullptr);
  EXPECT_EQ(facts->stages.size(), 8U);
  ASSERT_TRUE(facts->ddr.has_value());
  EXPECT_EQ(facts->ddr->spill_bytes, 4096U);
  EXPECT_EQ(facts->ddr->read_total_bytes, 20000U);
  EXPECT_NEAR(fraction, 1, 1e-9);
  EXPECT_THAT(lines, ::testing::Contains("Starting stage: VTCM Allocation"));
}

TEST_F(ManagerTest, TimesOfAnExecution) {
  const Result<Session> session = Open();
  ASSERT_TRUE(session.ok());
  const auto binary = CompileTiny(*session);
  const auto info = ReadBinaryInfo(*session->system, *binary, "tiny");
  const auto context = Context::Load(session->backend, session->device, *binary, *info, {});
  ASSERT_TRUE(context.ok()) << context.status().ToString();
  Graph* graph = (*context)->FindGraph("tiny");
  const TinyConv conv;
  const std::vector<uint16_t> x = conv.Input();
  std::vector<uint16_t> y(conv.rows * conv.n);
  const std::span<const std::byte> inputs[] = {std::as_bytes(std::span(x))};
  const std::span<std::byte> outputs[] = {std::as_writable_bytes(std::span(y))};
  std::vector<ProfileEvent> events;
  ASSERT_TRUE(graph->ExecuteProfiled(inputs, outputs, abi::kProfileDetailed, &events).ok());
  const ExecuteTimes times = ReadExecuteTimes(events);
  EXPECT_EQ(times.total_us, 60U);
  EXPECT_EQ(times.accelerator_us, 50U);
  EXPECT_EQ(times.accelerator_cycles, 5000U);
  EXPECT_EQ(times.hvx_threads, 4U);
  ASSERT_EQ(times.nodes.size(), 1U);
  EXPECT_EQ(times.nodes[0].identifier, "conv:OpId_1 (cycles)");
}

TEST_F(ManagerTest, WrongBuffersNeverReachTheVendor) {
  const Result<Session> session = Open();
  ASSERT_TRUE(session.ok());
  const auto binary = CompileTiny(*session);
  const auto info = ReadBinaryInfo(*session->system, *binary, "tiny");
  const auto context = Context::Load(session->backend, session->device, *binary, *info, {});
  ASSERT_TRUE(context.ok());
  Graph* graph = (*context)->FindGraph("tiny");
  std::vector<std::byte> x(4 * 64 * 2), y(4 * 32 * 2 - 1);
  const std::span<const std::byte> inputs[] = {x};
  const std::span<std::byte> outputs[] = {y};
  fake_.Reset();
  Status status = graph->Execute(inputs, outputs);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("output 'y' got a buffer of 255 bytes, expected 256"));
  status = graph->Execute({}, outputs);
  EXPECT_THAT(status.message(), HasSubstr("0 input buffers, expected 1"));
  EXPECT_THAT(fake_.Record(), Not(HasSubstr("graphExecute")));
}

TEST_F(ManagerTest, WrongStateIsSaidBeforeTheVendorIsAsked) {
  const Result<Session> session = Open();
  ASSERT_TRUE(session.ok());
  const auto building = Context::Create(session->backend, session->device, {});
  Graph* graph = (*building)->CreateGraph("tiny", {}).value();
  EXPECT_EQ(graph->Execute({}, {}).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(test::BuildTinyConv(TinyConv(), graph).ok());
  ASSERT_TRUE(graph->Finalize({}).ok());
  EXPECT_EQ(graph->Finalize({}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(graph->AddTensor(TinyConv().Weights("w2")).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(graph->AddNode(test::ConvOp("c", 0, 1, 2)).code(), StatusCode::kFailedPrecondition);
  const auto binary = (*building)->GetBinary();
  ASSERT_TRUE(binary.ok());
  const auto info = ReadBinaryInfo(*session->system, *binary, "tiny");
  const auto loaded = Context::Load(session->backend, session->device, *binary, *info, {});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ((*loaded)->CreateGraph("other", {}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ((*loaded)->GetBinarySize().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ((*loaded)->FindGraph("other"), nullptr);
}

TEST_F(ManagerTest, NodeWithUnknownTensor) {
  const Result<Session> session = Open();
  const auto context = Context::Create(session->backend, session->device, {});
  Graph* graph = (*context)->CreateGraph("tiny", {}).value();
  const Status status = graph->AddNode(test::ConvOp("conv", 0, 1, 2));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("node 'conv' of type Conv2d uses tensor 0"));
}

TEST_F(ManagerTest, ParameterWithoutItsDataNeverReachesTheVendor) {
  const Result<Session> session = Open();
  const auto context = Context::Create(session->backend, session->device, {});
  Graph* graph = (*context)->CreateGraph("tiny", {}).value();
  const TinyConv conv;
  const TensorId x = graph->AddTensor(conv.Activation("x", TensorRole::kAppWrite, 64, 1)).value();
  const TensorId w = graph->AddTensor(conv.Weights("w")).value();
  const TensorId y = graph->AddTensor(conv.Activation("y", TensorRole::kAppRead, 32, 1)).value();
  OpDesc op = test::ConvOp("conv", x, w, y);
  std::get<TensorParam>(op.params[0].value).data.resize(3);
  fake_.Reset();
  const Status status = graph->AddNode(op);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("tensor 'conv.stride' (ui32 [2]): has 3 bytes of data"));
  EXPECT_EQ(fake_.Record(), "");
}

TEST_F(ManagerTest, QueryWithBadTensors) {
  const Result<Session> session = Open();
  OpQuery query;
  query.name = "q";
  query.type = "Relu";
  query.inputs = {TinyConv().Activation("x", TensorRole::kAppWrite, 64, 1)};
  query.inputs[0].encoding.scales.clear();
  fake_.Reset();
  EXPECT_THAT(session->backend->Validate(query).message(), HasSubstr("0 scales, expected 1"));
  EXPECT_EQ(fake_.Record(), "");
}

TEST_F(ManagerTest, QueryWithoutAGraph) {
  const Result<Session> session = Open();
  ASSERT_TRUE(session.ok());
  const TinyConv conv;
  OpQuery query;
  query.name = "q";
  query.type = "Conv2d";
  query.inputs = {conv.Activation("x", TensorRole::kAppWrite, 64, 1), conv.Weights("w")};
  query.outputs = {conv.Activation("y", TensorRole::kAppRead, 32, 1)};
  EXPECT_TRUE(session->backend->Validate(query).ok());
  EXPECT_EQ(session->backend->SupportedOperations().value(),
            (std::vector<std::string>{"Conv2d", "ElementWiseAdd"}));
  const ScopedEnv env("FAKE_QNN_FAIL", "backendValidateOpConfig:3110");
  const Status status = session->backend->Validate(query);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("w s8 [1, 1, 64, 32] (encoding 1)"));
}

TEST_F(ManagerTest, InfoVersionsThroughTheSystemLibrary) {
  const Result<Session> session = Open();
  const auto binary = CompileTiny(*session);
  ASSERT_TRUE(binary.ok()) << binary.status().ToString();
  for (const char* version : {"1", "2", "3"}) {
    const ScopedEnv env("FAKE_QNN_INFO_VERSION", version);
    const auto info = ReadBinaryInfo(*session->system, *binary, "tiny");
    ASSERT_TRUE(info.ok()) << info.status().ToString();
    EXPECT_EQ(std::to_string(info->version), version);
    EXPECT_EQ(info->spill_fill_bytes, 4096U);
    EXPECT_EQ(info->graphs[0].inputs[0].name, "x");
    const auto context = Context::Load(session->backend, session->device, *binary, *info, {});
    EXPECT_TRUE(context.ok()) << context.status().ToString();
  }
  const ScopedEnv env("FAKE_QNN_INFO_VERSION", "4");
  const Status status = ReadBinaryInfo(*session->system, *binary, "tiny.bin").status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("tiny.bin: "));
  EXPECT_THAT(status.message(), HasSubstr("version 4"));
}

TEST_F(ManagerTest, TruncatedBinaryIsRefused) {
  const Result<Session> session = Open();
  const auto binary = CompileTiny(*session);
  const auto info = ReadBinaryInfo(*session->system, *binary, "tiny");
  const std::span<const std::byte> cut(binary->data(), binary->size() - 1);
  EXPECT_EQ(ReadBinaryInfo(*session->system, cut, "cut").status().code(), StatusCode::kCorruptData);
  const auto context = Context::Load(session->backend, session->device, cut, *info, {});
  EXPECT_THAT(context.status().message(), HasSubstr("30010 (0x753a)"));
}

TEST_F(ManagerTest, SharedWeightsAreRefusedOnTheSimulatorBeforeTheCall) {
  const Result<Session> session = Open();
  const auto binary = CompileTiny(*session);
  BinaryInfo info = ReadBinaryInfo(*session->system, *binary, "tiny").value();
  info.graphs.push_back(info.graphs[0]);
  info.graphs[1].memory->shared_weight_bytes = 99;
  fake_.Reset();
  const auto context = Context::Load(session->backend, session->device, *binary, info, {});
#if defined(__x86_64__)
  EXPECT_EQ(context.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(context.status().message(), HasSubstr("shares 99 bytes of weights"));
  EXPECT_EQ(fake_.Record(), "");
#endif
}

// What the tests of a worker process rely on.
using ManagerDeathTest = ManagerTest;

TEST_F(ManagerDeathTest, FakeCrashesOnDemand) {
  EXPECT_EXIT(
      {
        const ScopedEnv env("FAKE_QNN_CRASH", "graphFinalize");
        (void)RunAll();
        std::exit(0);
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(ManagerDeathTest, FakeHangsOnDemand) {
  EXPECT_EXIT(
      {
        const ScopedEnv env("FAKE_QNN_HANG", "graphExecute:1");
        alarm(1);
        (void)RunAll();
        std::exit(0);
      },
      ::testing::KilledBySignal(SIGALRM), "");
}

TEST_F(ManagerTest, FakeSimulatorLosesGraphsOfSlcBinaries) {
  const Result<Session> session = Open();
  ASSERT_TRUE(session.ok());
  std::vector<std::byte> binary = CompileTiny(*session).value();
  const BinaryInfo info = ReadBinaryInfo(*session->system, binary, "tiny").value();
  binary[20] = std::byte{1};  // the fake's SLC word
  EXPECT_TRUE(Context::Load(session->backend, session->device, binary, info, {}).ok());
  EXPECT_EQ(session->log->facts().loaded.back().slc_allocate, 1);
  const ScopedEnv env("FAKE_QNN_SIMULATOR", "1");
  const Status status = Context::Load(session->backend, session->device, binary, info, {}).status();
  EXPECT_THAT(status.message(), HasSubstr("6003"));
  EXPECT_THAT(status.message(), HasSubstr("4003"));
  EXPECT_THAT(status.message(), HasSubstr("SLC allocator"));
}

TEST_F(ManagerTest, LogsHaveASlotEach) {
  const auto library = Library::Load(FakeQnnDir()).value();
  std::vector<std::shared_ptr<VendorLog>> logs;
  for (int i = 0; i < VendorLog::kMost; ++i) {
    auto log = VendorLog::Create(library, abi::kLogError);
    ASSERT_TRUE(log.ok()) << i;
    logs.push_back(*log);
  }
  EXPECT_EQ(VendorLog::Create(library, abi::kLogError).status().code(),
            StatusCode::kResourceExhausted);
  logs.pop_back();
  EXPECT_TRUE(VendorLog::Create(library, abi::kLogError).ok());
}

TEST_F(ManagerTest, LevelAndSink) {
  const auto library = Library::Load(FakeQnnDir()).value();
  std::vector<std::string> lines;
  const auto log = VendorLog::Create(library, abi::kLogError,
                                     [&lines](abi::LogLevel level, std::string_view line) {
                                       EXPECT_EQ(level, abi::kLogError);
                                       lines.emplace_back(line);
                                     });
  const ScopedEnv env("FAKE_QNN_FAIL", "deviceCreate:14001");
  EXPECT_FALSE(Device::Create(*log, Soc72()).ok());
  EXPECT_EQ(lines, std::vector<std::string>{"Unknown config socModel 72"});
}

}  // namespace
}  // namespace spillway::qnn
