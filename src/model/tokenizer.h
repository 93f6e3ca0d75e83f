// Tokenizer: byte-level BPE from GGUF metadata. Exact ids.
//
// Text passes through four steps: special tokens are cut out (special_tokens.h),
// the rest is split into pre-tokens (pretokenizer.h), the bytes of each are
// written in the byte-level alphabet (byte_alphabet.h) and joined by the merges,
// best rank first (bpe.h). Normalisation is not part of it: text for a model
// that expects NFC (the qwen2 kind) must come in NFC, as typed text does.
//
// Const methods may be called from several threads.

#ifndef SPILLWAY_MODEL_TOKENIZER_H_
#define SPILLWAY_MODEL_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf.h"
#include "spillway/status.h"

namespace spillway {

// Two neighbouring tokens become one. Ids.
struct TokenMerge {
  uint32_t left = 0, right = 0, merged = 0;
  friend bool operator==(const TokenMerge&, const TokenMerge&) = default;
};

// The tokenizer's whole data, as read from a GGUF file; what a package stores.
struct TokenizerData {
  std::string model;                // "gpt2" (byte-level BPE)
  std::string pre;                  // a name that Pretokenizer::Create knows
  std::vector<std::string> tokens;  // id -> text in the byte-level alphabet
  std::vector<uint8_t> types;  // id -> GGUF token type (1 normal, 3 control, 4 user-defined, ...)
  std::vector<TokenMerge> merges;  // best first
  std::optional<uint32_t> bos_id, eos_id, eot_id, pad_id, unknown_id;
  bool add_bos = false, add_eos = false;
  std::string chat_template;  // Jinja source; empty when the model has none

  // Reads tokenizer.ggml.* and tokenizer.chat_template. A tokenizer model other
  // than gpt2 is kUnsupported, a missing key kNotFound, an inconsistent one (a merge of
  // tokens that are none) kCorruptData; the message names the file and the key.
  static Result<TokenizerData> FromGguf(const GgufFile& file);
  // One self-describing byte string; Parse checks everything (counts, UTF-8,
  // ids in range) and names the field that is wrong.
  std::string Serialize() const;
  static Result<TokenizerData> Parse(std::string_view bytes);
};

// Where a special token stands in a text.
struct SpecialMatch {
  size_t begin = 0, end = 0;
  uint32_t id = 0;
};

class Tokenizer {
 public:
  // Fails when `data.pre` is not one of the known pre-tokenizers (kUnsupported,
  // lists them) or the data are inconsistent (kCorruptData).
  static Result<std::shared_ptr<const Tokenizer>> Create(TokenizerData data);
  // Likewise for data from FromGguf() or Parse(), which need no other check; keeps them.
  static Result<std::shared_ptr<const Tokenizer>> Create(std::shared_ptr<const TokenizerData> data);
  ~Tokenizer();

  const TokenizerData& data() const;
  uint32_t vocab_size() const;

  // Text to ids. With `parse_special`, the texts of control and user-defined
  // tokens in `text` become those tokens; without, `text` is plain text
  // whatever it spells. No BOS or EOS is added. Invalid UTF-8 is replaced by
  // U+FFFD, one for each maximal ill-formed part. A byte that the vocabulary has
  // no token for is left out, as the reference implementation does. Time is
  // near-linear in the length of `text`, whatever it holds.
  std::vector<uint32_t> Encode(std::string_view text, bool parse_special) const;

  // The special tokens that Encode(text, true) finds: from left to right, the
  // longest at each place, not overlapping.
  std::vector<SpecialMatch> FindSpecial(std::string_view text) const;

  // The bytes of one token: what it adds to the text. Control tokens give their
  // text with `show_special`, nothing without; so do the unknown token and unused
  // entries. An id out of range gives nothing.
  std::string TokenBytes(uint32_t id, bool show_special = false) const;
  // Likewise, behind what is in `out`; does not allocate when `out` has room for
  // longest_token() more.
  void AppendTokenBytes(uint32_t id, bool show_special, std::string* out) const;
  // No token has more bytes.
  size_t longest_token() const;
  std::string Decode(std::span<const uint32_t> ids, bool show_special = false) const;

  bool IsControl(uint32_t id) const;
  // The id of a token with exactly this text ("<|im_end|>").
  std::optional<uint32_t> FindToken(std::string_view text) const;
  // Tokens at which generation stops: eos, eot and the known end markers of
  // chat formats that the vocabulary has as control tokens.
  const std::vector<uint32_t>& end_ids() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway

#endif  // SPILLWAY_MODEL_TOKENIZER_H_
