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
  if (prefix_size() > 0) LoadPrefix();
  tokens_.reserve(io_.kv.context_len);
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

uint32_t Generator::StartPrompt(std::span<const uint32_t> prompt) {
  const uint32_t extra = ExtraTokens(prompt);
  const std::span<const uint32_t> there = tokens().subspan(extra);
  const auto differ =
      std::mismatch(prompt.begin(), prompt.end() - 1, there.begin(), there.end()).first;
  const auto kept = static_cast<uint32_t>(differ - prompt.begin());
  Truncate(extra + kept);
  return kept;
}

Status Generator::CheckTokens(std::span<const uint32_t> tokens) const {
  if (tokens.empty()) return InvalidArgumentError("no tokens to run");
  if (tokens.size() > context_len() - n_past()) {
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
    const std::optional<StepPlan> step = PlanStep(done, total - done, n_past(), sizes_);
    if (!step.has_value()) {
      return ResourceExhaustedError(fmt::format(
          "no graph of the model has room for more than {} tokens (context {}, {} tokens a call)",
          n_past(), context_len(), sizes_.decode_ar == 0 ? sizes_.prefill_ar : sizes_.decode_ar));
    }
    const StepKind kind = step->prefill ? StepKind::kPrefill : StepKind::kDecode;
    const int last_row = static_cast<int>(step->count) - 1;
    SPILLWAY_RETURN_IF_ERROR(
        RunStep(kind, tokens.subspan(done, step->count), every_row ? -1 : last_row));
    const StepBuffers& buffers = executor_->buffers(kind);
    for (uint32_t row = 0; every_row && row < step->count; ++row) {
      ReadLogits(buffers, row);
      every_row(done + row, logits_);
    }
    done += step->count;
    if (!every_row && done == total) ReadLogits(buffers, step->count - 1);
    ReportProgress(progress, "prompt", static_cast<double>(done) / total);
  }
  has_logits_ = true;
  return OkStatus();
}

Status Generator::RunStep(StepKind kind, std::span<const uint32_t> tokens, int logits_row) {
  StepBuffers& buffers = executor_->buffers(kind);
  const uint32_t ar = buffers.ar_len, count = static_cast<uint32_t>(tokens.size());
  const uint32_t past = n_past();
  cache_.SetArLen(ar);
  const size_t row_bytes = io_.hidden_dim * DTypeSize(io_.hidden_dtype);
  for (uint32_t r = 0; r < ar; ++r) {
    // Padded rows repeat the last token: any valid row will do.
    executor_->embedding().Lookup(tokens[r < count ? r : count - 1],
                                  buffers.hidden + r * row_bytes);
  }
  FillMask(io_.mask_dtype, ar, context_len(), past, count, buffers.mask);
  FillPositions(ar, past, count, buffers.positions);
  SPILLWAY_RETURN_IF_ERROR(executor_->Run(kind, logits_row));
  cache_.Append(buffers.k_new, buffers.v_new, count);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return OkStatus();
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
  has_logits_ = false;
}

}  // namespace spillway
