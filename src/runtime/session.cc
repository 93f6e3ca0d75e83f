#include "spillway/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/memory.h"
#include "base/progress.h"
#include "model/chat_template.h"
#include "model/tokenizer.h"
#include "package/package.h"
#include "runtime/generator.h"
#include "runtime/host_model_executor.h"
#include "runtime/htp_model_executor.h"
#include "runtime/sampler.h"
#include "runtime/tensor_dump.h"

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

Result<std::unique_ptr<ModelExecutor>> OpenExecutor(std::shared_ptr<const Package> package,
                                                    const SessionOptions& options) {
  std::shared_ptr<TensorDump> dump;
  if (!options.dump_dir.empty()) {
    SPILLWAY_ASSIGN_OR_RETURN(dump, TensorDump::Create(options.dump_dir));
  }
  if (options.executor == "host") {
    HostModelOptions host;
    host.threads = options.threads;
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
    htp.dump = std::move(dump);
    htp.progress = options.progress;
    htp.execute_timeout_s = options.execute_timeout_s;
    SPILLWAY_ASSIGN_OR_RETURN(auto executor, HtpModelExecutor::Open(std::move(package), htp));
    return std::unique_ptr<ModelExecutor>(std::move(executor));
  }
  return InvalidArgumentError(
      fmt::format("executor is \"{}\"; expected \"host\" or \"htp\"", options.executor));
}

std::string TokenText(const TokenizerData& data, const std::optional<uint32_t>& id) {
  return id.has_value() && *id < data.tokens.size() ? data.tokens[*id] : std::string();
}

}  // namespace

struct Session::Impl {
  std::shared_ptr<const Package> package;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<ModelExecutor> executor;
  std::unique_ptr<Generator> generator;
  double load_s = 0;

  // One call of Generate.
  struct Run {
    const RunOptions& options;
    const TextCallback& on_text;
    Clock::time_point start;
    Answer answer;
  };

  Status CheckPrompt(std::span<const uint32_t> prompt) const;
  Status Prefill(Run& run);
  Status Decode(Run& run, Sampler& sampler);
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
  SPILLWAY_ASSIGN_OR_RETURN(impl->package, Package::Open(options.package_path, open));
  SPILLWAY_ASSIGN_OR_RETURN(impl->tokenizer, Tokenizer::Create(impl->package->tokenizer_data()));
  SPILLWAY_ASSIGN_OR_RETURN(impl->executor, OpenExecutor(impl->package, options));
  impl->generator = std::make_unique<Generator>(impl->executor.get());
  impl->load_s = SecondsSince(start);
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Result<std::vector<uint32_t>> Session::PromptTokens(std::span<const ChatTurn> turns) const {
  const TokenizerData& data = impl_->tokenizer->data();
  if (data.chat_template.empty()) {
    return FailedPreconditionError(
        "the model has no chat template; give it the text to continue as a raw prompt");
  }
  SPILLWAY_ASSIGN_OR_RETURN(const std::shared_ptr<const ChatTemplate> chat_template,
                            ChatTemplate::Parse(data.chat_template));
  std::vector<ChatMessage> messages;
  for (const ChatTurn& turn : turns) messages.push_back({turn.role, turn.content});
  SPILLWAY_ASSIGN_OR_RETURN(
      const std::vector<PromptPiece> pieces,
      chat_template->Render(messages, /*add_generation_prompt=*/true, TokenText(data, data.bos_id),
                            TokenText(data, data.eos_id)));
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
  SamplerOptions sampling;
  sampling.temperature = options.temperature;
  sampling.top_k = options.top_k;
  sampling.top_p = options.top_p;
  sampling.seed = options.seed;
  SPILLWAY_ASSIGN_OR_RETURN(Sampler sampler,
                            Sampler::Create(sampling, impl_->executor->io().vocab_size));
  (void)impl_->executor->TakeProfile();  // of an answer that failed
  SPILLWAY_RETURN_IF_ERROR(impl_->CheckPrompt(prompt));
  run.answer.prompt_tokens.assign(prompt.begin(), prompt.end());
  SPILLWAY_RETURN_IF_ERROR(impl_->Prefill(run));
  SPILLWAY_RETURN_IF_ERROR(impl_->Decode(run, sampler));

  RunStats& stats = run.answer.stats;
  stats.load_s = impl_->load_s;
  stats.prefill_tokens_per_s = Rate(stats.prefill_tokens, stats.prefill_s);
  stats.decode_tokens_per_s = Rate(stats.decode_steps, stats.decode_s);
  stats.weight_bytes = impl_->executor->weight_bytes();
  stats.weight_bytes_per_s =
      Rate(static_cast<double>(stats.weight_bytes) * stats.decode_steps, stats.decode_s);
  stats.peak_rss_bytes = PeakRssBytes();
  stats.executor = impl_->executor->Describe();
  stats.graphs = impl_->executor->TakeProfile();
  return std::move(run.answer);
}

Status Session::Impl::CheckPrompt(std::span<const uint32_t> prompt) const {
  if (prompt.empty()) return InvalidArgumentError("the prompt is empty; give at least one token");
  const uint32_t extra = generator->ExtraTokens(prompt);
  if (prompt.size() + extra >= generator->context_len()) {
    const std::string prefix = extra == 0 ? "" : fmt::format(" (and the prefix {})", extra);
    return InvalidArgumentError(fmt::format(
        "the prompt has {} tokens{}, but the package was compiled for a context of {}, which must "
        "also hold the answer; shorten the prompt or compile with a larger --context-len",
        prompt.size(), prefix, generator->context_len()));
  }
  return OkStatus();
}

// Runs what the cache does not already hold. The last token always runs: its
// logits are what the answer starts from.
Status Session::Impl::Prefill(Run& run) {
  const std::span<const uint32_t> prompt = run.answer.prompt_tokens;
  const uint32_t reused = generator->StartPrompt(prompt);
  const Clock::time_point start = Clock::now();
  CallbackProgress progress(run.options.progress);
  SPILLWAY_RETURN_IF_ERROR(generator->Feed(prompt.subspan(reused), nullptr, &progress));
  run.answer.stats.reused_tokens = reused;
  run.answer.stats.prefill_tokens = static_cast<uint32_t>(prompt.size()) - reused;
  run.answer.stats.prefill_s = SecondsSince(start);
  return OkStatus();
}

Status Session::Impl::Decode(Run& run, Sampler& sampler) {
  Answer& answer = run.answer;
  const uint32_t room = generator->context_len() - generator->n_past();
  const uint32_t wanted = run.options.max_new_tokens;
  const uint32_t most = wanted == 0 ? room : std::min(wanted, room);
  answer.tokens.reserve(most);
  StreamDecoder decoder(tokenizer);
  const auto emit = [&](const std::string& piece) {
    answer.text += piece;
    return piece.empty() || !run.on_text || run.on_text(piece);
  };
  while (answer.stop_reason.empty()) {
    const uint32_t token = sampler.Sample(generator->logits());
    if (answer.stats.time_to_first_token_s == 0) {
      answer.stats.time_to_first_token_s = SecondsSince(run.start);
    }
    if (!run.options.ignore_eos && IsEnd(token)) {
      answer.stop_reason = "end_of_text";
      break;
    }
    answer.tokens.push_back(token);
    if (!emit(decoder.Add(token))) {
      answer.stop_reason = "cancelled";
    } else if (answer.tokens.size() == most) {
      answer.stop_reason = most == wanted ? "max_new_tokens" : "context_full";
    } else {
      const Clock::time_point start = Clock::now();
      SPILLWAY_RETURN_IF_ERROR(generator->Feed({&token, 1}));
      answer.stats.decode_s += SecondsSince(start);
      ++answer.stats.decode_steps;
    }
  }
  if (answer.stop_reason == "cancelled") {
    answer.text += decoder.Finish();
  } else {
    emit(decoder.Finish());
  }
  return OkStatus();
}

void Session::Reset() { impl_->generator->Reset(); }
uint32_t Session::context_len() const { return impl_->generator->context_len(); }
uint32_t Session::vocab_size() const { return impl_->executor->io().vocab_size; }
std::string Session::Describe() const { return impl_->executor->Describe(); }

}  // namespace spillway
