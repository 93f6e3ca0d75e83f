#include "runtime/context_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/subprocess.h"
#include "compiler/vendor_job.h"
#include "runtime/context_protocol.h"
#include "tests/runtime/test_worker.h"

namespace spillway {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Contexts whose paths say what they do when they are loaded. Their graphs: "sum"
// adds, "fail" is refused, "crash" and "hang" do just that.
class FakeContext : public ContextRunner {
 public:
  static Result<std::unique_ptr<ContextRunner>> Open(const ContextRunnerOptions& options) {
    auto runner = std::make_unique<FakeContext>();
    for (const std::string& path : options.context_paths) {
      Log(LogLevel::kInfo, "vendor: loading {} for {}", path, options.htp.soc);
      if (path == "refused") return VendorError("number 5000: too new");
      if (path == "crash") Crash("load");
      if (path == "hang") Hang();
      runner->AddContext();
    }
    if (!options.prepare_folder.empty()) {
      if (options.progress) options.progress("finalise sum", 0.5);
      if (options.prepare_folder == "hang") Hang();
      runner->AddContext();
    }
    runner->info_.shares_spill_fill = options.shared_spill_fill_bytes > 0;
    runner->detailed_ = options.htp.profile_level == ProfileLevel::kDetailed;
    return std::unique_ptr<ContextRunner>(std::move(runner));
  }

  Status Execute(size_t context, size_t graph) override {
    SPILLWAY_RETURN_IF_ERROR(CheckGraph(context, graph));
    if (graph == 1) return VendorError("number 1100: graph fail");
    if (graph == 2) Crash("execute");
    if (graph == 3) Hang();
    if (layout_.contexts.empty()) return FailedPreconditionError("no memory");
    const IoLayout::GraphPlaces& places = layout_.contexts[context][graph];
    const auto* a = reinterpret_cast<const uint16_t*>(memory().data() + places.inputs[0]);
    const auto* b = reinterpret_cast<const uint16_t*>(memory().data() + places.inputs[1]);
    auto* out = reinterpret_cast<int32_t*>(memory().data() + places.outputs[0]);
    for (int i = 0; i < 4; ++i) out[i] = a[i] + b[i];
    if (detailed_) profile_ = {60, 50, 5000 + context, {{"add:OpId_1 (cycles)", 4000}}};
    return OkStatus();
  }

 protected:
  Status UseMemory(const IoLayout& layout) override {
    layout_ = layout;
    return OkStatus();
  }

 private:
  [[noreturn]] static void Crash(const char* where) {
    std::printf("famous last words in %s\n", where);
    std::fflush(stdout);
    std::signal(SIGSEGV, SIG_DFL);
    std::raise(SIGSEGV);
    std::abort();
  }
  static void Hang() {
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  }

  void AddContext() {
    ContextInfo& info = info_.contexts.emplace_back();
    info.build_id = "v1";
    info.soc_model = 69;
    for (const char* name : {"sum", "fail", "crash", "hang"}) {
      info.graphs.push_back({name,
                             {{"a", DType::kU16, {1, 4}}, {"b", DType::kU16, {1, 4}}},
                             {{"out", DType::kS32, {4}}}});
    }
  }

  IoLayout layout_;
  bool detailed_ = false;
};

constexpr char kServeVariable[] = "SPILLWAY_TEST_WORKER";

// Runs before main(): in a child it serves and never comes back.
const bool kServed = [] {
  const char* kind = std::getenv(kServeVariable);
  if (kind == nullptr) return false;
  Channel channel(Subprocess::kChannelFd);
  const Result<Message> first = channel.Receive();
  if (!first.ok()) _exit(2);
  if (std::string_view(kind) == "fake") {
    (void)ServeContext(channel, *first, FakeContext::Open);
  } else if (first->text.find("\"compile\"") != std::string::npos) {
    (void)ServeVendorJob(channel, first->text);
  } else {
    (void)ServeContext(channel, *first);
  }
  _exit(0);
}();

}  // namespace

namespace test {

UseTestWorker::UseTestWorker(WorkerKind kind) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  path[length < 0 ? 0 : length] = '\0';
  setenv("SPILLWAY_WORKER", path, 1);
  setenv(kServeVariable, kind == WorkerKind::kFake ? "fake" : "vendor", 1);
}

UseTestWorker::~UseTestWorker() {
  unsetenv("SPILLWAY_WORKER");
  unsetenv(kServeVariable);
}

}  // namespace test

namespace {

// A layout in which a and b of graph "sum" and a of all graphs share memory.
IoLayout MakeLayout(const RunnerInfo& info) {
  IoLayout layout;
  const uint64_t shared = layout.Add(8);
  for (const ContextInfo& context : info.contexts) {
    std::vector<IoLayout::GraphPlaces>& graphs = layout.contexts.emplace_back();
    for (size_t g = 0; g < context.graphs.size(); ++g) {
      graphs.push_back({{shared, g == 0 ? shared : layout.Add(8)}, {layout.Add(16)}});
    }
  }
  return layout;
}

class WorkerContextTest : public ::testing::Test {
 protected:
  static ContextRunnerOptions OptionsFor(const std::string& path) {
    ContextRunnerOptions options;
    options.context_paths = {path};
    options.htp.soc = "SM8750";
    options.load_timeout_s = path == "hang" ? 0.3 : 20;
    options.execute_timeout_s = 0.3;
    return options;
  }
  static Result<std::unique_ptr<ContextRunner>> Open(const std::string& path) {
    return OpenContextInWorker(OptionsFor(path));
  }

  static std::unique_ptr<ContextRunner> OpenAndBind() {
    Result<std::unique_ptr<ContextRunner>> runner = Open("good");
    EXPECT_TRUE(runner.ok()) << runner.status().ToString();
    if (!runner.ok()) return nullptr;
    const Status bound = (*runner)->Bind(MakeLayout((*runner)->info()));
    EXPECT_TRUE(bound.ok()) << bound.ToString();
    return std::move(runner).value();
  }

  test::UseTestWorker worker_{test::WorkerKind::kFake};
};

TEST_F(WorkerContextTest, DescribesAndComputesInSharedMemory) {
  auto runner = OpenAndBind();
  ASSERT_TRUE(runner);
  ASSERT_EQ(runner->info().contexts.size(), 1u);
  const ContextInfo& info = runner->info().contexts[0];
  EXPECT_EQ(info.build_id, "v1");
  EXPECT_EQ(info.soc_model, 69u);
  ASSERT_EQ(info.graphs.size(), 4u);
  EXPECT_EQ(info.graphs[0].inputs[1].name, "b");
  EXPECT_EQ(info.graphs[0].inputs[1].shape, (Shape{1, 4}));
  EXPECT_EQ(info.graphs[0].outputs[0].dtype, DType::kS32);

  const IoLayout layout = MakeLayout(runner->info());
  auto* a = reinterpret_cast<uint16_t*>(runner->memory().data() + layout.contexts[0][0].inputs[0]);
  auto* out =
      reinterpret_cast<int32_t*>(runner->memory().data() + layout.contexts[0][0].outputs[0]);
  for (uint16_t round = 1; round < 4; ++round) {
    for (uint16_t i = 0; i < 4; ++i) a[i] = static_cast<uint16_t>(round * 10000 + i);
    ASSERT_TRUE(runner->Execute(0, 0).ok());
    // Both inputs lie in the same place.
    EXPECT_THAT(std::vector<int>(out, out + 4), ElementsAre(round * 20000, round * 20000 + 2,
                                                            round * 20000 + 4, round * 20000 + 6));
  }
}

TEST_F(WorkerContextTest, OneProcessHoldsAllContexts) {
  ContextRunnerOptions options = OptionsFor("good");
  options.context_paths = {"first", "second", "third"};
  options.shared_spill_fill_bytes = 4096;
  options.htp.profile_level = ProfileLevel::kDetailed;
  Result<std::unique_ptr<ContextRunner>> runner = OpenContextInWorker(options);
  ASSERT_TRUE(runner.ok()) << runner.status().ToString();
  ASSERT_EQ((*runner)->info().contexts.size(), 3u);
  EXPECT_TRUE((*runner)->info().shares_spill_fill);
  // The second context's sum doubles what the first one's wrote.
  IoLayout layout = MakeLayout((*runner)->info());
  const uint64_t between = layout.contexts[0][0].outputs[0];
  layout.contexts[1][0].inputs = {between, between};
  ASSERT_TRUE((*runner)->Bind(layout).ok());
  std::byte* memory = (*runner)->memory().data();
  *reinterpret_cast<uint16_t*>(memory + layout.contexts[0][0].inputs[0]) = 5;
  ASSERT_TRUE((*runner)->Execute(0, 0).ok());
  ASSERT_TRUE((*runner)->Execute(1, 0).ok());
  EXPECT_EQ(*reinterpret_cast<int32_t*>(memory + layout.contexts[1][0].outputs[0]), 20);
  EXPECT_EQ((*runner)->profile().total_us, 60u);
  EXPECT_EQ((*runner)->profile().accelerator_us, 50u);
  EXPECT_EQ((*runner)->profile().cycles, 5001u);
  EXPECT_THAT((*runner)->profile().operations,
              ElementsAre(::testing::Pair("add:OpId_1 (cycles)", 4000u)));
  EXPECT_EQ((*runner)->Execute(3, 0).code(), StatusCode::kInvalidArgument);
  const Status crash = (*runner)->Execute(2, 2);
  EXPECT_THAT(crash.message(), HasSubstr("executing crash of third"));

  options.context_paths = {"first", "refused"};
  EXPECT_EQ(OpenContextInWorker(options).status().message(), "number 5000: too new");
}

TEST_F(WorkerContextTest, PreparingHasItsOwnLimitAndProgress) {
  ContextRunnerOptions options;
  options.prepare_folder = "somewhere";
  std::vector<std::string> stages;
  options.progress = [&](std::string_view stage, double fraction) {
    stages.push_back(std::string(stage) + (fraction == 0.5 ? " half" : ""));
  };
  Result<std::unique_ptr<ContextRunner>> runner = OpenContextInWorker(options);
  ASSERT_TRUE(runner.ok()) << runner.status().ToString();
  EXPECT_THAT(stages, ElementsAre("finalise sum half"));
  EXPECT_EQ((*runner)->info().contexts.size(), 1u);

  options.prepare_folder = "hang";
  options.prepare_timeout_s = 0.3;
  const Status late = OpenContextInWorker(options).status();
  EXPECT_EQ(late.code(), StatusCode::kTimeout);
  EXPECT_THAT(late.message(), HasSubstr("preparing the graphs of hang"));
  EXPECT_THAT(late.message(), HasSubstr("SPILLWAY_PREPARE_TIMEOUT"));
}

TEST_F(WorkerContextTest, AnErrorIsNotTheEnd) {
  auto runner = OpenAndBind();
  ASSERT_TRUE(runner);
  const Status status = runner->Execute(0, 1);
  EXPECT_EQ(status.code(), StatusCode::kVendor);
  EXPECT_EQ(status.message(), "number 1100: graph fail");
  EXPECT_TRUE(runner->Execute(0, 0).ok());
  EXPECT_EQ(runner->Execute(0, 4).code(), StatusCode::kInvalidArgument);
}

TEST_F(WorkerContextTest, ACrashIsAMessageWithTheLastWords) {
  auto runner = OpenAndBind();
  ASSERT_TRUE(runner);
  const Status status = runner->Execute(0, 2);
  EXPECT_EQ(status.code(), StatusCode::kVendorCrash);
  EXPECT_THAT(status.message(), HasSubstr("signal 11"));
  EXPECT_THAT(status.message(), HasSubstr("executing crash of good"));
  EXPECT_THAT(status.message(), HasSubstr("famous last words in execute"));
  EXPECT_THAT(status.message(), HasSubstr("vendor: loading good for SM8750"));
  EXPECT_EQ(runner->Execute(0, 0).code(), StatusCode::kFailedPrecondition);
}

TEST_F(WorkerContextTest, AHangIsStopped) {
  auto runner = OpenAndBind();
  ASSERT_TRUE(runner);
  const Status status = runner->Execute(0, 3);
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("did not finish within 0.3 s"));
  EXPECT_THAT(status.message(), HasSubstr("SPILLWAY_EXECUTE_TIMEOUT"));
  EXPECT_EQ(runner->Execute(0, 0).code(), StatusCode::kFailedPrecondition);
}

TEST_F(WorkerContextTest, LoadThatFailsCrashesOrHangs) {
  EXPECT_EQ(Open("refused").status().message(), "number 5000: too new");
  const Status crash = Open("crash").status();
  EXPECT_EQ(crash.code(), StatusCode::kVendorCrash);
  EXPECT_THAT(crash.message(), HasSubstr("loading crash"));
  EXPECT_THAT(crash.message(), HasSubstr("famous last words in load"));
  EXPECT_EQ(Open("hang").status().code(), StatusCode::kTimeout);
}

TEST_F(WorkerContextTest, TheChildsLogComesThroughOurFilter) {
  std::mutex mutex;
  std::vector<std::string> lines;
  SetLogSink([&](LogLevel, std::string_view line) {
    const std::lock_guard<std::mutex> lock(mutex);
    lines.emplace_back(line);
  });
  const LogLevel level = GetLogLevel();
  SetLogLevel(LogLevel::kWarning);
  EXPECT_TRUE(Open("good").ok());
  EXPECT_THAT(lines, ::testing::IsEmpty());
  SetLogLevel(LogLevel::kInfo);
  EXPECT_TRUE(Open("good").ok());
  SetLogLevel(level);
  SetLogSink(nullptr);
  EXPECT_THAT(lines, Contains("vendor: loading good for SM8750"));
}

TEST_F(WorkerContextTest, EnvironmentSetsTheLimits) {
  setenv("SPILLWAY_LOAD_TIMEOUT", "soon", 1);
  const Status bad = Open("good").status();
  EXPECT_EQ(bad.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(bad.message(), HasSubstr("SPILLWAY_LOAD_TIMEOUT is soon"));
  setenv("SPILLWAY_LOAD_TIMEOUT", "0.2", 1);
  EXPECT_THAT(Open("hang").status().message(), HasSubstr("within 0.2 s"));
  unsetenv("SPILLWAY_LOAD_TIMEOUT");
}

TEST_F(WorkerContextTest, AMissingWorkerIsSaid) {
  setenv("SPILLWAY_WORKER", "/nowhere/spillway-worker", 1);
  const Status status = Open("good").status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("/nowhere/spillway-worker"));
}

const ContextRunnerOptions kGood = [] {
  ContextRunnerOptions options;
  options.context_paths = {"good"};
  return options;
}();

TEST(ContextRunnerTest, RefusesLayoutsThatDoNotFit) {
  const auto bind = [](const std::function<void(IoLayout&)>& change) {
    Result<std::unique_ptr<ContextRunner>> runner = FakeContext::Open(kGood);
    IoLayout layout = MakeLayout((*runner)->info());
    change(layout);
    return (*runner)->Bind(layout);
  };
  EXPECT_TRUE(bind([](IoLayout&) {}).ok());
  EXPECT_THAT(
      bind([](IoLayout& layout) { layout.contexts[0][1].inputs[1] = layout.bytes; }).message(),
      HasSubstr("graph fail, tensor \"b\""));
  EXPECT_EQ(bind([](IoLayout& layout) { layout.contexts[0][0].outputs[0] += 8; }).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(bind([](IoLayout& layout) { layout.contexts[0][0].outputs[0] = ~uint64_t{63}; }).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(bind([](IoLayout& layout) { layout.contexts[0][0].inputs.pop_back(); }).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(bind([](IoLayout& layout) { layout.contexts[0].pop_back(); }).code(),
            StatusCode::kInvalidArgument);

  Result<std::unique_ptr<ContextRunner>> runner = FakeContext::Open(kGood);
  const IoLayout layout = MakeLayout((*runner)->info());
  ASSERT_TRUE((*runner)->Bind(layout).ok());
  EXPECT_EQ((*runner)->Bind(layout).code(), StatusCode::kFailedPrecondition);
}

TEST(ContextServerTest, AnswersNonsenseAndEndsWithTheParent) {
  Result<std::pair<Channel, Channel>> pair = Channel::Pair();
  ASSERT_TRUE(pair.ok());
  Channel parent = std::move(pair->first);
  Channel child = std::move(pair->second);
  Status served = InternalError("still running");
  std::thread server([&] {
    served = ServeContext(child, Message{RunRequestText(kGood), {}}, FakeContext::Open);
  });
  std::vector<ContextEvent::Kind> kinds;
  const auto receive = [&] {
    while (true) {
      const Result<Message> message = parent.Receive(10.0);
      const Result<ContextEvent> event = ParseContextEvent(message.ok() ? message->text : "");
      if (!event.ok()) return ContextEvent::Kind::kLog;
      if (event->kind != ContextEvent::Kind::kLog) return event->kind;
    }
  };
  EXPECT_EQ(receive(), ContextEvent::Kind::kReady);
  for (const char* nonsense :
       {"", "[]", "{}", "{\"op\":7}", "{\"op\":\"dance\"}", "{\"op\":\"execute\",\"graph\":9}",
        "{\"op\":\"execute\",\"context\":0,\"graph\":9}",
        "{\"op\":\"bind\",\"bytes\":64,\"contexts\":[]}"}) {
    ASSERT_TRUE(parent.Send(nonsense).ok());
    EXPECT_EQ(receive(), ContextEvent::Kind::kError) << nonsense;
  }
  parent = Channel();
  server.join();
  EXPECT_TRUE(served.ok()) << served.ToString();
}

TEST(ContextProtocolTest, EventsThatAreNone) {
  for (const char* text :
       {"", "3", "{}", "{\"event\":\"party\",\"code\":1}",
        "{\"event\":\"error\",\"code\":0,\"message\":\"\"}",
        "{\"event\":\"error\",\"code\":99,\"message\":\"\"}", "{\"event\":\"ready\"}"}) {
    EXPECT_EQ(ParseContextEvent(text).status().code(), StatusCode::kInternal) << text;
  }
  const Result<ContextEvent> event =
      ParseContextEvent(LogEventText(LogLevel::kDebug, "not \xff UTF-8"));
  ASSERT_TRUE(event.ok());
  EXPECT_THAT(event->line, HasSubstr("UTF-8"));
}

}  // namespace
}  // namespace spillway
