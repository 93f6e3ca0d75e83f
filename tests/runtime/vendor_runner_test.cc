// Packages loaded with a vendor library that records, refuses and fails.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <sstream>

#include "base/file.h"
#include "base/log.h"
#include "qnn/api/handle_counts.h"
#include "runtime/generator.h"
#include "runtime/htp_model_executor.h"
#include "tests/fake_qnn/fake_qnn.h"
#include "tests/runtime/test_worker.h"
#include "tests/runtime/tiny_package.h"
#include "tests/support/paths.h"

namespace spillway {
namespace {

using test::ScopedEnv;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// A context configuration: option 2 (group), padding; then handle and size.
constexpr char kGroup[] = "02 00 00 00 00 00 00 00 ";
constexpr char kNoHandle[] = "00 00 00 00 00 00 00 00";

std::string Compiled(const test::TempFolder& folder, const std::string& mode, uint32_t shards) {
  CompileOptions options = test::TinyCompileOptions();
  options.mode = mode;
  options.num_shards = shards;
  options.htp_build = HtpBuild::kOn;
  options.qnn_lib_dir = test::FakeQnnDir();
  options.in_process = true;
  options.use_cache = false;
  options.htp.weight_sharing = false;  // x86-64 loads no others
  test::TinyModelSpec spec;
  spec.layers = shards;
  return test::MakeTinyPackage(folder.path(), options, spec);
}

// Messages of at least level info while it lives.
class LogLines {
 public:
  LogLines() : level_(GetLogLevel()) {
    SetLogLevel(LogLevel::kInfo);
    SetLogSink([this](LogLevel level, std::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (level == LogLevel::kWarning) warnings.emplace_back(line);
    });
  }
  ~LogLines() {
    SetLogSink(nullptr);
    SetLogLevel(level_);
  }
  std::vector<std::string> warnings;

 private:
  LogLevel level_;
  std::mutex mutex_;
};

class VendorRunnerTest : public ::testing::Test {
 protected:
  void Make(const std::string& mode, uint32_t shards) {
    const Result<std::shared_ptr<const Package>> package =
        Package::Open(Compiled(folder_, mode, shards));
    ASSERT_TRUE(package.ok()) << package.status().ToString();
    package_ = *package;
    options_.qnn_lib_dir = test::FakeQnnDir();
    options_.in_process = true;
    fake_.Reset();
  }

  Result<std::unique_ptr<HtpModelExecutor>> Open() {
    return HtpModelExecutor::Open(package_, options_);
  }

  // What follows `start` in the lines of the record that begin so.
  std::vector<std::string> Recorded(const std::string& start) const {
    std::vector<std::string> lines;
    std::istringstream record(fake_.Record());
    for (std::string line; std::getline(record, line);) {
      if (line.starts_with(start)) lines.push_back(line.substr(start.size()));
    }
    return lines;
  }
  std::vector<std::string> LoadConfigs() const {
    return Recorded("config contextCreateFromBinary option 0 ");
  }

  test::TempFolder folder_;
  test::FakeQnn fake_;
  std::shared_ptr<const Package> package_;
  HtpModelOptions options_;
};

class VendorGroupTest : public VendorRunnerTest,
                        public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Modes, VendorGroupTest, ::testing::Values("kv", "hybrid"));

TEST_P(VendorGroupTest, TheFirstContextRegistersAndTheOthersJoin) {
  Make(GetParam(), 3);
  const uint64_t largest = GetParam() == std::string("kv") ? 4096 : 8192;
  EXPECT_EQ(package_->manifest().shards[0].max_spill_fill_bytes, largest);
  const std::string size = largest == 4096 ? "00 10 00 00 00 00 00 00" : "00 20 00 00 00 00 00 00";
  {
    const auto executor = Open();
    ASSERT_TRUE(executor.ok()) << executor.status().ToString();
    const std::vector<std::string> configs = LoadConfigs();
    ASSERT_EQ(configs.size(), 3u);
    EXPECT_EQ(configs[0], std::string(kGroup) + kNoHandle + " " + size);
    EXPECT_THAT(configs[1], StartsWith(kGroup));
    EXPECT_THAT(configs[1], EndsWith(size));
    EXPECT_THAT(configs[1], Not(HasSubstr(std::string(kGroup) + kNoHandle)));
    EXPECT_EQ(configs[2], configs[1]);
    Generator generator(executor->get());
    EXPECT_TRUE(generator.Feed(std::vector<uint32_t>{3, 4, 5}).ok());
  }
  // The one that the others named is freed last.
  const std::string first = LoadConfigs()[1].substr(sizeof(kGroup) - 1, sizeof(kNoHandle) - 1);
  const std::vector<std::string> freed = Recorded("config contextFree option 0 ");
  EXPECT_THAT(freed, ElementsAre(Not(first), Not(first), first));
  EXPECT_EQ(fake_.LiveHandles(), 0);
  EXPECT_EQ(qnn::CountHandles().ToString(), "none");
}

TEST_P(VendorGroupTest, APlatformWithoutGroupsIsToldOfOnce) {
  Make(GetParam(), 3);
  const ScopedEnv simulator("FAKE_QNN_SIMULATOR", "1");
  LogLines log;
  const auto executor = Open();
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  EXPECT_THAT(log.warnings, ElementsAre(HasSubstr("no spill-fill buffer that contexts share")));
  EXPECT_EQ(LoadConfigs().size(), 1u);  // the refused one
  EXPECT_EQ(Recorded("call contextCreateFromBinary").size(), 4u);
  Generator generator(executor->get());
  EXPECT_TRUE(generator.Feed(std::vector<uint32_t>{3, 4, 5}).ok());
}

TEST_P(VendorGroupTest, NoGroupWhenSwitchedOff) {
  Make(GetParam(), 2);
  const_cast<PackageManifest&>(package_->manifest()).htp_options_json =
      R"({"multi_contexts":false})";
  EXPECT_TRUE(Open().ok());
  EXPECT_THAT(LoadConfigs(), IsEmpty());
}

TEST_F(VendorRunnerTest, OneShardNeedsNoGroup) {
  Make("hybrid", 1);
  EXPECT_TRUE(Open().ok());
  EXPECT_THAT(LoadConfigs(), IsEmpty());
}

TEST_F(VendorRunnerTest, AFailureAtAnyPlaceFreesAllBefore) {
  Make("hybrid", 3);
  for (const char* fail :
       {"logCreate:11002", "backendCreate:4000", "deviceCreate:14001",
        "contextCreateFromBinary:5005:1", "contextCreateFromBinary:5005:2",
        "contextCreateFromBinary:5005:3", "graphRetrieve:6003:6",
        "systemContextGetMetaData:30010:3", "systemContextGetBinaryInfo:30010:3"}) {
    fake_.Reset();
    const ScopedEnv env("FAKE_QNN_FAIL", fail);
    const auto executor = Open();
    if (!executor.ok()) {
      EXPECT_THAT(executor.status().message(), HasSubstr("failed")) << fail;
    } else {
      // One of the two ways to read a binary is enough.
      EXPECT_THAT(fail, StartsWith("systemContext"));
    }
    if (executor.ok()) continue;
    EXPECT_EQ(fake_.LiveHandles(), 0) << fail;
    EXPECT_EQ(qnn::CountHandles().ToString(), "none") << fail;
  }
}

// The fake libcdsprpc.so.
class VendorMemoryTest : public VendorRunnerTest {
 protected:
  static std::string RpcLibrary() { return test::FakeQnnDir() + "/libcdsprpc.so"; }
  // Blocks of it that this process has.
  static int LiveBlocks() {
    void* library = dlopen(RpcLibrary().c_str(), RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<int (*)()>(dlsym(library, "FakeRpcLiveBlocks"))();
  }
  // Logits after a few calls.
  static std::vector<float> Run(HtpModelExecutor& executor) {
    Generator generator(&executor);
    std::vector<uint32_t> tokens(20, 7);
    for (uint32_t i = 0; i < 4; ++i) {
      tokens[0] = 3 + i;
      const Status status = generator.Feed(tokens);
      EXPECT_TRUE(status.ok()) << status.ToString();
      tokens.resize(1);
    }
    return {generator.logits().begin(), generator.logits().end()};
  }
};

TEST_F(VendorMemoryTest, WhatTheDspSeesIsRegisteredOnce) {
  Make("hybrid", 2);
  const auto plain = Open();
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  const std::vector<float> expected = Run(**plain);
  EXPECT_THAT(Recorded("call memRegister"), IsEmpty());

  const ScopedEnv library("SPILLWAY_CDSPRPC_LIB", RpcLibrary());
  const ScopedEnv device("FAKE_QNN_SHARED_MEMORY", "1");
  fake_.Reset();
  {
    const auto executor = Open();
    ASSERT_TRUE(executor.ok()) << executor.status().ToString();
    const std::vector<std::string> places = Recorded("memory offset ");
    EXPECT_GT(places.size(), 20u);
    EXPECT_EQ(LiveBlocks(), 1) << "one block for all tensors of all contexts";
    EXPECT_EQ(Run(**executor), expected);
    EXPECT_EQ(Recorded("memory offset "), places) << "nothing is registered at a call";
  }
  EXPECT_EQ(Recorded("call memDeregister").size(), Recorded("call memRegister").size());
  EXPECT_EQ(LiveBlocks(), 0);
}

TEST_F(VendorMemoryTest, APlatformThatRefusesGetsOrdinaryBuffers) {
  Make("hybrid", 1);
  const auto plain = Open();
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  const std::vector<float> expected = Run(**plain);
  struct Refusal {
    const char* variable;
    std::string value;
  };
  for (const Refusal& refusal :
       {Refusal{"SPILLWAY_CDSPRPC_LIB", "off"}, Refusal{"SPILLWAY_CDSPRPC_LIB", "/nowhere.so"},
        Refusal{"SPILLWAY_CDSPRPC_LIB", test::FakeQnnDir() + "/libQnnSystem.so"},
        Refusal{"FAKE_RPC_FAIL", "alloc"}, Refusal{"FAKE_RPC_FAIL", "fd"},
        Refusal{"FAKE_QNN_SHARED_MEMORY", "0"}, Refusal{"FAKE_QNN_FAIL", "memRegister:8003:9"}}) {
    SCOPED_TRACE(std::string(refusal.variable) + "=" + refusal.value);
    const ScopedEnv library("SPILLWAY_CDSPRPC_LIB", RpcLibrary());
    const ScopedEnv device("FAKE_QNN_SHARED_MEMORY", "1");
    const ScopedEnv refuse(refusal.variable, refusal.value);
    LogLines log;
    const int before = fake_.LiveHandles();
    {
      const auto executor = Open();
      ASSERT_TRUE(executor.ok()) << executor.status().ToString();
      EXPECT_EQ(Run(**executor), expected);
      EXPECT_EQ(LiveBlocks(), 0);
    }
    EXPECT_THAT(log.warnings, IsEmpty());
    EXPECT_EQ(fake_.LiveHandles(), before);
  }
}

TEST_F(VendorMemoryTest, AWorkersMemoryIsThisProcesssToo) {
  Make("hybrid", 1);
  const auto plain = Open();
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  const std::vector<float> expected = Run(**plain);
  const test::UseTestWorker worker(test::WorkerKind::kVendor);
  const ScopedEnv library("SPILLWAY_CDSPRPC_LIB", RpcLibrary());
  const ScopedEnv device("FAKE_QNN_SHARED_MEMORY", "1");
  const std::string record = folder_.File("record");
  const ScopedEnv recorded("FAKE_QNN_RECORD", record);
  options_.in_process = false;
  const auto executor = Open();
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  EXPECT_EQ(Run(**executor), expected);
  const Result<std::string> text = ReadFile(record);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("memory offset "));
}

TEST_F(VendorRunnerTest, PowerIsVotedForAndWithdrawn) {
  Make("kv", 1);
  {
    ASSERT_TRUE(Open().ok());
    EXPECT_THAT(Recorded("call createPowerConfigId"), IsEmpty());
  }
  options_.run.performance = PerformanceMode::kBurst;
  options_.run.rpc_polling_us = 9999;
  options_.run.rpc_control_latency_us = 100;
  {
    const auto executor = Open();
    ASSERT_TRUE(executor.ok()) << executor.status().ToString();
    const std::vector<std::string> configs = Recorded("config setPowerConfig option ");
    ASSERT_EQ(configs.size(), 3u);
    EXPECT_THAT(configs[0], StartsWith("1 "));                          // clocks and sleep
    EXPECT_THAT(configs[1], StartsWith("2 02 00 00 00 64 00 00 00 "));  // latency
    EXPECT_THAT(configs[2], StartsWith("3 03 00 00 00 0f 27 00 00 "));  // polling
    EXPECT_THAT(Recorded("call destroyPowerConfigId"), IsEmpty());
  }
  EXPECT_EQ(Recorded("call destroyPowerConfigId").size(), 1u);
  EXPECT_EQ(fake_.LiveHandles(), 0);

  // A vote that is refused does not stop the run.
  const ScopedEnv env("FAKE_QNN_FAIL", "setPowerConfig:13004");
  LogLines log;
  ASSERT_TRUE(Open().ok());
  EXPECT_THAT(log.warnings, ElementsAre(HasSubstr("performance mode burst is not in effect")));
  EXPECT_EQ(fake_.LiveHandles(), 0);
}

TEST_F(VendorRunnerTest, PdSessionAndPriorityReachTheVendor) {
  Make("kv", 1);
  ASSERT_TRUE(Open().ok());
  // The SoC in both places, and nothing else.
  EXPECT_THAT(Recorded("config deviceCreate option 0 "),
              ElementsAre(StartsWith("00 00 00 00 45 00 00 00 45 00 00 00")));
  EXPECT_THAT(Recorded("config contextCreateFromBinary option"), IsEmpty());
  fake_.Reset();
  options_.run.pd_session = PdSession::kSigned;
  options_.run.priority = GraphPriority::kHigh;
  ASSERT_TRUE(Open().ok());
  EXPECT_THAT(Recorded("config deviceCreate option 0 "),
              ElementsAre(StartsWith("00 00 00 00 45"), StartsWith("02 00 00 00 00")));
  EXPECT_THAT(Recorded("config contextCreateFromBinary option"), ElementsAre(HasSubstr(" c8 00")));
}

TEST_F(VendorRunnerTest, ProfilesOfExecutes) {
  Make("hybrid", 2);
  options_.run.profile_level = ProfileLevel::kDetailed;
  const auto executor = Open();
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  ASSERT_TRUE((*executor)->Run(StepKind::kDecode, 0).ok());
  ASSERT_TRUE((*executor)->Run(StepKind::kDecode, 0).ok());
  const std::vector<GraphProfile> profiles = (*executor)->TakeProfile();
  ASSERT_EQ(profiles.size(), 2u);
  for (const GraphProfile& profile : profiles) {
    EXPECT_EQ(profile.graph, "kv_forward");
    EXPECT_EQ(profile.calls, 2u);
    EXPECT_EQ(profile.total_us, 120u);
    EXPECT_EQ(profile.accelerator_us, 100u);
    EXPECT_EQ(profile.cycles, 10000u);
    EXPECT_THAT(profile.operations, ElementsAre(::testing::Pair("conv:OpId_1", 8000u)));
  }
}

TEST_F(VendorRunnerTest, VersionsAreNamedWhenABinaryIsTooNew) {
  Make("kv", 1);
  const ScopedEnv binary("FAKE_QNN_BINARY_BUILD_ID", "v2.51.0.260929181845");
  const ScopedEnv library("FAKE_QNN_BUILD_ID", "v2.47.0.260601114230");
  EXPECT_TRUE(Open().ok());
  const ScopedEnv fail("FAKE_QNN_FAIL", "contextCreateFromBinary:5000");
  const std::string newer = Open().status().message();
  EXPECT_THAT(newer, HasSubstr("context_0.bin"));
  EXPECT_THAT(newer, HasSubstr("error 5000"));
  EXPECT_THAT(newer, HasSubstr("built with v2.51.0.260929181845, the library found here is "
                               "v2.47.0.260601114230: newer libraries load older binaries"));
  const ScopedEnv same("FAKE_QNN_BUILD_ID", "v2.51.0.260929181845");
  EXPECT_THAT(Open().status().message(), Not(HasSubstr("not the reverse")));
}

TEST_F(VendorRunnerTest, OnlinePrepareBuildsEveryShard) {
  Make("hybrid", 2);
  options_.run.online_prepare = true;
  std::vector<std::string> stages;
  options_.progress = [&](std::string_view stage, double) { stages.emplace_back(stage); };
  const auto executor = Open();
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  EXPECT_THAT(Recorded("call contextCreateFromBinary"), IsEmpty());
  EXPECT_EQ(Recorded("call graphFinalize").size(), 4u);
  EXPECT_THAT(stages, ::testing::Contains(HasSubstr("shard 2 of 2: finalise kv_forward (")));
  // Weight sharing was switched off for this package.
  EXPECT_THAT(Recorded("config contextCreate option 0 "), IsEmpty());
  Generator generator(executor->get());
  EXPECT_TRUE(generator.Feed(std::vector<uint32_t>{3, 4, 5}).ok());

  const ScopedEnv fail("FAKE_QNN_FAIL", "graphFinalize:1002:7");
  EXPECT_THAT(Open().status().message(), HasSubstr("error 1002"));
}

TEST_F(VendorRunnerTest, DamagedContextsAreErrors) {
  Make("kv", 1);
  const std::string path = package_->PathOf("context_0.bin");
  const std::string whole = ReadFile(path).value();
  const auto damaged = [&](const std::string& contents) {
    EXPECT_TRUE(WriteFileAtomically(path, contents).ok());
    // The hash check of the package names the file.
    const Status checked = Package::Open(package_->path()).status();
    EXPECT_EQ(checked.code(), StatusCode::kCorruptData);
    EXPECT_THAT(checked.message(), HasSubstr("context_0.bin"));
    return Open().status();
  };
  for (const std::string& contents : {std::string(), whole.substr(0, 1), whole.substr(0, 100),
                                      whole.substr(0, whole.size() - 1), whole + '\0'}) {
    const Status status = damaged(contents);
    EXPECT_FALSE(status.ok()) << contents.size();
    EXPECT_THAT(status.message(), HasSubstr("context_0.bin")) << contents.size();
  }
  std::string flipped = whole;
  flipped[whole.size() / 2] ^= 1;
  (void)damaged(flipped);  // without the hash nobody notices: it must not crash
  EXPECT_EQ(fake_.LiveHandles(), 0);
}

}  // namespace
}  // namespace spillway
