// spillway eval: perplexity of a text and agreement with the float model, for several
// models side by side.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/file.h"
#include "checks.h"
#include "command.h"
#include "eval/float_executor.h"
#include "eval/perplexity.h"
#include "eval/stream_perplexity.h"
#include "json_text.h"
#include "model/chat_template.h"
#include "model/tokenizer.h"
#include "package/package.h"
#include "runtime/host_model_executor.h"
#include "runtime/htp_model_executor.h"
#include "sink_flag.h"
#include "text.h"
#include "vendor_flags.h"

namespace spillway::cli {
namespace {

constexpr char kExamples[] =
    "Two protocols. Without --stride: that of llama.cpp's perplexity program, whole windows of\n"
    "--context tokens after each other, the second half of each scored. With --stride N: the\n"
    "usual sliding one, a window every N tokens that scores what none before it did. Every\n"
    "window starts with an empty cache and is fed as in generation; no BOS is added; a\n"
    "package's prefix KV lies in front.\n"
    "With --float the logits of all models are compared with the float model's, position by\n"
    "position: signal to noise of the raw logits, KL divergence (nats), share of positions with\n"
    "the same best token. A package with a prefix is compared with the float model after the\n"
    "same prefix (a line of its own); the ratio of perplexities is to the first line always.\n"
    "With --attention-sink the text is fed once, from its start to its end, however long: models\n"
    "of the context's length go on as 'run --attention-sink' does, and the perplexity before and\n"
    "after the first eviction is shown, also of each model without a sink (0,BATCH).\n\n"
    "Examples:\n"
    "  spillway eval model.gguf --text test.txt --context 512 --windows 20\n"
    "  spillway eval pkg_a/ pkg_b/ --float model.gguf --text test.txt --context 128 --greedy 32\n"
    "  spillway eval pkg/ --executor host,htp --text test.txt --windows 1 --stride 64\n"
    "  spillway eval pkg/ --float model.gguf --text test.txt --attention-sink 4,128 --tokens 2000\n"
    "Every command also takes --verbose, --log-level, --quiet and --json.\n";

constexpr uint32_t kDefaultContext = 128;
constexpr uint32_t kFloatChunk = 128;  // tokens a call of the float graph
constexpr uint32_t kStreamChunk = 32;  // with an attention sink
constexpr char kPrompt[] =
    "I would like to learn python, could you teach me with a simple example?";

// One line of the table.
struct Entry {
  std::string path, what;                  // "float", "16a8w, KV cache u8"
  std::string executor;                    // "host", "htp"
  std::shared_ptr<const Package> package;  // null for a GGUF file
  std::shared_ptr<const Model> model;      // null for a package
  std::unique_ptr<ModelExecutor> runner;
  PerplexityResult result;
  StreamPerplexity stream;  // with --attention-sink
  bool sinkless = false;    // without a sink, to compare
  std::vector<uint32_t> greedy;
  std::vector<uint32_t> prefix;  // of a float model that stands for packages with it
  int reference = -1;            // the entry that its logits are compared with
};

class EvalCommand : public Command {
 public:
  explicit EvalCommand(CLI::App& program);
  Status Run(Console& console) override;

 private:
  Status CheckArguments() const;
  Status OpenFiles(Progress* progress);
  void AddReferences();
  Status ChooseContext();
  Status OpenRunners(Progress* progress);
  Result<std::vector<uint32_t>> PromptTokens(const Tokenizer& tokenizer) const;
  Status Measure(Progress* progress);
  Status Compare(const std::vector<uint32_t>& tokens, const PerplexityOptions& options,
                 Progress* progress);
  bool compared() const { return !float_path_.empty(); }
  std::optional<double> RatioOf(const Entry& entry) const;
  std::string ProtocolText() const;
  void AddSinkless();
  Status MeasureStream(std::vector<uint32_t> tokens, Progress* progress);
  std::optional<double> StreamRatioOf(const Entry& entry) const;
  Json StreamJson() const;
  std::string StreamText() const;
  Json ToJson() const;
  std::string ToText() const;

  std::vector<std::string> paths_, executors_ = {"host"};
  std::string text_path_, float_path_, prompt_ = kPrompt;
  bool raw_ = false;
  uint32_t context_ = 0, stride_ = 0, windows_ = 0, threads_ = 0, greedy_ = 0;
  std::optional<AttentionSink> sink_;
  uint32_t tokens_ = 0;
  HtpModelOptions htp_;
  // What is measured; the float model of --float comes first.
  std::vector<Entry> entries_;
  TokenizerData tokenizer_data_;
  std::vector<uint32_t> greedy_prompt_;
};

EvalCommand::EvalCommand(CLI::App& program) {
  CLI::App& app = *program.add_subcommand(
      "eval", "Measure the perplexity of a text, and how near to the float model it is");
  app.fallthrough();
  app.add_option("MODELS", paths_, "GGUF files (in float) and packages (in their integers)")
      ->required();
  app.add_option("--text", text_path_, "The text, UTF-8")->required();
  app.add_option("--float", float_path_, "Also measure this GGUF file in float, and compare");
  app.add_option("--context", context_,
                 fmt::format("Tokens of a window; default: {}, or a package's context if smaller",
                             kDefaultContext))
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--stride", stride_, "Sliding protocol: tokens between the starts of windows")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--windows", windows_, "At most so many windows; 0: all")->capture_default_str();
  CLI::Option* sink =
      AddSinkFlag(app, sink_,
                  "Feed the text once, and forget BATCH tokens after the first SINK (after a\n"
                  "package's prefix) when the context is full")
          ->excludes("--stride")
          ->excludes("--windows");
  app.add_option("--tokens", tokens_, "At most so many tokens of the text; 0: all")
      ->needs(sink)
      ->capture_default_str();
  app.add_option("--executor", executors_, "Where packages run: host, htp, or host,htp for both")
      ->delimiter(',')
      ->check(CLI::IsMember({"host", "htp"}))
      ->capture_default_str();
  app.add_option("--greedy", greedy_,
                 "Also continue a prompt by so many best tokens, and count those at the start\n"
                 "that are the float model's");
  app.add_option("-p,--prompt", prompt_, "The prompt of --greedy");
  app.add_flag("--raw", raw_, "The prompt itself: no chat template");
  app.add_option("--threads", threads_, "0: all processors")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  AddLibraryDirFlag(app, htp_.qnn_lib_dir);
  app.add_option("--execute-timeout", htp_.execute_timeout_s,
                 "Seconds for one call of a graph on htp")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.footer(kExamples);
}

Status EvalCommand::CheckArguments() const {
  for (const std::string& path : paths_) {
    if (!FileExists(path)) return NotFoundError(path + ": there is no such file or folder");
  }
  if (!FileExists(text_path_)) return NotFoundError("--text " + text_path_ + ": no such file");
  if (compared() && !FileExists(float_path_)) {
    return NotFoundError("--float " + float_path_ + ": there is no such file");
  }
  if (compared() && IsDirectory(float_path_)) {
    return InvalidArgumentError("--float " + float_path_ +
                                " is a folder; expected the GGUF file that the packages are of");
  }
  if (sink_.has_value() && sink_->batch == 0) {
    return InvalidArgumentError("--attention-sink: a batch of 0 tokens frees nothing");
  }
  const bool htp = std::find(executors_.begin(), executors_.end(), "htp") != executors_.end();
  return htp ? CheckVendorLibrary(htp_.qnn_lib_dir) : OkStatus();
}

// Opens what was named and checks that all have the same tokens.
Status EvalCommand::OpenFiles(Progress* progress) {
  std::vector<std::string> paths = paths_;
  if (compared()) paths.insert(paths.begin(), float_path_);
  for (const std::string& path : paths) {
    ReportProgress(progress, "open " + path, -1);
    Entry entry;
    entry.path = path;
    TokenizerData data;
    if (IsDirectory(path)) {
      SPILLWAY_ASSIGN_OR_RETURN(entry.package, Package::Open(path));
      const PackageManifest& manifest = entry.package->manifest();
      entry.what = fmt::format("{}, KV cache {}", manifest.recipe, DTypeName(manifest.kv_dtype));
      data = *entry.package->tokenizer_data();
    } else {
      SPILLWAY_ASSIGN_OR_RETURN(entry.model, Model::Open(path));
      entry.what = "float";
      SPILLWAY_ASSIGN_OR_RETURN(data, TokenizerData::FromGguf(*entry.model->file()));
    }
    if (tokenizer_data_.tokens.empty()) tokenizer_data_ = data;
    if (data.tokens != tokenizer_data_.tokens) {
      return InvalidArgumentError(fmt::format(
          "{} has other tokens than {}; only models of one vocabulary can be measured side by side",
          path, paths[0]));
    }
    for (const std::string& executor : executors_) {
      if (entry.model != nullptr && executor != executors_[0]) continue;
      Entry& added = entries_.emplace_back();
      added.path = path;
      added.what = entry.what;
      added.executor = entry.model != nullptr ? "host" : executor;
      added.package = entry.package;
      added.model = entry.model;
    }
  }
  if (compared()) AddReferences();
  return OkStatus();
}

// Sets what each entry is compared with, and adds a float entry for each prefix.
void EvalCommand::AddReferences() {
  std::map<std::vector<uint32_t>, int> floats = {{{}, 0}};
  std::vector<Entry> all;
  all.push_back(std::move(entries_[0]));
  for (size_t i = 1; i < entries_.size(); ++i) {
    if (entries_[i].package == nullptr) continue;
    const std::vector<uint32_t>& prefix = entries_[i].package->manifest().prefix_tokens;
    if (!floats.try_emplace(prefix, static_cast<int>(all.size())).second) continue;
    Entry& added = all.emplace_back();
    added.path = all[0].path;
    added.what = fmt::format("float, prefix {}", fmt::join(prefix, " "));
    added.executor = "host";
    added.model = all[0].model;
    added.prefix = prefix;
    added.reference = 0;
  }
  for (size_t i = 1; i < entries_.size(); ++i) {
    const Package* const package = entries_[i].package.get();
    entries_[i].reference = package == nullptr ? 0 : floats.at(package->manifest().prefix_tokens);
    all.push_back(std::move(entries_[i]));
  }
  entries_ = std::move(all);
}

// A model without a prefix can do without a sink: the first tokens go like others.
void EvalCommand::AddSinkless() {
  const size_t count = entries_.size();
  for (size_t i = 0; i < count; ++i) {
    const Entry& entry = entries_[i];
    const bool prefix = !entry.prefix.empty() || (entry.package != nullptr &&
                                                  !entry.package->manifest().prefix_tokens.empty());
    if (prefix || entry.executor == "htp" || sink_->sink == 0) continue;
    Entry added;
    added.path = entry.path;
    added.what = entry.what + ", no sink";
    added.executor = entry.executor;
    added.package = entry.package;
    added.model = entry.model;
    added.reference = entry.reference;
    added.sinkless = true;
    entries_.push_back(std::move(added));
  }
}

Status EvalCommand::ChooseContext() {
  const bool given = context_ != 0;
  if (!given) context_ = kDefaultContext;
  for (const Entry& entry : entries_) {
    if (entry.package == nullptr) continue;
    const uint32_t most = entry.package->manifest().context_len;
    if (!given) context_ = std::min(context_, most);
    // The sink's context is the package's.
    if (sink_.has_value() && !given) context_ = most;
    if (context_ == most || (context_ < most && !sink_.has_value())) continue;
    return InvalidArgumentError(
        fmt::format("--context {}: the package {} was compiled for {} tokens; choose at most that, "
                    "or compile with --context-len {}",
                    context_, entry.path, most, context_));
  }
  return OkStatus();
}

Status EvalCommand::OpenRunners(Progress* progress) {
  const auto pool = std::make_shared<ThreadPool>(threads_);
  for (Entry& entry : entries_) {
    ReportProgress(progress, fmt::format("load {} ({})", entry.path, entry.executor), -1);
    if (entry.model != nullptr) {
      FloatExecutorOptions options;
      const uint32_t longest =
          std::max(context_, static_cast<uint32_t>(greedy_prompt_.size()) + greedy_);
      options.prefill_ar = std::min(kFloatChunk, longest);
      if (sink_.has_value()) options.prefill_ar = std::min(kStreamChunk, context_ - 1);
      options.prefix_tokens = entry.prefix;
      // Whole calls, so that a window's end needs no calls of one token.
      const uint32_t total = longest + static_cast<uint32_t>(entry.prefix.size());
      options.context_len =
          (total + options.prefill_ar - 1) / options.prefill_ar * options.prefill_ar;
      if (sink_.has_value()) options.context_len = context_;
      SPILLWAY_ASSIGN_OR_RETURN(entry.runner, FloatExecutor::Create(entry.model, options, pool));
    } else if (entry.executor == "htp") {
      HtpModelOptions options = htp_;
      options.evictor = sink_.has_value();
      SPILLWAY_ASSIGN_OR_RETURN(entry.runner, HtpModelExecutor::Open(entry.package, options));
    } else {
      HostModelOptions options;
      options.threads = threads_;
      options.evictor = sink_.has_value();
      SPILLWAY_ASSIGN_OR_RETURN(entry.runner, HostModelExecutor::Open(entry.package, options));
    }
  }
  return OkStatus();
}

Result<std::vector<uint32_t>> EvalCommand::PromptTokens(const Tokenizer& tokenizer) const {
  const TokenizerData& data = tokenizer.data();
  if (raw_ || data.chat_template.empty()) return tokenizer.Encode(prompt_, false);
  const auto text_of = [&](const std::optional<uint32_t>& id) {
    return id.has_value() && *id < data.tokens.size() ? data.tokens[*id] : std::string();
  };
  SPILLWAY_ASSIGN_OR_RETURN(const auto chat_template, ChatTemplate::Parse(data.chat_template));
  SPILLWAY_ASSIGN_OR_RETURN(
      const auto pieces, chat_template->Render({{"user", prompt_}}, /*add_generation_prompt=*/true,
                                               text_of(data.bos_id), text_of(data.eos_id)));
  return EncodePrompt(tokenizer, pieces);
}

Status EvalCommand::Measure(Progress* progress) {
  SPILLWAY_RETURN_IF_ERROR(OpenFiles(progress));
  SPILLWAY_RETURN_IF_ERROR(ChooseContext());
  SPILLWAY_ASSIGN_OR_RETURN(const std::string text, ReadFile(text_path_));
  SPILLWAY_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Create(tokenizer_data_));
  ReportProgress(progress, "tokenise " + text_path_, -1);
  std::vector<uint32_t> tokens = tokenizer->Encode(text, /*parse_special=*/false);
  if (sink_.has_value()) return MeasureStream(std::move(tokens), progress);
  const PerplexityOptions options = {context_, stride_, windows_};
  SPILLWAY_RETURN_IF_ERROR(PlanWindows(tokens.size(), options).status().WithContext(text_path_));
  if (greedy_ > 0) {
    SPILLWAY_ASSIGN_OR_RETURN(greedy_prompt_, PromptTokens(*tokenizer));
  }
  SPILLWAY_RETURN_IF_ERROR(OpenRunners(progress));
  if (greedy_ > 0) {
    for (Entry& entry : entries_) {
      auto greedy = ContinueGreedily(*entry.runner, greedy_prompt_, greedy_, progress);
      if (!greedy.ok()) return greedy.status().WithContext(entry.path + ", --greedy");
      entry.greedy = std::move(greedy).value();
    }
  }
  return Compare(tokens, options, progress);
}

Status EvalCommand::MeasureStream(std::vector<uint32_t> tokens, Progress* progress) {
  if (greedy_ > 0) return InvalidArgumentError("--greedy does not go with --attention-sink");
  if (tokens_ > 0 && tokens.size() > tokens_) tokens.resize(tokens_);
  if (tokens.size() <= context_) {
    return InvalidArgumentError(
        fmt::format("{} has {} tokens, no more than the context of {}: the sink would do nothing",
                    text_path_, tokens.size(), context_));
  }
  AddSinkless();
  SPILLWAY_RETURN_IF_ERROR(OpenRunners(progress));
  for (Entry& entry : entries_) {
    const ModelConfig& config =
        entry.model != nullptr ? entry.model->config() : entry.package->manifest().config;
    auto result =
        MeasureStreamPerplexity(*entry.runner, config.rope, tokens,
                                {entry.sinkless ? 0 : sink_->sink, sink_->batch}, progress);
    if (!result.ok()) return result.status().WithContext(entry.path);
    entry.stream = std::move(result).value();
    entry.runner.reset();
  }
  return OkStatus();
}

// To the float model with the same prefix and sink.
std::optional<double> EvalCommand::StreamRatioOf(const Entry& entry) const {
  if (!compared() || entry.sinkless || entry.reference < 0) return std::nullopt;
  return entry.stream.perplexity / entries_[static_cast<size_t>(entry.reference)].stream.perplexity;
}

Json EvalCommand::StreamJson() const {
  Json json = {
      {"kind", "eval"}, {"protocol", "stream"}, {"context", context_}, {"results", Json::array()}};
  for (const Entry& entry : entries_) {
    const StreamPerplexity& stream = entry.stream;
    Json line = {{"path", entry.path},
                 {"what", entry.what},
                 {"executor", entry.executor},
                 {"sink", stream.sink.sink},
                 {"batch", stream.sink.batch},
                 {"evictions", stream.evictions},
                 {"by_evictor", stream.by_evictor},
                 {"scored_tokens", stream.scored_tokens},
                 {"perplexity", stream.perplexity},
                 {"before_tokens", stream.before_tokens},
                 {"perplexity_before", stream.before},
                 {"perplexity_after", stream.after},
                 {"running_step", stream.running_step},
                 {"running", stream.running},
                 {"seconds", stream.seconds}};
    if (const auto ratio = StreamRatioOf(entry)) line["ratio"] = *ratio;
    json["results"].push_back(std::move(line));
  }
  return json;
}

std::string EvalCommand::StreamText() const {
  TextTable table({"", "executor", "sink", "perplexity", "ratio", "before", "after", "at 1/4",
                   "1/2", "3/4", "evictions", "seconds", ""});
  for (const Entry& entry : entries_) {
    const StreamPerplexity& stream = entry.stream;
    const auto ratio = StreamRatioOf(entry);
    const auto running = [&](size_t quarter) {
      const size_t points = stream.running.size();
      return fmt::format("{:.2f}", stream.running[std::max<size_t>(points * quarter / 4, 1) - 1]);
    };
    table.AddRow({entry.what, entry.executor,
                  fmt::format("{},{}", stream.sink.sink, stream.sink.batch),
                  fmt::format("{:.4f}", stream.perplexity),
                  ratio.has_value() ? fmt::format("{:.4f}", *ratio) : "",
                  fmt::format("{:.2f}", stream.before), fmt::format("{:.2f}", stream.after),
                  running(1), running(2), running(3), std::to_string(stream.evictions),
                  fmt::format("{:.1f}", stream.seconds), entry.path});
  }
  const StreamPerplexity& first = entries_[0].stream;
  return fmt::format(
             "one stream of {} tokens through a context of {}; before, after: of the first "
             "eviction; at 1/4, 1/2, 3/4: of the tokens until there\n",
             first.scored_tokens + 1, context_) +
         table.ToString();
}

Status EvalCommand::Compare(const std::vector<uint32_t>& tokens, const PerplexityOptions& options,
                            Progress* progress) {
  if (!compared()) {
    for (Entry& entry : entries_) {
      auto result = MeasurePerplexity(*entry.runner, tokens, options, progress);
      if (!result.ok()) return result.status().WithContext(entry.path);
      entry.result = std::move(result).value();
      entry.runner.reset();
    }
    return OkStatus();
  }
  std::vector<ComparedModel> models;
  for (const Entry& entry : entries_) models.push_back({entry.runner.get(), entry.reference});
  SPILLWAY_ASSIGN_OR_RETURN(std::vector<PerplexityResult> results,
                            ComparePerplexity(models, tokens, options, progress));
  for (size_t i = 0; i < results.size(); ++i) entries_[i].result = std::move(results[i]);
  return OkStatus();
}

std::optional<double> EvalCommand::RatioOf(const Entry& entry) const {
  if (!compared()) return std::nullopt;
  return entry.result.perplexity / entries_[0].result.perplexity;
}

std::string EvalCommand::ProtocolText() const {
  return stride_ == 0
             ? fmt::format("llama.cpp's protocol: windows of {} tokens, second half scored",
                           context_)
             : fmt::format("sliding protocol: windows of {} tokens, stride {}", context_, stride_);
}

double Rate(const PerplexityResult& result) {
  return result.seconds > 0 ? static_cast<double>(result.fed_tokens) / result.seconds : 0;
}

Json EvalCommand::ToJson() const {
  Json json = {{"kind", "eval"},
               {"protocol", stride_ == 0 ? "llama.cpp" : "sliding"},
               {"context", context_},
               {"stride", stride_},
               {"results", Json::array()}};
  if (greedy_ > 0) json["prompt_tokens"] = greedy_prompt_;
  for (const Entry& entry : entries_) {
    const PerplexityResult& result = entry.result;
    Json line = {{"path", entry.path},          {"what", entry.what},
                 {"executor", entry.executor},  {"perplexity", result.perplexity},
                 {"mean_nll", result.mean_nll}, {"scored_tokens", result.scored_tokens},
                 {"windows", result.windows},   {"seconds", result.seconds},
                 {"tokens_per_s", Rate(result)}};
    if (const auto ratio = RatioOf(entry)) line["ratio"] = *ratio;
    if (result.agreement.has_value()) {
      const LogitAgreement& agreement = *result.agreement;
      // JSON has no infinity: equal logits have no noise.
      line["logits_sqnr_db"] =
          std::isfinite(agreement.sqnr_db) ? Json(agreement.sqnr_db) : Json(nullptr);
      line["kl_divergence"] = agreement.kl_divergence;
      line["top1_agreement"] = agreement.top1;
    }
    if (greedy_ > 0) {
      line["greedy_tokens"] = entry.greedy;
      if (compared()) line["greedy_equal"] = CommonStart(entries_[0].greedy, entry.greedy);
    }
    json["results"].push_back(std::move(line));
  }
  return json;
}

std::string EvalCommand::ToText() const {
  std::vector<std::string> head = {"", "executor", "perplexity"};
  if (compared()) head.insert(head.end(), {"ratio", "SQNR dB", "KL", "top-1 %"});
  if (compared() && greedy_ > 0) head.emplace_back("greedy");
  head.insert(head.end(), {"seconds", "tokens/s", ""});
  TextTable table(head);
  for (const Entry& entry : entries_) {
    const PerplexityResult& result = entry.result;
    std::vector<std::string> row = {entry.what, entry.executor,
                                    fmt::format("{:.4f}", result.perplexity)};
    if (result.agreement.has_value()) {
      row.insert(row.end(), {fmt::format("{:.4f}", *RatioOf(entry)),
                             fmt::format("{:.1f}", result.agreement->sqnr_db),
                             fmt::format("{:.5f}", result.agreement->kl_divergence),
                             fmt::format("{:.1f}", 100 * result.agreement->top1)});
    } else if (compared()) {
      row.insert(row.end(), 4, "");
    }
    if (compared() && greedy_ > 0) {
      row.push_back(fmt::format("{} of {}", CommonStart(entries_[0].greedy, entry.greedy),
                                entries_[0].greedy.size()));
    }
    row.insert(row.end(), {fmt::format("{:.1f}", result.seconds),
                           fmt::format("{:.1f}", Rate(result)), entry.path});
    table.AddRow(row);
  }
  const PerplexityResult& first = entries_[0].result;
  return fmt::format("{}\n{} windows, {} tokens scored\n", ProtocolText(), first.windows,
                     first.scored_tokens) +
         table.ToString();
}

Status EvalCommand::Run(Console& console) {
  std::unique_ptr<Progress> progress = console.MakeProgress();
  SPILLWAY_RETURN_IF_ERROR(CheckArguments());
  SPILLWAY_RETURN_IF_ERROR(Measure(progress.get()));
  progress.reset();
  if (sink_.has_value()) {
    return console.Print(console.json ? JsonText(StreamJson()) : StreamText());
  }
  return console.Print(console.json ? JsonText(ToJson()) : ToText());
}

}  // namespace

std::unique_ptr<Command> AddEvalCommand(CLI::App& program) {
  return std::make_unique<EvalCommand>(program);
}

}  // namespace spillway::cli
