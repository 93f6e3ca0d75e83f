#include "compiler/compile_contexts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "compiler/context_cache.h"
#include "compiler/estimate.h"
#include "compiler/make_compile_spec.h"
#include "compiler/vendor_jobs.h"
#include "qnn/api/library.h"
#include "qnn/htp/options_json.h"

namespace spillway {
namespace {

// Part of every cache key: raised when the same graphs and options give another binary.
constexpr std::string_view kCacheVersion = "1";

class ContextCompilation {
 public:
  ContextCompilation(const CompileOptions& options, const ContextInputs& inputs,
                     const ProgressCallback& progress, PackageWriter& writer, HtpOptions& htp,
                     PackageManifest& manifest, CompileReport& report)
      : options_(options),
        inputs_(inputs),
        progress_(progress),
        writer_(writer),
        htp_(htp),
        manifest_(manifest),
        report_(report) {}

  Status Run() {
    htp_.weight_sharing =
        htp_.weight_sharing.value_or(report_.graphs.size() > 1 && inputs_.soc->weight_sharing());
    htp_.multi_contexts = htp_.multi_contexts.value_or(manifest_.shards.size() > 1);
    SPILLWAY_RETURN_IF_ERROR(OpenCache());
    SPILLWAY_RETURN_IF_ERROR(CompileWithSlc());
    if (options_.with_simulator) SPILLWAY_RETURN_IF_ERROR(CompilePlain());
    manifest_.weight_sharing = *htp_.weight_sharing;
    manifest_.slc_allocator = htp_.slc_allocator == SlcAllocator::kOn;
    return ShareSpillFill();
  }

 private:
  Status OpenCache() {
    if (!options_.use_cache || !MakesBinary(htp_)) return OkStatus();
    const std::string folder =
        options_.cache_dir.empty() ? ContextCache::DefaultFolder() : options_.cache_dir;
    if (folder.empty()) return OkStatus();
    // Other libraries make other binaries.
    Result<std::string> library = HashFile(JoinPath(inputs_.library_dir, qnn::kHtpLibraryName));
    if (!library.ok()) return library.status();
    library_hash_ = std::move(library).value();
    Result<std::unique_ptr<ContextCache>> cache =
        ContextCache::Open(folder, ContextCache::DefaultLimit());
    if (cache.ok()) {
      cache_ = std::move(cache).value();
    } else {
      Log(LogLevel::kWarning, "no context cache: {}", cache.status().message());
    }
    return OkStatus();
  }

  std::string CacheKey(const VendorJob& job) const {
    Hasher hasher;
    for (const std::string& part : {std::string(kCacheVersion), inputs_.shard_hashes[job.shard],
                                    library_hash_, qnn::htp::HtpOptionsToJson(job.htp)}) {
      hasher.Add(fmt::format("{}:", part.size()));
      hasher.Add(part);
    }
    return hasher.Finish();
  }

  // As many processes as there are processors and memory for.
  uint32_t NumJobs() const {
    if (options_.jobs > 0) return options_.jobs;
    uint64_t largest = 0;
    for (const ShardInfo& shard : manifest_.shards) {
      largest = std::max(largest, VendorPeakBytes(shard.weight_bytes, report_.graphs.size()));
    }
    // The compiler keeps about two processors busy.
    const uint64_t by_processors = std::max<uint64_t>(1, AvailableProcessors() / 2);
    const uint64_t by_memory = AvailableMemoryBytes() / 4 * 3 / std::max<uint64_t>(largest, 1);
    return static_cast<uint32_t>(std::clamp<uint64_t>(by_memory, 1, by_processors));
  }

  // All shards with the options `htp`, into files named `prefix`<shard>.bin.
  Result<std::vector<VendorResult>> CompileAll(const HtpOptions& htp, const std::string& prefix,
                                               std::string_view what) {
    std::vector<ContextTask> tasks;
    const size_t shards = manifest_.shards.size();
    for (uint32_t shard = 0; shard < shards; ++shard) {
      ContextTask task;
      task.job.folder = writer_.PathOf("");
      task.job.shard = shard;
      task.job.output_path = writer_.PathOf(fmt::format("{}{}.bin", prefix, shard));
      task.job.qnn_lib_dir = inputs_.library_dir;
      task.job.htp = htp;
      task.label =
          shards == 1 ? std::string(what) : fmt::format("{} {} of {}", what, shard + 1, shards);
      // What an op package does is no part of the key.
      if (cache_ != nullptr && htp.op_packages.empty()) task.cache_key = CacheKey(task.job);
      task.description = fmt::format("{}, {}, {}, shard {} of {}", manifest_.model_file,
                                     manifest_.recipe, report_.soc, shard + 1, shards);
      tasks.push_back(std::move(task));
    }
    TaskOptions task_options;
    task_options.jobs = NumJobs();
    task_options.in_process = options_.in_process;
    task_options.timeout_s = options_.vendor_timeout_s;
    task_options.cache = cache_.get();
    return RunContextTasks(tasks, task_options, progress_);
  }

  // SlcAllocator::kAuto: a trial with it says which graphs have something to keep; it
  // stays on only where the SoC is known to profit.
  Status CompileWithSlc() {
    SlcReport& slc = report_.slc;
    slc.requested = htp_.slc_allocator;
    slc.soc_support = qnn::htp::SlcSupportName(inputs_.soc->slc);
    slc.soc_source = qnn::htp::SlcSource(*inputs_.soc);
    const bool automatic = htp_.slc_allocator == SlcAllocator::kAuto;
    if (automatic) htp_.slc_allocator = SlcAllocator::kOn;
    Result<std::vector<VendorResult>> results = CompileAll(htp_, "context_", "context");
    if (results.ok()) ListMarkedGraphs(*results);
    if (automatic && !KeepSlc(results)) {
      Log(LogLevel::kInfo, "SLC allocator: {}", slc.reason);
      for (size_t shard = 0; shard < manifest_.shards.size(); ++shard) {
        (void)std::remove(writer_.PathOf(fmt::format("context_{}.bin", shard)).c_str());
      }
      htp_.slc_allocator = SlcAllocator::kOff;
      results = CompileAll(htp_, "context_", "context without SLC");
    }
    if (!results.ok()) return results.status();
    slc.used = htp_.slc_allocator == SlcAllocator::kOn;
    if (!automatic) slc.reason = slc.used ? "asked for" : "not asked for";
    for (uint32_t shard = 0; shard < results->size(); ++shard) AddContext((*results)[shard], shard);
    return OkStatus();
  }

  void ListMarkedGraphs(const std::vector<VendorResult>& results) {
    for (size_t shard = 0; shard < results.size(); ++shard) {
      for (const GraphReport& graph : results[shard].shard.graphs) {
        if (graph.slc != SlcOutcome::kMarked) continue;
        report_.slc.marked_graphs.push_back(fmt::format("shard {}, {}", shard, graph.name));
      }
    }
  }

  // Decides on `auto` and says why.
  bool KeepSlc(const Result<std::vector<VendorResult>>& trial) {
    SlcReport& slc = report_.slc;
    if (!trial.ok()) {
      // Whatever it was: without the allocator the same job fails again if the
      // allocator was not the cause.
      slc.reason = fmt::format("off: the compile with it failed ({})", trial.status().message());
    } else if (slc.marked_graphs.empty()) {
      slc.reason = "off: no graph has transfers that the cache could keep";
    } else if (inputs_.soc->slc != qnn::htp::SlcSupport::kYes) {
      slc.reason =
          fmt::format("off: whether {} profits is {}; graphs that have transfers to keep: {}",
                      report_.soc, slc.soc_support, fmt::join(slc.marked_graphs, "; "));
    } else {
      slc.reason = fmt::format("on: {} profits, and transfers were marked in {}", report_.soc,
                               fmt::join(slc.marked_graphs, "; "));
      return true;
    }
    return false;
  }

  // Contexts for the x86 simulator, which loads neither shared weights nor SLC.
  Status CompilePlain() {
    HtpOptions plain = htp_;
    plain.weight_sharing = false;
    plain.slc_allocator = SlcAllocator::kOff;
    SPILLWAY_ASSIGN_OR_RETURN(const auto results, CompileAll(plain, "plain_", "simulator context"));
    for (size_t shard = 0; shard < results.size(); ++shard) {
      manifest_.shards[shard].plain_file = fmt::format("plain_{}.bin", shard);
    }
    return OkStatus();
  }

  void AddContext(const VendorResult& result, uint32_t shard) {
    ShardInfo& info = manifest_.shards[shard];
    ShardReport& report = report_.shards[shard];
    report = result.shard;
    report.first_layer = info.first_layer;
    report.num_layers = info.num_layers;
    report_.vendor_build_id = result.build_id;
    if (!report.from_cache) report_.vendor_finalize_s += result.finalize_s;
    if (MakesBinary(htp_)) info.context_file = fmt::format("context_{}.bin", shard);
    info.spill_fill_bytes = result.shard.spill_fill_bytes;
    info.context_bytes = result.shard.context_bytes;
    info.weight_bytes = result.shard.weight_bytes;
    const nlohmann::ordered_json vendor{{"build_id", result.build_id},
                                        {"core_api", result.core_api},
                                        {"backend_api", result.backend_api},
                                        {"soc_model", result.soc_model}};
    manifest_.vendor_json = vendor.dump();
  }

  // The buffer that all contexts use one after the other is as large as the largest
  // of them needs; every shard's options say so.
  Status ShareSpillFill() {
    uint64_t most = 0;
    for (const ShardInfo& shard : manifest_.shards) most = std::max(most, shard.spill_fill_bytes);
    report_.max_spill_fill_bytes = most;
    for (size_t shard = 0; shard < manifest_.shards.size(); ++shard) {
      manifest_.shards[shard].max_spill_fill_bytes = most;
      SPILLWAY_ASSIGN_OR_RETURN(
          const CompileSpec spec,
          MakeCompileSpec(htp_, *inputs_.soc, most, /*from_context_binary=*/MakesBinary(htp_)));
      SPILLWAY_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, EncodeCompileSpec(spec));
      SPILLWAY_RETURN_IF_ERROR(
          writer_.AddFile(fmt::format("shard_{}.spec", shard),
                          {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    }
    return OkStatus();
  }

  const CompileOptions& options_;
  const ContextInputs& inputs_;
  const ProgressCallback& progress_;
  PackageWriter& writer_;
  HtpOptions& htp_;
  PackageManifest& manifest_;
  CompileReport& report_;
  std::unique_ptr<ContextCache> cache_;
  std::string library_hash_;
};

}  // namespace

Status CompileContexts(const CompileOptions& options, const ContextInputs& inputs,
                       const ProgressCallback& progress, PackageWriter& writer, HtpOptions& htp,
                       PackageManifest& manifest, CompileReport& report) {
  return ContextCompilation(options, inputs, progress, writer, htp, manifest, report).Run();
}

}  // namespace spillway
