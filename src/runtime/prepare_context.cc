#include "runtime/prepare_context.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/log.h"
#include "package/package.h"
#include "qnn/htp/options.h"
#include "qnn/lower/lower.h"

namespace spillway {
namespace {

Status AddGraph(qnn::Context& context, const Graph& graph, const HtpOptions& htp,
                const qnn::htp::Soc& soc, const ContextProgress& progress) {
  if (progress) progress("build " + graph.name(), -1.0);
  const HtpOptions of_graph = qnn::htp::OptionsOfGraph(htp, graph.name() == kDecodeGraphName);
  SPILLWAY_ASSIGN_OR_RETURN(
      qnn::Graph * vendor,
      context.CreateGraph(graph.name(), qnn::htp::MakeGraphConfigs(of_graph, soc)));
  qnn::LowerOptions lower;
  lower.dump_intermediates = htp.dump_intermediates;
  SPILLWAY_RETURN_IF_ERROR(qnn::LowerGraph(graph, vendor, lower).status());
  const std::string stage = "finalise " + graph.name();
  if (progress) progress(stage, 0.0);
  qnn::FinalizeOptions finalize;
  finalize.progress = [&](std::string_view vendor_stage, double fraction) {
    if (progress) progress(fmt::format("{} ({})", stage, vendor_stage), fraction);
  };
  SPILLWAY_ASSIGN_OR_RETURN(const qnn::FinalizeResult result, vendor->Finalize(finalize));
  Log(LogLevel::kInfo, "{} finalised in {:.1f} s", graph.name(), result.seconds);
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<qnn::Context>> PrepareContext(
    const std::shared_ptr<qnn::Backend>& backend, const std::shared_ptr<qnn::Device>& device,
    const std::vector<std::shared_ptr<const Graph>>& graphs, const HtpOptions& htp,
    const ContextProgress& progress) {
  SPILLWAY_ASSIGN_OR_RETURN(const qnn::htp::Soc* soc, qnn::htp::CheckOptions(htp));
  HtpOptions options = htp;
  options.weight_sharing = htp.weight_sharing.value_or(true) && graphs.size() > 1;
  SPILLWAY_ASSIGN_OR_RETURN(
      std::unique_ptr<qnn::Context> context,
      qnn::Context::Create(backend, device, qnn::htp::MakeContextConfigs(options)));
  for (const std::shared_ptr<const Graph>& graph : graphs) {
    SPILLWAY_RETURN_IF_ERROR(AddGraph(*context, *graph, options, *soc, progress));
  }
  return context;
}

}  // namespace spillway
