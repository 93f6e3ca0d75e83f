// spillway socs: the SoCs that the vendor's compiler knows, and what their HTP can do.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "command.h"
#include "json_text.h"
#include "qnn/htp/soc_table.h"
#include "text.h"

namespace spillway::cli {
namespace {

using qnn::htp::Soc;

constexpr char kExamples[] =
    "Columns: estimates = the compiler has a cost model for it; 16x16 = products of two 16-bit\n"
    "values; sharing = graphs of a context may share weights; SLC = the system-level cache\n"
    "serves the HTP. One SoC alone is shown with the sources.\n\n"
    "Examples:\n"
    "  spillway socs\n"
    "  spillway socs SM8750\n"
    "  spillway socs \"8 elite\"\n"
    "  spillway socs --arch 79 --json\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

Json ToJson(const Soc& soc) {
  return {{"id", soc.id},
          {"name", soc.name},
          {"marketing_name", soc.marketing_name},
          {"arch", soc.arch},
          {"vtcm_mb", soc.vtcm_mb},
          {"can_compile", soc.prepares},
          {"estimates", soc.estimates},
          {"fp16", soc.fp16},
          {"weight_sharing", soc.weight_sharing()},
          {"lpbq", soc.lpbq()},
          {"matmul_16x16", soc.matmul_16x16()},
          {"exact_16bit_products", soc.exact_16bit_products()},
          {"dlbc", soc.dlbc()},
          {"slc", qnn::htp::SlcSupportName(soc.slc)},
          {"slc_source", qnn::htp::SlcSource(soc)}};
}

const char* YesNo(bool value) { return value ? "yes" : "no"; }

std::string OneText(const Soc& soc) {
  std::string text =
      fmt::format("{}{}{}, number {}\n", soc.name, soc.marketing_name.empty() ? "" : ", ",
                  soc.marketing_name, soc.id);
  const auto add = [&text](const char* name, std::string_view value) {
    text += fmt::format("{:<28}{}\n", name, value);
  };
  add("HTP", fmt::format("v{}, {} MB of VTCM", soc.arch, soc.vtcm_mb));
  if (!soc.prepares) add("compiles", "no: the compiler fails for every graph");
  add("cost estimates", YesNo(soc.estimates));
  add("16-bit floats", YesNo(soc.fp16));
  add("weight sharing", YesNo(soc.weight_sharing()));
  add("4-bit weights in blocks", YesNo(soc.lpbq()));
  add("16-bit by 16-bit products", YesNo(soc.matmul_16x16()));
  add("exact 16-bit activations",
      soc.exact_16bit_products() ? "yes" : "no: products are up to 20 steps off");
  add("DDR bandwidth compression", YesNo(soc.dlbc()));
  add("system-level cache",
      fmt::format("{}: {}", qnn::htp::SlcSupportName(soc.slc), qnn::htp::SlcSource(soc)));
  return text + fmt::format("\nSource: {}.\n", qnn::htp::SocTableSource());
}

std::string TableText(const std::vector<const Soc*>& socs) {
  TextTable table({"name", "number", "HTP", "VTCM", "estimates", "fp16", "sharing", "LPBQ", "16x16",
                   "DLBC", "SLC", "known as"});
  for (const Soc* soc : socs) {
    table.AddRow({std::string(soc->name), std::to_string(soc->id), fmt::format("v{}", soc->arch),
                  fmt::format("{} MB", soc->vtcm_mb), YesNo(soc->estimates), YesNo(soc->fp16),
                  YesNo(soc->weight_sharing()), YesNo(soc->lpbq()), YesNo(soc->matmul_16x16()),
                  YesNo(soc->dlbc()), std::string(qnn::htp::SlcSupportName(soc->slc)),
                  std::string(soc->marketing_name)});
  }
  return table.ToString();
}

class SocsCommand : public Command {
 public:
  explicit SocsCommand(CLI::App& program);
  Status Run(Console& console) override;

 private:
  Result<std::vector<const Soc*>> Choose() const;

  std::string filter_;
  uint32_t arch_ = 0;
};

SocsCommand::SocsCommand(CLI::App& program) {
  CLI::App& app = *program.add_subcommand("socs", "List the SoCs and what their HTP can do");
  app.fallthrough();
  app.add_option("NAME", filter_,
                 "A SoC's name, number or marketing name, or a part of a name; default: all");
  app.add_option("--arch", arch_, "Only SoCs with this HTP architecture, like 79");
  app.footer(kExamples);
}

Result<std::vector<const Soc*>> SocsCommand::Choose() const {
  std::vector<const Soc*> chosen;
  const auto matches_arch = [this](const Soc& soc) { return arch_ == 0 || soc.arch == arch_; };
  // The exact one before all that have the text in their names.
  const Result<const Soc*> exact = qnn::htp::FindSoc(filter_);
  if (exact.ok() && matches_arch(**exact)) return std::vector<const Soc*>{*exact};
  const std::string filter = Lower(filter_);
  for (const Soc& soc : qnn::htp::AllSocs()) {
    const bool named = Lower(soc.name).find(filter) != std::string::npos ||
                       Lower(soc.marketing_name).find(filter) != std::string::npos;
    if (named && matches_arch(soc)) chosen.push_back(&soc);
  }
  if (chosen.empty()) {
    return NotFoundError(fmt::format("no SoC has '{}' in its name{}; 'spillway socs' lists all",
                                     filter_,
                                     arch_ == 0 ? "" : fmt::format(" and HTP v{}", arch_)));
  }
  return chosen;
}

Status SocsCommand::Run(Console& console) {
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<const Soc*> socs, Choose());
  if (console.json) {
    Json json = {{"kind", "socs"}, {"source", qnn::htp::SocTableSource()}, {"socs", Json::array()}};
    for (const Soc* soc : socs) json["socs"].push_back(ToJson(*soc));
    return console.Print(JsonText(json));
  }
  return console.Print(socs.size() == 1 ? OneText(*socs[0]) : TableText(socs));
}

}  // namespace

std::unique_ptr<Command> AddSocsCommand(CLI::App& program) {
  return std::make_unique<SocsCommand>(program);
}

}  // namespace spillway::cli
