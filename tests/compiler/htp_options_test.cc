// Every HTP option through a compile job, read back from where it shows: the vendor's own
// log and binary with the real library, the record of calls with the fake one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>

#include "compiler/vendor_job.h"
#include "qnn/api/binary_info.h"
#include "qnn/api/handle_counts.h"
#include "qnn/api/library.h"
#include "tests/compiler/tiny_compile.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// x -> Linear -> y -> Linear -> z: one output, one internal tensor.
Graph TwoLinears() {
  Graph graph("two");
  const auto linear = [&](const std::string& name, TensorId x, uint32_t n, uint32_t k) {
    std::vector<int8_t> weights(PackedN16K4Size(n, k));
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = static_cast<int8_t>(i * 37 % 255 - 127);
    const TensorId w = graph.AddConstant(name + ".w", DType::kS8, {n, k},
                                         MakeConstantOf(weights, DataLayout::kPackedN16K4),
                                         Encoding::PerChannel(8, 0, std::vector<float>(n, 0.001F)));
    const TensorId y = graph.AddOp(OpType::kLinear, name, {x, w});
    graph.mutable_tensor(y).encoding = AffineEncoding(DType::kU16, -8, 8);
    return y;
  };
  const TensorId x = graph.AddInput("x", DType::kU16, {1, 1, 4, 64});
  graph.mutable_tensor(x).encoding = AffineEncoding(DType::kU16, -4, 4);
  graph.MarkOutput(linear("down", linear("up", x, 128, 64), 64, 128));
  return graph;
}

class OptionJobTest : public ::testing::Test {
 protected:
  OptionJobTest() : worker_("SPILLWAY_WORKER", SPILLWAY_WORKER_PROGRAM) {
    job_.folder = folder_.File("graphs");
    job_.output_path = folder_.File("context.bin");
    auto writer = PackageWriter::Create(folder_.File("pkg"));
    EXPECT_TRUE(writer.ok());
    const Graph graph = TwoLinears();
    EXPECT_TRUE(graph.Validate().ok()) << graph.Validate().ToString();
    EXPECT_TRUE(writer->AddShard({std::make_shared<const Graph>(graph)}).ok());
    EXPECT_TRUE(writer->FinishGraphs({}).ok());
    writer_.emplace(std::move(writer).value());
    job_.folder = writer_->PathOf("");
  }

  VendorEvents CollectLines() {
    VendorEvents events;
    events.log = [this](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    };
    return events;
  }
  // Runs the job in this process; lines_ has what the vendor logged.
  Result<VendorResult> Run(const HtpOptions& htp) {
    lines_.clear();
    job_.htp = htp;
    Result<VendorResult> result = RunVendorJob(job_, CollectLines());
    EXPECT_EQ(qnn::CountHandles().ToString(), "none");
    return result;
  }

  test::ScopedEnv worker_;
  test::TempFolder folder_;
  std::optional<PackageWriter> writer_;
  VendorJob job_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// ---- With the vendor's library --------------------------------------------

class RealOptions : public OptionJobTest {
 protected:
  void SetUp() override {
    if (!test::QnnLibDir()) {
      GTEST_SKIP() << "no vendor libraries in SPILLWAY_QNN_LIB_DIR or .deps/qnn/onnxruntime_qnn";
    }
    job_.qnn_lib_dir = *test::QnnLibDir();
  }
  qnn::BinaryInfo Info() const {
    const auto system = qnn::SystemLibrary::Load(job_.qnn_lib_dir).value();
    return qnn::ReadBinaryInfoFile(*system, job_.output_path).value();
  }
  qnn::GraphMemory Memory() const { return *Info().FindGraph("two")->memory; }
};

struct LogCase {
  const char* name;
  std::function<void(HtpOptions&)> set;
  // A part of a log line that is there with the option and not without.
  const char* line;
};

std::ostream& operator<<(std::ostream& out, const LogCase& c) { return out << c.name; }

class RealLoggedOption : public RealOptions, public ::testing::WithParamInterface<LogCase> {};

TEST_P(RealLoggedOption, ShowsInTheVendorsLog) {
  ASSERT_TRUE(Run({}).ok());
  EXPECT_THAT(lines_, Not(Contains(HasSubstr(GetParam().line))));
  HtpOptions htp;
  GetParam().set(htp);
  const auto result = Run(htp);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_THAT(lines_, Contains(HasSubstr(GetParam().line)));
}

INSTANTIATE_TEST_SUITE_P(
    Htp, RealLoggedOption,
    ::testing::Values(
        LogCase{"level", [](HtpOptions& o) { o.optimization_level = 1; }, "option: O = 1.0"},
        LogCase{"vtcm", [](HtpOptions& o) { o.vtcm_mb = 4; }, "option: vtcm_size = 4194304"},
        LogCase{"hvx_threads", [](HtpOptions& o) { o.hvx_threads = 3; }, "option: hvx_threads = 3"},
        LogCase{"slc", [](HtpOptions& o) { o.slc_allocator = SlcAllocator::kOn; },
                "option: slc_allocate = 1"},
        LogCase{"dlbc", [](HtpOptions& o) { o.dlbc = true; }, "option: enable_dlbc = 1"},
        LogCase{"dlbc_weights", [](HtpOptions& o) { o.dlbc_weights = true; },
                "option: dlbc_weight_compression = 1"},
        LogCase{"fold_relu_off", [](HtpOptions& o) { o.fold_relu = false; },
                "Option: fold_relu_flag = 0"},
        LogCase{"conv_hmx_off", [](HtpOptions& o) { o.conv_hmx = false; },
                "Option: hmx_short_conv_flag = 0"},
        LogCase{"priority_high", [](HtpOptions& o) { o.priority = GraphPriority::kHigh; },
                "Graph two priority = QNN_PRIORITY_HIGH"},
        LogCase{"priority_low", [](HtpOptions& o) { o.priority = GraphPriority::kLow; },
                "Graph two priority = QNN_PRIORITY_LOW"},
        LogCase{"finalize_number",
                [](HtpOptions& o) {
                  o.finalize_config = {{"hmx_bounding_maxtime_us", "60"}};
                },
                "Option: hmx_bounding_maxtime_us = 60"},
        LogCase{"finalize_bool",
                [](HtpOptions& o) {
                  o.finalize_config = {{"fold_add_into_softmax", "true"}};
                },
                "Option: fold_add_into_softmax = 1"},
        LogCase{"soc", [](HtpOptions& o) { o.soc = "SM8650"; }, "Client set SoC 57"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST_F(RealOptions, ShowInTheBinary) {
  ASSERT_TRUE(Run({}).ok());
  qnn::GraphMemory memory = Memory();
  EXPECT_EQ(memory.optimization_level, 3U);
  EXPECT_EQ(memory.vtcm_bytes, uint64_t{8} << 20);
  EXPECT_EQ(memory.hvx_threads, 0U);
  EXPECT_FALSE(memory.dlbc);
  EXPECT_THAT(Info().FindGraph("two")->outputs, SizeIs(1));
  HtpOptions htp;
  htp.soc = "SA8797";
  htp.optimization_level = 2;
  htp.vtcm_mb = 3;
  htp.hvx_threads = 2;
  htp.dlbc = true;
  ASSERT_TRUE(Run(htp).ok());
  memory = Memory();
  EXPECT_EQ(memory.optimization_level, 2U);
  EXPECT_EQ(memory.vtcm_bytes, uint64_t{3} << 20);
  EXPECT_EQ(memory.hvx_threads, 2U);
  EXPECT_TRUE(memory.dlbc);
  EXPECT_EQ(Info().soc_model, 72U);
}

TEST_F(RealOptions, FinalizeConfigText) {
  HtpOptions htp;
  htp.soc = "SA8797";  // has the model of costs that is traced
  htp.finalize_config = {{"sim_trace_final", folder_.File("trace.json")}};
  ASSERT_TRUE(Run(htp).ok());
  EXPECT_THAT(ReadFile(folder_.File("trace.json")).value(), HasSubstr("traceEvents"));
}

TEST_F(RealOptions, UnknownFinalizeConfigKeyIsAnErrorBeforeMinutesAreSpent) {
  HtpOptions htp;
  htp.finalize_config = {{"hmx_bounding_maxtime_us", "60"}, {"hmx_bounding_maxtime", "60"}};
  const Status status = Run(htp).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("hmx_bounding_maxtime=60"));
  EXPECT_THAT(status.message(), HasSubstr("knows no switch of that name"));
  EXPECT_THAT(lines_, Not(Contains(HasSubstr("Completed stage"))));
}

TEST_F(RealOptions, LogLevel) {
  HtpOptions htp;
  htp.log_level = VendorLogLevel::kWarning;
  ASSERT_TRUE(Run(htp).ok());
  EXPECT_THAT(lines_, Not(Contains(HasSubstr("graph option"))));
  const size_t few = lines_.size();
  htp.log_level = VendorLogLevel::kVerbose;
  ASSERT_TRUE(Run(htp).ok());
  EXPECT_THAT(lines_, Contains(HasSubstr("graph option")));
  EXPECT_GT(lines_.size(), few + 100);
}

TEST_F(RealOptions, ProfileLevel) {
  auto result = Run({});
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(result->shard.graphs[0].profile, IsEmpty());
  EXPECT_EQ(result->shard.graphs[0].estimate_us, 0);
  HtpOptions htp;
  htp.soc = "SA8797";
  result = Run(htp);  // the estimate needs no option
  ASSERT_TRUE(result.ok());
  EXPECT_GT(result->shard.graphs[0].estimate_us, 0);
  EXPECT_THAT(result->shard.graphs[0].profile, IsEmpty());
  for (const ProfileLevel level : {ProfileLevel::kBasic, ProfileLevel::kDetailed}) {
    htp.profile_level = level;
    result = Run(htp);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    const std::vector<ProfileRow>& rows = result->shard.graphs[0].profile;
    ASSERT_FALSE(rows.empty());
    EXPECT_EQ(rows[0].type, 300U);  // the time of finalising
    EXPECT_EQ(rows[0].depth, 0U);
    EXPECT_EQ(rows[0].unit, "us");
    // The estimate's cycles, a part of a part.
    EXPECT_EQ(std::count_if(rows.begin(), rows.end(),
                            [](const ProfileRow& row) {
                              return row.type == 2006 && row.value > 0 && row.depth > 0 &&
                                     row.unit == "cycles";
                            }),
              1);
    // The stages of the preparation.
    const bool stages = std::any_of(rows.begin(), rows.end(), [](const ProfileRow& row) {
      return row.name == "Graph Optimizations" && row.depth == 1 && row.value > 0;
    });
    EXPECT_EQ(stages, level == ProfileLevel::kDetailed);
  }
}

TEST_F(RealOptions, OnlinePreparationChecksEveryNodeAndMakesNothing) {
  HtpOptions htp;
  htp.online_prepare = true;
  const auto result = Run(htp);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_FALSE(FileExists(job_.output_path));
  ASSERT_THAT(result->shard.graphs, SizeIs(1));
  EXPECT_EQ(result->shard.graphs[0].nodes, 2U);
  EXPECT_EQ(result->shard.graphs[0].finalize_s, 0);
  EXPECT_EQ(result->shard.context_bytes, 0U);
  EXPECT_GT(result->shard.weight_bytes, 0U);
  EXPECT_THAT(lines_, Contains(HasSubstr("Validating Op")));
  EXPECT_THAT(lines_, Not(Contains(HasSubstr("Completed stage"))));
}

TEST_F(RealOptions, ARefusalShowsWithoutPreparation) {
  // An addition of a u16 and a u8 value.
  Graph graph("mixed");
  const TensorId a = graph.AddInput("a", DType::kU16, {1, 1, 4, 64});
  const TensorId b = graph.AddInput("b", DType::kU8, {1, 1, 4, 64});
  graph.mutable_tensor(a).encoding = AffineEncoding(DType::kU16, -4, 4);
  graph.mutable_tensor(b).encoding = AffineEncoding(DType::kU8, -4, 4);
  const TensorId y = graph.AddOp(OpType::kAdd, "sum", {a, b});
  graph.mutable_tensor(y).encoding = AffineEncoding(DType::kU16, -8, 8);
  graph.MarkOutput(y);
  auto writer = PackageWriter::Create(folder_.File("mixed"));
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->AddShard({std::make_shared<const Graph>(graph)}).ok());
  const Status written = writer->FinishGraphs({});
  if (!written.ok()) GTEST_SKIP() << "no such graph can be written: " << written.ToString();
  job_.folder = writer->PathOf("");
  HtpOptions htp;
  htp.online_prepare = true;
  const Status status = Run(htp).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("graph mixed, operation sum (Add)"));
}

TEST_F(RealOptions, IntermediatesAreOutputsBehindTheGraphsOwn) {
  HtpOptions htp;
  htp.dump_intermediates = true;
  const auto result = Run(htp);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  const qnn::BinaryInfo info = Info();
  const std::vector<qnn::TensorInfo>& outputs = info.FindGraph("two")->outputs;
  const Graph graph = TwoLinears();
  ASSERT_THAT(outputs, SizeIs(2));
  EXPECT_EQ(outputs[0].name, graph.tensor(graph.outputs()[0]).name);
  EXPECT_EQ(outputs[1].name, graph.tensor(graph.ops()[0].outputs[0]).name);
  EXPECT_EQ(outputs[1].dims, (std::vector<uint32_t>{1, 1, 4, 128}));
}

TEST_F(RealOptions, TheSaverRecordsTheCalls) {
  if (!FileExists(job_.qnn_lib_dir + "/libQnnSaver.so")) GTEST_SKIP() << "no libQnnSaver.so";
  job_.htp.saver_dir = folder_.File("new/record");
  job_.htp.priority = GraphPriority::kHigh;
  job_.htp.vtcm_mb = 4;
  const auto result = RunVendorJobInWorker(job_, 60, CollectLines());
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_FALSE(FileExists(job_.output_path));
  const std::string dir = folder_.File("new/record/context_0");
  EXPECT_THAT(result->shard.saver_files,
              ElementsAre(dir + "/saver_output.c", dir + "/params.bin", dir + "/htp_options.json"));
  const std::string source = ReadFile(dir + "/saver_output.c").value();
  // The last is the end of the program: the record is complete.
  for (const char* part :
       {"interface.contextCreate", "\"two\"", "\"Conv2d\"", "interface.graphAddNode",
        "interface.graphFinalize", "priority=(Qnn_Priority_t)200", "fclose(fp)"}) {
    EXPECT_NE(source.find(part), std::string::npos) << part;
  }
  EXPECT_GE(FileSize(dir + "/params.bin").value(), 2U * 64 * 128);
  EXPECT_EQ(nlohmann::json::parse(ReadFile(dir + "/htp_options.json").value())["vtcm_mb"], 4);
}

TEST_F(RealOptions, ALibraryThatIsNoOpPackageIsRefusedByName) {
  HtpOptions htp;
  htp.op_packages = {{job_.qnn_lib_dir + "/libQnnSystem.so", "noSuchProvider", "CPU"}};
  const Status status = Run(htp).status();
  EXPECT_EQ(status.code(), StatusCode::kVendor) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("registering the op package"));
  EXPECT_THAT(status.message(), HasSubstr("libQnnSystem.so (provider noSuchProvider, target CPU)"));
}

// ---- With the fake library --------------------------------------------------

class FakeOptions : public OptionJobTest {
 protected:
  FakeOptions() { job_.qnn_lib_dir = test::FakeQnnDir(); }
  // What the fake library was given for these options.
  std::string Record(const HtpOptions& htp) {
    fake_.Reset();
    const auto result = Run(htp);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(fake_.LiveHandles(), 0);
    return fake_.Record();
  }
  test::FakeQnn fake_;
};

struct RecordCase {
  const char* name;
  std::function<void(HtpOptions&)> set;
  const char* line;  // there with the option and not without
};

std::ostream& operator<<(std::ostream& out, const RecordCase& c) { return out << c.name; }

class FakeRecordedOption : public FakeOptions, public ::testing::WithParamInterface<RecordCase> {};

TEST_P(FakeRecordedOption, ReachesTheVendor) {
  EXPECT_THAT(Record({}), Not(HasSubstr(GetParam().line)));
  HtpOptions htp;
  GetParam().set(htp);
  EXPECT_THAT(Record(htp), HasSubstr(GetParam().line));
}

INSTANTIATE_TEST_SUITE_P(
    Htp, FakeRecordedOption,
    ::testing::Values(
        RecordCase{"fp16", [](HtpOptions& o) { o.precision = Precision::kFp16; },
                   "config graphCreate option 0 02 00 00 00 00 00 00 00 01 "},
        RecordCase{"fold_relu_on", [](HtpOptions& o) { o.fold_relu = true; },
                   "config graphCreate option 0 04 00 00 00 00 00 00 00 00 "},
        RecordCase{"conv_hmx_on", [](HtpOptions& o) { o.conv_hmx = true; },
                   "config graphCreate option 0 05 00 00 00 00 00 00 00 00 "},
        RecordCase{"priority_context", [](HtpOptions& o) { o.priority = GraphPriority::kLow; },
                   "config contextCreate option 1 00 00 00 00"},
        RecordCase{"priority_graph", [](HtpOptions& o) { o.priority = GraphPriority::kNormalHigh; },
                   "config graphCreate option 3 96 00 00 00"},
        RecordCase{"signed_pd", [](HtpOptions& o) { o.pd_session = PdSession::kSigned; },
                   "config deviceCreate option 0 02 00 00 00 00 00 00 00 00 00 00 00 01 "},
        RecordCase{"weight_sharing", [](HtpOptions& o) { o.weight_sharing = true; },
                   "config contextCreate option 0 01 00 00 00 00 00 00 00 01 "},
        RecordCase{"op_package",
                   [](HtpOptions& o) {
                     o.op_packages = {{"/a/ops.so", "opsProvider", "HTP"}};
                   },
                   "op package /a/ops.so opsProvider HTP\n"},
        RecordCase{"finalize_number",
                   [](HtpOptions& o) {
                     o.finalize_config = {{"k", "-7"}};
                   },
                   "finalize config k i32:-7\n"},
        RecordCase{"finalize_bool",
                   [](HtpOptions& o) {
                     o.finalize_config = {{"k", "false"}};
                   },
                   "finalize config k b8:0\n"},
        RecordCase{"finalize_text",
                   [](HtpOptions& o) {
                     o.finalize_config = {{"k", "/a b"}};
                   },
                   "finalize config k text:/a b\n"},
        RecordCase{"log_level", [](HtpOptions& o) { o.log_level = VendorLogLevel::kDebug; },
                   "log level 5\n"},
        RecordCase{"profile_linting",
                   [](HtpOptions& o) { o.profile_level = ProfileLevel::kLinting; },
                   "profile level 7001\n"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST_F(FakeOptions, UnknownFinalizeConfigKey) {
  HtpOptions htp;
  htp.finalize_config = {{"unknown", "1"}};
  const Status status = Run(htp).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("unknown=1"), HasSubstr("fake.1")));
}

TEST_F(FakeOptions, OnlinePreparationNeitherFinalisesNorReadsABinary) {
  HtpOptions htp;
  htp.online_prepare = true;
  const std::string record = Record(htp);
  EXPECT_THAT(record, HasSubstr("call backendValidateOpConfig"));
  EXPECT_THAT(record, Not(HasSubstr("call graphFinalize")));
  EXPECT_THAT(record, Not(HasSubstr("call contextGetBinary")));
  const test::ScopedEnv fail("FAKE_QNN_FAIL", "backendValidateOpConfig:3110:2");
  fake_.Reset();
  EXPECT_EQ(Run(htp).status().code(), StatusCode::kUnsupported);
}

TEST_F(FakeOptions, AutomaticSlcIsNoJob) {
  HtpOptions htp;
  htp.slc_allocator = SlcAllocator::kAuto;
  EXPECT_EQ(Run(htp).status().code(), StatusCode::kInternal);
}

TEST_F(FakeOptions, ASaverThatIsMissingIsNamed) {
  job_.htp.saver_dir = folder_.File("record");
  const Status status = RunVendorJobInWorker(job_, 60, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("libQnnSaver.so"));
}

TEST_F(FakeOptions, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(folder_.File("file")) << "x";
  job_.htp.saver_dir = folder_.File("file/record");
  const Status status = RunVendorJobInWorker(job_, 60, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kIo) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr(folder_.File("file/record")));
}

// ---- A whole compile ---------------------------------------------------------

class OptionCompileTest : public test::TinyCompileTest {
 protected:
  OptionCompileTest() {
    options_.htp_build = HtpBuild::kOn;
    options_.qnn_lib_dir = test::FakeQnnDir();
    options_.use_cache = false;
  }
};

TEST_F(OptionCompileTest, TheManifestCarriesTheOptions) {
  options_.htp.performance = PerformanceMode::kBurst;
  options_.htp.sleep_latency_us = 55;
  options_.htp.finalize_config = {{"a", "b"}};
  options_.htp.profile_level = ProfileLevel::kBasic;
  const auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  const auto json = nlohmann::json::parse(package->manifest().htp_options_json);
  EXPECT_EQ(json["performance"], "burst");
  EXPECT_EQ(json["sleep_latency_us"], 55);
  EXPECT_EQ(json["finalize_config"][0][1], "b");
  EXPECT_EQ(json["profile_level"], "basic");
  const auto report = nlohmann::json::parse(report_.ToJson());
  EXPECT_EQ(report["shards"][0]["graphs"][0]["profile"][0]["event"], 300);
  EXPECT_THAT(report_.ToText(), HasSubstr("event 300 1234 us"));
}

TEST_F(OptionCompileTest, OnlinePreparationLeavesAPackageWithoutAContext) {
  options_.htp.online_prepare = true;
  const auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  EXPECT_EQ(package->manifest().shards[0].context_file, "");
  EXPECT_TRUE(nlohmann::json::parse(package->manifest().htp_options_json)["online_prepare"]);
  EXPECT_FALSE(package->HasFile("context_0.bin"));
  EXPECT_THAT(report_.ToText(), HasSubstr("the device prepares it"));
  EXPECT_THAT(report_.ToText(), HasSubstr(" nodes, not finalised"));
}

TEST_F(OptionCompileTest, OptionsThatExcludeEachOtherAndMissingFiles) {
  const auto error = [this](const std::function<void(CompileOptions&)>& set) {
    const CompileOptions before = options_;
    set(options_);
    const Status status = CompileError();
    options_ = before;
    return status.message();
  };
  EXPECT_THAT(error([](CompileOptions& o) {
                o.htp.online_prepare = true;
                o.with_simulator = true;
              }),
              HasSubstr("online_prepare makes no context binary"));
  EXPECT_THAT(error([](CompileOptions& o) {
                o.htp.saver_dir = "/s";
                o.in_process = true;
              }),
              HasSubstr("leave --in-process away"));
  EXPECT_THAT(error([](CompileOptions& o) {
                o.htp.saver_dir = "/s";
                o.htp_build = HtpBuild::kOff;
              }),
              HasSubstr("--htp off"));
  EXPECT_THAT(error([](CompileOptions& o) {
                o.htp.op_packages = {{"/no/such/ops.so", "p", ""}};
              }),
              HasSubstr("/no/such/ops.so is not there"));
}

}  // namespace
}  // namespace spillway
