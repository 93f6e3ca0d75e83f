#include "qnn/api/library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "tests/fake_qnn/fake_qnn.h"
#include "tests/support/paths.h"

namespace spillway::qnn {
namespace {

using test::FakeQnnDir;
using test::ScopedEnv;
using ::testing::HasSubstr;

// A folder whose libraries are copies of a fake one, changed.
class LibraryTest : public ::testing::Test {
 protected:
  void Copy(const std::string& from, const std::string& to) {
    std::filesystem::copy_file(FakeQnnDir() + "/" + from, folder_.File(to));
  }
  Status LoadStatus() { return Library::Load(folder_.path()).status(); }
  test::TempFolder folder_;
};

TEST_F(LibraryTest, FakeLoads) {
  const auto library = Library::Load(FakeQnnDir());
  ASSERT_TRUE(library.ok()) << library.status().ToString();
  EXPECT_EQ((*library)->build_id(), "fake.1");
  EXPECT_EQ(VersionText((*library)->version().core), "2.40.0");
  EXPECT_EQ((*library)->path(), FakeQnnDir() + "/libQnnHtp.so");
  const auto system = SystemLibrary::Load(FakeQnnDir());
  ASSERT_TRUE(system.ok()) << system.status().ToString();
  EXPECT_EQ(VersionText((*system)->version()), "1.15.0");
}

TEST_F(LibraryTest, ArgumentThenEnvironment) {
  const ScopedEnv env("SPILLWAY_QNN_LIB_DIR", "/from/environment");
  EXPECT_EQ(FindLibraryDir("/from/argument").value(), "/from/argument");
  EXPECT_EQ(FindLibraryDir().value(), "/from/environment");
}

TEST_F(LibraryTest, MissingNamesPathAndRemedy) {
  const Status status = LoadStatus();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(folder_.File("libQnnHtp.so")));
  EXPECT_THAT(status.message(), HasSubstr("SPILLWAY_QNN_LIB_DIR"));
  EXPECT_THAT(SystemLibrary::Load(folder_.path()).status().message(),
              HasSubstr(folder_.File("libQnnSystem.so")));
}

TEST_F(LibraryTest, WrongLibraryNamesTheSymbol) {
  Copy("libQnnSystem.so", "libQnnHtp.so");
  const Status status = LoadStatus();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("QnnInterface_getProviders"));
  EXPECT_THAT(status.message(), HasSubstr(folder_.File("libQnnHtp.so")));
  Copy("libQnnHtp.so", "libQnnSystem.so");
  EXPECT_THAT(SystemLibrary::Load(folder_.path()).status().message(),
              HasSubstr("QnnSystemInterface_getProviders"));
}

TEST_F(LibraryTest, NotALibraryAtAll) {
  ASSERT_TRUE(WriteFileAtomically(folder_.File("libQnnHtp.so"), std::string(5000, 'x')).ok());
  const Status status = LoadStatus();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("not a shared library"));
}

TEST_F(LibraryTest, MissingDependencyNamesThePackage) {
  std::string bytes = ReadFile(FakeQnnDir() + "/libQnnHtp.so").value();
  const std::string needed = "libstdc++.so.6";
  const size_t place = bytes.find(needed);
  ASSERT_NE(place, std::string::npos);
  bytes.replace(place, needed.size(), "libatomic.so.9");
  ASSERT_TRUE(WriteFileAtomically(folder_.File("libQnnHtp.so"), bytes).ok());
  const Status status = LoadStatus();
  EXPECT_THAT(status.message(), HasSubstr("libatomic.so.9"));
  EXPECT_THAT(status.message(), HasSubstr("install the Debian package libatomic1"));
}

TEST_F(LibraryTest, OldCoreApiIsRefused) {
  for (const char* version : {"2.31", "1.40", "3.0"}) {
    const ScopedEnv env("FAKE_QNN_CORE", version);
    const Status status = Library::Load(FakeQnnDir()).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr(std::string("core API ") + version));
    EXPECT_THAT(status.message(), HasSubstr("expected 2.32 to 2.40"));
  }
}

TEST_F(LibraryTest, NewerMinorVersionIsTakenWithAWarning) {
  const ScopedEnv env("FAKE_QNN_CORE", "2.41");
  std::string warning;
  SetLogSink([&warning](LogLevel, std::string_view text) { warning += text; });
  const auto library = Library::Load(FakeQnnDir());
  SetLogSink({});
  EXPECT_TRUE(library.ok()) << library.status().ToString();
  EXPECT_THAT(warning, HasSubstr("2.41.0 is newer"));
}

TEST_F(LibraryTest, OtherBackendIsRefused) {
  const ScopedEnv env("FAKE_QNN_BACKEND_ID", "4");
  EXPECT_THAT(Library::Load(FakeQnnDir()).status().message(),
              HasSubstr("is for backend 4, expected 6 (HTP)"));
}

TEST_F(LibraryTest, NoProvider) {
  const ScopedEnv env("FAKE_QNN_PROVIDERS", "0");
  EXPECT_THAT(Library::Load(FakeQnnDir()).status().message(), HasSubstr("no provider"));
  EXPECT_THAT(SystemLibrary::Load(FakeQnnDir()).status().message(), HasSubstr("no provider"));
}

TEST_F(LibraryTest, NullProviderIsRefused) {
  const abi::Interface* providers[] = {nullptr};
  EXPECT_THAT(ChooseProvider("lib", providers, 1).status().message(), HasSubstr("backend none"));
  EXPECT_THAT(ChooseProvider("lib", nullptr, 1).status().message(), HasSubstr("no provider"));
}

TEST_F(LibraryTest, OtherSystemApiIsRefused) {
  const ScopedEnv env("FAKE_QNN_SYSTEM_MAJOR", "2");
  EXPECT_THAT(SystemLibrary::Load(FakeQnnDir()).status().message(),
              HasSubstr("System API 2.15.0, expected 1.x"));
}

TEST_F(LibraryTest, FailingProviderFunctions) {
  {
    const ScopedEnv env("FAKE_QNN_FAIL", "getProviders:1009");
    EXPECT_THAT(Library::Load(FakeQnnDir()).status().message(), HasSubstr("1009 (0x3f1)"));
  }
  const ScopedEnv env("FAKE_QNN_FAIL", "backendGetBuildId:1100");
  EXPECT_THAT(Library::Load(FakeQnnDir()).status().message(), HasSubstr("build id"));
}

}  // namespace
}  // namespace spillway::qnn
