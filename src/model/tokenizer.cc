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
  explicit Impl(TokenizerData d) : data(std::move(d)), index(data.tokens) {}

  GgufTokenType TypeOf(uint32_t id) const { return static_cast<GgufTokenType>(data.types[id]); }
  void AddSpecial();
  void AddEndIds();
  void EncodePlain(std::string_view text, std::vector<uint32_t>* out) const;

  const TokenizerData data;
  const TokenIndex index;  // of data.tokens
  std::unique_ptr<const Pretokenizer> pretokenizer;
  std::unique_ptr<const BpeMerges> merges;
  SpecialTokens special;
  std::vector<uint32_t> end_ids;
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
  auto impl = std::make_unique<Impl>(std::move(data));
  SPILLWAY_ASSIGN_OR_RETURN(impl->pretokenizer, Pretokenizer::Create(impl->data.pre));
  SPILLWAY_ASSIGN_OR_RETURN(BpeMerges merges, BpeMerges::Create(impl->data.merges, impl->index));
  impl->merges = std::make_unique<const BpeMerges>(std::move(merges));
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

std::string Tokenizer::TokenBytes(uint32_t id, bool show_special) const {
  if (id >= vocab_size()) return "";
  const std::string& text = impl_->data.tokens[id];
  switch (impl_->TypeOf(id)) {
    case GgufTokenType::kControl:
    case GgufTokenType::kUnknown:
    case GgufTokenType::kUnused:
      return show_special ? text : "";
    case GgufTokenType::kUserDefined:
      return text;
    default:
      return BytesOfAlphabetText(text);
  }
}

std::string Tokenizer::Decode(std::span<const uint32_t> ids, bool show_special) const {
  std::string bytes;
  for (const uint32_t id : ids) bytes += TokenBytes(id, show_special);
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
