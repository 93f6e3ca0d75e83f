#include "compiler/check_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway {
namespace {

using ::testing::HasSubstr;

CompileOptions Good() {
  CompileOptions options;
  options.model_path = "model.gguf";
  return options;
}

TEST(CheckOptionsTest, DefaultsAreFine) {
  const Result<CheckedOptions> checked = CheckCompileOptions(Good());
  ASSERT_TRUE(checked.ok()) << checked.status().ToString();
  EXPECT_EQ(checked->soc->name, "SM8750");
  EXPECT_EQ(checked->io, IoProfile::kSpillway);
  CompileOptions options = Good();
  options.io_profile = "executorch";
  options.mode = "kv";
  options.prefill_ar_len = 9999;  // no prefill graph in this mode
  options.htp.soc = "57";
  const Result<CheckedOptions> other = CheckCompileOptions(options);
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  EXPECT_EQ(other->soc->name, "SM8650");
  EXPECT_EQ(other->io, IoProfile::kExecutorch);
}

TEST(CheckOptionsTest, EachWrongOptionIsNamedWithWhatIsAllowed) {
  struct Case {
    void (*change)(CompileOptions&);
    StatusCode code;
    std::vector<const char*> parts;
  };
  constexpr auto kInvalid = StatusCode::kInvalidArgument;
  const std::vector<Case> cases = {
      {[](CompileOptions& o) { o.model_path = ""; }, kInvalid, {"no model file"}},
      {[](CompileOptions& o) { o.mode = "prefill"; }, kInvalid, {"mode 'prefill'", "'kv'"}},
      {[](CompileOptions& o) { o.context_len = 1; }, kInvalid, {"context length 1", "131072"}},
      {[](CompileOptions& o) { o.context_len = 200000; }, kInvalid, {"200000", "2 to 131072"}},
      {[](CompileOptions& o) { o.prefill_ar_len = 512; },
       kInvalid,
       {"AR length 512", "context length 512", "--prefill-ar-len"}},
      {[](CompileOptions& o) { o.context_len = 16; },
       kInvalid,
       {"AR length 32", "context length 16", "--context-len"}},
      {[](CompileOptions& o) { o.prefill_ar_len = 1; }, kInvalid, {"AR length 1 ", "at least 2"}},
      {[](CompileOptions& o) { o.kv_bits = 4; }, kInvalid, {"KV cache of 4 bits", "8 or 16"}},
      {[](CompileOptions& o) { o.kv_bits = 8, o.recipe = "fp16"; }, kInvalid, {"8 bits", "fp16"}},
      {[](CompileOptions& o) { o.target_bits = 5, o.recipe = "fp16"; },
       kInvalid,
       {"recipe fp16", "--target-bits"}},
      {[](CompileOptions& o) { o.target_bits = 20; }, kInvalid, {"mixed.max_bits: found 20"}},
      {[](CompileOptions& o) { o.target_sqnr_db = -3; }, kInvalid, {"target_sqnr_db: found -3"}},
      {[](CompileOptions& o) { o.recipe = "mixed", o.htp.soc = "SM8350"; },
       StatusCode::kUnsupported,
       {"v69 or later"}},
      {[](CompileOptions& o) { o.htp.precision = Precision::kFp16; },
       kInvalid,
       {"precision is fp16", "--recipe fp16"}},
      {[](CompileOptions& o) { o.recipe = "16a4w-block", o.htp.soc = "SM8350"; },
       StatusCode::kUnsupported,
       {"v69 or later", "SM8350 has v68"}},
      {[](CompileOptions& o) { o.recipe = "fp16", o.htp.soc = "SM7350"; },
       StatusCode::kUnsupported,
       {"16-bit floats", "SM7350"}},
      {[](CompileOptions& o) {
         o.mode = "lookahead", o.lookahead = {1, 4, 4};
       },
       kInvalid,
       {"lookahead 1,4,4", "2 or more"}},
      {[](CompileOptions& o) {
         o.mode = "lookahead", o.lookahead = {4, 64, 64}, o.context_len = 64;
       },
       kInvalid,
       {"384 tokens a call", "64"}},
      {[](CompileOptions& o) { o.calib_tokens = 15; }, kInvalid, {"15 calibration", "16"}},
      {[](CompileOptions& o) { o.recipe = "8a4w"; },
       StatusCode::kNotFound,
       {"recipe '8a4w'", "16a8w"}},
      {[](CompileOptions& o) { o.io_profile = "onnx"; }, kInvalid, {"'onnx'", "'executorch'"}},
      {[](CompileOptions& o) { o.htp.soc = "SM1"; },
       StatusCode::kNotFound,
       {"unknown SoC 'SM1'", "SM8650", "SM8750", "SM8850"}},
      {[](CompileOptions& o) { o.htp.optimization_level = 4; },
       kInvalid,
       {"optimization_level is 4", "1 to 3"}},
      {[](CompileOptions& o) { o.htp.vtcm_mb = 9; }, kInvalid, {"vtcm_mb is 9", "to 8"}},
      {[](CompileOptions& o) { o.htp.hvx_threads = 17; }, kInvalid, {"hvx_threads is 17", "16"}},
      {[](CompileOptions& o) { o.htp.soc = "122"; }, StatusCode::kUnsupported, {"cannot prepare"}},
  };
  for (const Case& one : cases) {
    CompileOptions options = Good();
    one.change(options);
    const Status status = CheckCompileOptions(options).status();
    EXPECT_EQ(status.code(), one.code) << status.ToString();
    for (const char* part : one.parts) EXPECT_THAT(status.message(), HasSubstr(part));
  }
}

TEST(CheckTensorSizes, NamesWhatIsTooLarge) {
  Graph graph("prefill_forward");
  graph.AddInput("fits", DType::kU16, {1, 1, 32768, 65535});
  EXPECT_TRUE(CheckTensorSizes(graph).ok());
  graph.AddInput("scores", DType::kU16, {1, 1, 32768, 65536});
  const Status status = CheckTensorSizes(graph);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("tensor scores u16 [1, 1, 32768, 65536] has 4.29 GB"));
  EXPECT_THAT(status.message(), HasSubstr("--context-len"));
}

}  // namespace
}  // namespace spillway
