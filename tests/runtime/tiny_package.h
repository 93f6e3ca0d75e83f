// A tiny random model, compiled: what a runtime test opens.

#ifndef SPILLWAY_TESTS_RUNTIME_TINY_PACKAGE_H_
#define SPILLWAY_TESTS_RUNTIME_TINY_PACKAGE_H_

#include <gtest/gtest.h>

#include <string>

#include "spillway/compile.h"
#include "tests/support/tiny_model.h"

namespace spillway::test {

inline CompileOptions TinyCompileOptions() {
  CompileOptions options;
  options.context_len = 64;
  options.prefill_ar_len = 16;
  options.calib_tokens = 128;
  options.htp_build = HtpBuild::kOff;
  return options;
}

// Compiles a model of `spec` to `folder`/pkg and returns that path; empty after a
// failed expectation.
inline std::string MakeTinyPackage(const std::string& folder,
                                   CompileOptions options = TinyCompileOptions(),
                                   const TinyModelSpec& spec = {}) {
  options.model_path = WriteTinyModel(folder + "/tiny.gguf", spec);
  options.output_path = folder + "/pkg";
  const Result<CompileReport> report = Compile(options);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return report.ok() ? options.output_path : "";
}

}  // namespace spillway::test

#endif  // SPILLWAY_TESTS_RUNTIME_TINY_PACKAGE_H_
