#include "spillway/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "compiler/check_options.h"
#include "compiler/compile_contexts.h"
#include "compiler/evictor.h"
#include "compiler/find_vendor.h"
#include "compiler/graph_hash.h"
#include "compiler/prepare_model.h"
#include "compiler/shard_plan.h"
#include "decoder/decoder.h"
#include "graph/legalize.h"
#include "package/package.h"
#include "qnn/htp/options_json.h"
#include "quantize/quantize_graph.h"

namespace spillway {
namespace {

class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A folder that is no package is not ours to replace.
Status CheckOutputFolder(const std::string& path) {
  if (path.empty()) return InvalidArgumentError("no output folder was given");
  if (!IsDirectory(path) || FileExists(JoinPath(path, "manifest.json"))) return OkStatus();
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(path));
  if (names.empty()) return OkStatus();
  return InvalidArgumentError(fmt::format(
      "the output folder {} holds {} and no manifest.json, so it is no package and is not "
      "replaced; choose another folder or empty this one",
      path,
      names.size() == 1 ? names[0] : fmt::format("{} and {} more", names[0], names.size() - 1)));
}

// One compile, a member function a stage. What a stage no longer needs is freed
// before the next, so that the vendor's compiler has the memory to itself.
class Compilation {
 public:
  Compilation(const CompileOptions& options, const ProgressCallback& progress)
      : options_(options), progress_(progress) {}

  Result<CompileReport> Run() {
    const Stopwatch wall;
    SPILLWAY_ASSIGN_OR_RETURN(checked_, CheckCompileOptions(options_));
    SPILLWAY_RETURN_IF_ERROR(CheckOutputFolder(options_.output_path));
    report_.soc = std::string(checked_.soc->name);
    // Before minutes are spent.
    SPILLWAY_ASSIGN_OR_RETURN(
        library_dir_, FindVendor(options_.htp_build, options_.qnn_lib_dir, report_.htp_left_out));
    SPILLWAY_ASSIGN_OR_RETURN(PackageWriter writer, PackageWriter::Create(options_.output_path));
    SPILLWAY_RETURN_IF_ERROR(MakeGraphs(writer));
    SPILLWAY_RETURN_IF_ERROR(MakeContexts(writer));
    if (options_.attention_sink) SPILLWAY_RETURN_IF_ERROR(MakeEvictor(writer));
    SPILLWAY_RETURN_IF_ERROR(Finish(writer, wall));
    return report_;
  }

 private:
  // For one context at a time; 0 when the vendor is not asked.
  uint64_t VendorMemory() const {
    return report_.htp_left_out.empty() ? AvailableMemoryBytes() : 0;
  }

  Status MakeGraphs(PackageWriter& writer) {
    SPILLWAY_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, Model::Open(options_.model_path));
    SPILLWAY_RETURN_IF_ERROR(CheckAgainstModel(options_, *model));
    SPILLWAY_ASSIGN_OR_RETURN(const TokenizerData data, TokenizerData::FromGguf(*model->file()));
    SPILLWAY_RETURN_IF_ERROR(writer.AddTokenizer(data));
    DescribeModel(*model);

    const ContextSizes sizes = EstimateContextSizes(*model, options_, checked_.recipe);
    SPILLWAY_ASSIGN_OR_RETURN(std::vector<LayerRange> shards,
                              PlanShards(sizes, options_, VendorMemory()));

    ThreadPool pool(options_.threads);
    const Stopwatch calibrate;
    SPILLWAY_ASSIGN_OR_RETURN(PreparedModel prepared,
                              PrepareModel(model, data, options_, checked_, &pool, &progress_));
    report_.calibrate_s = calibrate.Seconds();
    report_.prefix_tokens = prepared.prefix.tokens;
    manifest_.prefix_tokens = prepared.prefix.tokens;
    report_.mixed = std::move(prepared.mixed);
    recipe_ = std::move(prepared.recipe);
    if (report_.mixed) {
      // Now the bits of each layer are known.
      SPILLWAY_ASSIGN_OR_RETURN(shards, PlanShards(EstimateContextSizes(*model, options_, recipe_),
                                                   options_, VendorMemory()));
    }
    SPILLWAY_RETURN_IF_ERROR(MakeShards(std::move(prepared), shards, &pool, writer));
    return HashModel(*model);
  }

  void DescribeModel(const Model& model) {
    manifest_.config = model.config();
    manifest_.model_file = BaseName(options_.model_path);
    manifest_.context_len = options_.context_len;
    manifest_.prefill_ar_len = options_.mode == "kv" ? 0 : options_.prefill_ar_len;
    if (options_.mode != "lookahead") return;
    manifest_.decode_ar_len = options_.lookahead.ArLen();
    manifest_.lookahead_ngram = options_.lookahead.ngram;
    manifest_.lookahead_window = options_.lookahead.window;
    manifest_.lookahead_gcap = options_.lookahead.gcap;
  }

  Status HashModel(const Model& model) {
    manifest_.model_hash = HashBytes(model.file()->mapping().bytes());
    model.file()->mapping().Release(0, model.file()->mapping().bytes().size());
    return OkStatus();
  }

  // Quantises and writes shard by shard: only one is in memory at a time.
  Status MakeShards(PreparedModel prepared, const std::vector<LayerRange>& shards, ThreadPool* pool,
                    PackageWriter& writer) {
    const Stopwatch all;
    progress_.Update("quantise", 0.0);
    Decoder& decoder = *prepared.decoder;
    GraphQuantizer quantizer(recipe_, std::move(prepared.ranges), pool);
    quantizer.UseMatrices(std::move(prepared.weights));
    std::vector<Tensor> extra;
    SPILLWAY_RETURN_IF_ERROR(QuantizeExtra(decoder, prepared.prefix, quantizer, extra));
    for (const auto& [name, ar_len] : StepGraphs()) report_.graphs.push_back(name);
    for (size_t s = 0; s < shards.size(); ++s) {
      progress_.Update("quantise", static_cast<double>(s) / static_cast<double>(shards.size()));
      std::vector<std::shared_ptr<const Graph>> graphs;
      for (const auto& [name, ar_len] : StepGraphs()) {
        SPILLWAY_ASSIGN_OR_RETURN(graphs.emplace_back(),
                                  MakeGraph(decoder, quantizer, name, ar_len, shards[s]));
      }
      ShardInfo info;
      info.first_layer = shards[s].first_layer;
      info.num_layers = shards[s].num_layers;
      info.weight_bytes = ConstantBytes(graphs);
      manifest_.shards.push_back(info);
      if (report_.htp_left_out.empty()) shard_hashes_.push_back(HashGraphs(graphs));
      const Stopwatch write;
      SPILLWAY_RETURN_IF_ERROR(writer.AddShard(graphs));
      report_.write_s += write.Seconds();
      quantizer.ReleaseMatrices();
    }
    const Stopwatch write;
    progress_.Update("write the weights", -1.0);
    SPILLWAY_RETURN_IF_ERROR(writer.FinishGraphs(extra));
    report_.write_s += write.Seconds();
    report_.quantize_s = all.Seconds() - report_.write_s;
    return OkStatus();
  }

  // What no graph uses: an untied embedding, the prefix's keys and values.
  Status QuantizeExtra(Decoder& decoder, const FloatPrefix& prefix_values,
                       GraphQuantizer& quantizer, std::vector<Tensor>& extra) {
    const ModelConfig& config = decoder.model().config();
    const bool shared = recipe_.SharesEmbedding(decoder.TiesEmbedding());
    const std::string name = shared ? kHeadWeightName : kEmbeddingWeightName;
    Tensor embedding = quantizer.QuantizeEmbedding(name, decoder.EmbeddingData(), config.vocab_size,
                                                   config.hidden_dim);
    if (!shared) extra.push_back(std::move(embedding));
    SPILLWAY_ASSIGN_OR_RETURN(std::vector<Tensor> prefix,
                              quantizer.QuantizePrefix(prefix_values, config));
    std::move(prefix.begin(), prefix.end(), std::back_inserter(extra));
    manifest_.embedding_tensor = name;
    manifest_.recipe = recipe_.name;
    manifest_.recipe_json = recipe_.ToJson();
    manifest_.kv_dtype = recipe_.kv;
    return OkStatus();
  }

  Result<std::shared_ptr<const Graph>> MakeGraph(Decoder& decoder, GraphQuantizer& quantizer,
                                                 const std::string& name, uint32_t ar_len,
                                                 const LayerRange& layers) {
    DecoderOptions options;
    options.name = name;
    options.ar_len = ar_len;
    options.context_len = options_.context_len;
    options.io = checked_.io;
    options.first_layer = layers.first_layer;
    options.num_layers = layers.num_layers;
    SPILLWAY_ASSIGN_OR_RETURN(const Graph built, decoder.Build(options));
    SPILLWAY_ASSIGN_OR_RETURN(const Graph quantized, quantizer.Quantize(built));
    LegalizeTarget target;
    target.htp_arch = static_cast<int>(checked_.soc->arch);
    SPILLWAY_ASSIGN_OR_RETURN(Graph legal, Legalize(quantized, target));
    if (report_.htp_left_out.empty()) SPILLWAY_RETURN_IF_ERROR(CheckTensorSizes(legal));
    return std::make_shared<const Graph>(std::move(legal));
  }

  // Names and AR lengths of the graphs of the mode, in their order.
  std::vector<std::pair<std::string, uint32_t>> StepGraphs() const {
    std::vector<std::pair<std::string, uint32_t>> graphs;
    if (manifest_.prefill_ar_len > 0) {
      graphs.emplace_back(kPrefillGraphName, manifest_.prefill_ar_len);
    }
    graphs.emplace_back(kDecodeGraphName, manifest_.decode_ar_len);
    return graphs;
  }

  Status MakeContexts(PackageWriter& writer) {
    report_.shards.resize(manifest_.shards.size());
    htp_ = options_.htp;
    if (checked_.recipe.is_float()) htp_.precision = Precision::kFp16;
    if (!report_.htp_left_out.empty()) return OkStatus();
    const Stopwatch vendor;
    const ContextInputs inputs{checked_.soc, library_dir_, std::move(shard_hashes_)};
    SPILLWAY_RETURN_IF_ERROR(CompileContexts(
        options_, inputs,
        [this](std::string_view stage, double fraction) { progress_.Update(stage, fraction); },
        writer, htp_, manifest_, report_));
    report_.vendor_s = vendor.Seconds();
    return OkStatus();
  }

  Status MakeEvictor(PackageWriter& writer) {
    const Stopwatch vendor;
    const EvictorInputs inputs{
        checked_.soc,         library_dir_,        htp_,
        report_.htp_left_out, options_.in_process, options_.vendor_timeout_s};
    SPILLWAY_ASSIGN_OR_RETURN(report_.evictor, spillway::MakeEvictor(
                                                   *options_.attention_sink, inputs,
                                                   [this](std::string_view stage, double fraction) {
                                                     progress_.Update(stage, fraction);
                                                   },
                                                   writer, manifest_));
    report_.vendor_s += vendor.Seconds();
    return OkStatus();
  }

  Status Finish(PackageWriter& writer, const Stopwatch& wall) {
    progress_.Update("finish the package", -1.0);
    manifest_.producer = fmt::format("spillway {}", SPILLWAY_VERSION);
    manifest_.io_profile = IoProfileName(checked_.io);
    manifest_.mode = options_.mode;
    manifest_.soc = report_.soc;
    manifest_.htp_options_json = qnn::htp::HtpOptionsToJson(htp_);
    report_.package_path = options_.output_path;
    report_.peak_rss_bytes = std::max(memory_.peak_bytes(), PeakRssBytes());
    SPILLWAY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(writer.PathOf("")));
    for (const std::string& name : names) {
      SPILLWAY_ASSIGN_OR_RETURN(const uint64_t bytes, FileSize(writer.PathOf(name)));
      report_.package_bytes += bytes;
    }
    report_.wall_s = wall.Seconds();
    SPILLWAY_RETURN_IF_ERROR(writer.AddFile("report.json", report_.ToJson() + "\n"));
    SPILLWAY_RETURN_IF_ERROR(writer.Commit(manifest_));
    report_.wall_s = wall.Seconds();
    if (options_.recipe_output.empty()) return OkStatus();
    return WriteFileAtomically(options_.recipe_output, manifest_.recipe_json);
  }

  const CompileOptions& options_;
  CallbackProgress progress_;
  CheckedOptions checked_;
  Recipe recipe_;  // as it is used: what a search found is in it
  std::string library_dir_;
  HtpOptions htp_;  // as they were used
  std::vector<std::string> shard_hashes_;
  PackageManifest manifest_;
  CompileReport report_;
  MemoryWatch memory_;
};

}  // namespace

Result<CompileReport> Compile(const CompileOptions& options, const ProgressCallback& progress) {
  return Compilation(options, progress).Run();
}

}  // namespace spillway
