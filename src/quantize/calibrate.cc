#include "quantize/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "host/executor.h"
#include "kvcache/kv_cache.h"

namespace spillway {
namespace {

constexpr size_t kMinTokens = 16;

std::vector<std::string> Paragraphs(std::string_view text) {
  std::vector<std::string> paragraphs;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.find("\n\n", begin);
    if (end == std::string_view::npos) end = text.size();
    if (end > begin) paragraphs.emplace_back(text.substr(begin, end - begin));
    begin = end + 2;
  }
  return paragraphs;
}

// Conversations of two paragraphs each: what the user says and the answer.
Result<TokenWindows> ChatWindows(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                 std::string_view text, uint32_t window) {
  const std::vector<std::string> paragraphs = Paragraphs(text);
  const auto token_text = [&](const std::optional<uint32_t>& id) {
    return id ? tokenizer.TokenBytes(*id, true) : std::string();
  };
  const std::string bos = token_text(tokenizer.data().bos_id);
  const std::string eos = token_text(tokenizer.data().eos_id);
  TokenWindows windows;
  for (size_t i = 0; i + 1 < paragraphs.size(); i += 2) {
    const std::vector<ChatMessage> messages = {{"user", paragraphs[i]},
                                               {"assistant", paragraphs[i + 1]}};
    SPILLWAY_ASSIGN_OR_RETURN(const std::vector<PromptPiece> pieces,
                              chat_template.Render(messages, false, bos, eos));
    std::vector<uint32_t> ids = EncodePrompt(tokenizer, pieces);
    if (ids.size() > window) ids.resize(window);
    windows.push_back(std::move(ids));
  }
  return windows;
}

// A rest of fewer than `shortest` tokens is left out.
TokenWindows TextWindows(const std::vector<uint32_t>& ids, uint32_t window, size_t shortest) {
  TokenWindows windows;
  for (size_t begin = 0; begin < ids.size(); begin += window) {
    const size_t end = std::min(ids.size(), begin + window);
    if (end - begin < shortest) break;
    windows.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                         ids.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return windows;
}

// Minimum and maximum of f32 values; false when one is not finite.
bool MinMax(std::span<const std::byte> bytes, Range& range) {
  const size_t count = bytes.size() / sizeof(float);
  float low = 0.0f, high = 0.0f;
  uint32_t largest = 0;  // magnitude bits; infinity and NaN are the largest
  for (size_t i = 0; i < count; ++i) {
    float value;
    uint32_t bits;
    std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
    std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
    low = value < low ? value : low;
    high = value > high ? value : high;
    largest = std::max(largest, bits & 0x7fffffffu);
  }
  range = {low, high};
  return largest < 0x7f800000u;
}

// The float graph for windows of one length, and its inputs.
class WindowRunner {
 public:
  static Result<std::unique_ptr<WindowRunner>> Create(Decoder& decoder, uint32_t length,
                                                      ThreadPool* pool) {
    DecoderOptions options;
    options.name = "calibration";
    options.ar_len = length;
    options.context_len = length;
    SPILLWAY_ASSIGN_OR_RETURN(Graph graph, decoder.Build(options));
    auto runner = std::make_unique<WindowRunner>();
    SPILLWAY_ASSIGN_OR_RETURN(
        runner->executor_,
        host::Executor::Create(std::make_shared<const Graph>(std::move(graph)), pool));
    runner->embedding_ = decoder.EmbeddingData();
    runner->hidden_dim_ = decoder.model().config().hidden_dim;
    FillMask(DType::kF32, length, length, 0, length, runner->executor_->input(1).data());
    FillPositions(length, 0, length,
                  reinterpret_cast<int32_t*>(runner->executor_->input(2).data()));
    return runner;
  }

  Status Run(const std::vector<uint32_t>& tokens, const host::TensorObserver& observer) {
    auto* hidden = reinterpret_cast<float*>(executor_->input(0).data());
    for (size_t i = 0; i < tokens.size(); ++i) {
      embedding_->ReadRows(tokens[i], 1, hidden + i * hidden_dim_);
    }
    return executor_->Run(observer);
  }

 private:
  std::unique_ptr<host::Executor> executor_;
  std::shared_ptr<const ConstantData> embedding_;
  size_t hidden_dim_ = 0;
};

}  // namespace

void Range::Include(float value_min, float value_max) {
  min = std::min(min, value_min);
  max = std::max(max, value_max);
}

Result<TokenWindows> MakeCalibrationWindows(const Tokenizer& tokenizer,
                                            const ChatTemplate* chat_template,
                                            std::string_view text, uint32_t window,
                                            uint32_t token_limit) {
  if (window == 0 || token_limit == 0) {
    return InvalidArgumentError(fmt::format(
        "calibration windows of {} tokens, {} in all; expected at least 1", window, token_limit));
  }
  const std::vector<uint32_t> ids = tokenizer.Encode(text, false);
  if (ids.size() < kMinTokens) {
    return InvalidArgumentError(fmt::format(
        "the calibration text has {} tokens; expected at least {}; give a longer text", ids.size(),
        kMinTokens));
  }
  const size_t shortest = std::min<size_t>(kMinTokens, window);
  const TokenWindows plain = TextWindows(ids, window, shortest);
  TokenWindows chat;
  if (chat_template != nullptr) {
    SPILLWAY_ASSIGN_OR_RETURN(chat, ChatWindows(tokenizer, *chat_template, text, window));
  }
  TokenWindows windows;
  size_t left = token_limit;
  const auto take = [&](const std::vector<uint32_t>& from) {
    const size_t count = std::min(from.size(), left);
    if (count < shortest && !windows.empty()) return;
    windows.emplace_back(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
    left -= count;
  };
  for (size_t i = 0; i < std::max(plain.size(), chat.size()) && left > 0; ++i) {
    if (i < chat.size()) take(chat[i]);
    if (i < plain.size() && left > 0) take(plain[i]);
  }
  return windows;
}

Result<TensorRanges> Calibrate(Decoder& decoder, const TokenWindows& windows, ThreadPool* pool,
                               Progress* progress) {
  // Windows of one length share a graph.
  std::vector<const std::vector<uint32_t>*> order;
  order.reserve(windows.size());
  for (const auto& window : windows) order.push_back(&window);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return a->size() > b->size(); });

  TensorRanges ranges;
  Status bad;
  const host::TensorObserver observer = [&](const Op& op, const Tensor& tensor,
                                            std::span<const std::byte> values) {
    if (KeepsEncoding(op.type)) return;
    Range seen;
    if (!MinMax(values, seen) && bad.ok()) {
      bad = CorruptDataError(fmt::format(
          "calibration: tensor {} has a value that is not finite; the model's weights are damaged "
          "or its architecture is not what the file says",
          tensor.name));
    }
    ranges[tensor.name].Include(seen.min, seen.max);
  };

  std::unique_ptr<WindowRunner> runner;
  size_t length = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    ReportProgress(progress, "calibrate",
                   static_cast<double>(i) / static_cast<double>(order.size()));
    if (order[i]->size() != length) {
      length = order[i]->size();
      SPILLWAY_ASSIGN_OR_RETURN(
          runner, WindowRunner::Create(decoder, static_cast<uint32_t>(length), pool));
    }
    SPILLWAY_RETURN_IF_ERROR(runner->Run(*order[i], observer).WithContext("calibration"));
    SPILLWAY_RETURN_IF_ERROR(bad);
  }
  ReportProgress(progress, "calibrate", 1.0);
  return ranges;
}

}  // namespace spillway
