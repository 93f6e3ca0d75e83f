// Compiles of tiny models, and what may be left of them.

#ifndef SPILLWAY_TESTS_COMPILER_TINY_COMPILE_H_
#define SPILLWAY_TESTS_COMPILER_TINY_COMPILE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "package/package.h"
#include "spillway/compile.h"
#include "tests/fake_qnn/fake_qnn.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_model.h"

namespace spillway::test {

// A folder with a model and nothing else; the package goes beside it.
class TinyCompileTest : public ::testing::Test {
 protected:
  TinyCompileTest() : worker_("SPILLWAY_WORKER", SPILLWAY_WORKER_PROGRAM) {
    options_.model_path = WriteTinyModel(folder_.File("tiny.gguf"), {});
    options_.output_path = folder_.File("pkg");
    options_.context_len = 64;
    options_.prefill_ar_len = 16;
    options_.calib_tokens = 64;
    options_.htp_build = HtpBuild::kOff;
    options_.threads = 2;
  }

  // A successful compile of options_, opened and verified.
  std::shared_ptr<const Package> CompileAndOpen() {
    Result<CompileReport> report = Compile(options_);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    if (!report.ok()) return nullptr;
    report_ = *report;
    Result<std::shared_ptr<const Package>> package = Package::Open(options_.output_path);
    EXPECT_TRUE(package.ok()) << package.status().ToString();
    return package.ok() ? *package : nullptr;
  }

  // A compile that must fail and leave everything as it was.
  Status CompileError() {
    const std::vector<std::string> before = Contents();
    const Status status = Compile(options_).status();
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(Contents(), before) << "the failed compile left or removed something";
    return status;
  }

  // Names in the folder and in the package.
  std::vector<std::string> Contents() const {
    std::vector<std::string> names = ListFolder(folder_.path()).value();
    if (IsDirectory(folder_.File("pkg"))) {
      const std::vector<std::string> inside = ListFolder(folder_.File("pkg")).value();
      for (const std::string& name : inside) {
        names.push_back("pkg/" + name);
      }
    }
    return names;
  }

  ScopedEnv worker_;
  TempFolder folder_;
  CompileOptions options_;
  CompileReport report_;
};

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_COMPILER_TINY_COMPILE_H_
