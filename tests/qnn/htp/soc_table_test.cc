#include "qnn/htp/soc_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace spillway::qnn::htp {
namespace {

using ::testing::HasSubstr;

TEST(SocTable, ByNameInAnyCaseAndByNumber) {
  for (const char* name : {"SM8750", "sm8750", "Sm8750", "69"}) {
    const Result<const Soc*> soc = FindSoc(name);
    ASSERT_TRUE(soc.ok()) << name;
    EXPECT_EQ((*soc)->id, 69U);
    EXPECT_EQ((*soc)->name, "SM8750");
    EXPECT_EQ((*soc)->arch, 79U);
    EXPECT_EQ((*soc)->vtcm_mb, 8U);
    EXPECT_TRUE((*soc)->fp16);
    EXPECT_FALSE((*soc)->estimates);
    EXPECT_TRUE((*soc)->prepares);
  }
}

TEST(SocTable, UnknownListsTheKnown) {
  for (const char* name : {"SM9999", "", "69x", "-1", "4294967365", "30000000000"}) {
    const Status status = FindSoc(name).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << name;
    EXPECT_THAT(status.message(), HasSubstr("unknown SoC '" + std::string(name) + "'"));
    EXPECT_THAT(status.message(), HasSubstr("SM8350, "));
    EXPECT_THAT(status.message(), HasSubstr("SM8750, "));
  }
}

TEST(SocTable, NoSocWithoutAnHtp) {
  EXPECT_FALSE(FindSoc("SM8250").ok());  // v66
  EXPECT_FALSE(FindSoc("SM4450").ok());  // none
  std::set<uint32_t> ids;
  std::set<std::string_view> names;
  for (const Soc& soc : AllSocs()) {
    EXPECT_GE(soc.arch, 68U) << soc.name;
    EXPECT_GT(soc.vtcm_mb, 0U) << soc.name;
    EXPECT_TRUE(ids.insert(soc.id).second) << soc.name;
    EXPECT_TRUE(names.insert(soc.name).second) << soc.name;
  }
}

TEST(SocTable, EstimatesWhereTheCompilerHasThem) {
  std::set<uint32_t> ids;
  for (const Soc& soc : AllSocs()) {
    if (soc.estimates) ids.insert(soc.id);
  }
  EXPECT_EQ(ids, (std::set<uint32_t>{52, 62, 63, 72, 77, 95, 114}));
}

TEST(SocTable, SlcIsUnknownAndSaysWhy) {
  for (const Soc& soc : AllSocs()) EXPECT_EQ(soc.slc, SlcSupport::kUnknown) << soc.name;
  EXPECT_THAT(std::string(SlcSource(**FindSoc("SM8750"))), HasSubstr("no public source"));
}

}  // namespace
}  // namespace spillway::qnn::htp
