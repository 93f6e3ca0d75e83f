// Compile() with a vendor library that records, fails, crashes and hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compiler/vendor_job.h"
#include "qnn/api/handle_counts.h"
#include "tests/compiler/tiny_compile.h"

namespace spillway {
namespace {

using test::ScopedEnv;
using ::testing::AllOf;
using ::testing::Contains;

using ::testing::HasSubstr;

// A graph configuration of the SLC allocator: option 1 (optimisation), type 7,
// 1.0 or 0.0.
constexpr char kSlc[] = " 01 00 00 00 00 00 00 00 07 00 00 00";
constexpr char kSlcOn[] = " 01 00 00 00 00 00 00 00 07 00 00 00 00 00 80 3f";
constexpr char kSlcOff[] = " 01 00 00 00 00 00 00 00 07 00 00 00 00 00 00 00";
// A context configuration: option 1 (weight sharing), true.
constexpr char kSharing[] = " 01 00 00 00 00 00 00 00 01";

class FakeVendorTest : public test::TinyCompileTest {
 protected:
  FakeVendorTest() : record_("FAKE_QNN_RECORD", records_.File("record")) {
    options_.htp_build = HtpBuild::kOn;
    options_.qnn_lib_dir = test::FakeQnnDir();
    options_.vendor_timeout_s = 120;
  }

  // Lines of the children's record that begin so, and forgets the record.
  std::vector<std::string> TakeLines(const std::string& start) {
    std::vector<std::string> lines;
    std::ifstream file(records_.File("record"));
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(start)) lines.push_back(line);
    }
    unlink(records_.File("record").c_str());
    return lines;
  }

  test::TempFolder records_;
  ScopedEnv record_;
};

TEST_F(FakeVendorTest, WholeFlow) {
  std::vector<std::string> stages;
  const auto report =
      Compile(options_, [&](std::string_view stage, double) { stages.emplace_back(stage); });
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_THAT(stages, Contains(HasSubstr("finalise prefill_forward")));
  EXPECT_THAT(stages, Contains(HasSubstr("finalise kv_forward")));
  const auto package = Package::Open(options_.output_path);
  ASSERT_TRUE(package.ok()) << package.status().ToString();
  const PackageManifest& manifest = (*package)->manifest();
  ASSERT_EQ(manifest.shards.size(), 1u);
  const ShardInfo& shard = manifest.shards[0];
  EXPECT_EQ(shard.context_file, "context_0.bin");
  EXPECT_EQ(shard.plain_file, "");
  EXPECT_EQ(shard.spill_fill_bytes, 8192u);  // the larger of the two graphs
  EXPECT_EQ(shard.context_bytes, FileSize((*package)->PathOf("context_0.bin")).value());
  EXPECT_GT(shard.weight_bytes, 80000u);
  EXPECT_TRUE(manifest.weight_sharing);
  EXPECT_FALSE(manifest.slc_allocator);
  const auto vendor = nlohmann::json::parse(manifest.vendor_json);
  EXPECT_EQ(vendor["build_id"], "fake.1");
  EXPECT_EQ(vendor["core_api"], "2.40.0");
  EXPECT_EQ(vendor["soc_model"], 69);

  EXPECT_EQ(report->htp_left_out, "");
  EXPECT_EQ(report->vendor_build_id, "fake.1");
  ASSERT_EQ(report->shards.size(), 1u);
  EXPECT_EQ(report->shards[0].spill_fill_bytes, 8192u);
  ASSERT_EQ(report->shards[0].graphs.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const GraphReport& graph = report->shards[0].graphs[i];
    EXPECT_EQ(graph.name, i == 0 ? "prefill_forward" : "kv_forward");
    EXPECT_EQ(graph.spill_fill_buffer_bytes, 4096u * (i + 1));
    EXPECT_EQ(graph.vtcm_bytes, 8u << 20);
    EXPECT_GT(graph.nodes, 40u);
    EXPECT_EQ(graph.spill_bytes, 4096u);
    EXPECT_EQ(graph.fill_bytes, 8192u);
    EXPECT_EQ(graph.read_bytes, 20000u);
    EXPECT_EQ(graph.write_bytes, 5000u);
    EXPECT_EQ(graph.slc, SlcOutcome::kOff);
  }
  const auto json = nlohmann::json::parse(report->ToJson());
  EXPECT_EQ(json["ddr"]["kv_forward"]["spill_bytes"], 4096);
  EXPECT_EQ(json["shards"][0]["spill_fill_bytes"], 8192);
  // Everything that the child made it freed.
  const std::vector<std::string> calls = TakeLines("call ");
  for (const char* kind : {"context", "device", "backend", "log"}) {
    const std::string name = std::string("call ") + kind;
    EXPECT_EQ(std::count(calls.begin(), calls.end(), name + "Create"),
              std::count(calls.begin(), calls.end(), name + "Free"))
        << kind;
  }
}

TEST_F(FakeVendorTest, SlcReachesTheVendor) {
  ASSERT_TRUE(CompileAndOpen());  // the default is off
  std::vector<std::string> lines = TakeLines("config graphCreate");
  EXPECT_THAT(lines, Contains(HasSubstr(kSlcOff)).Times(2));
  EXPECT_THAT(lines, Contains(HasSubstr(kSlc)).Times(2));

  options_.htp.slc_allocator = SlcAllocator::kOn;
  const auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  EXPECT_TRUE(package->manifest().slc_allocator);
  lines = TakeLines("config graphCreate");
  EXPECT_THAT(lines, Contains(HasSubstr(kSlcOn)).Times(2));
  EXPECT_THAT(lines, Contains(HasSubstr(kSlc)).Times(2));
  for (const GraphReport& graph : report_.shards[0].graphs) {
    EXPECT_EQ(graph.slc, SlcOutcome::kMarked);
  }
}

TEST_F(FakeVendorTest, WeightSharingFollowsTheNumberOfGraphs) {
  struct Case {
    const char* mode;
    std::optional<bool> asked;
    bool shared;
  };
  for (const Case& one : {Case{"hybrid", {}, true}, Case{"kv", {}, false},
                          Case{"hybrid", false, false}, Case{"kv", true, true}}) {
    options_.mode = one.mode;
    options_.htp.weight_sharing = one.asked;
    const auto package = CompileAndOpen();
    ASSERT_TRUE(package);
    EXPECT_EQ(package->manifest().weight_sharing, one.shared);
    EXPECT_THAT(TakeLines("config contextCreate"),
                Contains(HasSubstr(kSharing)).Times(one.shared ? 1 : 0))
        << one.mode;
  }
}

TEST_F(FakeVendorTest, TheSimulatorsContextHasNeitherSharingNorSlc) {
  options_.with_simulator = true;
  options_.htp.slc_allocator = SlcAllocator::kOn;
  const auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  EXPECT_EQ(package->manifest().shards[0].plain_file, "plain_0.bin");
  EXPECT_TRUE(package->HasFile("plain_0.bin"));
  EXPECT_TRUE(package->manifest().slc_allocator);
  std::vector<std::string> lines;
  for (std::string& line : TakeLines("config ")) lines.push_back(std::move(line));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("graphCreate"), HasSubstr(kSlcOn))).Times(2));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("graphCreate"), HasSubstr(kSlcOff))).Times(2));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("contextCreate"), HasSubstr(kSharing))).Times(1));
}

TEST_F(FakeVendorTest, EveryFailingCallIsAnErrorThatLeavesNothing) {
  for (const char* call :
       {"backendCreate:4000", "deviceCreate:14001", "contextCreate:5000", "graphCreate:6003",
        "tensorCreateGraphTensor:7004:9", "graphAddNode:6005:3", "graphFinalize:1002",
        "graphFinalize:1002:2", "contextGetBinarySize:5006", "contextGetBinary:5007",
        "systemContextGetMetaData:30010", "logCreate:11000"}) {
    const ScopedEnv fail("FAKE_QNN_FAIL", call);
    const Status status = CompileError();
    EXPECT_EQ(status.code(), StatusCode::kVendor) << call << ": " << status.ToString();
    const std::string text = call;
    EXPECT_THAT(status.message(), HasSubstr(text.substr(text.find(':') + 1, 4)));
  }
  const ScopedEnv fail("FAKE_QNN_FAIL", "backendValidateOpConfig:3110:5");
  const Status status = CompileError();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("graph prefill_forward, operation "));
}

TEST_F(FakeVendorTest, AFailureInThisProcessFreesEveryHandle) {
  options_.in_process = true;
  const test::FakeQnn fake;
  ASSERT_TRUE(CompileAndOpen());
  EXPECT_EQ(qnn::CountHandles().ToString(), "none");
  EXPECT_EQ(fake.LiveHandles(), 0);
  for (const char* call : {"deviceCreate:14001", "graphAddNode:6005", "graphFinalize:1002",
                           "contextGetBinary:5007", "systemContextGetMetaData:30010"}) {
    const ScopedEnv fail("FAKE_QNN_FAIL", call);
    EXPECT_EQ(CompileError().code(), StatusCode::kVendor) << call;
    EXPECT_EQ(qnn::CountHandles().ToString(), "none") << call;
    EXPECT_EQ(fake.LiveHandles(), 0) << call;
  }
}

TEST_F(FakeVendorTest, ACrashIsAnError) {
  ASSERT_TRUE(CompileAndOpen());
  const std::string manifest = ReadFile(folder_.File("pkg/manifest.json")).value();
  for (const char* call :
       {"graphFinalize", "graphFinalize:2", "contextGetBinary", "backendCreate", "contextFree"}) {
    const ScopedEnv crash("FAKE_QNN_CRASH", call);
    const Status status = CompileError();
    EXPECT_EQ(status.code(), StatusCode::kVendorCrash) << call << ": " << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("context_0.bin"));
    EXPECT_THAT(status.message(), HasSubstr("signal"));
  }
  // The last words are the vendor's log.
  const ScopedEnv crash("FAKE_QNN_CRASH", "graphFinalize");
  EXPECT_THAT(CompileError().message(), HasSubstr("graph option: slc_allocate = 0"));
  EXPECT_EQ(ReadFile(folder_.File("pkg/manifest.json")).value(), manifest);
}

TEST_F(FakeVendorTest, AHangIsStopped) {
  options_.vendor_timeout_s = 1.5;
  for (const char* call : {"graphFinalize", "contextGetBinary"}) {
    const ScopedEnv hang("FAKE_QNN_HANG", call);
    const Status status = CompileError();
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("--vendor-timeout"));
  }
}

TEST_F(FakeVendorTest, MissingLibraries) {
  for (const HtpBuild build : {HtpBuild::kOn, HtpBuild::kAuto}) {
    options_.htp_build = build;
    options_.qnn_lib_dir = folder_.File("nowhere");
    const Status status = CompileError();
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(folder_.File("nowhere/libQnnHtp.so")));
  }
  // Not asked for by name: a package for the host.
  options_.qnn_lib_dir = "";
  const ScopedEnv nowhere("SPILLWAY_QNN_LIB_DIR", folder_.File("nowhere"));
  ASSERT_TRUE(CompileAndOpen());
  EXPECT_THAT(report_.htp_left_out, HasSubstr(folder_.File("nowhere/libQnnHtp.so")));
  options_.htp_build = HtpBuild::kOn;
  EXPECT_EQ(CompileError().code(), StatusCode::kNotFound);
}

TEST_F(FakeVendorTest, WrongLibraries) {
  const test::TempFolder libraries;
  const auto copy = [&](const std::string& from, const std::string& to) {
    std::ofstream(libraries.File(to), std::ios::binary | std::ios::trunc)
        << ReadFile(test::FakeQnnDir() + "/" + from).value();
  };
  copy("libQnnHtp.so", "libQnnHtp.so");
  options_.qnn_lib_dir = libraries.path();
  EXPECT_THAT(CompileError().message(), HasSubstr("libQnnSystem.so"));
  copy("libQnnSystem.so", "libQnnHtp.so");
  copy("libQnnSystem.so", "libQnnSystem.so");
  Status status = CompileError();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("QnnInterface_getProviders"));
  std::ofstream(libraries.File("libQnnHtp.so"), std::ios::trunc) << "no library";
  status = CompileError();
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr(libraries.File("libQnnHtp.so")));

  options_.qnn_lib_dir = test::FakeQnnDir();
  const ScopedEnv core("FAKE_QNN_CORE", "3.1");
  status = CompileError();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("3.1"));
}

TEST_F(FakeVendorTest, NoWorkerProgram) {
  const ScopedEnv worker("SPILLWAY_WORKER", folder_.File("no-worker"));
  const Status status = CompileError();
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("SPILLWAY_WORKER"));
}

TEST_F(FakeVendorTest, AWorkerThatEndsAtOnce) {
  for (const char* program : {"/bin/true", "/bin/false"}) {
    const ScopedEnv worker("SPILLWAY_WORKER", program);
    const Status status = CompileError();
    EXPECT_EQ(status.code(), StatusCode::kVendorCrash) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("exit"));
  }
}

TEST_F(FakeVendorTest, AJobOfAShardThatIsNotThere) {
  ASSERT_TRUE(CompileAndOpen());
  VendorJob job;
  job.folder = options_.output_path;
  job.shard = 1;
  job.output_path = folder_.File("out.bin");
  job.qnn_lib_dir = test::FakeQnnDir();
  const Status status = RunVendorJobInWorker(job, 60, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("no shard 1"));
  EXPECT_FALSE(FileExists(job.output_path));
}

}  // namespace
}  // namespace spillway
