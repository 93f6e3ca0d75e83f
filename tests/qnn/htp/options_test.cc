// Every option's bytes as they arrive in the (fake) vendor library.
#include "qnn/htp/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "qnn/api/handle_counts.h"
#include "qnn/api/manager.h"
#include "qnn/htp/option_names.h"
#include "qnn/htp/power.h"
#include "tests/fake_qnn/fake_qnn.h"
#include "tests/support/paths.h"

namespace spillway::qnn::htp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr abi::Version kBackend551 = {5, 51, 0};

// The record's configuration lines of one call, without trailing zero bytes.
std::vector<std::string> ConfigLines(const std::string& record, const std::string& call) {
  std::vector<std::string> lines;
  std::istringstream stream(record);
  std::string line;
  const std::string start = "config " + call + " option ";
  while (std::getline(stream, line)) {
    if (line.compare(0, start.size(), start) != 0) continue;
    line = line.substr(start.size());
    while (line.size() > 3 && line.compare(line.size() - 3, 3, " 00") == 0) {
      line.resize(line.size() - 3);
    }
    lines.push_back(line);
  }
  return lines;
}

class OptionBytes : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.Reset();
    library_ = Library::Load(test::FakeQnnDir()).value();
    log_ = VendorLog::Create(library_, abi::kLogVerbose).value();
    backend_ = Backend::Create(log_).value();
  }
  void TearDown() override {
    device_.reset();
    backend_.reset();
    log_.reset();
    EXPECT_EQ(CountHandles().ToString(), "none");
    EXPECT_EQ(fake_.LiveHandles(), 0);
  }
  void CreateDevice(PdSession session, const abi::Version& version) {
    device_ =
        Device::Create(log_, MakeDeviceConfigs(**FindSoc("SM8750"), session, version)).value();
  }
  // What arrives when a graph is created with these options.
  std::vector<std::string> GraphLines(const HtpOptions& options) {
    const Result<const Soc*> soc = CheckOptions(options);
    EXPECT_TRUE(soc.ok()) << soc.status().ToString();
    CreateDevice(options.pd_session, kBackend551);
    const auto context = Context::Create(backend_, device_, MakeContextConfigs(options)).value();
    EXPECT_TRUE(context->CreateGraph("g", MakeGraphConfigs(options, **soc)).ok());
    return ConfigLines(fake_.Record(), "graphCreate");
  }

  test::FakeQnn fake_;
  std::shared_ptr<const Library> library_;
  std::shared_ptr<VendorLog> log_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Device> device_;
};

// 1: optimisation; types 3 (level) and 7 (SLC) with a float. 3: VTCM in MB.
constexpr char kLevel3[] = "0 01 00 00 00 00 00 00 00 03 00 00 00 00 00 40 40";
constexpr char kSlcOff[] = "0 01 00 00 00 00 00 00 00 07";
constexpr char kSlcOn[] = "0 01 00 00 00 00 00 00 00 07 00 00 00 00 00 80 3f";
constexpr char kVtcm8[] = "0 03 00 00 00 00 00 00 00 08";

TEST_F(OptionBytes, Default) { EXPECT_THAT(GraphLines({}), ElementsAre(kLevel3, kSlcOff, kVtcm8)); }

TEST_F(OptionBytes, SlcAllocator) {
  HtpOptions options;
  options.slc_allocator = SlcAllocator::kOn;
  EXPECT_THAT(GraphLines(options), ElementsAre(kLevel3, kSlcOn, kVtcm8));
  const LogFacts facts = log_->facts();
  EXPECT_EQ(facts.FindGraph("g")->slc_allocate(), 1);
  EXPECT_EQ(facts.FindGraph("g")->optimizations.at(7), 1.0);
}

struct GraphCase {
  const char* name;
  std::function<void(HtpOptions&)> set;
  const char* line;  // behind the default ones
};

std::ostream& operator<<(std::ostream& out, const GraphCase& c) { return out << c.name; }

class GraphOption : public OptionBytes, public ::testing::WithParamInterface<GraphCase> {};

TEST_P(GraphOption, Bytes) {
  HtpOptions options;
  GetParam().set(options);
  EXPECT_THAT(GraphLines(options), ::testing::Contains(GetParam().line));
}

INSTANTIATE_TEST_SUITE_P(
    Htp, GraphOption,
    ::testing::Values(
        GraphCase{"level1", [](HtpOptions& o) { o.optimization_level = 1; },
                  "0 01 00 00 00 00 00 00 00 03 00 00 00 00 00 80 3f"},
        GraphCase{"vtcm", [](HtpOptions& o) { o.vtcm_mb = 4; }, "0 03 00 00 00 00 00 00 00 04"},
        GraphCase{"dlbc", [](HtpOptions& o) { o.dlbc = true; },
                  "0 01 00 00 00 00 00 00 00 04 00 00 00 00 00 80 3f"},
        GraphCase{"dlbc_weights", [](HtpOptions& o) { o.dlbc_weights = true; },
                  "0 01 00 00 00 00 00 00 00 05 00 00 00 00 00 80 3f"},
        GraphCase{"fp16", [](HtpOptions& o) { o.precision = Precision::kFp16; },
                  "0 02 00 00 00 00 00 00 00 01"},
        GraphCase{"fold_relu_off", [](HtpOptions& o) { o.fold_relu = false; },
                  "0 04 00 00 00 00 00 00 00 01"},
        GraphCase{"fold_relu_on", [](HtpOptions& o) { o.fold_relu = true; }, "0 04"},
        GraphCase{"conv_hmx_off", [](HtpOptions& o) { o.conv_hmx = false; },
                  "0 05 00 00 00 00 00 00 00 01"},
        GraphCase{"conv_hmx_on", [](HtpOptions& o) { o.conv_hmx = true; }, "0 05"},
        GraphCase{"hvx_threads", [](HtpOptions& o) { o.hvx_threads = 5; },
                  "0 06 00 00 00 00 00 00 00 05"},
        GraphCase{"priority", [](HtpOptions& o) { o.priority = GraphPriority::kHigh; }, "3 c8"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST_F(OptionBytes, FinalizeConfigKeysAndTypes) {
  HtpOptions options;
  options.finalize_config = {
      {"text", "/a/b"}, {"whole", "7"}, {"minus", "-7"}, {"real", "0.5"}, {"flag", "true"}};
  const GraphConfigs configs = MakeGraphConfigs(options, **FindSoc("SM8750"));
  ASSERT_EQ(configs.size(), 8U);
  std::map<std::string, abi::Scalar> values;
  for (size_t i = 3; i < 8; ++i) {
    const auto* custom = static_cast<const abi::HtpGraphConfig*>(configs.entry(i).custom);
    EXPECT_EQ(custom->option, abi::kHtpGraphFinalizeConfig);
    values[custom->finalize.key] = custom->finalize.value;
  }
  EXPECT_EQ(values["text"].data_type, abi::DataType::kString);
  EXPECT_STREQ(values["text"].text, "/a/b");
  EXPECT_EQ(values["whole"].data_type, abi::DataType::kUint32);
  EXPECT_EQ(values["whole"].u32, 7U);
  EXPECT_EQ(values["minus"].data_type, abi::DataType::kInt32);
  EXPECT_EQ(values["minus"].i32, -7);
  EXPECT_EQ(values["real"].data_type, abi::DataType::kFloat32);
  EXPECT_EQ(values["real"].f32, 0.5F);
  EXPECT_EQ(values["flag"].data_type, abi::DataType::kBool8);
  EXPECT_EQ(values["flag"].b8, 1);
}

TEST_F(OptionBytes, DeviceHasTheSocAtBothPlaces) {
  CreateDevice(PdSession::kUnsigned, kBackend551);
  EXPECT_THAT(ConfigLines(fake_.Record(), "deviceCreate"),
              ElementsAre("0 00 00 00 00 45 00 00 00 45"));
  EXPECT_EQ(log_->facts().soc_id, 69U);
}

TEST_F(OptionBytes, SignedDomainDependsOnTheVersion) {
  CreateDevice(PdSession::kSigned, kBackend551);
  EXPECT_THAT(
      ConfigLines(fake_.Record(), "deviceCreate"),
      ElementsAre("0 00 00 00 00 45 00 00 00 45", "0 02 00 00 00 00 00 00 00 00 00 00 00 01"));
  for (const uint32_t minor : {43U, 49U}) {
    fake_.Reset();
    CreateDevice(PdSession::kSigned, {5, minor, 0});
    EXPECT_THAT(ConfigLines(fake_.Record(), "deviceCreate"),
                ElementsAre("0 00 00 00 00 45 00 00 00 45", "0 02 00 00 00 00 00 00 00 01"));
  }
}

TEST_F(OptionBytes, Context) {
  CreateDevice(PdSession::kUnsigned, kBackend551);
  const auto lines = [this](ContextConfigs configs) {
    fake_.Reset();
    EXPECT_TRUE(Context::Create(backend_, device_, std::move(configs)).ok());
    return ConfigLines(fake_.Record(), "contextCreate");
  };
  EXPECT_THAT(lines(MakeContextConfigs(HtpOptions())), ElementsAre());
  ContextOptions options;
  options.weight_sharing = true;
  EXPECT_THAT(lines(MakeContextConfigs(options)), ElementsAre("0 01 00 00 00 00 00 00 00 01"));
  options = {};
  options.priority = GraphPriority::kNormalHigh;
  EXPECT_THAT(lines(MakeContextConfigs(options)), ElementsAre("1 96"));
  options = {};
  options.group = ContextGroup{reinterpret_cast<abi::Handle>(0x11223344), 0x5566};
  EXPECT_THAT(lines(MakeContextConfigs(options)),
              ElementsAre("0 02 00 00 00 00 00 00 00 44 33 22 11 00 00 00 00 66 55"));
}

TEST_F(OptionBytes, LogLevelReachesTheVendor) {
  const auto level = [this](VendorLogLevel wanted) {
    fake_.Reset();
    const auto log = VendorLog::Create(library_, ToVendor(wanted, abi::kLogVerbose));
    EXPECT_TRUE(log.ok());
    return fake_.Record().substr(0, 11);
  };
  EXPECT_EQ(level(VendorLogLevel::kAuto), "log level 4");
  EXPECT_EQ(level(VendorLogLevel::kError), "log level 1");
  EXPECT_EQ(level(VendorLogLevel::kWarning), "log level 2");
  EXPECT_EQ(level(VendorLogLevel::kInfo), "log level 3");
  EXPECT_EQ(level(VendorLogLevel::kVerbose), "log level 4");
  EXPECT_EQ(level(VendorLogLevel::kDebug), "log level 5");
}

TEST_F(OptionBytes, ProfileLevelReachesTheVendor) {
  for (const auto& [wanted, number] :
       {std::pair(ProfileLevel::kBasic, "1"), std::pair(ProfileLevel::kDetailed, "2"),
        std::pair(ProfileLevel::kLinting, "7001")}) {
    fake_.Reset();
    EXPECT_TRUE(Profile::Create(log_, backend_->handle(), ToVendor(wanted)).ok());
    EXPECT_THAT(fake_.Record(), HasSubstr(std::string("profile level ") + number + "\n"));
  }
  fake_.Reset();
  EXPECT_TRUE(Profile::Create(log_, backend_->handle(), ToVendor(ProfileLevel::kOff)).ok());
  EXPECT_EQ(fake_.Record(), "");
}

TEST_F(OptionBytes, OpPackagesAreRegistered) {
  EXPECT_TRUE(backend_->RegisterOpPackage("/ops/libA.so", "aProvider", "HTP").ok());
  EXPECT_TRUE(backend_->RegisterOpPackage("libB.so", "bProvider", "").ok());
  // A bare name would be looked up in the loader's path.
  EXPECT_THAT(fake_.Record(), HasSubstr("op package /ops/libA.so aProvider HTP\n"));
  EXPECT_THAT(fake_.Record(), HasSubstr("op package ./libB.so bProvider none\n"));
  const test::ScopedEnv env("FAKE_QNN_FAIL", "backendRegisterOpPackage:4005");
  const Status status = backend_->RegisterOpPackage("/ops/libA.so", "aProvider", "HTP");
  EXPECT_EQ(status.code(), StatusCode::kVendor);
  EXPECT_THAT(status.message(), HasSubstr("/ops/libA.so (provider aProvider, target HTP)"));
  EXPECT_THAT(status.message(), HasSubstr("4005"));
}

struct BadOption {
  std::function<void(HtpOptions&)> set;
  StatusCode code;
  const char* message;
};

TEST(HtpOptions, WrongValuesNameOptionAndRange) {
  const BadOption cases[] = {
      {[](HtpOptions& o) { o.soc = "X1"; }, StatusCode::kNotFound, "unknown SoC 'X1'"},
      {[](HtpOptions& o) { o.soc = "CPN3050"; }, StatusCode::kUnsupported, "cannot prepare"},
      {[](HtpOptions& o) { o.vtcm_mb = 9; }, StatusCode::kInvalidArgument,
       "vtcm_mb is 9, expected 0 (all) to 8, the VTCM of SM8750"},
      {[](HtpOptions& o) { o.optimization_level = 4; }, StatusCode::kInvalidArgument,
       "optimization_level is 4, expected 1 to 3"},
      {[](HtpOptions& o) { o.decode_optimization_level = 4; }, StatusCode::kInvalidArgument,
       "decode_optimization_level is 4, expected 1 to 3"},
      {[](HtpOptions& o) { o.optimization_level = 0; }, StatusCode::kInvalidArgument,
       "optimization_level is 0"},
      {[](HtpOptions& o) { o.hvx_threads = 17; }, StatusCode::kInvalidArgument,
       "hvx_threads is 17"},
      {[](HtpOptions& o) { o.rpc_polling_us = 10000; }, StatusCode::kInvalidArgument,
       "rpc_polling_us is 10000, expected 0 to 9999"},
      {[](HtpOptions& o) { o.sleep_latency_us = 0; }, StatusCode::kInvalidArgument,
       "sleep_latency_us is 0, expected 1 to 65535"},
      {[](HtpOptions& o) { o.sleep_latency_us = 65536; }, StatusCode::kInvalidArgument,
       "sleep_latency_us is 65536"},
      {[](HtpOptions& o) {
         o.saver_dir = "/s";
         o.online_prepare = true;
       },
       StatusCode::kInvalidArgument, "online_prepare and saver_dir exclude each other"},
      {[](HtpOptions& o) {
         o.slc_allocator = SlcAllocator::kAuto;
         o.log_level = VendorLogLevel::kInfo;
       },
       StatusCode::kInvalidArgument, "log_level is info; expected auto, verbose or debug"},
      {[](HtpOptions& o) {
         o.op_packages = {{"/a.so", "", ""}};
       },
       StatusCode::kInvalidArgument, "path '/a.so' and interface provider ''"},
      {[](HtpOptions& o) {
         o.finalize_config = {{"", "v"}};
       },
       StatusCode::kInvalidArgument, "empty key"},
      {[](HtpOptions& o) {
         o.soc = "SM8350";
         o.precision = Precision::kFp16;
       },
       StatusCode::kUnsupported, "SM8350 has no 16-bit floats"},
  };
  ASSERT_TRUE(CheckOptions({}).ok());
  for (const BadOption& one : cases) {
    HtpOptions options;
    one.set(options);
    const Status status = CheckOptions(options).status();
    EXPECT_EQ(status.code(), one.code) << one.message;
    EXPECT_THAT(status.message(), HasSubstr(one.message));
  }
}

TEST(HtpOptions, OpPackageText) {
  const auto parsed = [](std::string_view text) { return ParseOpPackage(text).value(); };
  EXPECT_EQ(parsed("/a/lib.so:provider"), (OpPackage{"/a/lib.so", "provider", ""}));
  EXPECT_EQ(parsed("lib.so:p:HTP"), (OpPackage{"lib.so", "p", "HTP"}));
  EXPECT_EQ(parsed("/a:b/lib.so:p:CPU"), (OpPackage{"/a:b/lib.so", "p", "CPU"}));
  for (const char* wrong : {"", "a", ":p", "a:", ":", "a:HTP", ":p:HTP", "a::HTP"}) {
    EXPECT_EQ(ParseOpPackage(wrong).status().code(), StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(HtpOptions, OpPackageFilesMustBeThere) {
  const test::TempFolder folder;
  HtpOptions options;
  EXPECT_TRUE(CheckOpPackageFiles(options).ok());
  options.op_packages = {{folder.File("lib.so"), "p", ""}};
  const Status status = CheckOpPackageFiles(options);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(folder.File("lib.so")));
  std::ofstream(folder.File("lib.so")) << "x";
  EXPECT_TRUE(CheckOpPackageFiles(options).ok());
}

TEST(HtpOptions, Warnings) {
  const Soc& soc = **FindSoc("SM8750");
  HtpOptions options;
  EXPECT_THAT(OptionWarnings(options, soc), ElementsAre());
  options.dlbc_weights = true;
  options.dump_intermediates = true;
  options.saver_dir = "/s";
  EXPECT_THAT(OptionWarnings(options, soc),
              ElementsAre(HasSubstr("dlbc_weights: "), HasSubstr("dump_intermediates: "),
                          HasSubstr("saver_dir: ")));
}

TEST(HtpOptions, FinalizeConfigText) {
  EXPECT_EQ(ParseFinalizeConfig("a=b=c").value(),
            (std::pair<std::string, std::string>("a", "b=c")));
  EXPECT_EQ(ParseFinalizeConfig("a=").value().second, "");
  EXPECT_FALSE(ParseFinalizeConfig("a").ok());
  EXPECT_FALSE(ParseFinalizeConfig("=a").ok());
}

TEST_F(OptionBytes, PowerVote) {
  CreateDevice(PdSession::kUnsigned, kBackend551);
  {
    const auto vote = PowerVote::Create(device_);
    ASSERT_TRUE(vote.ok()) << vote.status().ToString();
    EXPECT_EQ(CountHandles()[HandleKind::kPowerConfig], 1);
    fake_.Reset();
    HtpOptions options;
    EXPECT_TRUE((*vote)->Set(options).ok());
    EXPECT_EQ(fake_.Record(), "");
    options.performance = PerformanceMode::kBurst;
    EXPECT_TRUE((*vote)->Set(options).ok());
    EXPECT_THAT(
        ConfigLines(fake_.Record(), "setPowerConfig"),
        ElementsAre("1 01 00 00 00 01 00 00 00 01 00 00 00 00 00 00 00 10 00 00 00 01 00 00 00 28 "
                    "00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 a0 00 00 00 a0 00 00 00 a0 00 00 "
                    "00 01 00 00 00 a0 00 00 00 a0 00 00 00 a0",
                    "2 02 00 00 00 64", "3 03 00 00 00 0f 27"));
    const test::ScopedEnv env("FAKE_QNN_FAIL", "setPowerConfig:13004");
    options.performance = PerformanceMode::kBalanced;
    const Status status = (*vote)->Set(options);
    EXPECT_THAT(status.message(),
                HasSubstr("performance mode 'balanced' failed: vendor error 13004"));
  }
  EXPECT_EQ(CountHandles()[HandleKind::kPowerConfig], 0);
}

TEST(PowerConfigs, EveryModeSetsClocksSleepAndPolling) {
  struct Case {
    PerformanceMode mode;
    uint32_t power, dcvs, sleep_us, corner;
    bool fast;
  };
  const Case cases[] = {
      {PerformanceMode::kBurst, 16, 0, 40, 160, true},
      {PerformanceMode::kSustainedHighPerformance, 16, 0, 100, 128, true},
      {PerformanceMode::kHighPerformance, 16, 0, 100, 128, true},
      {PerformanceMode::kBalanced, 1, 1, 1000, 112, false},
      {PerformanceMode::kLowBalanced, 1, 1, 1000, 96, false},
      {PerformanceMode::kHighPowerSaver, 1, 1, 1000, 80, false},
      {PerformanceMode::kPowerSaver, 1, 1, 1000, 64, false},
      {PerformanceMode::kLowPowerSaver, 1, 1, 1000, 48, false},
      {PerformanceMode::kExtremePowerSaver, 1, 1, 1000, 16, false},
  };
  for (const Case& one : cases) {
    HtpOptions options;
    options.performance = one.mode;
    const auto configs = PowerConfigs(3, options);
    const std::string_view name = OptionName(one.mode);
    ASSERT_EQ(configs.size(), one.fast ? 3U : 2U) << name;
    ASSERT_EQ(configs[0].option, static_cast<uint32_t>(abi::kHtpPowerDcvsV3));
    const abi::HtpDcvsV3& dcvs = configs[0].dcvs;
    EXPECT_EQ(dcvs.context_id, 3U);
    EXPECT_EQ(dcvs.set_dcvs_enable, 1U);
    EXPECT_EQ(dcvs.dcvs_enable, one.dcvs) << name;
    EXPECT_EQ(dcvs.power_mode, one.power) << name;
    EXPECT_EQ(dcvs.set_sleep_latency, 1U);
    EXPECT_EQ(dcvs.sleep_latency, one.sleep_us) << name;
    EXPECT_EQ(dcvs.set_bus, 1U);
    EXPECT_EQ(dcvs.set_core, 1U);
    for (const uint32_t corner : {dcvs.bus_min, dcvs.bus_target, dcvs.bus_max, dcvs.core_min,
                                  dcvs.core_target, dcvs.core_max}) {
      EXPECT_EQ(corner, one.corner) << name;
    }
    if (one.fast) {
      EXPECT_EQ(configs[1].option, static_cast<uint32_t>(abi::kHtpPowerRpcLatency));
      EXPECT_EQ(configs[1].value, 100U);
    }
    EXPECT_EQ(configs.back().option, static_cast<uint32_t>(abi::kHtpPowerRpcPolling));
    EXPECT_EQ(configs.back().value, one.fast ? 9999U : 0U);
  }
}

TEST(OptionsOfGraph, DecodeHasALevelOfItsOwnAndALowerOneWhereWeightsAreShared) {
  const auto level = [](const HtpOptions& options, bool decode) {
    return OptionsOfGraph(options, decode).optimization_level;
  };
  HtpOptions options;
  EXPECT_EQ(level(options, true), 3U);
  options.weight_sharing = true;
  EXPECT_EQ(level(options, true), 2U);
  EXPECT_EQ(level(options, false), 3U);
  options.optimization_level = 1;
  EXPECT_EQ(level(options, true), 1U);
  options.decode_optimization_level = 3;
  EXPECT_EQ(level(options, true), 3U);
  EXPECT_EQ(level(options, false), 1U);
}

TEST(PowerConfigs, OwnLatenciesWinOverTheMode) {
  HtpOptions options;
  options.rpc_polling_us = 500;
  options.rpc_control_latency_us = 70;
  options.sleep_latency_us = 60;
  auto configs = PowerConfigs(1, options);
  ASSERT_EQ(configs.size(), 3U);
  EXPECT_EQ(configs[0].dcvs.set_sleep_latency, 1U);
  EXPECT_EQ(configs[0].dcvs.sleep_latency, 60U);
  EXPECT_EQ(configs[0].dcvs.set_dcvs_enable, 0U);  // the rest stays the vendor's
  EXPECT_EQ(configs[0].dcvs.set_bus, 0U);
  EXPECT_EQ(configs[0].dcvs.set_core, 0U);
  EXPECT_EQ(configs[1].value, 70U);
  EXPECT_EQ(configs[2].value, 500U);
  options.performance = PerformanceMode::kBurst;
  configs = PowerConfigs(1, options);
  ASSERT_EQ(configs.size(), 3U);
  EXPECT_EQ(configs[0].dcvs.sleep_latency, 60U);
  EXPECT_EQ(configs[0].dcvs.core_target, 160U);
  EXPECT_EQ(configs[1].value, 70U);
  EXPECT_EQ(configs[2].value, 500U);
}

TEST_F(OptionBytes, PowerVoteFailures) {
  CreateDevice(PdSession::kUnsigned, kBackend551);
  {
    const test::ScopedEnv env("FAKE_QNN_FAIL", "deviceGetInfrastructure:1000");
    EXPECT_THAT(PowerVote::Create(device_).status().message(), HasSubstr("performance interface"));
  }
  const test::ScopedEnv env("FAKE_QNN_FAIL", "createPowerConfigId:13006");
  EXPECT_THAT(PowerVote::Create(device_).status().message(), HasSubstr("creating an HTP power"));
}

}  // namespace
}  // namespace spillway::qnn::htp
