// Five releases of the vendor's libraries: each compiles and runs a graph, and each
// loads what the others made. Every release runs in processes of its own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>

#include "base/file.h"
#include "qnn/api/build_id.h"
#include "qnn/api/handle_counts.h"
#include "qnn/api/manager.h"
#include "qnn/htp/options.h"
#include "tests/qnn/api/tiny_graph.h"
#include "tests/support/paths.h"

namespace spillway::qnn::htp {
namespace {

using test::TinyConv;
using ::testing::HasSubstr;

struct Release {
  const char* wheel;
  const char* version;  // how its build id begins
  const char* folder;   // under .deps
};
constexpr Release kReleases[] = {{"2.3.0", "v2.47.", "qnn-2.3.0"},
                                 {"2.4.0", "v2.48.", "qnn-2.4.0"},
                                 {"2.5.0", "v2.49.", "qnn-2.5.0"},
                                 {"2.6.0", "v2.50.", "qnn-2.6.0"},
                                 {"2.7.0", "v2.51.", "qnn"}};
constexpr int kCount = static_cast<int>(std::size(kReleases));

std::string FolderOf(const Release& release) {
  return fmt::format("{}/.deps/{}/onnxruntime_qnn", test::SourceDir(), release.folder);
}

// The vendor's objects of one release.
struct Vendor {
  std::shared_ptr<const SystemLibrary> system;
  std::shared_ptr<VendorLog> log;
  std::shared_ptr<Backend> backend;
  std::shared_ptr<Device> device;
  const Soc* soc = nullptr;
};

Result<Vendor> OpenVendor(const Release& release) {
  Vendor vendor;
  SPILLWAY_ASSIGN_OR_RETURN(const auto library, Library::Load(FolderOf(release)));
  SPILLWAY_ASSIGN_OR_RETURN(vendor.system, SystemLibrary::Load(FolderOf(release)));
  SPILLWAY_ASSIGN_OR_RETURN(vendor.log, VendorLog::Create(library, abi::kLogVerbose));
  SPILLWAY_ASSIGN_OR_RETURN(vendor.backend, Backend::Create(vendor.log));
  SPILLWAY_ASSIGN_OR_RETURN(vendor.soc, FindSoc("SM8750"));
  SPILLWAY_ASSIGN_OR_RETURN(
      vendor.device, Device::Create(vendor.log, MakeDeviceConfigs(*vendor.soc, PdSession::kUnsigned,
                                                                  library->version().backend)));
  return vendor;
}

int LargestError(const std::vector<uint16_t>& y) {
  const TinyConv conv;
  const std::vector<uint16_t> expected = conv.Expected(conv.Input());
  int worst = 0;
  for (size_t i = 0; i < y.size(); ++i) worst = std::max(worst, std::abs(y[i] - expected[i]));
  return worst;
}

// ---- In the child. Results go to files of lines "key value".

Status CompileAndRun(const Release& release, const std::string& folder) {
  SPILLWAY_ASSIGN_OR_RETURN(const Vendor vendor, OpenVendor(release));
  SPILLWAY_ASSIGN_OR_RETURN(const auto context, Context::Create(vendor.backend, vendor.device, {}));
  SPILLWAY_ASSIGN_OR_RETURN(Graph * graph,
                            context->CreateGraph("tiny", MakeGraphConfigs({}, *vendor.soc)));
  SPILLWAY_RETURN_IF_ERROR(test::BuildTinyConv(TinyConv(), graph));
  double fraction = 0;
  FinalizeOptions options;
  options.progress = [&fraction](std::string_view, double part) { fraction = part; };
  SPILLWAY_RETURN_IF_ERROR(graph->Finalize(options).status());
  SPILLWAY_ASSIGN_OR_RETURN(const auto y, test::RunTinyConv(TinyConv(), graph));
  SPILLWAY_ASSIGN_OR_RETURN(const auto binary, context->GetBinary());
  const LogFacts facts = vendor.log->facts();
  const GraphLogFacts* of_graph = facts.FindGraph("tiny");
  if (of_graph == nullptr) return InternalError("the log does not know the graph");
  std::string text = fmt::format(
      "build {}\nfraction {:.3f}\nstages {}\nerror {}\nslc {}\n", vendor.log->library().build_id(),
      fraction, of_graph->stages.size(), LargestError(y), of_graph->slc_allocate().value_or(-1));
  if (of_graph->ddr) text += fmt::format("read {}\n", of_graph->ddr->read_total_bytes);
  SPILLWAY_RETURN_IF_ERROR(
      WriteFileAtomically(folder + "/binary." + release.wheel,
                          {reinterpret_cast<const char*>(binary.data()), binary.size()}));
  return WriteFileAtomically(folder + "/facts." + release.wheel, text);
}

Result<int> LoadAndRun(const Vendor& vendor, const std::string& path, std::string* build,
                       uint64_t* spill_fill, uint32_t* arch) {
  SPILLWAY_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  SPILLWAY_ASSIGN_OR_RETURN(const BinaryInfo info,
                            ReadBinaryInfo(*vendor.system, file.bytes(), path));
  *build = info.build_id;
  *spill_fill = info.spill_fill_bytes;
  *arch = info.dsp_arch;
  SPILLWAY_ASSIGN_OR_RETURN(
      const auto context,
      Context::Load(vendor.backend, vendor.device, file.bytes(), info, ContextConfigs()));
  SPILLWAY_ASSIGN_OR_RETURN(const auto y,
                            test::RunTinyConv(TinyConv(), context->FindGraph("tiny")));
  return LargestError(y);
}

Status LoadAll(const Release& release, const std::string& folder) {
  SPILLWAY_ASSIGN_OR_RETURN(const Vendor vendor, OpenVendor(release));
  std::string text;
  for (const Release& maker : kReleases) {
    std::string build = "unread";
    uint64_t spill_fill = 1;
    uint32_t arch = 0;
    const Result<int> error =
        LoadAndRun(vendor, folder + "/binary." + maker.wheel, &build, &spill_fill, &arch);
    text += fmt::format("{0}.build {1}\n{0}.arch {2}\n{0}.spill {3}\n{0}.result {4}\n", maker.wheel,
                        build, arch, spill_fill,
                        error.ok() ? std::to_string(*error) : error.status().message());
  }
  return WriteFileAtomically(folder + "/loads." + release.wheel, text);
}

// Ends the process: the vendor's exit handlers may hang.
[[noreturn]] void Finish(Status (*job)(const Release&, const std::string&), const Release& release,
                         const std::string& folder) {
  Status status = job(release, folder);
  if (status.ok() && CountHandles().total() != 0) {
    status = InternalError("handles leak: " + CountHandles().ToString());
  }
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::fflush(nullptr);
  _exit(status.ok() ? 0 : 1);
}

// ---- In the test.

std::map<std::string, std::string> ReadLines(const std::string& path) {
  std::map<std::string, std::string> lines;
  const Result<std::string> text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  std::istringstream stream(text.ok() ? *text : "");
  for (std::string line; std::getline(stream, line);) {
    const size_t space = line.find(' ');
    if (space != std::string::npos) lines[line.substr(0, space)] = line.substr(space + 1);
  }
  return lines;
}

class SdkMatrix : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string missing;
    for (const Release& release : kReleases) {
      if (!FileExists(FolderOf(release) + "/libQnnHtp.so")) missing += " " + FolderOf(release);
    }
    if (!missing.empty()) {
      GTEST_SKIP() << "vendor libraries are missing (scripts/fetch-sdks gets them):" << missing;
    }
    // A child starts this program anew, so that it has no other release loaded,
    // and comes through here itself.
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    if (const char* folder = std::getenv(kFolderVariable)) {
      folder_ = folder;
    } else {
      owned_ = std::make_unique<test::TempFolder>();
      folder_ = owned_->path();
      setenv(kFolderVariable, folder_.c_str(), 1);
    }
  }
  void TearDown() override { unsetenv(kFolderVariable); }

  static constexpr char kFolderVariable[] = "SPILLWAY_TEST_SDK_FOLDER";
  std::unique_ptr<test::TempFolder> owned_;
  std::string folder_;
};

TEST_F(SdkMatrix, EachReleaseCompilesRunsAndLoadsWhatTheOthersMade) {
  for (const Release& release : kReleases) {
    EXPECT_EXIT(Finish(CompileAndRun, release, folder_), ::testing::ExitedWithCode(0), "")
        << release.wheel;
  }
  for (const Release& release : kReleases) {
    EXPECT_EXIT(Finish(LoadAll, release, folder_), ::testing::ExitedWithCode(0), "")
        << release.wheel;
  }
  if (HasFailure()) return;
  for (const Release& release : kReleases) {
    auto facts = ReadLines(folder_ + "/facts." + release.wheel);
    EXPECT_THAT(facts["build"], HasSubstr(release.version));
    EXPECT_EQ(facts["fraction"], "1.000") << release.wheel;
    EXPECT_EQ(facts["stages"], "8") << release.wheel;
    EXPECT_EQ(facts["read"], "8192") << release.wheel;
    EXPECT_EQ(facts["slc"], "0") << release.wheel;
    EXPECT_LE(std::atoi(facts["error"].c_str()), 1) << release.wheel;
  }
  for (int loader = 0; loader < kCount; ++loader) {
    auto loads = ReadLines(folder_ + "/loads." + kReleases[loader].wheel);
    auto own = ReadLines(folder_ + "/facts." + kReleases[loader].wheel);
    for (int maker = 0; maker < kCount; ++maker) {
      const std::string name = kReleases[maker].wheel;
      const std::string pair = name + " loaded by " + kReleases[loader].wheel;
      // Every system library describes every binary.
      EXPECT_THAT(loads[name + ".build"], HasSubstr(kReleases[maker].version)) << pair;
      EXPECT_EQ(loads[name + ".arch"], "79") << pair;
      EXPECT_EQ(loads[name + ".spill"], "0") << pair;
      const bool newer = CompareBuildIds(loads[name + ".build"], own["build"]).value_or(0) > 0;
      EXPECT_EQ(newer, maker > loader) << pair;
      const std::string& result = loads[name + ".result"];
      if (newer) {
        EXPECT_THAT(result, HasSubstr("error 5000 (0x1388)")) << pair;
        EXPECT_THAT(result, HasSubstr("made by " + loads[name + ".build"])) << pair;
        EXPECT_THAT(result, HasSubstr("newer QAIRT release")) << pair;
      } else {
        EXPECT_TRUE(result == "0" || result == "1") << pair << ": " << result;
      }
    }
  }
}

}  // namespace
}  // namespace spillway::qnn::htp
