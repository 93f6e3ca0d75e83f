#include "compiler/evictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/log.h"
#include "compiler/find_vendor.h"
#include "compiler/vendor_job.h"
#include "decoder/evictor.h"
#include "graph/legalize.h"
#include "package/key_rotation.h"
#include "qnn/htp/options_json.h"

namespace spillway {
namespace {

constexpr char kEvictorContextFile[] = "evictor.bin";

// What the graphs of all shards say of the cache: types and encodings of keys and values.
Result<EvictorOptions> ReadCache(const PackageWriter& writer, const PackageManifest& manifest) {
  EvictorOptions options;
  options.name = kEvictorGraphName;
  options.kv_heads = manifest.config.num_kv_heads;
  options.head_dim = manifest.config.head_dim;
  options.columns = manifest.context_len - 1;
  options.dtype = manifest.kv_dtype;
  options.layers = manifest.config.num_layers;
  options.rope = manifest.config.rope;
  SPILLWAY_ASSIGN_OR_RETURN(const auto shards, ReadGraphs(writer.PathOf("")));
  for (const auto& graphs : shards) {
    const Graph& graph = *graphs.back();
    // Hidden states or logits, then keys, then values.
    const std::vector<TensorId>& outputs = graph.outputs();
    const size_t layers = (outputs.size() - 1) / 2;
    for (size_t layer = 0; layer < layers; ++layer) {
      options.k.push_back(graph.tensor(outputs[1 + layer]).encoding);
      options.v.push_back(graph.tensor(outputs[1 + layers + layer]).encoding);
    }
    if (options.key_rotation.empty()) {
      SPILLWAY_ASSIGN_OR_RETURN(options.key_rotation, ReadKeyRotation(graph, options.head_dim));
    }
  }
  return options;
}

Status MakeContext(const EvictorInputs& inputs, const ProgressCallback& progress,
                   PackageWriter& writer, EvictorInfo& info, EvictorReport& report) {
  VendorJob job;
  job.folder = writer.PathOf("");
  job.evictor = true;
  job.output_path = writer.PathOf(kEvictorContextFile);
  job.qnn_lib_dir = inputs.library_dir;
  job.htp = inputs.htp;
  job.htp.weight_sharing = false;
  job.htp.slc_allocator = SlcAllocator::kOff;
  job.htp.dump_intermediates = false;
  if (!MakesBinary(job.htp)) {
    report.htp_left_out = "the package's graphs are built where they run";
    return OkStatus();
  }
  VendorEvents events;
  events.progress = [&](std::string_view stage, double fraction) {
    if (progress) progress(fmt::format("evictor: {}", stage), fraction);
  };
  events.log = [](LogLevel level, std::string_view line) { LogMessage(level, line); };
  SPILLWAY_ASSIGN_OR_RETURN(const VendorResult result,
                            inputs.in_process
                                ? RunVendorJob(job, events)
                                : RunVendorJobInWorker(job, inputs.vendor_timeout_s, events));
  info.context_file = kEvictorContextFile;
  info.context_bytes = result.shard.context_bytes;
  report.context_bytes = result.shard.context_bytes;
  if (!result.shard.graphs.empty()) report.graph = result.shard.graphs[0];
  return OkStatus();
}

}  // namespace

Status CheckAttentionSink(const AttentionSink& sink, uint32_t context_len, uint32_t decode_ar_len) {
  const uint64_t both = uint64_t{sink.sink} + sink.batch;
  // A call's own tokens need room too, and something must be left to move.
  const uint32_t room = context_len - std::max(decode_ar_len, 2U);
  if (sink.batch > 0 && both <= room) return OkStatus();
  return InvalidArgumentError(fmt::format(
      "attention sink {},{}: expected a batch of at least 1 token, and sink and batch together at "
      "most {} with a context of {} and {} tokens a call",
      sink.sink, sink.batch, room, context_len, decode_ar_len));
}

Result<EvictorReport> MakeEvictor(const AttentionSink& sink, const EvictorInputs& inputs,
                                  const ProgressCallback& progress, PackageWriter& writer,
                                  PackageManifest& manifest) {
  EvictorInfo info;
  info.sink = sink.sink;
  info.batch = sink.batch;
  const auto prefix = static_cast<uint32_t>(manifest.prefix_tokens.size());
  if (prefix > 0 && sink.sink != prefix) {
    Log(LogLevel::kInfo, "attention sink {},{}: the package's prefix of {} tokens is the sink",
        sink.sink, sink.batch, prefix);
    info.sink = prefix;
  }
  SPILLWAY_RETURN_IF_ERROR(
      CheckAttentionSink({info.sink, info.batch}, manifest.context_len, manifest.decode_ar_len));
  SPILLWAY_ASSIGN_OR_RETURN(EvictorOptions options, ReadCache(writer, manifest));
  options.sink = info.sink;
  options.batch = info.batch;
  SPILLWAY_ASSIGN_OR_RETURN(const Graph built, BuildEvictor(options));
  LegalizeTarget target;
  target.htp_arch = static_cast<int>(inputs.soc->arch);
  SPILLWAY_ASSIGN_OR_RETURN(Graph legal, Legalize(built, target));
  SPILLWAY_RETURN_IF_ERROR(writer.AddEvictor(std::make_shared<const Graph>(std::move(legal))));

  EvictorReport report;
  report.sink = info.sink;
  report.batch = info.batch;
  report.htp_left_out = inputs.htp_left_out;
  if (!inputs.library_dir.empty()) {
    SPILLWAY_RETURN_IF_ERROR(
        MakeContext(inputs, progress, writer, info, report).WithContext("evictor"));
  }
  manifest.evictor = std::move(info);
  return report;
}

Result<EvictorReport> AddEvictor(const AddEvictorOptions& options,
                                 const ProgressCallback& progress) {
  SPILLWAY_ASSIGN_OR_RETURN(const auto package, Package::Open(options.package_path));
  PackageManifest manifest = package->manifest();
  EvictorInputs inputs;
  SPILLWAY_ASSIGN_OR_RETURN(inputs.soc, qnn::htp::FindSoc(manifest.soc));
  if (!manifest.htp_options_json.empty()) {
    Result<HtpOptions> htp = qnn::htp::HtpOptionsFromJson(manifest.htp_options_json);
    if (!htp.ok()) return htp.status().WithContext(options.package_path);
    inputs.htp = std::move(htp).value();
  }
  inputs.htp.soc = manifest.soc;
  inputs.in_process = options.in_process;
  inputs.vendor_timeout_s = options.vendor_timeout_s;
  SPILLWAY_ASSIGN_OR_RETURN(
      inputs.library_dir, FindVendor(options.htp_build, options.qnn_lib_dir, inputs.htp_left_out));
  SPILLWAY_ASSIGN_OR_RETURN(PackageWriter writer,
                            PackageWriter::Extend(options.package_path, manifest));
  SPILLWAY_ASSIGN_OR_RETURN(EvictorReport report,
                            MakeEvictor(options.sink, inputs, progress, writer, manifest));
  SPILLWAY_RETURN_IF_ERROR(writer.Commit(manifest));
  return report;
}

}  // namespace spillway
