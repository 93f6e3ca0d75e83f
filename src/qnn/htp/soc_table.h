// The SoCs whose HTP the vendor's compiler knows.

#ifndef SPILLWAY_QNN_HTP_SOC_TABLE_H_
#define SPILLWAY_QNN_HTP_SOC_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "spillway/status.h"

namespace spillway::qnn::htp {

// Whether the SoC's system-level cache can hold what the compiler's SLC allocator
// marks for it.
enum class SlcSupport { kUnknown, kYes, kNo };
// "yes", "no", "unknown".
std::string_view SlcSupportName(SlcSupport support);

struct Soc {
  uint32_t id;                      // the vendor's number for the device option
  std::string_view name;            // as the vendor's log spells it
  std::string_view marketing_name;  // "Snapdragon 8 Elite"; empty when none is certain
  uint32_t arch;                    // HTP architecture: 68, 69, 73, 75, 79, 81, 85, 89
  uint32_t vtcm_mb;                 // what the compiler uses when no size is set
  bool fp16;                        // the compiler says that it supports 16-bit floats
  bool estimates;                   // the compiler has a cost model for it
  bool prepares;                    // false: known, but every graph preparation fails
  SlcSupport slc;
  std::string_view linux_name;  // of the table that `slc` comes from; empty: kUnknown

  // Several graphs of a context may share their weights.
  constexpr bool weight_sharing() const { return prepares && arch >= 73; }
  // Products of two 16-bit values (u16 x u16 MatMul, 16-bit weights).
  constexpr bool matmul_16x16() const { return prepares && arch >= 73; }
  // Products of u16 with 8- or 4-bit weights are right to a step or a few; before
  // v73 they are up to 20 steps off.
  constexpr bool exact_16bit_products() const { return prepares && arch >= 73; }
  // 4-bit weights with a scale a block. (The compiler takes them for v68 too.)
  constexpr bool lpbq() const { return prepares && arch >= 69; }
  // DDR bandwidth compression, as far as the compiler is concerned.
  constexpr bool dlbc() const { return prepares; }
};

// Where each column but `slc` comes from; for reports.
std::string_view SocTableSource();
// Why `slc` has its value. It says that the cache serves the DSP, not that a model
// gains from it: a developer measures, or knows better and says so with the option.
std::string SlcSource(const Soc& soc);

// All SoCs with an HTP of architecture 68 or later, by id. Ids that the vendor
// accepts without such an HTP are left out: they "compile" to nothing useful.
std::span<const Soc> AllSocs();

// By name or marketing name without regard to case ("sm8750", "Snapdragon 8 Elite")
// or by id ("69"). kNotFound lists the known names. The pointer stays valid for ever.
Result<const Soc*> FindSoc(std::string_view name_or_id);
// Null when the id is not in the table.
const Soc* FindSocById(uint32_t id);

}  // namespace spillway::qnn::htp

#endif  // SPILLWAY_QNN_HTP_SOC_TABLE_H_
