#include "eval/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "eval/allowed_difference.h"
#include "eval/integer_difference.h"
#include "tests/runtime/fake_model_executor.h"
#include "tests/support/random_tokens.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;

using test::FakeModelExecutor;
using Json = nlohmann::json;

// Adds to what the fake computes.
class DisturbedExecutor : public FakeModelExecutor {
 public:
  using FakeModelExecutor::FakeModelExecutor;

  Status Run(StepKind kind, int logits_row) override {
    SPILLWAY_RETURN_IF_ERROR(FakeModelExecutor::Run(kind, logits_row));
    if (disturb) disturb(kind, buffers(kind));
    return OkStatus();
  }

  static void Add(const std::byte* values, size_t index, int change) {
    auto* integers = reinterpret_cast<uint16_t*>(const_cast<std::byte*>(values));
    integers[index] = static_cast<uint16_t>(integers[index] + change);
  }

  std::function<void(StepKind, StepBuffers&)> disturb;
};

VerifyReport Verify(ModelExecutor& reference, ModelExecutor& tested,
                    const std::vector<uint32_t>& tokens, uint32_t max_new = 4) {
  VerifyOptions options;
  options.max_new_tokens = max_new;
  Result<VerifyReport> report = VerifyExecutors(reference, tested, tokens, options, nullptr);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return report.ok() ? std::move(report).value() : VerifyReport();
}

const OutputDifference& Output(const VerifyReport& report, const std::string& graph,
                               const std::string& output) {
  static const OutputDifference kNone;
  for (const OutputDifference& difference : report.outputs) {
    if (difference.graph == graph && difference.output == output) return difference;
  }
  ADD_FAILURE() << graph << " " << output << " is not in the report";
  return kNone;
}

// 9 tokens: two whole chunks of 4 and one single token, then generated ones.
const std::vector<uint32_t> kPrompt = test::RandomTokens(9, FakeModelExecutor::kVocab, 6);

TEST(VerifyTest, AnExecutorAgreesWithItself) {
  FakeModelExecutor a(4, 1, 32), b(4, 1, 32);
  const VerifyReport report = Verify(a, b, kPrompt);
  EXPECT_EQ(report.steps, 3u + 3) << "the last generated token is not fed";
  EXPECT_EQ(report.generated_tokens, 4u);
  EXPECT_EQ(report.equal_tokens, 4u);
  EXPECT_EQ(report.top1_agreement, 1.0);
  EXPECT_TRUE(std::isinf(report.logits_sqnr_db));
  EXPECT_EQ(report.reference_tokens, report.tested_tokens);
  // The tokens are the greedy ones.
  std::vector<uint32_t> all = kPrompt;
  for (const uint32_t token : report.reference_tokens) {
    const std::vector<float> logits = FakeModelExecutor::Expected(all);
    EXPECT_EQ(token, std::max_element(logits.begin(), logits.end()) - logits.begin());
    all.push_back(token);
  }
  // Logits and K and V of two layers, of both graphs.
  EXPECT_EQ(report.outputs.size(), 10u);
  for (const OutputDifference& output : report.outputs) {
    EXPECT_EQ(output.max_lsb, 0) << output.output;
    EXPECT_EQ(output.mean_lsb, 0) << output.output;
  }
  EXPECT_EQ(Output(report, "prefill_forward", "logits").elements, 2u * 97);
  EXPECT_EQ(Output(report, "kv_forward", "logits").elements, 4u * 97);
  EXPECT_EQ(Output(report, "prefill_forward", "k_new_1").elements, 8u * 2 * 3);
  EXPECT_EQ(Output(report, "kv_forward", "v_new_0").elements, 4u * 2 * 3);
}

TEST(VerifyTest, SeesLogitsThatDiffer) {
  FakeModelExecutor reference(4, 1, 32);
  DisturbedExecutor tested(4, 1, 32);
  tested.disturb = [](StepKind kind, StepBuffers& buffers) {
    const size_t last_row = size_t{buffers.ar_len - 1} * FakeModelExecutor::kVocab;
    // Away from the ends of the type, so that it does not wrap.
    const auto* logits = reinterpret_cast<const uint16_t*>(buffers.logits) + last_row;
    size_t index = 0;
    while (logits[index] < 100 || logits[index] > 50000) ++index;
    DisturbedExecutor::Add(buffers.logits, last_row + index, kind == StepKind::kPrefill ? 5 : -2);
  };
  const VerifyReport report = Verify(reference, tested, kPrompt);
  const OutputDifference& prefill = Output(report, "prefill_forward", "logits");
  EXPECT_EQ(prefill.max_lsb, 5);
  EXPECT_DOUBLE_EQ(prefill.mean_lsb, 5.0 / 97);
  EXPECT_EQ(Output(report, "kv_forward", "logits").max_lsb, 2);
  EXPECT_EQ(Output(report, "kv_forward", "k_new_0").max_lsb, 0);
  EXPECT_EQ(report.outputs[0].output, "logits") << "worst first";
  EXPECT_EQ(report.outputs[0].graph, "prefill_forward");
  EXPECT_TRUE(std::isfinite(report.logits_sqnr_db));
  EXPECT_GT(report.logits_sqnr_db, 60);
  EXPECT_EQ(report.equal_tokens, 4u);
}

TEST(VerifyTest, SeesOtherTokensAndStillFeedsTheReferences) {
  FakeModelExecutor reference(4, 1, 32);
  DisturbedExecutor tested(4, 1, 32);
  tested.disturb = [](StepKind kind, StepBuffers& buffers) {
    if (kind == StepKind::kPrefill) return;
    auto* logits = reinterpret_cast<uint16_t*>(const_cast<std::byte*>(buffers.logits));
    const size_t best = std::max_element(logits, logits + FakeModelExecutor::kVocab) - logits;
    logits[best] = 0;
  };
  const VerifyReport report = Verify(reference, tested, kPrompt);
  EXPECT_EQ(report.equal_tokens, 0u);
  EXPECT_NEAR(report.top1_agreement, 2.0 / 6, 1e-12) << "the two prefill calls agree";
  FakeModelExecutor a(4, 1, 32), b(4, 1, 32);
  EXPECT_EQ(report.reference_tokens, Verify(a, b, kPrompt).reference_tokens);
  EXPECT_EQ(Output(report, "kv_forward", "k_new_0").max_lsb, 0) << "both were fed the same";
}

TEST(VerifyTest, SeesKAndVOfRealRowsOnly) {
  // 7 tokens, no decode graph: the second chunk has 3 real rows.
  const std::vector<uint32_t> prompt(kPrompt.begin(), kPrompt.begin() + 7);
  int calls = 0;
  size_t column = 3;
  const auto verify = [&] {
    FakeModelExecutor reference(4, 0, 32);
    DisturbedExecutor tested(4, 0, 32);
    calls = 0;
    tested.disturb = [&](StepKind, StepBuffers& buffers) {
      if (++calls != 2) return;
      // K of the second head's first value, and V of the second head.
      auto* k = reinterpret_cast<uint16_t*>(const_cast<std::byte*>(buffers.k_new[1]));
      auto* v = reinterpret_cast<uint16_t*>(const_cast<std::byte*>(buffers.v_new[0]));
      k[3 * 4 + column] ^= 0x20;
      v[(4 + column) * 3 + 2] ^= 0x40;
    };
    return Verify(reference, tested, prompt, 1);
  };
  VerifyReport report = verify();
  EXPECT_EQ(report.steps, 2u);
  for (const OutputDifference& output : report.outputs) {
    EXPECT_EQ(output.max_lsb, 0) << output.output << ": a padded row is nobody's business";
  }
  column = 2;
  report = verify();
  EXPECT_EQ(Output(report, "prefill_forward", "k_new_1").max_lsb, 0x20);
  EXPECT_EQ(Output(report, "prefill_forward", "v_new_0").max_lsb, 0x40);
  EXPECT_EQ(Output(report, "prefill_forward", "k_new_0").max_lsb, 0);
  EXPECT_EQ(Output(report, "prefill_forward", "k_new_1").elements, 7u * 2 * 3);
}

TEST(VerifyTest, StopsWhenTheContextIsFull) {
  FakeModelExecutor a(4, 1, 12), b(4, 1, 12);
  const VerifyReport report = Verify(a, b, kPrompt, 100);
  // The last one comes from the logits after position 11, the context's last.
  EXPECT_EQ(report.generated_tokens, 4u);
  EXPECT_EQ(report.equal_tokens, report.generated_tokens);
}

TEST(VerifyTest, Errors) {
  FakeModelExecutor a(4, 1, 16), b(4, 1, 16);
  const auto none = VerifyExecutors(a, b, {}, {}, nullptr);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
  b.fail_at_run = 2;
  const auto failed = VerifyExecutors(a, b, kPrompt, {}, nullptr);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kVendor);
}

TEST(VerifyTest, APromptLongerThanTheContextIsAnError) {
  FakeModelExecutor a(4, 1, 8), b(4, 1, 8);
  const auto report = VerifyExecutors(a, b, kPrompt, {}, nullptr);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(report.status().message(), HasSubstr("the prompt has 9 tokens"));
  EXPECT_EQ(a.runs, 0);
}

VerifyReport SampleReport() {
  VerifyReport report;
  report.outputs = {{"kv_forward", "logits", 7, 0.5, 97}};
  report.operations = {{"layers.0.q", "Linear", "u16 x s8 -> u16", 3, 0.25, 1},
                       {"layers.0.k", "Linear", "u16 x s8 -> u16", 1, 0.5, 1}};
  report.logits_sqnr_db = 41.5;
  report.steps = 3;
  report.equal_tokens = 1;
  report.generated_tokens = 2;
  report.top1_agreement = 0.5;
  report.reference_tokens = {4, 5};
  report.tested_tokens = {4, 6};
  return report;
}

TEST(VerifyReportTest, Json) {
  VerifyReport report = SampleReport();
  Json json = Json::parse(report.ToJson(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["steps"], 3);
  EXPECT_EQ(json["logits_sqnr_db"], 41.5);
  EXPECT_EQ(json["top1_agreement"], 0.5);
  EXPECT_EQ(json["equal_tokens"], 1);
  EXPECT_EQ(json["generated_tokens"], 2);
  EXPECT_EQ(json["tested_tokens"], Json({4, 6}));
  ASSERT_EQ(json["outputs"].size(), 1u);
  EXPECT_EQ(json["outputs"][0]["graph"], "kv_forward");
  EXPECT_EQ(json["outputs"][0]["max_lsb"], 7);
  EXPECT_EQ(json["outputs"][0]["elements"], 97);
  ASSERT_EQ(json["operations"].size(), 2u);
  EXPECT_EQ(json["operations"][0]["operation"], "layers.0.q");
  EXPECT_EQ(json["operations"][0]["allowed_lsb"], 1);

  FakeModelExecutor a(4, 1, 16), b(4, 1, 16);
  json = Json::parse(Verify(a, b, kPrompt).ToJson(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_TRUE(json["logits_sqnr_db"].is_null()) << "JSON has no infinity";
  EXPECT_TRUE(json["operations"].is_array());
}

TEST(VerifyReportTest, BeyondAllowed) {
  const auto beyond = SampleReport().BeyondAllowed();
  ASSERT_EQ(beyond.size(), 1u);
  EXPECT_EQ(beyond[0].operation, "layers.0.q");
}

TEST(VerifyReportTest, Text) {
  const std::string text = SampleReport().ToText();
  EXPECT_THAT(text, HasSubstr("3 calls compared: logits SQNR 41.5 dB"));
  EXPECT_THAT(text, HasSubstr("1 of 2 generated tokens equal"));
  EXPECT_THAT(text, HasSubstr("2 operations alone, with the host's inputs: 1 beyond"));
  EXPECT_THAT(text, HasSubstr("layers.0.q"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("layers.0.k")));
}

template <typename T>
IntegerDifference Difference(DType dtype, const std::vector<T>& a, const std::vector<T>& b) {
  IntegerDifference difference;
  difference.Add(dtype, reinterpret_cast<const std::byte*>(a.data()),
                 reinterpret_cast<const std::byte*>(b.data()), a.size());
  return difference;
}

TEST(IntegerDifferenceTest, EveryType) {
  EXPECT_EQ(Difference<uint8_t>(DType::kU8, {0, 255, 7}, {255, 0, 7}).max, 255);
  EXPECT_EQ(Difference<int8_t>(DType::kS8, {-128, 1, 0}, {127, 1, 0}).max, 255);
  EXPECT_EQ(Difference<uint16_t>(DType::kU16, {0, 65535}, {65535, 65534}).max, 65535);
  EXPECT_EQ(Difference<int16_t>(DType::kS16, {-32768}, {32767}).max, 65535);
  EXPECT_EQ(Difference<int32_t>(DType::kS32, {-2147483647 - 1}, {2147483647}).max, 4294967295.0);
  EXPECT_EQ(Difference<float>(DType::kF32, {1.5f}, {-1.0f}).max, 2.5);
}

TEST(IntegerDifferenceTest, AddsUp) {
  IntegerDifference difference;
  EXPECT_EQ(difference.mean(), 0);
  const uint8_t a[] = {1, 2, 3, 4}, b[] = {1, 4, 2, 4};
  difference.Add(DType::kU8, reinterpret_cast<const std::byte*>(a),
                 reinterpret_cast<const std::byte*>(b), 2);
  EXPECT_EQ(difference.max, 2);
  EXPECT_EQ(difference.mean(), 1);
  difference.Add(DType::kU8, reinterpret_cast<const std::byte*>(a + 2),
                 reinterpret_cast<const std::byte*>(b + 2), 2);
  EXPECT_EQ(difference.max, 2);
  EXPECT_EQ(difference.count, 4u);
  EXPECT_DOUBLE_EQ(difference.mean(), 0.75);
}

// A product of the given types, and what may differ in it.
double AllowedFor(OpType type, std::vector<DType> types, int arch, uint8_t weight_bits = 8) {
  Graph graph("g");
  Op op;
  op.type = type;
  for (size_t i = 0; i < types.size(); ++i) {
    Tensor tensor;
    tensor.name = std::to_string(i);
    tensor.dtype = types[i];
    tensor.encoding = Encoding::PerChannel(weight_bits, 0, {1.0f});
    const TensorId id = graph.AddTensor(tensor);
    (i + 1 < types.size() ? op.inputs : op.outputs).push_back(id);
  }
  return AllowedLsb(graph, op, arch);
}

TEST(AllowedDifferenceTest, CopiesMayNotDiffer) {
  for (const OpType type :
       {OpType::kReshape, OpType::kTranspose, OpType::kConcat, OpType::kTile, OpType::kGather}) {
    EXPECT_EQ(AllowedFor(type, {DType::kU16, DType::kU16, DType::kU16}, 79), 0);
  }
}

TEST(AllowedDifferenceTest, Products) {
  const std::vector<DType> wide = {DType::kU16, DType::kS8, DType::kU16};
  const std::vector<DType> narrow = {DType::kU8, DType::kS8, DType::kU8};
  EXPECT_EQ(AllowedFor(OpType::kLinear, wide, 79), 1);
  EXPECT_EQ(AllowedFor(OpType::kLinear, wide, 79, 4), 1);
  EXPECT_EQ(AllowedFor(OpType::kLinear, wide, 69), 20) << "coarser before v73";
  EXPECT_EQ(AllowedFor(OpType::kLinear, narrow, 69), 1);
  EXPECT_EQ(AllowedFor(OpType::kMatMul, {DType::kU16, DType::kU16, DType::kU16}, 79), 160);
  EXPECT_EQ(AllowedFor(OpType::kMatMul, {DType::kU16, DType::kU8, DType::kU16}, 79), 1);
}

TEST(AllowedDifferenceTest, NarrowOutputsHaveOneStep) {
  for (const OpType type :
       {OpType::kSoftmax, OpType::kSilu, OpType::kGeluTanh, OpType::kAdd, OpType::kRmsNorm}) {
    EXPECT_EQ(AllowedFor(type, {DType::kU8, DType::kU8, DType::kU8}, 79), 1);
    EXPECT_GE(AllowedFor(type, {DType::kU16, DType::kU16, DType::kU16}, 79), 1);
  }
}

}  // namespace
}  // namespace spillway
