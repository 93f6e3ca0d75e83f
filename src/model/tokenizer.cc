#include "model/tokenizer.h"

#include <algorithm>
#include <utility>

#include "model/bpe.h"
#include "model/byte_alphabet.h"
#include "model/pretokenizer.h"
#include "model/special_tokens.h"
#include "model/token_index.h"
#include "model/tokenizer_data.h"
#include "model/utf8.h"

namespace spillway {
namespace {

// What chat formats end a turn with.
constexpr std::string_view kEndMarkers[] = {
    "<|im_end|>", "<|eot_id|>",    "<|endoftext|>", "<|end_of_text|>",
    "<|end|>",    "<end_of_turn>", "</s>"};

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(std::shared_ptr<const TokenizerData> d)
      : owned(std::move(d)), data(*owned), index(data.tokens) {
    // In the byte-level alphabet a byte takes one or two.
    for (const std::string& token : data.tokens) longest = std::max(longest, token.size());
  }

  GgufTokenType TypeOf(uint32_t id) const { return static_cast<GgufTokenType>(data.types[id]); }
  void AddSpecial();
  void AddEndIds();
  void EncodePlain(std::string_view text, std::vector<uint32_t>* out) const;

  const std::shared_ptr<const TokenizerData> owned;
  const TokenizerData& data;
  const TokenIndex index;  // of data.tokens
  std::unique_ptr<const Pretokenizer> pretokenizer;
  std::unique_ptr<const BpeMerges> merges;
  SpecialTokens special;
  std::vector<uint32_t> end_ids;
  size_t longest = 0;
};

void Tokenizer::Impl::AddSpecial() {
  for (uint32_t id = 0; id < data.tokens.size(); ++id) {
    const GgufTokenType type = TypeOf(id);
    if (type == GgufTokenType::kControl || type == GgufTokenType::kUserDefined) {
      special.Add(data.tokens[id], id);
    }
  }
}

void Tokenizer::Impl::AddEndIds() {
  const auto add = [this](std::optional<uint32_t> id) {
    if (id && std::find(end_ids.begin(), end_ids.end(), *id) == end_ids.end()) {
      end_ids.push_back(*id);
    }
  };
  add(data.eos_id);
  add(data.eot_id);
  for (const std::string_view marker : kEndMarkers) {
    const std::optional<uint32_t> id = index.Find(marker);
    if (id && TypeOf(*id) == GgufTokenType::kControl) add(id);
  }
}

void Tokenizer::Impl::EncodePlain(std::string_view text, std::vector<uint32_t>* out) const {
  if (text.empty()) return;
  std::string repaired;
  if (!IsValidUtf8(text)) {
    repaired = RepairUtf8(text);
    text = repaired;
  }
  BpeMerges::Scratch scratch;
  std::string alphabet_text;
  pretokenizer->Split(text, [&](std::string_view piece) {
    if (pretokenizer->ignore_merges()) {
      alphabet_text.clear();
      AppendAlphabetText(piece, &alphabet_text);
      const std::optional<uint32_t> whole = index.Find(alphabet_text);
      if (whole && TypeOf(*whole) != GgufTokenType::kControl) {
        out->push_back(*whole);
        return;
      }
    }
    merges->Encode(piece, &scratch, out);
  });
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Create(TokenizerData data) {
  SPILLWAY_RETURN_IF_ERROR(CheckTokenizerData(data));
  return Create(std::make_shared<const TokenizerData>(std::move(data)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Create(
    std::shared_ptr<const TokenizerData> data) {
  auto impl = std::make_unique<Impl>(std::move(data));
  SPILLWAY_ASSIGN_OR_RETURN(impl->pretokenizer, Pretokenizer::Create(impl->data.pre));
  impl->merges = std::make_unique<const BpeMerges>(impl->data.merges, impl->index);
  impl->AddSpecial();
  impl->AddEndIds();
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

const TokenizerData& Tokenizer::data() const { return impl_->data; }

uint32_t Tokenizer::vocab_size() const { return static_cast<uint32_t>(impl_->data.tokens.size()); }

std::vector<uint32_t> Tokenizer::Encode(std::string_view text, bool parse_special) const {
  std::vector<uint32_t> ids;
  ids.reserve(text.size() / 4);
  size_t done = 0;
  SpecialTokens::Match match;
  while (parse_special && impl_->special.Find(text, done, &match)) {
    impl_->EncodePlain(text.substr(done, match.begin - done), &ids);
    ids.push_back(match.id);
    done = match.end;
  }
  impl_->EncodePlain(text.substr(done), &ids);
  return ids;
}

std::vector<SpecialMatch> Tokenizer::FindSpecial(std::string_view text) const {
  std::vector<SpecialMatch> matches;
  SpecialTokens::Match match;
  while (impl_->special.Find(text, match.end, &match)) {
    matches.push_back({match.begin, match.end, match.id});
  }
  return matches;
}

void Tokenizer::AppendTokenBytes(uint32_t id, bool show_special, std::string* out) const {
  if (id >= vocab_size()) return;
  const std::string& text = impl_->data.tokens[id];
  switch (impl_->TypeOf(id)) {
    case GgufTokenType::kControl:
    case GgufTokenType::kUnknown:
    case GgufTokenType::kUnused:
      if (show_special) out->append(text);
      return;
    case GgufTokenType::kUserDefined:
      out->append(text);
      return;
    default:
      AppendBytesOfAlphabetText(text, out);
  }
}

size_t Tokenizer::longest_token() const { return impl_->longest; }

std::string Tokenizer::TokenBytes(uint32_t id, bool show_special) const {
  return Decode({&id, 1}, show_special);
}

std::string Tokenizer::Decode(std::span<const uint32_t> ids, bool show_special) const {
  std::string bytes;
  for (const uint32_t id : ids) AppendTokenBytes(id, show_special, &bytes);
  return bytes;
}

bool Tokenizer::IsControl(uint32_t id) const {
  return id < vocab_size() && impl_->TypeOf(id) == GgufTokenType::kControl;
}

std::optional<uint32_t> Tokenizer::FindToken(std::string_view text) const {
  return impl_->index.Find(text);
}

const std::vector<uint32_t>& Tokenizer::end_ids() const { return impl_->end_ids; }

}  // namespace spillway
