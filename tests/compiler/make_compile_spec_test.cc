#include "compiler/make_compile_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway {
namespace {

using ::testing::HasSubstr;

const qnn::htp::Soc& Sm8750() { return **qnn::htp::FindSoc("SM8750"); }

SpecHtpOptions HtpOf(const HtpOptions& options) {
  const Result<CompileSpec> spec = MakeCompileSpec(options, Sm8750(), 7, true);
  EXPECT_TRUE(spec.ok()) << spec.status().ToString();
  return spec.ok() && spec->htp ? *spec->htp : SpecHtpOptions();
}

TEST(MakeCompileSpec, DefaultsOfASoc) {
  const Result<CompileSpec> spec = MakeCompileSpec(HtpOptions(), Sm8750(), 4096, true);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  CompileSpec expected;
  expected.soc_model = 69;
  expected.htp_arch = 79;
  expected.vtcm_size_in_mb = 8;
  expected.backend_type = SpecBackend::kHtp;
  expected.htp.emplace().max_sf_buf_size = 4096;
  expected.log_level = SpecLogLevel::kError;
  expected.is_from_context_binary = true;
  EXPECT_EQ(*spec, expected);
}

TEST(MakeCompileSpec, EveryOptionHasItsField) {
  HtpOptions options;
  options.slc_allocator = SlcAllocator::kOn;
  EXPECT_TRUE(HtpOf(options).use_slc_allocator);
  options.slc_allocator = SlcAllocator::kAuto;
  EXPECT_FALSE(HtpOf(options).use_slc_allocator);
  options = {};
  options.weight_sharing = true;
  EXPECT_TRUE(HtpOf(options).use_weight_sharing);
  options = {};
  options.multi_contexts = true;
  EXPECT_TRUE(HtpOf(options).use_multi_contexts);
  options = {};
  options.dlbc = true;
  EXPECT_TRUE(HtpOf(options).use_dlbc);
  options = {};
  options.fold_relu = true;
  EXPECT_TRUE(HtpOf(options).use_fold_relu);
  options = {};
  options.conv_hmx = true;
  EXPECT_TRUE(HtpOf(options).use_conv_hmx);
  options = {};
  options.precision = Precision::kFp16;
  EXPECT_EQ(HtpOf(options).precision, SpecHtpPrecision::kFp16);
  options = {};
  options.pd_session = PdSession::kSigned;
  EXPECT_EQ(HtpOf(options).pd_session, SpecPdSession::kSigned);
  EXPECT_EQ(HtpOf({}).max_sf_buf_size, 7U);

  options = {};
  options.vtcm_mb = 2;
  options.log_level = VendorLogLevel::kVerbose;
  options.profile_level = ProfileLevel::kBasic;
  options.online_prepare = true;
  options.dump_intermediates = true;
  options.saver_dir = "calls";
  options.op_packages = {{"/opt/libOurs.x86.so", "OursProvider", "HTP"}, {"b.so", "B", ""}};
  const CompileSpec spec = MakeCompileSpec(options, Sm8750(), 0, false).value();
  EXPECT_EQ(spec.vtcm_size_in_mb, 2U);
  EXPECT_EQ(spec.log_level, SpecLogLevel::kVerbose);
  EXPECT_EQ(spec.profile_level, SpecProfileLevel::kBasic);
  EXPECT_TRUE(spec.online_prepare);
  EXPECT_TRUE(spec.dump_intermediate_outputs);
  EXPECT_TRUE(spec.saver);
  EXPECT_EQ(spec.saver_output_dir, "calls");
  EXPECT_EQ(spec.library_path, "libQnnSaver.so");
  EXPECT_FALSE(spec.is_from_context_binary);
  ASSERT_EQ(spec.op_packages.size(), 2U);
  EXPECT_EQ(spec.op_packages[0].op_package_name, "Ours");
  EXPECT_EQ(spec.op_packages[0].op_package_path, "/opt/libOurs.x86.so");
  EXPECT_EQ(spec.op_packages[0].interface_provider, "OursProvider");
  EXPECT_EQ(spec.op_packages[0].target, SpecOpPackageTarget::kHtp);
  EXPECT_EQ(spec.op_packages[1].target, SpecOpPackageTarget::kUnknown);
}

// Two of ours share the nearest number of the format; the others are one to one.
TEST(MakeCompileSpec, PerformanceModes) {
  const std::pair<PerformanceMode, SpecHtpPerformance> pairs[] = {
      {PerformanceMode::kDefault, SpecHtpPerformance::kDefault},
      {PerformanceMode::kBurst, SpecHtpPerformance::kBurst},
      {PerformanceMode::kSustainedHighPerformance, SpecHtpPerformance::kSustainedHigh},
      {PerformanceMode::kHighPerformance, SpecHtpPerformance::kHigh},
      {PerformanceMode::kBalanced, SpecHtpPerformance::kBalanced},
      {PerformanceMode::kLowBalanced, SpecHtpPerformance::kLowBalanced},
      {PerformanceMode::kHighPowerSaver, SpecHtpPerformance::kHighPowerSaver},
      {PerformanceMode::kPowerSaver, SpecHtpPerformance::kPowerSaver},
      {PerformanceMode::kLowPowerSaver, SpecHtpPerformance::kLowPowerSaver},
      {PerformanceMode::kExtremePowerSaver, SpecHtpPerformance::kLowPowerSaver},
  };
  for (const auto& [ours, theirs] : pairs) {
    HtpOptions options;
    options.performance = ours;
    EXPECT_EQ(HtpOf(options).performance_mode, theirs) << static_cast<int>(ours);
  }
}

TEST(MakeCompileSpec, SpillFillThatDoesNotFitIsAnError) {
  const Status status = MakeCompileSpec({}, Sm8750(), uint64_t{1} << 31, true).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("max_sf_buf_size is 2147483648"));
}

TEST(MakeCompileSpec, SocsWithoutANameInExecuTorchAreNumbers) {
  const Result<CompileSpec> spec = MakeCompileSpec({}, **qnn::htp::FindSoc("SM8975"), 0, true);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->soc_model, 103U);
  EXPECT_EQ(spec->htp_arch, 85U);
}

}  // namespace
}  // namespace spillway
