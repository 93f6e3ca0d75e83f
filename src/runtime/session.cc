#include "spillway/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "model/chat_template.h"
#include "model/tokenizer.h"
#include "package/package.h"
#include "runtime/answer_text.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "runtime/htp_model_executor.h"
#include "runtime/lookahead.h"
#include "runtime/sampler.h"
#include "runtime/tensor_dump.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

// Answers without an end grow past this as they go.
constexpr uint32_t kReservedTokens = 1 << 16;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

// What the options say, else what the package was compiled for; nothing: no sink.
std::optional<AttentionSink> SinkOf(const SessionOptions& options,
                                    const PackageManifest& manifest) {
  if (options.attention_sink.has_value()) {
    return options.attention_sink->batch == 0 ? std::nullopt : options.attention_sink;
  }
  if (!manifest.evictor.has_value()) return std::nullopt;
  return AttentionSink{manifest.evictor->sink, manifest.evictor->batch};
}

// Whether the package's evictor is made for the sink in use.
bool UsesEvictor(const SessionOptions& options, const PackageManifest& manifest) {
  const std::optional<AttentionSink> sink = SinkOf(options, manifest);
  if (!sink.has_value() || !manifest.evictor.has_value()) return false;
  return sink->batch == manifest.evictor->batch &&
         (sink->sink == manifest.evictor->sink || !manifest.prefix_tokens.empty());
}

Result<std::unique_ptr<ModelExecutor>> OpenExecutor(std::shared_ptr<const Package> package,
                                                    const SessionOptions& options) {
  std::shared_ptr<TensorDump> dump;
  if (!options.dump_dir.empty()) {
    SPILLWAY_ASSIGN_OR_RETURN(dump, TensorDump::Create(options.dump_dir));
  }
  const bool evictor = UsesEvictor(options, package->manifest());
  if (options.executor == "host") {
    HostModelOptions host;
    host.threads = options.threads;
    host.evictor = evictor;
    host.cache_in_rows = dump != nullptr;
    SPILLWAY_ASSIGN_OR_RETURN(auto executor, HostModelExecutor::Open(std::move(package), host));
    if (dump != nullptr) return DumpTensors(std::move(executor), std::move(dump));
    return std::unique_ptr<ModelExecutor>(std::move(executor));
  }
  if (options.executor == "htp") {
    HtpModelOptions htp;
    htp.qnn_lib_dir = options.qnn_lib_dir;
    htp.in_process = options.in_process;
    htp.load_timeout_s = options.load_timeout_s;
    htp.prepare_timeout_s = options.prepare_timeout_s;
    htp.run = options.htp;
    htp.evictor = evictor;
    htp.dump = std::move(dump);
    htp.progress = options.progress;
    htp.execute_timeout_s = options.execute_timeout_s;
    SPILLWAY_ASSIGN_OR_RETURN(auto executor, HtpModelExecutor::Open(std::move(package), htp));
    return std::unique_ptr<ModelExecutor>(std::move(executor));
  }
  return InvalidArgumentError(
      fmt::format("executor is \"{}\"; expected \"host\" or \"htp\"", options.executor));
}

SamplerOptions SamplingOf(const RunOptions& options) {
  SamplerOptions sampling;
  sampling.repetition_penalty = options.repetition_penalty;
  sampling.presence_penalty = options.presence_penalty;
  sampling.logit_bias = options.logit_bias;
  sampling.temperature = options.temperature;
  sampling.top_k = options.top_k;
  sampling.top_p = options.top_p;
  sampling.min_p = options.min_p;
  sampling.seed = options.seed;
  return sampling;
}

std::string TokenText(const TokenizerData& data, const std::optional<uint32_t>& id) {
  return id.has_value() && *id < data.tokens.size() ? data.tokens[*id] : std::string();
}

}  // namespace

struct Session::Impl {
  std::shared_ptr<const Package> package;
  std::shared_ptr<const Tokenizer> tokenizer;
  // Parsed when it is first needed: not every model has one that can be.
  std::shared_ptr<const ChatTemplate> chat_template;
  std::unique_ptr<ModelExecutor> executor;
  std::unique_ptr<Generator> generator;
  std::optional<LookaheadDecoder> lookahead;
  double load_s = 0;

  // One call of Generate.
  struct Run {
    const RunOptions& options;
    const TextCallback& on_text;
    Clock::time_point start;
    Answer answer;

    bool ShouldStop() const { return options.should_stop && options.should_stop(); }
  };

  Status MakeTokenizer();
  Status SetDecoding(const SessionOptions& options);
  Status CheckPrompt(std::span<const uint32_t> prompt) const;
  Status Prefill(Run& run);
  Status Decode(Run& run, Sampler& sampler);
  // Runs `token` and picks what follows: the last token picked, or none at the end.
  Result<std::optional<uint32_t>> Advance(uint32_t token, const LookaheadDecoder::Pick& pick);
  void FillStats(RunStats& stats) const;
  bool IsEnd(uint32_t token) const {
    const std::vector<uint32_t>& ends = tokenizer->end_ids();
    return std::find(ends.begin(), ends.end(), token) != ends.end();
  }
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::Open(const SessionOptions& options) {
  const Clock::time_point start = Clock::now();
  auto impl = std::make_unique<Impl>();
  OpenOptions open;
  open.verify = options.verify;
  // The vendor's library must not see a damaged context; the host reads none.
  const bool reads_contexts = options.executor != "host";
  open.verify_contexts = reads_contexts;
  open.verify_in_background = !reads_contexts;
  SPILLWAY_ASSIGN_OR_RETURN(impl->package, Package::Open(options.package_path, open));
  // Hashes, tokenizer and executor each take a part of the time that a user waits for the
  // first token.
  Status tokenizer_status;
  std::thread make_tokenizer([&] { tokenizer_status = impl->MakeTokenizer(); });
  auto executor = OpenExecutor(impl->package, options);
  make_tokenizer.join();
  SPILLWAY_RETURN_IF_ERROR(impl->package->Verified());
  SPILLWAY_RETURN_IF_ERROR(tokenizer_status);
  SPILLWAY_ASSIGN_OR_RETURN(impl->executor, std::move(executor));
  impl->generator = std::make_unique<Generator>(impl->executor.get());
  SPILLWAY_RETURN_IF_ERROR(impl->SetDecoding(options));
  impl->load_s = SecondsSince(start);
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Status Session::Impl::MakeTokenizer() {
  SPILLWAY_ASSIGN_OR_RETURN(tokenizer, Tokenizer::Create(package->tokenizer_data()));
  return OkStatus();
}

Status Session::Impl::SetDecoding(const SessionOptions& options) {
  const PackageManifest& manifest = package->manifest();
  if (const std::optional<AttentionSink> sink = SinkOf(options, manifest)) {
    SPILLWAY_RETURN_IF_ERROR(generator->SetAttentionSink(*sink, manifest.config.rope));
    const uint32_t used = generator->attention_sink()->sink;
    if (used != sink->sink) {
      Log(LogLevel::kWarning,
          "attention sink {},{}: the package's prefix of {} token{} is the sink, not {}",
          sink->sink, sink->batch, used, used == 1 ? "" : "s", sink->sink);
    }
    if (manifest.evictor.has_value() && !generator->evicts_by_executor()) {
      Log(LogLevel::kInfo, "the package's evictor is made for {},{}: keys are turned on the host",
          manifest.evictor->sink, manifest.evictor->batch);
    }
  }
  const LookaheadSizes compiled = {manifest.lookahead_ngram, manifest.lookahead_window,
                                   manifest.lookahead_gcap};
  const LookaheadSizes sizes = options.lookahead.value_or(compiled);
  if (sizes.ngram == 0) return OkStatus();
  SPILLWAY_ASSIGN_OR_RETURN(lookahead, LookaheadDecoder::Create(generator.get(), sizes));
  return OkStatus();
}

Result<std::vector<uint32_t>> Session::PromptTokens(std::span<const ChatTurn> turns) const {
  const TokenizerData& data = impl_->tokenizer->data();
  if (data.chat_template.empty()) {
    return FailedPreconditionError(
        "the model has no chat template; give it the text to continue as a raw prompt");
  }
  if (impl_->chat_template == nullptr) {
    SPILLWAY_ASSIGN_OR_RETURN(impl_->chat_template, ChatTemplate::Parse(data.chat_template));
  }
  std::vector<ChatMessage> messages;
  for (const ChatTurn& turn : turns) messages.push_back({turn.role, turn.content});
  SPILLWAY_ASSIGN_OR_RETURN(
      const std::vector<PromptPiece> pieces,
      impl_->chat_template->Render(messages, /*add_generation_prompt=*/true,
                                   TokenText(data, data.bos_id), TokenText(data, data.eos_id)));
  return EncodePrompt(*impl_->tokenizer, pieces);
}

Result<std::vector<uint32_t>> Session::PromptTokens(std::string_view text,
                                                    const RunOptions& options) const {
  if (!options.raw_prompt) {
    std::vector<ChatTurn> turns;
    if (options.system_prompt.has_value()) turns.push_back({"system", *options.system_prompt});
    turns.push_back({"user", std::string(text)});
    return PromptTokens(turns);
  }
  const TokenizerData& data = impl_->tokenizer->data();
  std::vector<uint32_t> tokens = impl_->tokenizer->Encode(text, options.parse_special);
  if (data.add_bos && data.bos_id.has_value() && (tokens.empty() || tokens[0] != *data.bos_id)) {
    tokens.insert(tokens.begin(), *data.bos_id);
  }
  return tokens;
}

Result<Answer> Session::Generate(std::span<const ChatTurn> turns, const RunOptions& options,
                                 const TextCallback& on_text) {
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<uint32_t> prompt, PromptTokens(turns));
  return GenerateFromTokens(prompt, options, on_text);
}

Result<Answer> Session::Generate(std::string_view text, const RunOptions& options,
                                 const TextCallback& on_text) {
  SPILLWAY_ASSIGN_OR_RETURN(const std::vector<uint32_t> prompt, PromptTokens(text, options));
  return GenerateFromTokens(prompt, options, on_text);
}

Result<Answer> Session::GenerateFromTokens(std::span<const uint32_t> prompt,
                                           const RunOptions& options, const TextCallback& on_text) {
  Impl::Run run = {options, on_text, Clock::now(), {}};
  SPILLWAY_ASSIGN_OR_RETURN(Sampler sampler,
                            Sampler::Create(SamplingOf(options), impl_->executor->io().vocab_size));
  (void)impl_->executor->TakeProfile();  // of an answer that failed
  SPILLWAY_RETURN_IF_ERROR(impl_->CheckPrompt(prompt));
  run.answer.prompt_tokens.assign(prompt.begin(), prompt.end());
  sampler.SetPrompt(prompt);
  SPILLWAY_RETURN_IF_ERROR(impl_->Prefill(run));
  if (run.answer.stop_reason.empty()) SPILLWAY_RETURN_IF_ERROR(impl_->Decode(run, sampler));
  impl_->FillStats(run.answer.stats);
  return std::move(run.answer);
}

void Session::Impl::FillStats(RunStats& stats) const {
  stats.load_s = load_s;
  stats.prefill_tokens_per_s = Rate(stats.prefill_tokens, stats.prefill_s);
  stats.decode_tokens_per_s = Rate(stats.decode_tokens, stats.decode_s);
  stats.tokens_per_step = Rate(stats.decode_tokens, stats.decode_steps);
  stats.evicted_tokens = generator->evicted_tokens();
  stats.evictions = generator->evictions();
  stats.weight_bytes = executor->weight_bytes();
  stats.weight_bytes_per_s =
      Rate(static_cast<double>(stats.weight_bytes) * stats.decode_steps, stats.decode_s);
  const KvShape& kv = executor->io().kv;
  stats.context_used = generator->n_past();
  stats.context_len = kv.context_len;
  stats.kv_cache_bytes = 2 * kv.layers * kv.row_bytes();
  stats.peak_rss_bytes = PeakRssBytes();
  stats.executor = executor->Describe();
  stats.graphs = executor->TakeProfile();
}

Status Session::Impl::CheckPrompt(std::span<const uint32_t> prompt) const {
  if (prompt.empty()) return InvalidArgumentError("the prompt is empty; give at least one token");
  const uint32_t extra = generator->ExtraTokens(prompt);
  if (!generator->has_attention_sink() && prompt.size() + extra >= generator->context_len()) {
    const std::string prefix = extra == 0 ? "" : fmt::format(" (and the prefix {})", extra);
    return InvalidArgumentError(fmt::format(
        "the prompt has {} tokens{}, but the package was compiled for a context of {}, which must "
        "also hold the answer; shorten the prompt, compile with a larger --context-len, or forget "
        "the oldest tokens (--attention-sink)",
        prompt.size(), prefix, generator->context_len()));
  }
  return OkStatus();
}

// Runs what the cache does not already hold, a chunk at a time so that it can stop
// between two. The last token always runs: its logits are what the answer starts from.
Status Session::Impl::Prefill(Run& run) {
  const std::span<const uint32_t> prompt = run.answer.prompt_tokens;
  RunStats& stats = run.answer.stats;
  const uint32_t reused = generator->StartPrompt(prompt);
  const Clock::time_point start = Clock::now();
  const size_t chunk = std::max({1u, executor->buffers(StepKind::kPrefill).ar_len,
                                 executor->buffers(StepKind::kDecode).ar_len});
  CallbackProgress progress(run.options.progress);
  for (size_t done = reused; done < prompt.size();) {
    if (run.ShouldStop()) {
      run.answer.stop_reason = "cancelled";
      break;
    }
    const size_t count = std::min(chunk, prompt.size() - done);
    SPILLWAY_RETURN_IF_ERROR(generator->Feed(prompt.subspan(done, count)));
    done += count;
    stats.prefill_tokens = static_cast<uint32_t>(done) - reused;
    progress.Update("prompt", stats.prefill_tokens / static_cast<double>(prompt.size() - reused));
  }
  stats.reused_tokens = reused;
  stats.prefill_s = SecondsSince(start);
  return OkStatus();
}

Result<std::optional<uint32_t>> Session::Impl::Advance(uint32_t token,
                                                       const LookaheadDecoder::Pick& pick) {
  if (lookahead.has_value()) return lookahead->Step(token, pick);
  SPILLWAY_RETURN_IF_ERROR(generator->Feed({&token, 1}));
  return pick(generator->logits());
}

// Allocates nothing for a token: the buffers are there before the first.
Status Session::Impl::Decode(Run& run, Sampler& sampler) {
  Answer& answer = run.answer;
  RunStats& stats = answer.stats;
  const uint32_t room = generator->has_attention_sink()
                            ? std::numeric_limits<uint32_t>::max()
                            : generator->context_len() - generator->n_past();
  const uint32_t wanted = run.options.max_new_tokens;
  const uint32_t most = wanted == 0 ? room : std::min(wanted, room);
  answer.tokens.reserve(std::min(most, kReservedTokens));
  AnswerText text(*tokenizer, most);
  const auto emit = [&](std::string_view piece) {
    return piece.empty() || !run.on_text || run.on_text(piece);
  };
  const LookaheadDecoder::Pick pick =
      [&](std::span<const float> logits) -> std::optional<uint32_t> {
    const uint32_t token = sampler.Sample(logits);
    if (stats.time_to_first_token_s == 0) {
      stats.time_to_first_token_s = SecondsSince(run.start);
    } else {
      ++stats.decode_tokens;
    }
    if (!run.options.ignore_eos && IsEnd(token)) {
      answer.stop_reason = "end_of_text";
      return std::nullopt;
    }
    answer.tokens.push_back(token);
    sampler.Accept(token);
    if (!emit(text.Add(token)) || run.ShouldStop()) {
      answer.stop_reason = "cancelled";
      return std::nullopt;
    }
    if (answer.tokens.size() == most) {
      answer.stop_reason = most == wanted ? "max_new_tokens" : "context_full";
      return std::nullopt;
    }
    return token;
  };
  if (lookahead.has_value()) lookahead->StartAnswer(answer.prompt_tokens);
  std::optional<uint32_t> token = pick(generator->logits());
  while (token.has_value()) {
    const Clock::time_point start = Clock::now();
    SPILLWAY_ASSIGN_OR_RETURN(token, Advance(*token, pick));
    stats.decode_s += SecondsSince(start);
    ++stats.decode_steps;
  }
  const std::string_view last = text.Finish();
  if (answer.stop_reason != "cancelled") emit(last);
  answer.text = text.Take();
  return OkStatus();
}

void Session::Reset() { impl_->generator->Reset(); }
uint32_t Session::context_len() const { return impl_->generator->context_len(); }
uint32_t Session::vocab_size() const { return impl_->executor->io().vocab_size; }
std::string Session::Describe() const { return impl_->executor->Describe(); }

}  // namespace spillway
