// HtpOptions in JSON and the words for their values.
#include "qnn/htp/options_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "qnn/htp/option_names.h"

namespace spillway::qnn::htp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A value other than the default for each field.
const std::map<std::string, std::function<void(HtpOptions&)>>& FieldChanges() {
  static const std::map<std::string, std::function<void(HtpOptions&)>> changes = {
      {"soc", [](HtpOptions& o) { o.soc = "SM8650"; }},
      {"optimization_level", [](HtpOptions& o) { o.optimization_level = 1; }},
      {"decode_optimization_level", [](HtpOptions& o) { o.decode_optimization_level = 1; }},
      {"vtcm_mb", [](HtpOptions& o) { o.vtcm_mb = 4; }},
      {"hvx_threads", [](HtpOptions& o) { o.hvx_threads = 2; }},
      {"slc_allocator", [](HtpOptions& o) { o.slc_allocator = SlcAllocator::kAuto; }},
      {"weight_sharing", [](HtpOptions& o) { o.weight_sharing = false; }},
      {"multi_contexts", [](HtpOptions& o) { o.multi_contexts = true; }},
      {"dlbc", [](HtpOptions& o) { o.dlbc = true; }},
      {"dlbc_weights", [](HtpOptions& o) { o.dlbc_weights = true; }},
      {"fold_relu", [](HtpOptions& o) { o.fold_relu = false; }},
      {"conv_hmx", [](HtpOptions& o) { o.conv_hmx = true; }},
      {"precision", [](HtpOptions& o) { o.precision = Precision::kFp16; }},
      {"finalize_config",
       [](HtpOptions& o) {
         o.finalize_config = {{"a", "1"}, {"a", "x=\"y\""}, {"b", ""}};
       }},
      {"op_packages",
       [](HtpOptions& o) {
         o.op_packages = {{"/a b/libOps.so", "opsProvider", "HTP"}, {"c.so", "p", ""}};
       }},
      {"online_prepare", [](HtpOptions& o) { o.online_prepare = true; }},
      {"dump_intermediates", [](HtpOptions& o) { o.dump_intermediates = true; }},
      {"saver_dir", [](HtpOptions& o) { o.saver_dir = "/tmp/\xc3\xa4"; }},
      {"priority", [](HtpOptions& o) { o.priority = GraphPriority::kNormalHigh; }},
      {"pd_session", [](HtpOptions& o) { o.pd_session = PdSession::kSigned; }},
      {"performance", [](HtpOptions& o) { o.performance = PerformanceMode::kLowBalanced; }},
      {"rpc_polling_us", [](HtpOptions& o) { o.rpc_polling_us = 0; }},
      {"rpc_control_latency_us", [](HtpOptions& o) { o.rpc_control_latency_us = 100; }},
      {"sleep_latency_us", [](HtpOptions& o) { o.sleep_latency_us = 40; }},
      {"profile_level", [](HtpOptions& o) { o.profile_level = ProfileLevel::kLinting; }},
      {"log_level", [](HtpOptions& o) { o.log_level = VendorLogLevel::kWarning; }},
  };
  return changes;
}

TEST(HtpOptionsJson, EveryFieldComesBack) {
  HtpOptions all;
  for (const auto& [name, change] : FieldChanges()) {
    HtpOptions options;
    change(options);
    change(all);
    ASSERT_NE(options, HtpOptions()) << name;
    const std::string json = HtpOptionsToJson(options);
    EXPECT_THAT(json, HasSubstr("\"" + name + "\":"));
    const Result<HtpOptions> back = HtpOptionsFromJson(json);
    ASSERT_TRUE(back.ok()) << back.status().ToString();
    EXPECT_EQ(*back, options) << name << " in " << json;
  }
  EXPECT_EQ(HtpOptionsFromJson(HtpOptionsToJson(all)).value(), all);
  EXPECT_EQ(HtpOptionsFromJson(HtpOptionsToJson({})).value(), HtpOptions());
}

TEST(HtpOptionsJson, OldManifestsLackFields) {
  EXPECT_EQ(HtpOptionsFromJson("{}").value(), HtpOptions());
  const HtpOptions old =
      HtpOptionsFromJson(R"({"soc":"SM8650","optimization_level":2,"vtcm_mb":4,"hvx_threads":0,
                             "slc_allocator":true,"weight_sharing":false})")
          .value();
  HtpOptions expected;
  expected.soc = "SM8650";
  expected.optimization_level = 2;
  expected.vtcm_mb = 4;
  expected.slc_allocator = SlcAllocator::kOn;
  expected.weight_sharing = false;
  EXPECT_EQ(old, expected);
  EXPECT_EQ(HtpOptionsFromJson(R"({"slc_allocator":false})").value(), HtpOptions());
  // What is not set is not written.
  EXPECT_THAT(HtpOptionsToJson({}), Not(HasSubstr("weight_sharing")));
  EXPECT_THAT(HtpOptionsToJson({}), Not(HasSubstr("sleep_latency_us")));
}

TEST(HtpOptionsJson, DamageNamesTheField) {
  for (const char* text : {"", "[", "3", "[]", "{\"soc\":"}) {
    EXPECT_EQ(HtpOptionsFromJson(text).status().code(), StatusCode::kCorruptData) << text;
  }
  for (const auto& [name, change] : FieldChanges()) {
    const Status status = HtpOptionsFromJson("{\"" + name + "\":{}}").status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << name;
    EXPECT_THAT(status.message(), HasSubstr("HTP option " + name + ": found {}, expected "));
  }
  const auto error = [](const char* text) { return HtpOptionsFromJson(text).status().message(); };
  EXPECT_THAT(error(R"({"vtcm_mb":-1})"), HasSubstr("vtcm_mb: found -1"));
  EXPECT_THAT(error(R"({"vtcm_mb":4294967296})"), HasSubstr("found 4294967296"));
  EXPECT_THAT(error(R"({"vtcm_mb":1.5})"), HasSubstr("found 1.5"));
  EXPECT_THAT(error(R"({"slc_allocator":"maybe"})"),
              HasSubstr("found \"maybe\", expected one of off, on, auto"));
  EXPECT_THAT(error(R"({"dlbcc":true})"), HasSubstr("HTP option dlbcc is unknown"));
  EXPECT_THAT(error(R"({"finalize_config":[["a"]]})"), HasSubstr("[key, value]"));
  EXPECT_THAT(error(R"({"op_packages":[{"path":"a","provider":"b"}]})"),
              HasSubstr("path, provider and target"));
}

template <typename E>
void ExpectNames(E last) {
  const std::string all = OptionNames<E>();
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const auto value = static_cast<E>(i);
    const std::string_view name = OptionName(value);
    EXPECT_NE(name, "unknown") << i << " of " << all;
    EXPECT_THAT(all, HasSubstr(std::string(name)));
    EXPECT_EQ(ParseOption<E>(name).value(), value);
  }
  EXPECT_EQ(OptionName(static_cast<E>(static_cast<int>(last) + 1)), "unknown");
  const Status status = ParseOption<E>("Fast").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("'Fast', expected one of " + all));
}

TEST(OptionNames, ThereAndBack) {
  ExpectNames(Precision::kFp16);
  ExpectNames(PerformanceMode::kExtremePowerSaver);
  ExpectNames(PdSession::kSigned);
  ExpectNames(GraphPriority::kHigh);
  ExpectNames(ProfileLevel::kLinting);
  ExpectNames(SlcAllocator::kAuto);
  ExpectNames(VendorLogLevel::kDebug);
  EXPECT_EQ(OptionNames<PerformanceMode>(),
            "default, burst, sustained_high_performance, high_performance, balanced, low_balanced, "
            "high_power_saver, power_saver, low_power_saver, extreme_power_saver");
}

}  // namespace
}  // namespace spillway::qnn::htp
