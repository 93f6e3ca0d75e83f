// spillway socs, and spillway inspect of a compile spec.

#include <flatbuffers/flatbuffers.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/apps/run_program.h"
#include "tests/support/paths.h"

namespace spillway::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Socs, AllOfThemAsATable) {
  const ProgramResult result = RunProgram({"socs"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("SM8350"));
  EXPECT_THAT(result.out, HasSubstr("SA8787"));
  EXPECT_THAT(result.out, HasSubstr("Snapdragon 8 Elite"));
}

TEST(Socs, OneByNumberNameOrMarketingName) {
  for (const char* name : {"69", "sm8750", "snapdragon 8 elite"}) {
    const ProgramResult result = RunProgram({"socs", name});
    EXPECT_EQ(result.exit_code, 0) << name;
    EXPECT_THAT(result.out, HasSubstr("SM8750, Snapdragon 8 Elite, number 69\n")) << name;
    EXPECT_THAT(result.out, HasSubstr("v79, 8 MB of VTCM")) << name;
    EXPECT_THAT(result.out, HasSubstr("llcc-qcom.c")) << name;
  }
}

TEST(Socs, FilterByArchitectureAsJson) {
  const ProgramResult result = RunProgram({"socs", "--arch", "85", "--json"});
  EXPECT_EQ(result.exit_code, 0);
  const nlohmann::json json = ParseJson(result.out);
  ASSERT_EQ(json["socs"].size(), 4U);
  for (const auto& soc : json["socs"]) EXPECT_EQ(soc["arch"], 85);
  EXPECT_EQ(json["socs"][0]["name"], "SM8975");
  EXPECT_EQ(json["socs"][0]["slc"], "unknown");
}

TEST(Socs, UnknownIsNotFound) {
  const ProgramResult result = RunProgram({"socs", "sm9999"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("no SoC has 'sm9999' in its name"));
}

// {soc: {model}, backend: {type: HTP, htp: {max_sf_buf_size, use_slc_allocator}}}
std::string SmallSpec() {
  flatbuffers::FlatBufferBuilder builder;
  const auto entry = [](int field) { return static_cast<flatbuffers::voffset_t>(4 + 2 * field); };
  auto start = builder.StartTable();
  builder.AddElement<int32_t>(entry(0), 69, 0);
  const flatbuffers::Offset<void> soc(builder.EndTable(start));
  start = builder.StartTable();
  builder.AddElement<int32_t>(entry(0), 4096, 0);
  builder.AddElement<uint8_t>(entry(9), 1, 0);
  const flatbuffers::Offset<void> htp(builder.EndTable(start));
  start = builder.StartTable();
  builder.AddElement<int32_t>(entry(0), 2, 0);
  builder.AddOffset(entry(1), htp);
  const flatbuffers::Offset<void> backend(builder.EndTable(start));
  start = builder.StartTable();
  builder.AddOffset(entry(0), soc);
  builder.AddOffset(entry(1), backend);
  builder.Finish(flatbuffers::Offset<void>(builder.EndTable(start)));
  return {reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()};
}

TEST(InspectSpec, ShowsEveryFieldAsTextAndJson) {
  const TempFolder folder;
  const std::string path = folder.File("shard_0.spec");
  ASSERT_TRUE(WriteFileAtomically(path, SmallSpec()).ok());
  const ProgramResult text = RunProgram({"inspect", path});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, ::testing::ContainsRegex("soc_info.name +SM8750"));
  EXPECT_THAT(text.out, ::testing::ContainsRegex("htp_options.max_sf_buf_size +4096"));
  EXPECT_THAT(text.out, ::testing::ContainsRegex("htp_options.use_slc_allocator +true"));
  EXPECT_THAT(text.out, ::testing::ContainsRegex("gpu_options +absent"));
  EXPECT_THAT(text.out, ::testing::ContainsRegex("op_package_infos +none"));
  const nlohmann::json json = ParseJson(RunProgram({"inspect", path, "--json"}).out);
  EXPECT_EQ(json["kind"], "compile_spec");
  EXPECT_EQ(json["soc_info"]["soc_model"], 69);
  EXPECT_EQ(json["htp_options"]["use_slc_allocator"], true);
  EXPECT_EQ(json["log_level"], "off");
  EXPECT_TRUE(json["gpu_options"].is_null());
}

TEST(InspectSpec, DamageIsSaid) {
  const TempFolder folder;
  const std::string path = folder.File("broken.spec");
  ASSERT_TRUE(WriteFileAtomically(path, SmallSpec().substr(0, 30)).ok());
  const ProgramResult result = RunProgram({"inspect", path});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr(path));
  EXPECT_THAT(result.err, HasSubstr("compile spec"));
}

}  // namespace
}  // namespace spillway::test
