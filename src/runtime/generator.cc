#include "runtime/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <optional>

#include "base/float16.h"

namespace spillway {
namespace {

std::vector<std::byte*> CacheBuffers(ModelExecutor& executor, bool is_k) {
  std::vector<std::byte*> buffers;
  for (uint32_t layer = 0; layer < executor.io().kv.layers; ++layer) {
    buffers.push_back(is_k ? executor.k(layer) : executor.v(layer));
  }
  return buffers;
}

template <typename T>
void Dequantize(const std::byte* from, const Encoding& encoding, std::span<float> to) {
  const T* values = reinterpret_cast<const T*>(from);
  for (size_t i = 0; i < to.size(); ++i) {
    to[i] = encoding.scale * static_cast<float>(values[i] + encoding.offset);
  }
}

}  // namespace

Generator::Generator(ModelExecutor* executor)
    : executor_(executor),
      io_(executor->io()),
      cache_(io_.kv, CacheBuffers(*executor, true), CacheBuffers(*executor, false)),
      logits_(io_.vocab_size) {
  sizes_.prefill_ar = executor->buffers(StepKind::kPrefill).ar_len;
  sizes_.decode_ar = executor->buffers(StepKind::kDecode).ar_len;
  sizes_.context_len = io_.kv.context_len;
  limit_ = io_.kv.context_len;
  tokens_.reserve(io_.kv.context_len);
  step_tokens_.reserve(io_.kv.context_len);
  if (prefix_size() > 0) LoadPrefix();
}

Status Generator::SetAttentionSink(const AttentionSink& sink, const RopeConfig& rope) {
  AttentionSink used = sink;
  if (prefix_size() > 0) used.sink = prefix_size();
  const uint32_t ar = sizes_.decode_ar > 0 ? sizes_.decode_ar : sizes_.prefill_ar;
  if (used.batch == 0) {
    return InvalidArgumentError(
        "attention sink: a batch of 0 tokens frees nothing; expected 1 or more");
  }
  if (uint64_t{used.sink} + used.batch > context_len() - ar) {
    return InvalidArgumentError(fmt::format(
        "attention sink {},{}: {} tokens in all; the context of {} has room for {} before a call "
        "of {}; take a smaller batch",
        used.sink, used.batch, uint64_t{used.sink} + used.batch, context_len(), context_len() - ar,
        ar));
  }
  if (IsFixedPoint(io_.kv.dtype) && io_.k_encodings.size() != io_.kv.layers) {
    return UnsupportedError("attention sink: the encodings of the cached keys are not known");
  }
  sink_ = used;
  const std::optional<AttentionSink> evictor = executor_->evictor();
  by_executor_ = evictor.has_value() && *evictor == used;
  limit_ = context_len() - ar + 1;
  shift_ = MakeKeyShift(rope, used.batch, io_.key_rotation);
  return OkStatus();
}

void Generator::LoadPrefix() {
  std::vector<const std::byte*> k, v;
  for (uint32_t layer = 0; layer < io_.kv.layers; ++layer) {
    k.push_back(io_.prefix.k[layer]->bytes().data());
    v.push_back(io_.prefix.v[layer]->bytes().data());
  }
  cache_.LoadPrefix(k, v, prefix_size());
  tokens_ = io_.prefix.tokens;
}

uint32_t Generator::ExtraTokens(std::span<const uint32_t> prompt) const {
  // The prompt's last token is always run, so it cannot be part of the prefix.
  const std::vector<uint32_t>& prefix = io_.prefix.tokens;
  const bool starts_with_it =
      prompt.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), prompt.begin());
  return starts_with_it ? 0 : prefix_size();
}

uint32_t Generator::History(uint32_t index) const {
  if (evicted_.empty() || index < sink_->sink) return tokens_[index];
  const uint32_t after = index - sink_->sink;
  return after < evicted_.size() ? evicted_[after] : tokens_[index - evicted_.size()];
}

uint32_t Generator::StartPrompt(std::span<const uint32_t> prompt) {
  const uint32_t extra = ExtraTokens(prompt);
  const uint32_t most = std::min(static_cast<uint32_t>(prompt.size()) - 1, history_size() - extra);
  uint32_t kept = 0;
  while (kept < most && prompt[kept] == History(extra + kept)) ++kept;
  if (!evicted_.empty() && extra + kept < evicted_at_) {
    // Less was there when the last eviction happened: only the sink is as it would be.
    const uint32_t there = std::min(extra + kept, sink_->sink);
    Truncate(there);
    return there > extra ? there - extra : 0;
  }
  Truncate(extra + kept - evicted_tokens());
  return kept;
}

Status Generator::CheckTokens(std::span<const uint32_t> tokens) const {
  if (tokens.empty()) return InvalidArgumentError("no tokens to run");
  if (!sink_.has_value() && tokens.size() > context_len() - n_past()) {
    return ResourceExhaustedError(
        fmt::format("{} tokens after {} need a context of {}, but the model was compiled for {}",
                    tokens.size(), n_past(), n_past() + tokens.size(), context_len()));
  }
  const uint32_t vocab = executor_->embedding().vocab_size();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= vocab) {
      return InvalidArgumentError(
          fmt::format("token {} at index {} is outside the vocabulary of {}", tokens[i], i, vocab));
    }
  }
  return OkStatus();
}

Status Generator::Feed(std::span<const uint32_t> tokens, const RowCallback& every_row,
                       Progress* progress) {
  SPILLWAY_RETURN_IF_ERROR(CheckTokens(tokens));
  has_logits_ = false;
  const uint32_t total = static_cast<uint32_t>(tokens.size());
  for (uint32_t done = 0; done < total;) {
    SPILLWAY_RETURN_IF_ERROR(MakeRoom());
    const std::optional<Chunk> chunk = NextChunk(total - done);
    if (!chunk.has_value()) {
      return ResourceExhaustedError(fmt::format(
          "no graph of the model has room for more than {} tokens (context {}, {} tokens a call, "
          "prefix of {})",
          n_past(), context_len(), sizes_.decode_ar == 0 ? sizes_.prefill_ar : sizes_.decode_ar,
          prefix_size()));
    }
    const uint32_t last_row = chunk->again + chunk->count - 1;
    SPILLWAY_RETURN_IF_ERROR(RunChunk(*chunk, tokens.subspan(done, chunk->count),
                                      every_row ? -1 : static_cast<int>(last_row)));
    const StepBuffers& buffers = executor_->buffers(chunk->kind);
    for (uint32_t row = chunk->again; every_row && row <= last_row; ++row) {
      ReadLogits(buffers, row);
      every_row(done + row - chunk->again, logits_);
    }
    done += chunk->count;
    if (!every_row && done == total) ReadLogits(buffers, last_row);
    ReportProgress(progress, "prompt", static_cast<double>(done) / total);
  }
  has_logits_ = true;
  return OkStatus();
}

std::optional<Generator::Chunk> Generator::NextChunk(uint32_t tokens) const {
  tokens = std::min(tokens, room());
  const std::optional<StepPlan> step = PlanStep(0, tokens, n_past(), sizes_);
  if (step.has_value()) {
    return Chunk{step->prefill ? StepKind::kPrefill : StepKind::kDecode, 0, step->count};
  }
  if (tokens == 0) return std::nullopt;
  for (const StepKind kind : {StepKind::kDecode, StepKind::kPrefill}) {
    const uint32_t ar = executor_->buffers(kind).ar_len;
    if (ar == 0 || ar > context_len() || context_len() - ar < prefix_size()) continue;
    return Chunk{kind, n_past() - (context_len() - ar), tokens};
  }
  return std::nullopt;
}

Status Generator::MakeRoom() {
  if (!sink_.has_value()) return OkStatus();
  while (n_past() >= limit_) {
    const uint32_t at = history_size();
    if (by_executor_) {
      SPILLWAY_RETURN_IF_ERROR(cache_.EvictBy([&] { return executor_->RunEvictor(); }, sink_->sink,
                                              shift_, io_.k_encodings));
    } else {
      cache_.Evict(sink_->sink, shift_, io_.k_encodings);
    }
    evicted_at_ = at;
    const auto first = tokens_.begin() + sink_->sink;
    evicted_.insert(evicted_.end(), first, first + sink_->batch);
    tokens_.erase(first, first + sink_->batch);
    ++evictions_;
  }
  return OkStatus();
}

void Generator::FillHidden(StepBuffers& buffers, uint32_t rows) const {
  const size_t row_bytes = io_.hidden_dim * DTypeSize(io_.hidden_dtype);
  for (uint32_t r = 0; r < rows; ++r) {
    const uint32_t token = r < step_tokens_.size() ? step_tokens_[r] : step_tokens_.back();
    executor_->embedding().Lookup(token, buffers.hidden + r * row_bytes);
  }
}

Status Generator::RunChunk(const Chunk& chunk, std::span<const uint32_t> tokens, int logits_row) {
  StepBuffers& buffers = executor_->buffers(chunk.kind);
  const uint32_t ar = buffers.ar_len, past = n_past() - chunk.again;
  step_tokens_.assign(tokens_.begin() + past, tokens_.end());
  step_tokens_.insert(step_tokens_.end(), tokens.begin(), tokens.end());
  const auto count = static_cast<uint32_t>(step_tokens_.size());
  tokens_.resize(past);
  cache_.Truncate(past);
  cache_.SetArLen(ar);
  const uint32_t rows = logits_row < 0 || executor_->reads_padding() ? ar : count;
  FillHidden(buffers, rows);
  FillMask(io_.mask_dtype, ar, context_len(), past, count, buffers.mask, rows);
  FillPositions(ar, past, count, buffers.positions);
  SPILLWAY_RETURN_IF_ERROR(executor_->Run(chunk.kind, logits_row));
  cache_.Append(buffers.k_new, buffers.v_new, count);
  tokens_.insert(tokens_.end(), step_tokens_.begin(), step_tokens_.end());
  return OkStatus();
}

bool Generator::CanBranch() const {
  if (sizes_.decode_ar == 0) return false;
  return sink_.has_value() || n_past() <= context_len() - sizes_.decode_ar;
}

Status Generator::RunBranches(std::span<const uint32_t> tokens, std::span<const uint32_t> ahead,
                              std::span<const uint8_t> sees) {
  assert(CanBranch() && !tokens.empty() && tokens.size() <= sizes_.decode_ar);
  assert(ahead.size() == tokens.size());
  has_logits_ = false;
  SPILLWAY_RETURN_IF_ERROR(MakeRoom());
  StepBuffers& buffers = executor_->buffers(StepKind::kDecode);
  const uint32_t ar = buffers.ar_len, past = n_past();
  const auto count = static_cast<uint32_t>(tokens.size());
  step_tokens_.assign(tokens.begin(), tokens.end());
  cache_.SetArLen(ar);
  FillHidden(buffers, ar);
  FillBranchMask(io_.mask_dtype, ar, context_len(), past, count, sees, buffers.mask);
  for (uint32_t r = 0; r < ar; ++r) {
    assert(r >= count || past + ahead[r] < context_len());
    buffers.positions[r] = r < count ? static_cast<int32_t>(past + ahead[r]) : 0;
  }
  return executor_->Run(StepKind::kDecode, -1);
}

std::span<const float> Generator::BranchLogits(uint32_t row) {
  ReadLogits(executor_->buffers(StepKind::kDecode), row);
  return logits_;
}

void Generator::KeepRows(std::span<const uint32_t> rows) {
  assert(!rows.empty() && rows.size() <= room());
  const StepBuffers& buffers = executor_->buffers(StepKind::kDecode);
  cache_.AppendRows(buffers.k_new, buffers.v_new, rows);
  for (const uint32_t row : rows) tokens_.push_back(step_tokens_[row]);
  ReadLogits(buffers, rows.back());
  has_logits_ = true;
}

void Generator::ReadLogits(const StepBuffers& buffers, uint32_t row) {
  raw_logits_ = buffers.logits + row * logits_.size() * DTypeSize(io_.logits_dtype);
  switch (io_.logits_dtype) {
    case DType::kU16:
      return Dequantize<uint16_t>(raw_logits_, io_.logits_encoding, logits_);
    case DType::kU8:
      return Dequantize<uint8_t>(raw_logits_, io_.logits_encoding, logits_);
    case DType::kF16:
      for (size_t i = 0; i < logits_.size(); ++i) {
        logits_[i] = HalfToFloat(reinterpret_cast<const uint16_t*>(raw_logits_)[i]);
      }
      return;
    default:
      for (size_t i = 0; i < logits_.size(); ++i) {
        logits_[i] = reinterpret_cast<const float*>(raw_logits_)[i];
      }
  }
}

void Generator::Truncate(uint32_t size) {
  assert(size <= n_past());
  size = std::max(size, prefix_size());
  if (size == n_past() && has_logits_) return;
  cache_.Truncate(size);
  tokens_.resize(size);
  if (!evicted_.empty() && size <= sink_->sink) {
    evicted_.clear();
    evictions_ = 0;
  }
  has_logits_ = false;
}

}  // namespace spillway
