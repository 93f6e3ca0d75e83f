// The stored form of TokenizerData. All numbers little endian:
//
//   "SPTK"                      magic
//   u32 version                 2
//   text model, pre             text = u32 length, bytes (UTF-8)
//   u32 flags                   1 = add BOS, 2 = add EOS
//   u32 bos, eos, eot, pad, unknown    0xFFFFFFFF = none
//   texts tokens                texts = u32 count, that many texts
//   bytes types                 u32 count, one byte each
//   merges                      u32 count, that many u32 left, right, merged (ids)
//   text chat_template
//
// and nothing after it.

#include "model/tokenizer_data.h"

#include <algorithm>
#include <array>
#include <utility>

#include "model/pretokenizer.h"
#include "model/token_index.h"
#include "model/utf8.h"

namespace spillway {
namespace {

constexpr std::string_view kMagic = "SPTK";
constexpr uint32_t kVersion = 2;
constexpr uint32_t kNoId = UINT32_MAX;
constexpr uint32_t kAddBos = 1, kAddEos = 2;

using IdField = std::optional<uint32_t> TokenizerData::*;
struct NamedId {
  const char* name;  // of the field
  const char* gguf_key;
  IdField field;
};
constexpr std::array<NamedId, 5> kIds = {{
    {"bos", "tokenizer.ggml.bos_token_id", &TokenizerData::bos_id},
    {"eos", "tokenizer.ggml.eos_token_id", &TokenizerData::eos_id},
    {"eot", "tokenizer.ggml.eot_token_id", &TokenizerData::eot_id},
    {"pad", "tokenizer.ggml.padding_token_id", &TokenizerData::pad_id},
    {"unknown", "tokenizer.ggml.unknown_token_id", &TokenizerData::unknown_id},
}};

Status CheckTexts(const char* name, const std::vector<std::string>& texts) {
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!IsValidUtf8(texts[i])) {
      return CorruptDataError("The tokenizer's " + std::string(name) + "[" + std::to_string(i) +
                              "] is not valid UTF-8.");
    }
  }
  return OkStatus();
}

Status CheckMerges(const TokenizerData& data) {
  const size_t count = data.tokens.size();
  for (size_t i = 0; i < data.merges.size(); ++i) {
    const TokenMerge& merge = data.merges[i];
    if (merge.left < count && merge.right < count && merge.merged < count) continue;
    return CorruptDataError("The tokenizer's merges[" + std::to_string(i) +
                            "] names a token that is not there; there are " +
                            std::to_string(count) + ".");
  }
  return OkStatus();
}

Status BadMerge(size_t number, std::string_view merge, const std::string& what) {
  return CorruptDataError("tokenizer.ggml.merges[" + std::to_string(number) + "] is '" +
                          std::string(merge) + "': " + what);
}

void PutU32(uint32_t value, std::string* out) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(value >> shift));
}

void PutText(std::string_view text, std::string* out) {
  PutU32(static_cast<uint32_t>(text.size()), out);
  out->append(text);
}

void PutTexts(const std::vector<std::string>& texts, std::string* out) {
  PutU32(static_cast<uint32_t>(texts.size()), out);
  for (const std::string& text : texts) PutText(text, out);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes), size_(bytes.size()) {}

  Status U32(const char* field, uint32_t* value) {
    if (rest_.size() < 4) return TooShort(field, 4);
    *value = 0;
    for (int i = 3; i >= 0; --i) *value = *value << 8 | static_cast<uint8_t>(rest_[i]);
    rest_.remove_prefix(4);
    return OkStatus();
  }

  Status Bytes(const char* field, size_t size, std::string_view* value) {
    if (rest_.size() < size) return TooShort(field, size);
    *value = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return OkStatus();
  }

  Status Text(const char* field, std::string* value) {
    uint32_t size = 0;
    std::string_view bytes;
    SPILLWAY_RETURN_IF_ERROR(U32(field, &size));
    SPILLWAY_RETURN_IF_ERROR(Bytes(field, size, &bytes));
    value->assign(bytes);
    return OkStatus();
  }

  Status Texts(const char* field, std::vector<std::string>* value) {
    uint32_t count = 0;
    SPILLWAY_RETURN_IF_ERROR(U32(field, &count));
    // Each takes 4 bytes at least; so a wrong count cannot ask for much memory.
    if (rest_.size() / 4 < count) return TooShort(field, size_t{count} * 4);
    value->resize(count);
    for (std::string& text : *value) SPILLWAY_RETURN_IF_ERROR(Text(field, &text));
    return OkStatus();
  }

  Status Merges(const char* field, std::vector<TokenMerge>* value) {
    uint32_t count = 0;
    SPILLWAY_RETURN_IF_ERROR(U32(field, &count));
    if (rest_.size() / 12 < count) return TooShort(field, size_t{count} * 12);
    value->resize(count);
    for (TokenMerge& merge : *value) {
      for (uint32_t* id : {&merge.left, &merge.right, &merge.merged}) {
        SPILLWAY_RETURN_IF_ERROR(U32(field, id));
      }
    }
    return OkStatus();
  }

  Status End() const {
    if (rest_.empty()) return OkStatus();
    return CorruptDataError("The stored tokenizer has " + std::to_string(rest_.size()) +
                            " bytes after its end.");
  }

 private:
  Status TooShort(const char* field, size_t needed) const {
    return CorruptDataError("The stored tokenizer ends within its field '" + std::string(field) +
                            "': at byte " + std::to_string(size_ - rest_.size()) + " it needs " +
                            std::to_string(needed) + " more, there are " +
                            std::to_string(rest_.size()) + ".");
  }

  std::string_view rest_;
  size_t size_;
};

// A key that may be missing: leaves *value as it is then.
template <typename T, typename Getter>
Status GetOptional(const GgufFile& file, const char* key, Getter getter, T* value) {
  if (!file.Has(key)) return OkStatus();
  auto got = (file.*getter)(key);
  if (!got.ok()) return got.status();
  *value = std::move(got).value();
  return OkStatus();
}

Status ReadTypes(const GgufFile& file, TokenizerData* data) {
  std::vector<int64_t> types(data->tokens.size(), static_cast<int64_t>(GgufTokenType::kNormal));
  SPILLWAY_RETURN_IF_ERROR(
      GetOptional(file, "tokenizer.ggml.token_type", &GgufFile::GetIntArray, &types));
  for (const int64_t type : types) {
    // CheckTokenizerData reports 0 with its position.
    data->types.push_back(type > 0 && type < 256 ? static_cast<uint8_t>(type) : 0);
  }
  return OkStatus();
}

Status ReadIds(const GgufFile& file, TokenizerData* data) {
  for (const NamedId& id : kIds) {
    if (!file.Has(id.gguf_key)) continue;
    SPILLWAY_ASSIGN_OR_RETURN(const uint64_t value, file.GetUint(id.gguf_key));
    data->*id.field = static_cast<uint32_t>(std::min<uint64_t>(value, kNoId));
  }
  return OkStatus();
}

}  // namespace

Status CheckTokenizerData(const TokenizerData& data) {
  if (data.model != "gpt2") {
    return UnsupportedError("The tokenizer's model (tokenizer.ggml.model) is '" + data.model +
                            "'. Only 'gpt2', byte-level BPE, is supported.");
  }
  if (data.tokens.empty()) return CorruptDataError("The tokenizer's tokens are missing.");
  if (data.types.size() != data.tokens.size()) {
    return CorruptDataError("The tokenizer has " + std::to_string(data.tokens.size()) +
                            " tokens but " + std::to_string(data.types.size()) +
                            " token types (token_type).");
  }
  for (size_t i = 0; i < data.types.size(); ++i) {
    if (data.types[i] < 1 || data.types[i] > 6) {
      return CorruptDataError("The tokenizer's token_type[" + std::to_string(i) +
                              "] is none of the known types 1 to 6.");
    }
  }
  for (const NamedId& id : kIds) {
    const std::optional<uint32_t> value = data.*id.field;
    if (value && *value >= data.tokens.size()) {
      return CorruptDataError("The tokenizer's " + std::string(id.name) + " token is " +
                              std::to_string(*value) + ", but there are only " +
                              std::to_string(data.tokens.size()) + " tokens.");
    }
  }
  SPILLWAY_RETURN_IF_ERROR(CheckTexts("tokens", data.tokens));
  SPILLWAY_RETURN_IF_ERROR(CheckMerges(data));
  return CheckTexts("chat_template", {data.chat_template});
}

Result<std::vector<TokenMerge>> ParseMerges(const std::vector<std::string>& merges,
                                            const std::vector<std::string>& tokens) {
  const TokenIndex index(tokens);
  std::vector<TokenMerge> parsed;
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string_view merge = merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return BadMerge(i, merge, "expected two tokens with a space between them.");
    }
    const std::string left(merge.substr(0, space)), right(merge.substr(space + 1));
    const auto left_id = index.Find(left), right_id = index.Find(right),
               merged_id = index.Find(left + right);
    if (!left_id || !right_id || !merged_id) {
      const std::string& missing = !left_id ? left : !right_id ? right : left + right;
      return BadMerge(i, merge, "the vocabulary has no token '" + missing + "'.");
    }
    parsed.push_back({*left_id, *right_id, *merged_id});
  }
  return parsed;
}

Result<TokenizerData> TokenizerData::FromGguf(const GgufFile& file) {
  TokenizerData data;
  SPILLWAY_ASSIGN_OR_RETURN(data.model, file.GetString("tokenizer.ggml.model"));
  if (data.model != "gpt2") {
    // Other kinds store their vocabulary differently; say so before reading it.
    return CheckTokenizerData(data).WithContext(file.path());
  }
  SPILLWAY_ASSIGN_OR_RETURN(data.pre, file.GetString("tokenizer.ggml.pre"));
  SPILLWAY_ASSIGN_OR_RETURN(const GgufStringArray tokens,
                            file.GetStringArray("tokenizer.ggml.tokens"));
  SPILLWAY_ASSIGN_OR_RETURN(const GgufStringArray merges,
                            file.GetStringArray("tokenizer.ggml.merges"));
  data.tokens.assign(tokens.begin(), tokens.end());
  data.add_bos = Pretokenizer::DefaultAddBos(data.pre);
  SPILLWAY_RETURN_IF_ERROR(ReadTypes(file, &data));
  SPILLWAY_RETURN_IF_ERROR(ReadIds(file, &data));
  SPILLWAY_RETURN_IF_ERROR(
      GetOptional(file, "tokenizer.ggml.add_bos_token", &GgufFile::GetBool, &data.add_bos));
  SPILLWAY_RETURN_IF_ERROR(
      GetOptional(file, "tokenizer.ggml.add_eos_token", &GgufFile::GetBool, &data.add_eos));
  SPILLWAY_RETURN_IF_ERROR(
      GetOptional(file, "tokenizer.chat_template", &GgufFile::GetString, &data.chat_template));
  const Status status = CheckTokenizerData(data);
  if (!status.ok()) return status.WithContext(file.path());
  auto parsed = ParseMerges({merges.begin(), merges.end()}, data.tokens);
  if (!parsed.ok()) return parsed.status().WithContext(file.path());
  data.merges = std::move(parsed).value();
  return data;
}

std::string TokenizerData::Serialize() const {
  std::string out(kMagic);
  PutU32(kVersion, &out);
  PutText(model, &out);
  PutText(pre, &out);
  PutU32((add_bos ? kAddBos : 0) | (add_eos ? kAddEos : 0), &out);
  for (const NamedId& id : kIds) PutU32((this->*id.field).value_or(kNoId), &out);
  PutTexts(tokens, &out);
  PutText(std::string_view(reinterpret_cast<const char*>(types.data()), types.size()), &out);
  PutU32(static_cast<uint32_t>(merges.size()), &out);
  for (const TokenMerge& merge : merges) {
    for (const uint32_t id : {merge.left, merge.right, merge.merged}) PutU32(id, &out);
  }
  PutText(chat_template, &out);
  return out;
}

Result<TokenizerData> TokenizerData::Parse(std::string_view bytes) {
  Reader reader(bytes);
  std::string_view magic;
  uint32_t version = 0, flags = 0;
  if (!reader.Bytes("magic", kMagic.size(), &magic).ok() || magic != kMagic) {
    return CorruptDataError("A stored tokenizer starts with 'SPTK'; these bytes do not.");
  }
  SPILLWAY_RETURN_IF_ERROR(reader.U32("version", &version));
  if (version != kVersion) {
    return UnsupportedError("The stored tokenizer has format version " + std::to_string(version) +
                            "; this program reads version " + std::to_string(kVersion) +
                            ". Compile the model again.");
  }
  TokenizerData data;
  SPILLWAY_RETURN_IF_ERROR(reader.Text("model", &data.model));
  SPILLWAY_RETURN_IF_ERROR(reader.Text("pre", &data.pre));
  SPILLWAY_RETURN_IF_ERROR(reader.U32("flags", &flags));
  if ((flags & ~(kAddBos | kAddEos)) != 0) {
    return CorruptDataError("The stored tokenizer's flags are " + std::to_string(flags) +
                            "; known bits are 1 and 2.");
  }
  data.add_bos = (flags & kAddBos) != 0;
  data.add_eos = (flags & kAddEos) != 0;
  for (const NamedId& id : kIds) {
    uint32_t value = kNoId;
    SPILLWAY_RETURN_IF_ERROR(reader.U32(id.name, &value));
    if (value != kNoId) data.*id.field = value;
  }
  std::string types;
  SPILLWAY_RETURN_IF_ERROR(reader.Texts("tokens", &data.tokens));
  SPILLWAY_RETURN_IF_ERROR(reader.Text("types", &types));
  data.types.assign(types.begin(), types.end());
  SPILLWAY_RETURN_IF_ERROR(reader.Merges("merges", &data.merges));
  SPILLWAY_RETURN_IF_ERROR(reader.Text("chat_template", &data.chat_template));
  SPILLWAY_RETURN_IF_ERROR(reader.End());
  SPILLWAY_RETURN_IF_ERROR(CheckTokenizerData(data));
  return data;
}

}  // namespace spillway
