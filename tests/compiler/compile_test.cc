// Compile() without the vendor: what is written, what is refused, what is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/compiler/tiny_compile.h"

namespace spillway {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CompileTest : public test::TinyCompileTest {};

TEST_F(CompileTest, HostPackage) {
  const auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  const PackageManifest& manifest = package->manifest();
  EXPECT_EQ(manifest.mode, "hybrid");
  EXPECT_EQ(manifest.context_len, 64u);
  EXPECT_EQ(manifest.prefill_ar_len, 16u);
  EXPECT_EQ(manifest.decode_ar_len, 1u);
  EXPECT_EQ(manifest.soc, "SM8750");
  EXPECT_EQ(manifest.recipe, "16a8w");
  EXPECT_EQ(manifest.kv_dtype, DType::kU8);
  EXPECT_EQ(manifest.model_file, "tiny.gguf");
  EXPECT_EQ(manifest.io_profile, "spillway");
  EXPECT_FALSE(manifest.slc_allocator);
  EXPECT_THAT(manifest.producer, HasSubstr("spillway "));
  ASSERT_EQ(manifest.shards.size(), 1u);
  EXPECT_EQ(manifest.shards[0].context_file, "");
  EXPECT_EQ(manifest.shards[0].num_layers, 2u);
  EXPECT_TRUE(package->FindGraph(0, kPrefillGraphName).ok());
  EXPECT_TRUE(package->FindGraph(0, kDecodeGraphName).ok());
  EXPECT_THAT(
      ListFolder(options_.output_path).value(),
      ElementsAre("graphs.fb", "manifest.json", "report.json", "tokenizer.bin", "weights.bin"));

  EXPECT_THAT(report_.graphs, ElementsAre("prefill_forward", "kv_forward"));
  EXPECT_THAT(report_.htp_left_out, HasSubstr("not asked for"));
  EXPECT_GT(report_.package_bytes, 100000u);
  EXPECT_GT(report_.peak_rss_bytes, 1000000u);
  EXPECT_GE(report_.wall_s, report_.calibrate_s + report_.quantize_s + report_.write_s);
  const auto json = nlohmann::json::parse(ReadFile(package->PathOf("report.json")).value());
  EXPECT_EQ(json["soc"], "SM8750");
  EXPECT_EQ(json["graphs"].size(), 2u);
  for (const char* field : {"shards", "ddr", "wall_s", "vendor_finalize_s", "peak_rss_bytes"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  EXPECT_THAT(report_.ToText(), HasSubstr("no context binary: not asked for"));
}

TEST_F(CompileTest, ModesProfilesAndCacheTypes) {
  options_.mode = "kv";
  options_.kv_bits = 16;
  auto package = CompileAndOpen();
  ASSERT_TRUE(package);
  EXPECT_EQ(package->manifest().prefill_ar_len, 0u);
  EXPECT_EQ(package->manifest().kv_dtype, DType::kU16);
  EXPECT_THAT(report_.graphs, ElementsAre("kv_forward"));
  EXPECT_EQ(package->FindGraph(0, kPrefillGraphName).status().code(), StatusCode::kNotFound);

  options_.mode = "hybrid";
  options_.io_profile = "executorch";
  package = CompileAndOpen();  // replaces the package
  ASSERT_TRUE(package);
  EXPECT_EQ(package->manifest().io_profile, "executorch");
  EXPECT_EQ(package->manifest().mode, "hybrid");
}

TEST_F(CompileTest, EveryArchitecture) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    test::TinyModelSpec spec;
    spec.architecture = architecture;
    spec.tied = std::string(architecture) != "qwen2";
    test::WriteTinyModel(options_.model_path, spec);
    const auto package = CompileAndOpen();
    ASSERT_TRUE(package) << architecture;
    EXPECT_EQ(package->manifest().config.architecture, architecture);
  }
}

TEST_F(CompileTest, TheSameInputsGiveTheSameBytes) {
  ASSERT_TRUE(CompileAndOpen());
  options_.output_path = folder_.File("again");
  options_.threads = 1;
  ASSERT_TRUE(CompileAndOpen());
  for (const char* name : {"graphs.fb", "weights.bin", "tokenizer.bin"}) {
    const std::string first = ReadFile(folder_.File("pkg") + "/" + name).value();
    EXPECT_GT(first.size(), 100u);
    EXPECT_TRUE(first == ReadFile(folder_.File("again") + "/" + name).value()) << name;
  }
}

TEST_F(CompileTest, ProgressNamesTheStages) {
  std::vector<std::string> stages;
  const auto report = Compile(options_, [&](std::string_view stage, double fraction) {
    EXPECT_LE(fraction, 1.0);
    stages.emplace_back(stage);
  });
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_THAT(stages, Contains("quantise"));
  EXPECT_THAT(stages, Contains("write the weights"));
  EXPECT_THAT(stages, Contains("finish the package"));
  EXPECT_THAT(stages, Contains(HasSubstr("calibrat")));
}

TEST_F(CompileTest, CalibrationTextFromAFile) {
  options_.calib_paths = {folder_.File("missing.txt")};
  EXPECT_EQ(CompileError().code(), StatusCode::kNotFound);
  options_.calib_paths = {folder_.File("text.txt")};
  std::ofstream(options_.calib_paths[0]) << std::string(400, 'a');
  EXPECT_TRUE(CompileAndOpen());
}

TEST_F(CompileTest, WrongOptionsLeaveNothing) {
  options_.htp.soc = "SM1";
  Status status = CompileError();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("SM8650"));
  options_.htp.soc = "SM8750";
  options_.prefill_ar_len = 64;
  status = CompileError();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("64"));
  options_.prefill_ar_len = 16;
  options_.output_path = "";
  EXPECT_THAT(CompileError().message(), HasSubstr("no output folder"));
}

TEST_F(CompileTest, DamagedModels) {
  const std::string good = ReadFile(options_.model_path).value();
  for (const size_t size : {size_t{0}, size_t{4}, size_t{100}, good.size() / 2, good.size() - 1}) {
    std::ofstream(options_.model_path, std::ios::binary | std::ios::trunc) << good.substr(0, size);
    const Status status = CompileError();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("tiny.gguf"));
  }
  options_.model_path = folder_.File("missing.gguf");
  EXPECT_EQ(CompileError().code(), StatusCode::kNotFound);
  options_.model_path = folder_.path();
  EXPECT_THAT(CompileError().message(), HasSubstr(folder_.path()));
}

TEST_F(CompileTest, AFolderThatIsNoPackageIsNotReplaced) {
  options_.output_path = folder_.File("pkg");
  ASSERT_EQ(mkdir(options_.output_path.c_str(), 0777), 0);
  std::ofstream(folder_.File("pkg/thesis.txt")) << "years of work";
  Status status = CompileError();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("thesis.txt"));
  EXPECT_THAT(status.message(), HasSubstr("manifest.json"));
  EXPECT_EQ(ReadFile(folder_.File("pkg/thesis.txt")).value(), "years of work");
  std::ofstream(folder_.File("pkg/two.txt")) << "2";
  EXPECT_THAT(CompileError().message(), HasSubstr("thesis.txt and 1 more"));

  unlink(folder_.File("pkg/thesis.txt").c_str());
  unlink(folder_.File("pkg/two.txt").c_str());
  EXPECT_TRUE(CompileAndOpen());  // empty: fine
  EXPECT_TRUE(CompileAndOpen());  // a package: replaced
}

TEST_F(CompileTest, AFileAtTheOutputPathStays) {
  options_.output_path = folder_.File("file");
  std::ofstream(options_.output_path) << "mine";
  const Status status = CompileError();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr(options_.output_path));
  EXPECT_EQ(ReadFile(options_.output_path).value(), "mine");
}

TEST_F(CompileTest, OutputThatCannotBeWritten) {
  options_.output_path = "/proc/spillway-package";
  const Status status = CompileError();
  EXPECT_THAT(status.code(), AnyOf(StatusCode::kIo, StatusCode::kNotFound)) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("/proc"));
}

// The largest file that the process may write, for a scope.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int);
};

TEST_F(CompileTest, AFullDiskLeavesTheOldPackage) {
  for (const bool existing : {false, true}) {
    std::string manifest;
    if (existing) {
      ASSERT_TRUE(CompileAndOpen());
      manifest = ReadFile(folder_.File("pkg/manifest.json")).value();
    }
    {
      const FileSizeLimit limit(20000);
      const Status status = CompileError();
      EXPECT_THAT(status.code(), AnyOf(StatusCode::kIo, StatusCode::kResourceExhausted));
      EXPECT_THAT(status.message(), HasSubstr("pkg"));
    }
    if (existing) {
      EXPECT_EQ(ReadFile(folder_.File("pkg/manifest.json")).value(), manifest);
      EXPECT_TRUE(Package::Open(options_.output_path).ok());
    }
  }
}

}  // namespace
}  // namespace spillway
