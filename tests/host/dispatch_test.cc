#include "host/dispatch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "host/kernel_table.h"

namespace spillway::host {
namespace {

TEST(DispatchTest, TheEnvironmentChoosesASupportedTarget) {
  ::unsetenv("SPILLWAY_CPU");
  const CpuTarget best = SelectTarget();
  EXPECT_TRUE(IsSupported(best));
  for (const CpuTarget target : kAllCpuTargets) {
    ::setenv("SPILLWAY_CPU", std::string(CpuTargetName(target)).c_str(), 1);
    EXPECT_EQ(SelectTarget(), IsSupported(target) ? target : best) << CpuTargetName(target);
  }
  ::setenv("SPILLWAY_CPU", "abacus", 1);
  EXPECT_EQ(SelectTarget(), best);
  ::unsetenv("SPILLWAY_CPU");
}

TEST(DispatchTest, EverySupportedTargetHasItsOwnFunctions) {
  std::set<const IntegerProducts*> products;
  size_t count = 0;
  for (const CpuTarget target : kAllCpuTargets) {
    if (!IsSupported(target)) continue;
    const KernelTable& table = KernelsFor(target);
    EXPECT_EQ(table.target, target);
    products.insert(table.products);
    ++count;
    if (target != CpuTarget::kScalar) {
      EXPECT_NE(table.vectors, &ScalarVectorOps()) << CpuTargetName(target);
    }
  }
  EXPECT_EQ(products.size(), count);
}

}  // namespace
}  // namespace spillway::host
