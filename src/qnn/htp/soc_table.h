// The SoCs whose HTP the vendor's compiler knows.

#ifndef SPILLWAY_QNN_HTP_SOC_TABLE_H_
#define SPILLWAY_QNN_HTP_SOC_TABLE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "spillway/status.h"

namespace spillway::qnn::htp {

// Whether the SoC's system-level cache can hold what the compiler's SLC allocator
// marks for it.
enum class SlcSupport { kUnknown, kYes, kNo };

struct Soc {
  uint32_t id;            // the vendor's number for the device option
  std::string_view name;  // as the vendor's log spells it
  uint32_t arch;          // HTP architecture: 68, 69, 73, 75, 79, 81, 85, 89
  uint32_t vtcm_mb;       // what the compiler uses when no size is set
  bool fp16;              // the compiler says that it supports 16-bit floats
  bool estimates;         // the compiler gives cost estimates
  bool prepares;          // false: known, but every graph preparation fails
  SlcSupport slc;
};

// Where each column comes from, in one sentence; for reports.
std::string_view SocTableSource();
// Why `slc` has its value.
std::string_view SlcSource(const Soc& soc);

// All SoCs with an HTP of architecture 68 or later, by id. Ids that the vendor
// accepts without such an HTP are left out: they "compile" to nothing useful.
std::span<const Soc> AllSocs();

// By name without regard to case ("sm8750") or by id ("69"). kNotFound lists
// the known names. The pointer stays valid for ever.
Result<const Soc*> FindSoc(std::string_view name_or_id);
// Null when the id is not in the table.
const Soc* FindSocById(uint32_t id);

}  // namespace spillway::qnn::htp

#endif  // SPILLWAY_QNN_HTP_SOC_TABLE_H_
