// A vendor job in this process: graphs in, context binary out.

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>

#include "base/file.h"
#include "compiler/check_options.h"
#include "compiler/vendor_job.h"
#include "package/package.h"
#include "qnn/api/binary_info.h"
#include "qnn/api/manager.h"
#include "qnn/htp/options.h"
#include "qnn/lower/lower.h"

namespace spillway {
namespace {

LogLevel FromVendorLevel(qnn::abi::LogLevel level) {
  // What the vendor calls information is detail to our users.
  if (level <= qnn::abi::kLogError) return LogLevel::kInfo;
  if (level <= qnn::abi::kLogInfo) return LogLevel::kDebug;
  return LogLevel::kTrace;
}

// The part of a graph's report that only the vendor's log knows.
void AddLogFacts(const qnn::GraphLogFacts& facts, GraphReport& report) {
  if (facts.ddr) {
    report.spill_bytes = facts.ddr->spill_bytes;
    report.fill_bytes = facts.ddr->fill_bytes;
    report.read_bytes = facts.ddr->read_total_bytes;
    report.write_bytes = facts.ddr->write_total_bytes;
  }
  if (facts.slc_allocate() != 1) return;
  report.slc = facts.slc_had_nothing_to_do
                   ? "on, but no allocation: the graph moves no data that could be kept"
                   : "on, transfers marked";
}

class VendorCompile {
 public:
  VendorCompile(const VendorJob& job, const VendorEvents& events)
      : job_(job), events_(events), options_(job.htp) {}

  Result<VendorResult> Run() {
    const auto start = std::chrono::steady_clock::now();
    SPILLWAY_RETURN_IF_ERROR(Start());
    SPILLWAY_ASSIGN_OR_RETURN(const auto shards, ReadGraphs(job_.folder));
    if (job_.shard >= shards.size()) {
      return InternalError(fmt::format("no shard {} in {}", job_.shard, job_.folder));
    }
    CountWeights(shards[job_.shard]);
    for (const auto& graph : shards[job_.shard]) SPILLWAY_RETURN_IF_ERROR(AddGraph(*graph));
    SPILLWAY_RETURN_IF_ERROR(WriteBinary());
    const std::chrono::duration<double> total = std::chrono::steady_clock::now() - start;
    result_.total_s = total.count();
    return result_;
  }

 private:
  Status Start() {
    if (options_.slc_allocator == SlcAllocator::kAuto) {
      return InternalError("a compile job must say whether the SLC allocator is on or off");
    }
    Progress("load the vendor library", -1.0);
    SPILLWAY_ASSIGN_OR_RETURN(auto library, qnn::Library::Load(job_.qnn_lib_dir));
    SPILLWAY_ASSIGN_OR_RETURN(system_, qnn::SystemLibrary::Load(job_.qnn_lib_dir));
    result_.build_id = library->build_id();
    result_.core_api = qnn::VersionText(library->version().core);
    result_.backend_api = qnn::VersionText(library->version().backend);
    SPILLWAY_ASSIGN_OR_RETURN(soc_, qnn::htp::CheckOptions(options_));
    SPILLWAY_ASSIGN_OR_RETURN(
        log_, qnn::VendorLog::Create(library,
                                     qnn::htp::ToVendor(options_.log_level, qnn::abi::kLogVerbose),
                                     [this](qnn::abi::LogLevel level, std::string_view line) {
                                       if (events_.log) events_.log(FromVendorLevel(level), line);
                                     }));
    SPILLWAY_ASSIGN_OR_RETURN(backend_, qnn::Backend::Create(log_));
    SPILLWAY_ASSIGN_OR_RETURN(device_, qnn::Device::Create(log_, qnn::htp::MakeDeviceConfigs(
                                                                     *soc_, options_.pd_session,
                                                                     library->version().backend)));
    profile_level_ = soc_->estimates ? qnn::abi::kProfileDetailed : 0u;
    SPILLWAY_ASSIGN_OR_RETURN(
        context_, qnn::Context::Create(backend_, device_, qnn::htp::MakeContextConfigs(options_)));
    return OkStatus();
  }

  void Progress(std::string_view stage, double fraction) {
    if (events_.progress) events_.progress(stage, fraction);
  }

  void CountWeights(const std::vector<std::shared_ptr<const Graph>>& graphs) {
    std::set<const ConstantData*> seen;
    for (const auto& graph : graphs) {
      for (const Tensor& tensor : graph->tensors()) {
        if (tensor.role == TensorRole::kConstant && seen.insert(tensor.data.get()).second) {
          result_.shard.weight_bytes += tensor.Bytes();
        }
      }
    }
  }

  Status AddGraph(const Graph& graph) {
    Progress("build " + graph.name(), -1.0);
    SPILLWAY_ASSIGN_OR_RETURN(
        qnn::Graph * vendor,
        context_->CreateGraph(graph.name(), qnn::htp::MakeGraphConfigs(options_, *soc_)));
    SPILLWAY_ASSIGN_OR_RETURN(const qnn::LowerResult lowered, qnn::LowerGraph(graph, vendor));
    qnn::FinalizeOptions finalize;
    finalize.profile_level = profile_level_;
    const std::string stage = "finalise " + graph.name();
    finalize.progress = [&](std::string_view vendor_stage, double fraction) {
      Progress(fmt::format("{} ({})", stage, vendor_stage), fraction);
    };
    SPILLWAY_ASSIGN_OR_RETURN(const qnn::FinalizeResult finalized, vendor->Finalize(finalize));
    GraphReport report;
    report.name = graph.name();
    report.nodes = lowered.nodes;
    report.finalize_s = finalized.seconds;
    if (finalized.estimates) {
      report.estimate_us = static_cast<double>(finalized.estimates->microseconds.value);
    }
    const qnn::LogFacts facts = log_->facts();
    if (const auto* said = facts.FindGraph(graph.name())) AddLogFacts(*said, report);
    result_.finalize_s += finalized.seconds;
    result_.shard.graphs.push_back(std::move(report));
    return OkStatus();
  }

  Status WriteBinary() {
    Progress("write the context binary", -1.0);
    SPILLWAY_ASSIGN_OR_RETURN(const std::vector<std::byte> binary, context_->GetBinary());
    SPILLWAY_RETURN_IF_ERROR(CopyInfo(binary));
    SPILLWAY_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(job_.output_path));
    SPILLWAY_RETURN_IF_ERROR(file.Write(binary));
    result_.shard.context_bytes = file.size();
    return file.Commit();
  }

  Status CopyInfo(std::span<const std::byte> binary) {
    Result<qnn::BinaryInfo> read = qnn::ReadBinaryInfo(*system_, binary, job_.output_path);
    // The bytes come straight from the vendor: no file of the user is damaged.
    if (!read.ok()) return VendorError(read.status().message());
    const qnn::BinaryInfo info = std::move(read).value();
    result_.soc_model = info.soc_model;
    result_.shard.spill_fill_bytes = info.spill_fill_bytes;
    for (GraphReport& graph : result_.shard.graphs) {
      const qnn::BinaryGraph* found = info.FindGraph(graph.name);
      if (found == nullptr) {
        return VendorError(fmt::format(
            "the context binary does not hold the graph {} that was finalised", graph.name));
      }
      if (!found->memory) continue;
      graph.spill_fill_buffer_bytes = found->memory->spill_fill_bytes;
      graph.vtcm_bytes = found->memory->vtcm_bytes;
    }
    return OkStatus();
  }

  const VendorJob& job_;
  const VendorEvents& events_;
  const HtpOptions& options_;
  const qnn::htp::Soc* soc_ = nullptr;
  uint32_t profile_level_ = 0;
  std::shared_ptr<const qnn::SystemLibrary> system_;
  std::shared_ptr<qnn::VendorLog> log_;
  std::shared_ptr<qnn::Backend> backend_;
  std::shared_ptr<qnn::Device> device_;
  std::unique_ptr<qnn::Context> context_;
  VendorResult result_;
};

}  // namespace

Result<VendorResult> RunVendorJob(const VendorJob& job, const VendorEvents& events) {
  return VendorCompile(job, events).Run();
}

}  // namespace spillway
