#include "spillway/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "compiler/check_options.h"
#include "compiler/vendor_job.h"
#include "decoder/decoder.h"
#include "graph/legalize.h"
#include "package/package.h"
#include "qnn/api/library.h"
#include "qnn/htp/options_json.h"
#include "quantize/calibrate.h"
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

// `dir`, when both libraries are in it; loading them is left to the vendor's process.
Result<std::string> CheckVendorFolder(const std::string& dir) {
  for (const char* name : {qnn::kHtpLibraryName, qnn::kSystemLibraryName}) {
    if (dir.empty() || FileExists(JoinPath(dir, name))) continue;
    return NotFoundError(fmt::format(
        "{}: the vendor library is not there. Point --qnn-lib-dir or SPILLWAY_QNN_LIB_DIR at the "
        "folder that holds it, or run ./quickstart to download it.",
        JoinPath(dir, name)));
  }
  return dir;
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
    SPILLWAY_RETURN_IF_ERROR(FindVendor());
    SPILLWAY_ASSIGN_OR_RETURN(PackageWriter writer, PackageWriter::Create(options_.output_path));
    SPILLWAY_RETURN_IF_ERROR(MakeGraphs(writer));
    SPILLWAY_RETURN_IF_ERROR(CompileContexts(writer));
    SPILLWAY_RETURN_IF_ERROR(Finish(writer, wall));
    return report_;
  }

 private:
  // Decides whether contexts are made, before minutes are spent.
  Status FindVendor() {
    if (options_.htp_build == HtpBuild::kOff) {
      report_.htp_left_out = "not asked for (--htp off)";
      return OkStatus();
    }
    Result<std::string> dir = qnn::FindLibraryDir(options_.qnn_lib_dir);
    if (dir.ok()) dir = CheckVendorFolder(*dir);
    if (dir.ok()) {
      library_dir_ = std::move(dir).value();
      return OkStatus();
    }
    if (options_.htp_build == HtpBuild::kOn || !options_.qnn_lib_dir.empty()) return dir.status();
    report_.htp_left_out = dir.status().message();
    Log(LogLevel::kWarning, "no context binary will be made: {}", report_.htp_left_out);
    return OkStatus();
  }

  Status MakeGraphs(PackageWriter& writer) {
    SPILLWAY_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, Model::Open(options_.model_path));
    SPILLWAY_RETURN_IF_ERROR(CheckAgainstModel(options_, *model));
    SPILLWAY_ASSIGN_OR_RETURN(const TokenizerData data, TokenizerData::FromGguf(*model->file()));
    SPILLWAY_RETURN_IF_ERROR(writer.AddTokenizer(data));
    DescribeModel(*model);

    ThreadPool pool(options_.threads);
    Decoder decoder(model);
    const Stopwatch calibrate;
    SPILLWAY_ASSIGN_OR_RETURN(TensorRanges ranges, RunCalibration(decoder, data, &pool));
    report_.calibrate_s = calibrate.Seconds();

    report_.prefix_tokens = prefix_.tokens;
    manifest_.prefix_tokens = prefix_.tokens;

    const Stopwatch quantize;
    std::vector<Tensor> extra;
    SPILLWAY_ASSIGN_OR_RETURN(const auto graphs,
                              QuantizeGraphs(decoder, std::move(ranges), &pool, &extra));
    report_.quantize_s = quantize.Seconds();

    const Stopwatch write;
    progress_.Update("write the weights", -1.0);
    SPILLWAY_RETURN_IF_ERROR(writer.AddGraphs(graphs, extra));
    SPILLWAY_RETURN_IF_ERROR(HashModel(*model));
    report_.write_s = write.Seconds();
    return OkStatus();
  }

  void DescribeModel(const Model& model) {
    manifest_.config = model.config();
    manifest_.model_file = BaseName(options_.model_path);
    manifest_.context_len = options_.context_len;
    manifest_.prefill_ar_len = options_.mode == "hybrid" ? options_.prefill_ar_len : 0;
  }

  Status HashModel(const Model& model) {
    manifest_.model_hash = HashBytes(model.file()->mapping().bytes());
    model.file()->mapping().Release(0, model.file()->mapping().bytes().size());
    return OkStatus();
  }

  Result<TensorRanges> RunCalibration(Decoder& decoder, const TokenizerData& data,
                                      ThreadPool* pool) {
    SPILLWAY_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Create(data));
    std::shared_ptr<const ChatTemplate> chat_template;
    if (!data.chat_template.empty()) {
      Result<std::shared_ptr<const ChatTemplate>> parsed = ChatTemplate::Parse(data.chat_template);
      if (parsed.ok()) {
        chat_template = std::move(parsed).value();
      } else {
        Log(LogLevel::kWarning, "the model's chat template is not used for calibration: {}",
            parsed.status().message());
      }
    }
    std::string text(DefaultCalibrationText());
    if (!options_.calib_text_path.empty()) {
      SPILLWAY_ASSIGN_OR_RETURN(text, ReadFile(options_.calib_text_path));
    }
    // Longer windows cost more time and memory and show nothing new: rotation by the
    // position keeps magnitudes. So the encodings do not depend on the context.
    constexpr uint32_t kMaxWindow = 128;
    const uint32_t window = std::min(options_.context_len, kMaxWindow);
    SPILLWAY_ASSIGN_OR_RETURN(const TokenWindows windows,
                              MakeCalibrationWindows(*tokenizer, chat_template.get(), text, window,
                                                     options_.calib_tokens));
    const bool chat_first = chat_template != nullptr;
    SPILLWAY_RETURN_IF_ERROR(ChoosePrefix(decoder, data, windows[0], chat_first, pool));
    return Calibrate(decoder, windows, prefix_, pool, &progress_);
  }

  // `window` is the first of calibration; when `chat_first`, it is a conversation.
  Status ChoosePrefix(Decoder& decoder, const TokenizerData& data,
                      const std::vector<uint32_t>& window, bool chat_first, ThreadPool* pool) {
    SPILLWAY_ASSIGN_OR_RETURN(std::vector<uint32_t> tokens,
                              ParsePrefixTokens(options_, decoder.model().config()));
    const bool automatic = options_.prefix_tokens == "auto" && checked_.io == IoProfile::kSpillway;
    if (automatic && (chat_first || data.bos_id)) {
      SPILLWAY_ASSIGN_OR_RETURN(const double dominance, FirstTokenDominance(decoder, window, pool));
      if (dominance >= kMassiveDominance) tokens = {chat_first ? window[0] : *data.bos_id};
    }
    if (tokens.empty()) return OkStatus();
    SPILLWAY_ASSIGN_OR_RETURN(prefix_, ComputePrefix(decoder, std::move(tokens), pool));
    return OkStatus();
  }

  using ShardGraphs = std::vector<std::vector<std::shared_ptr<const Graph>>>;

  Result<ShardGraphs> QuantizeGraphs(Decoder& decoder, TensorRanges ranges, ThreadPool* pool,
                                     std::vector<Tensor>* extra) {
    progress_.Update("quantise", -1.0);
    SPILLWAY_ASSIGN_OR_RETURN(Recipe recipe, FindRecipe(options_.recipe));
    recipe.kv = options_.kv_bits == 8 ? DType::kU8 : DType::kU16;
    GraphQuantizer quantizer(recipe, std::move(ranges), pool);
    const ModelConfig& config = decoder.model().config();
    const std::string name = config.tied_embeddings ? kHeadWeightName : kEmbeddingWeightName;
    Tensor embedding = quantizer.QuantizeEmbedding(name, decoder.EmbeddingData(), config.vocab_size,
                                                   config.hidden_dim);
    if (!config.tied_embeddings) extra->push_back(std::move(embedding));
    SPILLWAY_ASSIGN_OR_RETURN(std::vector<Tensor> prefix,
                              quantizer.QuantizePrefix(prefix_, config));
    std::move(prefix.begin(), prefix.end(), std::back_inserter(*extra));
    manifest_.embedding_tensor = name;
    manifest_.recipe = recipe.name;
    manifest_.kv_dtype = recipe.kv;

    std::vector<std::shared_ptr<const Graph>> shard;
    for (const auto& [graph_name, ar_len] : StepGraphs()) {
      DecoderOptions options;
      options.name = graph_name;
      options.ar_len = ar_len;
      options.context_len = options_.context_len;
      options.io = checked_.io;
      SPILLWAY_ASSIGN_OR_RETURN(const Graph built, decoder.Build(options));
      SPILLWAY_ASSIGN_OR_RETURN(const Graph quantized, quantizer.Quantize(built));
      LegalizeTarget target;
      target.htp_arch = static_cast<int>(checked_.soc->arch);
      SPILLWAY_ASSIGN_OR_RETURN(Graph legal, Legalize(quantized, target));
      shard.push_back(std::make_shared<const Graph>(std::move(legal)));
      report_.graphs.push_back(graph_name);
    }
    ShardInfo info;
    info.num_layers = config.num_layers;
    manifest_.shards = {info};
    return ShardGraphs{shard};
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

  Result<VendorResult> RunJob(const VendorJob& job, const std::string& label) {
    VendorEvents events;
    events.progress = [&](std::string_view stage, double fraction) {
      progress_.Update(fmt::format("{}: {}", label, stage), fraction);
    };
    events.log = [](LogLevel level, std::string_view line) { LogMessage(level, line); };
    return options_.in_process ? RunVendorJob(job, events)
                               : RunVendorJobInWorker(job, options_.vendor_timeout_s, events);
  }

  Status CompileContexts(PackageWriter& writer) {
    report_.shards.resize(manifest_.shards.size());
    if (!report_.htp_left_out.empty()) return OkStatus();
    const Stopwatch vendor;
    const bool sharing = options_.htp.weight_sharing.value_or(report_.graphs.size() > 1);
    for (uint32_t shard = 0; shard < manifest_.shards.size(); ++shard) {
      VendorJob job;
      job.folder = writer.PathOf("");
      job.shard = shard;
      job.qnn_lib_dir = library_dir_;
      job.htp = options_.htp;
      job.htp.weight_sharing = sharing;
      ShardInfo& info = manifest_.shards[shard];
      info.context_file = fmt::format("context_{}.bin", shard);
      job.output_path = writer.PathOf(info.context_file);
      SPILLWAY_ASSIGN_OR_RETURN(const VendorResult result,
                                RunJob(job, fmt::format("context {}", shard)));
      AddContext(result, shard);
      if (!options_.with_simulator) continue;
      info.plain_file = fmt::format("plain_{}.bin", shard);
      job.output_path = writer.PathOf(info.plain_file);
      job.htp.weight_sharing = false;
      job.htp.slc_allocator = SlcAllocator::kOff;
      SPILLWAY_RETURN_IF_ERROR(RunJob(job, fmt::format("simulator context {}", shard)).status());
    }
    manifest_.weight_sharing = sharing;
    manifest_.slc_allocator = options_.htp.slc_allocator == SlcAllocator::kOn;
    report_.vendor_s = vendor.Seconds();
    return OkStatus();
  }

  void AddContext(const VendorResult& result, uint32_t shard) {
    report_.shards[shard] = result.shard;
    report_.vendor_build_id = result.build_id;
    report_.vendor_finalize_s += result.finalize_s;
    ShardInfo& info = manifest_.shards[shard];
    info.spill_fill_bytes = result.shard.spill_fill_bytes;
    info.context_bytes = result.shard.context_bytes;
    info.weight_bytes = result.shard.weight_bytes;
    const nlohmann::ordered_json vendor{{"build_id", result.build_id},
                                        {"core_api", result.core_api},
                                        {"backend_api", result.backend_api},
                                        {"soc_model", result.soc_model}};
    manifest_.vendor_json = vendor.dump();
  }

  Status Finish(PackageWriter& writer, const Stopwatch& wall) {
    progress_.Update("finish the package", -1.0);
    manifest_.producer = fmt::format("spillway {}", SPILLWAY_VERSION);
    manifest_.io_profile = IoProfileName(checked_.io);
    manifest_.mode = options_.mode;
    manifest_.soc = report_.soc;
    manifest_.htp_options_json = qnn::htp::HtpOptionsToJson(options_.htp);
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
    return OkStatus();
  }

  const CompileOptions& options_;
  CallbackProgress progress_;
  CheckedOptions checked_;
  std::string library_dir_;
  FloatPrefix prefix_;
  PackageManifest manifest_;
  CompileReport report_;
  MemoryWatch memory_;
};

}  // namespace

Result<CompileReport> Compile(const CompileOptions& options, const ProgressCallback& progress) {
  return Compilation(options, progress).Run();
}

}  // namespace spillway
