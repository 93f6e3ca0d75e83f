#include "qnn/htp/soc_table.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace spillway::qnn::htp {
namespace {

// id, name, marketing name, arch, VTCM MB, fp16, estimates, prepares, SLC, Linux: by id.
// clang-format off: one row a SoC.
constexpr Soc kSocs[] = {
    {30, "SM8350", "Snapdragon 888", 68, 4, false, false, true, SlcSupport::kYes, "sm8350"},
    {32, "SM7350", "Snapdragon 780G", 68, 2, false, false, true, SlcSupport::kUnknown, ""},
    {34, "SM8325", "", 68, 4, false, false, true, SlcSupport::kUnknown, ""},
    {35, "SM7325", "Snapdragon 778G", 68, 2, false, false, true, SlcSupport::kYes, "sc7280"},
    {36, "SM8450", "Snapdragon 8 Gen 1", 69, 8, true, false, true, SlcSupport::kYes, "sm8450"},
    {37, "SC8280X", "Snapdragon 8cx Gen 3", 68, 4, false, false, true, SlcSupport::kYes,
     "sc8280xp"},
    {38, "SM7315", "", 68, 2, false, false, true, SlcSupport::kUnknown, ""},
    {39, "SA8295", "", 68, 8, true, false, true, SlcSupport::kUnknown, ""},
    {41, "SM7450", "Snapdragon 7 Gen 1", 69, 2, true, false, true, SlcSupport::kUnknown, ""},
    {42, "SM8475", "Snapdragon 8+ Gen 1", 69, 8, true, false, true, SlcSupport::kUnknown, ""},
    {43, "SM8550", "Snapdragon 8 Gen 2", 73, 8, true, false, true, SlcSupport::kYes, "sm8550"},
    {45, "SXR1230P", "", 73, 2, false, false, true, SlcSupport::kUnknown, ""},
    {46, "SSG2115P", "", 73, 2, false, false, true, SlcSupport::kUnknown, ""},
    {50, "SM6450", "Snapdragon 6 Gen 1", 73, 2, false, false, true, SlcSupport::kUnknown, ""},
    {52, "SA8255", "", 73, 8, true, true, true, SlcSupport::kUnknown, ""},
    {53, "SXR2230P", "Snapdragon XR2 Gen 2", 69, 8, true, false, true, SlcSupport::kUnknown, ""},
    {54, "SM7475", "Snapdragon 7+ Gen 2", 69, 4, false, false, true, SlcSupport::kUnknown, ""},
    {57, "SM8650", "Snapdragon 8 Gen 3", 75, 8, true, false, true, SlcSupport::kYes, "sm8650"},
    {58, "SSG2125P", "", 73, 2, false, false, true, SlcSupport::kUnknown, ""},
    {60, "SC8380XP", "Snapdragon X Elite", 73, 8, true, false, true, SlcSupport::kYes, "x1e80100"},
    {61, "SM7435", "Snapdragon 7s Gen 2", 73, 2, false, false, true, SlcSupport::kUnknown, ""},
    {62, "SA8540", "", 68, 8, true, true, true, SlcSupport::kUnknown, ""},
    {63, "AIC100", "Cloud AI 100", 68, 8, true, true, true, SlcSupport::kUnknown, ""},
    {64, "SM7550", "Snapdragon 7 Gen 3", 73, 2, false, false, true, SlcSupport::kUnknown, ""},
    {66, "QCS8550", "", 73, 8, true, false, true, SlcSupport::kYes, "sm8550"},
    {67, "SA8620P", "", 75, 8, true, false, true, SlcSupport::kUnknown, ""},
    {68, "SM8635", "Snapdragon 8s Gen 3", 73, 4, false, false, true, SlcSupport::kUnknown, ""},
    {69, "SM8750", "Snapdragon 8 Elite", 79, 8, true, false, true, SlcSupport::kYes, "sm8750"},
    {70, "SM7675", "Snapdragon 7+ Gen 3", 73, 4, false, false, true, SlcSupport::kUnknown, ""},
    {72, "SA8797", "", 81, 16, true, true, true, SlcSupport::kUnknown, ""},
    {73, "SM7635", "Snapdragon 7s Gen 3", 73, 2, false, false, true, SlcSupport::kUnknown, ""},
    {74, "SM6650", "", 73, 2, false, false, true, SlcSupport::kUnknown, ""},
    {75, "SXR2330P", "", 79, 8, true, false, true, SlcSupport::kUnknown, ""},
    {76, "SM6475", "", 73, 2, false, false, true, SlcSupport::kUnknown, ""},
    {77, "QCS9100", "", 73, 8, true, true, true, SlcSupport::kYes, "sa8775p"},
    {78, "QCM6690", "", 73, 2, false, false, true, SlcSupport::kUnknown, ""},
    {82, "QCS8300", "", 75, 8, true, false, true, SlcSupport::kNo, "qcs8300"},
    {85, "SM8735", "Snapdragon 8s Gen 4", 73, 8, false, false, true, SlcSupport::kUnknown, ""},
    {86, "SM7750", "Snapdragon 7 Gen 4", 73, 4, false, false, true, SlcSupport::kUnknown, ""},
    {87, "SM8850", "Snapdragon 8 Elite Gen 5", 81, 8, true, false, true, SlcSupport::kYes,
     "kaanapali"},
    {88, "SC8480XP", "Snapdragon X2 Elite", 81, 8, true, false, true, SlcSupport::kYes, "glymur"},
    {89, "QCM8538", "", 73, 8, true, false, true, SlcSupport::kUnknown, ""},
    {90, "QCS8625", "", 75, 8, true, false, true, SlcSupport::kUnknown, ""},
    {91, "SM7775", "", 73, 4, false, false, true, SlcSupport::kUnknown, ""},
    {92, "SM8850L", "", 81, 8, true, false, true, SlcSupport::kUnknown, ""},
    {93, "QCS6490", "", 68, 2, false, false, true, SlcSupport::kYes, "sc7280"},
    {94, "SC8440XP", "", 81, 8, true, false, true, SlcSupport::kUnknown, ""},
    {95, "SAR2230P", "", 81, 4, false, true, true, SlcSupport::kUnknown, ""},
    {96, "SW6100", "", 81, 4, false, false, true, SlcSupport::kUnknown, ""},
    {97, "SM8845", "Snapdragon 8 Gen 5", 81, 8, true, false, true, SlcSupport::kUnknown, ""},
    {99, "QCM8838", "", 81, 8, true, false, true, SlcSupport::kUnknown, ""},
    {100, "SAR1165P", "", 73, 2, false, false, true, SlcSupport::kUnknown, ""},
    {101, "SAR1180P", "", 73, 2, false, false, true, SlcSupport::kUnknown, ""},
    {102, "CQ7790M", "", 73, 4, false, false, true, SlcSupport::kUnknown, ""},
    {103, "SM8975", "", 85, 12, true, false, true, SlcSupport::kUnknown, ""},
    {104, "CQ8725S", "", 79, 8, true, false, true, SlcSupport::kUnknown, ""},
    {105, "CQ8750S", "", 79, 8, true, false, true, SlcSupport::kUnknown, ""},
    {108, "CPN3050_SIM", "", 81, 3, false, false, true, SlcSupport::kUnknown, ""},
    {109, "QCS8845", "", 81, 8, true, false, true, SlcSupport::kUnknown, ""},
    {110, "XRV7200", "", 81, 4, false, false, true, SlcSupport::kUnknown, ""},
    {111, "XRV7205", "", 81, 4, false, false, true, SlcSupport::kUnknown, ""},
    {112, "SM8975L", "", 85, 8, true, false, true, SlcSupport::kUnknown, ""},
    {113, "SM8950", "", 85, 8, true, false, true, SlcSupport::kUnknown, ""},
    {114, "SA8787", "", 85, 16, true, true, true, SlcSupport::kUnknown, ""},
    {115, "QMX115", "", 81, 2, true, false, true, SlcSupport::kUnknown, ""},
    {117, "IPQ9650", "", 81, 2, true, false, true, SlcSupport::kUnknown, ""},
    {119, "IQX5121", "", 73, 8, true, false, true, SlcSupport::kUnknown, ""},
    {120, "SC8340XP", "", 73, 8, true, false, true, SlcSupport::kUnknown, ""},
    {122, "CPN3050", "", 89, 3, false, false, false, SlcSupport::kUnknown, ""},
    {123, "SM7950", "", 81, 4, true, false, true, SlcSupport::kUnknown, ""},
};
// clang-format on

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool SameName(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

std::string KnownNames() {
  std::string names;
  for (const Soc& soc : kSocs) {
    names += names.empty() ? "" : ", ";
    names += soc.name;
  }
  return names;
}

}  // namespace

std::string_view SocTableSource() {
  return "names, architectures, VTCM sizes, 16-bit floats and estimates are what the log of QAIRT "
         "2.51.0 on x86-64 says; products of two 16-bit values and DLBC are what its compiler "
         "accepts; weight sharing from v73 on and LPBQ from v69 on are what ExecuTorch's guide to "
         "language models on Qualcomm says";
}

std::string SlcSource(const Soc& soc) {
  const std::string table =
      "Linux's driver of the system-level cache (drivers/soc/qcom/llcc-qcom.c, table " +
      std::string(soc.linux_name) + ")";
  switch (soc.slc) {
    case SlcSupport::kYes:
      return table + " has a slice for the compute DSP";
    case SlcSupport::kNo:
      return table + " has no slice for the compute DSP";
    case SlcSupport::kUnknown:
      break;
  }
  return "no public source says it; the compiler accepts the option for every SoC that it can "
         "prepare, so measure with and without it on the device";
}

std::string_view SlcSupportName(SlcSupport support) {
  switch (support) {
    case SlcSupport::kYes:
      return "yes";
    case SlcSupport::kNo:
      return "no";
    case SlcSupport::kUnknown:
      break;
  }
  return "unknown";
}

std::span<const Soc> AllSocs() { return kSocs; }

const Soc* FindSocById(uint32_t id) {
  for (const Soc& soc : kSocs) {
    if (soc.id == id) return &soc;
  }
  return nullptr;
}

Result<const Soc*> FindSoc(std::string_view name_or_id) {
  for (const Soc& soc : kSocs) {
    if (SameName(soc.name, name_or_id)) return &soc;
    if (!soc.marketing_name.empty() && SameName(soc.marketing_name, name_or_id)) return &soc;
  }
  uint32_t id = 0;
  const char* end = name_or_id.data() + name_or_id.size();
  const auto parsed = std::from_chars(name_or_id.data(), end, id);
  if (parsed.ec == std::errc() && parsed.ptr == end && !name_or_id.empty()) {
    if (const Soc* soc = FindSocById(id)) return soc;
  }
  return NotFoundError("unknown SoC '" + std::string(name_or_id) +
                       "'. Known SoCs with an HTP of architecture 68 or later: " + KnownNames() +
                       ".");
}

}  // namespace spillway::qnn::htp
