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

TEST(SocTable, ByMarketingName) {
  EXPECT_EQ((*FindSoc("snapdragon 8 elite"))->name, "SM8750");
  EXPECT_EQ((*FindSoc("Snapdragon X Elite"))->name, "SC8380XP");
  std::set<std::string_view> names;
  for (const Soc& soc : AllSocs()) {
    if (soc.marketing_name.empty()) continue;
    EXPECT_TRUE(names.insert(soc.marketing_name).second) << soc.marketing_name;
  }
}

TEST(SocTable, FeaturesOfArchitectures) {
  const Soc& v69 = **FindSoc("SM8450");
  EXPECT_FALSE(v69.weight_sharing());
  EXPECT_FALSE(v69.matmul_16x16());
  EXPECT_FALSE(v69.exact_16bit_products());
  EXPECT_TRUE(v69.lpbq());
  EXPECT_FALSE((*FindSoc("SM8350"))->lpbq());  // v68
  EXPECT_TRUE(v69.dlbc());
  const Soc& v73 = **FindSoc("SM8550");
  EXPECT_TRUE(v73.weight_sharing());
  EXPECT_TRUE(v73.matmul_16x16());
  EXPECT_TRUE(v73.exact_16bit_products());
  const Soc& v89 = **FindSoc("CPN3050");  // known, but nothing compiles for it
  EXPECT_FALSE(v89.weight_sharing());
  EXPECT_FALSE(v89.lpbq());
}

TEST(SocTable, SlcHasASourceOrIsUnknown) {
  for (const Soc& soc : AllSocs()) {
    EXPECT_EQ(soc.slc == SlcSupport::kUnknown, soc.linux_name.empty()) << soc.name;
  }
  const Soc& yes = **FindSoc("SM8750");
  EXPECT_EQ(yes.slc, SlcSupport::kYes);
  EXPECT_THAT(SlcSource(yes), HasSubstr("llcc-qcom.c, table sm8750) has a slice"));
  const Soc& no = **FindSoc("QCS8300");
  EXPECT_EQ(no.slc, SlcSupport::kNo);
  EXPECT_THAT(SlcSource(no), HasSubstr("has no slice"));
  const Soc& unknown = **FindSoc("SA8255");
  EXPECT_EQ(unknown.slc, SlcSupport::kUnknown);
  EXPECT_THAT(SlcSource(unknown), HasSubstr("no public source"));
  EXPECT_EQ(SlcSupportName(SlcSupport::kYes), "yes");
  EXPECT_EQ(SlcSupportName(SlcSupport::kNo), "no");
  EXPECT_EQ(SlcSupportName(SlcSupport::kUnknown), "unknown");
}

}  // namespace
}  // namespace spillway::qnn::htp
