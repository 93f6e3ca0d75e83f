// A vendor job in this process: graphs in, context binary out; or, as the options ask,
// only a check of every node (online preparation) or a record of the calls (saver).

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>

#include "base/file.h"
#include "compiler/check_options.h"
#include "compiler/vendor_job.h"
#include "package/package.h"
#include "qnn/api/binary_info.h"
#include "qnn/api/manager.h"
#include "qnn/htp/options.h"
#include "qnn/htp/options_json.h"
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
  report.slc = facts.slc_had_nothing_to_do ? SlcOutcome::kNothingToKeep : SlcOutcome::kMarked;
}

std::string_view UnitName(uint32_t unit) {
  switch (unit) {
    case qnn::abi::kUnitMicroseconds:
      return "us";
    case qnn::abi::kUnitBytes:
      return "bytes";
    case qnn::abi::kUnitCycles:
      return "cycles";
    case qnn::abi::kUnitCount:
      return "count";
    default:
      return "";
  }
}

// The vendor's trees of events as rows, parents before their parts.
void AddProfileRows(const std::vector<qnn::ProfileEvent>& events, uint32_t depth,
                    std::vector<ProfileRow>& rows) {
  for (const qnn::ProfileEvent& event : events) {
    rows.push_back(
        {depth, event.type, event.identifier, event.value, std::string(UnitName(event.unit))});
    AddProfileRows(event.children, depth + 1, rows);
  }
}

class VendorCompile {
 public:
  VendorCompile(const VendorJob& job, const VendorEvents& events)
      : job_(job), events_(events), options_(job.htp) {}

  Result<VendorResult> Run() {
    const auto start = std::chrono::steady_clock::now();
    SPILLWAY_RETURN_IF_ERROR(Start());
    SPILLWAY_ASSIGN_OR_RETURN(const auto graphs, ReadJobGraphs());
    result_.shard.weight_bytes = ConstantBytes(graphs);
    for (const auto& graph : graphs) SPILLWAY_RETURN_IF_ERROR(AddGraph(*graph));
    if (MakesBinary(options_)) SPILLWAY_RETURN_IF_ERROR(WriteBinary());
    if (!options_.saver_dir.empty()) SPILLWAY_RETURN_IF_ERROR(FinishRecord());
    const std::chrono::duration<double> total = std::chrono::steady_clock::now() - start;
    result_.total_s = total.count();
    return result_;
  }

 private:
  Result<std::vector<std::shared_ptr<const Graph>>> ReadJobGraphs() const {
    std::vector<std::shared_ptr<const Graph>> graphs;
    if (job_.evictor) {
      SPILLWAY_ASSIGN_OR_RETURN(graphs.emplace_back(), ReadEvictor(job_.folder));
      return graphs;
    }
    SPILLWAY_ASSIGN_OR_RETURN(auto shards, ReadGraphs(job_.folder));
    if (job_.shard >= shards.size()) {
      return InternalError(fmt::format("no shard {} in {}", job_.shard, job_.folder));
    }
    return std::move(shards[job_.shard]);
  }

  Status Start() {
    if (options_.slc_allocator == SlcAllocator::kAuto) {
      return InternalError("a compile job must say whether the SLC allocator is on or off");
    }
    Progress("load the vendor library", -1.0);
    SPILLWAY_ASSIGN_OR_RETURN(soc_, qnn::htp::CheckOptions(options_));
    SPILLWAY_ASSIGN_OR_RETURN(const auto library, LoadLibrary());
    result_.build_id = library->build_id();
    result_.core_api = qnn::VersionText(library->version().core);
    result_.backend_api = qnn::VersionText(library->version().backend);
    SPILLWAY_ASSIGN_OR_RETURN(
        log_, qnn::VendorLog::Create(library,
                                     qnn::htp::ToVendor(options_.log_level, qnn::abi::kLogVerbose),
                                     [this](qnn::abi::LogLevel level, std::string_view line) {
                                       if (events_.log) events_.log(FromVendorLevel(level), line);
                                     }));
    SPILLWAY_ASSIGN_OR_RETURN(backend_, qnn::Backend::Create(log_));
    for (const OpPackage& package : options_.op_packages) {
      SPILLWAY_RETURN_IF_ERROR(
          backend_->RegisterOpPackage(package.path, package.interface_provider, package.target));
    }
    SPILLWAY_ASSIGN_OR_RETURN(device_, qnn::Device::Create(log_, qnn::htp::MakeDeviceConfigs(
                                                                     *soc_, options_.pd_session,
                                                                     library->version().backend)));
    SPILLWAY_ASSIGN_OR_RETURN(
        context_, qnn::Context::Create(backend_, device_, qnn::htp::MakeContextConfigs(options_)));
    return OkStatus();
  }

  Result<std::shared_ptr<const qnn::Library>> LoadLibrary() {
    if (options_.saver_dir.empty()) {
      if (MakesBinary(options_)) {
        SPILLWAY_ASSIGN_OR_RETURN(system_, qnn::SystemLibrary::Load(job_.qnn_lib_dir));
      }
      return qnn::Library::Load(job_.qnn_lib_dir);
    }
    // One record a context: the files have fixed names.
    record_dir_ = JoinPath(options_.saver_dir, fmt::format("context_{}", job_.shard));
    std::error_code error;
    std::filesystem::create_directories(record_dir_, error);
    if (error) {
      return IoError(fmt::format("saver_dir: creating {}: {}", record_dir_, error.message()));
    }
    return qnn::Library::LoadSaver(job_.qnn_lib_dir, record_dir_);
  }

  // What is asked of the vendor's profile; the estimate is wanted wherever there is one,
  // and the saver has none to give.
  uint32_t ProfileLevelToUse() const {
    if (!options_.saver_dir.empty()) return 0;
    if (options_.profile_level != ProfileLevel::kOff) {
      return qnn::htp::ToVendor(options_.profile_level);
    }
    return soc_->estimates ? qnn::abi::kProfileDetailed : 0U;
  }

  void Progress(std::string_view stage, double fraction) {
    if (events_.progress) events_.progress(stage, fraction);
  }

  Status AddGraph(const Graph& graph) {
    Progress("build " + graph.name(), -1.0);
    SPILLWAY_ASSIGN_OR_RETURN(qnn::Graph * vendor, CreateGraph(graph.name()));
    qnn::LowerOptions lower;
    lower.dump_intermediates = options_.dump_intermediates;
    SPILLWAY_ASSIGN_OR_RETURN(const qnn::LowerResult lowered,
                              qnn::LowerGraph(graph, vendor, lower));
    GraphReport& report = result_.shard.graphs.emplace_back();
    report.name = graph.name();
    report.nodes = lowered.nodes;
    // Every node was shown to the vendor; the rest happens on the device.
    return options_.online_prepare ? OkStatus() : Finalize(*vendor, report);
  }

  // The compiler accepts switches that it does not know, and only its log says so.
  Result<qnn::Graph*> CreateGraph(const std::string& name) {
    const uint64_t mark = log_->Mark();
    SPILLWAY_ASSIGN_OR_RETURN(
        qnn::Graph * graph,
        context_->CreateGraph(
            name, qnn::htp::MakeGraphConfigs(
                      qnn::htp::OptionsOfGraph(options_, name == kDecodeGraphName), *soc_)));
    const std::vector<std::string> problems = log_->ProblemsSince(mark);
    for (const auto& [key, value] : options_.finalize_config) {
      const std::string said = fmt::format("Option {} not found", key);
      for (const std::string& line : problems) {
        if (line.find(said) == std::string::npos) continue;
        return InvalidArgumentError(
            fmt::format("HTP option finalize_config has {}={}, but the vendor's compiler {} knows "
                        "no switch of that name; check its spelling and the library's version",
                        key, value, result_.build_id));
      }
    }
    return graph;
  }

  Status Finalize(qnn::Graph& graph, GraphReport& report) {
    qnn::FinalizeOptions finalize;
    finalize.profile_level = ProfileLevelToUse();
    const std::string stage = "finalise " + graph.name();
    finalize.progress = [&](std::string_view vendor_stage, double fraction) {
      Progress(fmt::format("{} ({})", stage, vendor_stage), fraction);
    };
    SPILLWAY_ASSIGN_OR_RETURN(const qnn::FinalizeResult finalized, graph.Finalize(finalize));
    if (!options_.saver_dir.empty()) return OkStatus();  // nothing was prepared
    report.finalize_s = finalized.seconds;
    if (finalized.estimates) {
      report.estimate_us = static_cast<double>(finalized.estimates->microseconds.value);
    }
    if (options_.profile_level != ProfileLevel::kOff) {
      AddProfileRows(finalized.events, 0, report.profile);
    }
    const qnn::LogFacts facts = log_->facts();
    if (const auto* said = facts.FindGraph(graph.name())) AddLogFacts(*said, report);
    result_.finalize_s += finalized.seconds;
    return OkStatus();
  }

  // The saver writes its last lines when the objects go. It knows none of HTP's own
  // options, so they are put beside its files.
  Status FinishRecord() {
    context_.reset();
    device_.reset();
    backend_.reset();
    log_.reset();
    SPILLWAY_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(record_dir_, "htp_options.json"),
                                                 qnn::htp::HtpOptionsToJson(options_) + "\n"));
    for (const char* name : {"saver_output.c", "params.bin", "htp_options.json"}) {
      const std::string path = JoinPath(record_dir_, name);
      if (!FileExists(path)) {
        return VendorError(fmt::format("the vendor's saver did not write {}", path));
      }
      result_.shard.saver_files.push_back(path);
    }
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
  std::string record_dir_;  // of the saver
  std::shared_ptr<const qnn::SystemLibrary> system_;
  std::shared_ptr<qnn::VendorLog> log_;
  std::shared_ptr<qnn::Backend> backend_;
  std::shared_ptr<qnn::Device> device_;
  std::unique_ptr<qnn::Context> context_;
  VendorResult result_;
};

}  // namespace

bool MakesBinary(const HtpOptions& options) {
  return !options.online_prepare && options.saver_dir.empty();
}

Result<VendorResult> RunVendorJob(const VendorJob& job, const VendorEvents& events) {
  return VendorCompile(job, events).Run();
}

}  // namespace spillway
