#include "quantize/calibration_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/log.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr size_t kMinTokens = 16;
constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

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

// Of two paragraphs each: what the user says and the answer. One paragraph alone is what the
// user says.
std::vector<std::vector<ChatMessage>> ConversationsOf(std::string_view text) {
  const std::vector<std::string> paragraphs = Paragraphs(text);
  std::vector<std::vector<ChatMessage>> conversations;
  if (paragraphs.size() == 1) conversations.push_back({{"user", paragraphs[0]}});
  for (size_t i = 0; i + 1 < paragraphs.size(); i += 2) {
    conversations.push_back({{"user", paragraphs[i]}, {"assistant", paragraphs[i + 1]}});
  }
  return conversations;
}

// At most `limit` tokens in all: a large file is not rendered to its end.
Result<TokenWindows> ChatWindows(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                 const std::vector<std::vector<ChatMessage>>& conversations,
                                 uint32_t window, size_t limit) {
  const auto token_text = [&](const std::optional<uint32_t>& id) {
    return id ? tokenizer.TokenBytes(*id, true) : std::string();
  };
  const std::string bos = token_text(tokenizer.data().bos_id);
  const std::string eos = token_text(tokenizer.data().eos_id);
  TokenWindows windows;
  size_t tokens = 0;
  for (size_t i = 0; i < conversations.size() && tokens < limit; ++i) {
    const Result<std::vector<PromptPiece>> pieces =
        chat_template.Render(conversations[i], false, bos, eos);
    if (!pieces.ok()) return pieces.status().WithContext(fmt::format("conversation {}", i + 1));
    std::vector<uint32_t> ids = EncodePrompt(tokenizer, *pieces);
    if (ids.size() > window) ids.resize(window);
    tokens += ids.size();
    if (!ids.empty()) windows.push_back(std::move(ids));
  }
  return windows;
}

// Windows of consecutive paragraphs. Each starts where a paragraph does, as
// prompts do (a window that starts in the middle of a sentence can show massive
// activations that no prompt has): what a full window leaves of a paragraph is
// dropped unless it fills a window itself. A last window of fewer than `shortest`
// tokens is left out.
TokenWindows TextWindows(const Tokenizer& tokenizer, std::string_view text, uint32_t window,
                         size_t shortest, size_t limit) {
  TokenWindows windows;
  std::vector<uint32_t> current;
  for (const std::string& paragraph : Paragraphs(text)) {
    if (windows.size() * window >= limit) return windows;
    const std::vector<uint32_t> ids = tokenizer.Encode(paragraph + "\n\n", false);
    for (size_t begin = 0; begin < ids.size();) {
      const size_t count = std::min<size_t>(window - current.size(), ids.size() - begin);
      const auto first = ids.begin() + static_cast<std::ptrdiff_t>(begin);
      current.insert(current.end(), first, first + static_cast<std::ptrdiff_t>(count));
      begin += count;
      if (current.size() < window) break;
      windows.push_back(std::move(current));
      current.clear();
      if (ids.size() - begin < window) break;
    }
  }
  if (current.size() >= shortest) windows.push_back(std::move(current));
  return windows;
}

// ------------------------------------------------------------------- files

Status Unreadable(const std::string& place, std::string_view found, std::string_view expected) {
  return InvalidArgumentError(fmt::format("{}: found {}, expected {}", place, found, expected));
}

constexpr std::string_view kExpected =
    "a list of messages {\"role\": ..., \"content\": ...}, an object with such \"messages\", or a "
    "list of either";

Result<ChatMessage> ReadMessage(const json& value, const std::string& place) {
  ChatMessage message;
  for (const auto& [key, text] :
       {std::pair{"role", &message.role}, std::pair{"content", &message.content}}) {
    const auto found = value.is_object() ? value.find(key) : value.end();
    if (found == value.end() || !found->is_string()) {
      return Unreadable(place, fmt::format("a {} without a string {}", value.type_name(), key),
                        kExpected);
    }
    *text = found->get<std::string>();
  }
  return message;
}

bool IsMessage(const json& value) { return value.is_object() && value.contains("role"); }

Result<std::vector<ChatMessage>> ReadConversation(const json& value, const std::string& place) {
  const json* messages = &value;
  if (value.is_object() && value.contains("messages")) messages = &value["messages"];
  if (!messages->is_array() || messages->empty()) {
    return Unreadable(place, fmt::format("a {} without messages", value.type_name()), kExpected);
  }
  std::vector<ChatMessage> conversation;
  for (size_t i = 0; i < messages->size(); ++i) {
    SPILLWAY_ASSIGN_OR_RETURN(
        ChatMessage message,
        ReadMessage((*messages)[i], fmt::format("{}, message {}", place, i + 1)));
    conversation.push_back(std::move(message));
  }
  return conversation;
}

Status ReadConversations(const json& value, const std::string& place, CalibrationSource& source) {
  const bool many = value.is_array() && !value.empty() && !IsMessage(value[0]);
  for (size_t i = 0; i < (many ? value.size() : 1); ++i) {
    SPILLWAY_ASSIGN_OR_RETURN(
        std::vector<ChatMessage> conversation,
        ReadConversation(many ? value[i] : value,
                         many ? fmt::format("{}, conversation {}", place, i + 1) : place));
    source.conversations.push_back(std::move(conversation));
  }
  return OkStatus();
}

Status ReadJsonLines(const std::string& text, CalibrationSource& source) {
  size_t line = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view content(text.data() + begin, end - begin);
    begin = end + 1;
    ++line;
    if (content.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = fmt::format("{}, line {}", source.name, line);
    const json value = json::parse(content, nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded()) return Unreadable(place, "no JSON", kExpected);
    SPILLWAY_RETURN_IF_ERROR(ReadConversations(value, place, source));
  }
  return OkStatus();
}

// ----------------------------------------------------------------- windows

// The windows of one source, in its order.
Result<TokenWindows> WindowsOf(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                               const CalibrationSource& source, uint32_t window, size_t limit) {
  if (!source.conversations.empty()) {
    if (chat_template == nullptr) {
      return InvalidArgumentError(
          "conversations need the model's chat template, which it does not have; give text");
    }
    SPILLWAY_ASSIGN_OR_RETURN(
        TokenWindows windows,
        ChatWindows(tokenizer, *chat_template, source.conversations, window, limit));
    if (windows.empty()) return InvalidArgumentError("the conversations have no tokens");
    return windows;
  }
  // A limit below one window: the start of the text decides.
  const size_t tokens = tokenizer.Encode(source.text.substr(0, size_t{1} << 20), false).size();
  if (tokens < kMinTokens) {
    return InvalidArgumentError(
        fmt::format("the calibration text has {} tokens; expected at least {}; give a longer text",
                    tokens, kMinTokens));
  }
  const size_t shortest = std::min<size_t>(kMinTokens, window);
  const TokenWindows plain = TextWindows(tokenizer, source.text, window, shortest, limit);
  TokenWindows chat;
  if (chat_template != nullptr) {
    SPILLWAY_ASSIGN_OR_RETURN(
        chat, ChatWindows(tokenizer, *chat_template, ConversationsOf(source.text), window, limit));
  }
  TokenWindows windows;
  for (size_t i = 0; i < std::max(plain.size(), chat.size()); ++i) {
    if (i < chat.size()) windows.push_back(chat[i]);
    if (i < plain.size()) windows.push_back(plain[i]);
  }
  return windows;
}

}  // namespace

Result<CalibrationSource> ReadCalibrationFile(const std::string& path) {
  CalibrationSource source;
  source.name = path;
  SPILLWAY_ASSIGN_OR_RETURN(const uint64_t bytes, FileSize(path));
  if (bytes > kMaxFileBytes) {
    return InvalidArgumentError(fmt::format("{}: {} bytes of calibration data; expected at most {}",
                                            path, bytes, kMaxFileBytes));
  }
  SPILLWAY_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  if (path.ends_with(".jsonl")) {
    SPILLWAY_RETURN_IF_ERROR(ReadJsonLines(text, source));
  } else if (path.ends_with(".json")) {
    const json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded()) return Unreadable(path, "no JSON", kExpected);
    SPILLWAY_RETURN_IF_ERROR(ReadConversations(value, path, source));
  } else {
    source.text = std::move(text);
    return source;
  }
  if (source.conversations.empty()) return Unreadable(path, "no conversation", kExpected);
  return source;
}

Result<TokenWindows> MakeCalibrationWindows(const Tokenizer& tokenizer,
                                            const ChatTemplate* chat_template,
                                            const std::vector<CalibrationSource>& sources,
                                            uint32_t window, uint32_t token_limit) {
  if (window == 0 || token_limit == 0 || sources.empty()) {
    return InvalidArgumentError(
        fmt::format("calibration windows of {} tokens, {} in all, from {} sources; expected at "
                    "least 1 of each",
                    window, token_limit, sources.size()));
  }
  std::vector<TokenWindows> of_source;
  for (const CalibrationSource& source : sources) {
    Result<TokenWindows> windows = WindowsOf(tokenizer, chat_template, source, window, token_limit);
    if (!windows.ok()) {
      return source.name.empty() ? windows.status() : windows.status().WithContext(source.name);
    }
    of_source.push_back(std::move(windows).value());
  }
  TokenWindows windows;
  size_t left = token_limit;
  const size_t shortest = std::min<size_t>(kMinTokens, window);
  bool more = true;
  for (size_t i = 0; more && left > 0; ++i) {
    more = false;
    for (const TokenWindows& from : of_source) {
      if (i >= from.size() || left == 0) continue;
      more = true;
      const size_t count = std::min(from[i].size(), left);
      if (count < shortest && !windows.empty()) continue;
      windows.emplace_back(from[i].begin(), from[i].begin() + static_cast<std::ptrdiff_t>(count));
      left -= count;
    }
  }
  return windows;
}

Result<TokenWindows> MakeCalibrationWindows(const Tokenizer& tokenizer,
                                            const ChatTemplate* chat_template,
                                            std::string_view text, uint32_t window,
                                            uint32_t token_limit) {
  CalibrationSource source;
  source.text = text;
  return MakeCalibrationWindows(tokenizer, chat_template, std::vector<CalibrationSource>{source},
                                window, token_limit);
}

Result<CalibrationWindows> ReadCalibrationWindows(const TokenizerData& data,
                                                  const std::vector<std::string>& paths,
                                                  uint32_t window, uint32_t token_limit) {
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
  std::vector<CalibrationSource> sources;
  for (const std::string& path : paths) {
    SPILLWAY_ASSIGN_OR_RETURN(sources.emplace_back(), ReadCalibrationFile(path));
  }
  if (sources.empty()) sources.push_back({"", std::string(DefaultCalibrationText()), {}});
  CalibrationWindows read;
  SPILLWAY_ASSIGN_OR_RETURN(read.windows, MakeCalibrationWindows(*tokenizer, chat_template.get(),
                                                                 sources, window, token_limit));
  if (chat_template != nullptr) {
    std::vector<std::vector<ChatMessage>> two = ConversationsOf(DefaultCalibrationText());
    two.resize(2);
    SPILLWAY_ASSIGN_OR_RETURN(read.conversations, ChatWindows(*tokenizer, *chat_template, two,
                                                              window, size_t{2} * window));
  }
  read.bos = data.bos_id;
  return read;
}

}  // namespace spillway
