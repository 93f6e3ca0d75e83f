#include "model/pretokenizer.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "model/utf8.h"

namespace spillway {
namespace {

// White space as a class body. Spelled out because PCRE2's \s also has U+180E,
// which lost the property in Unicode 6.3.
#define SPACES \
  R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
#define SPACE "[" SPACES "]"
#define NOT_SPACE "[^" SPACES "]"
#define TRAILING_SPACES SPACE "+(?!" NOT_SPACE ")|" SPACE "+"

// A contraction's ending, letters, digits, other characters (each with one space
// in front), and white space that leaves its last space to the next word.
constexpr char kGpt2Pattern[] =
    "'(?:s|t|re|ve|m|ll|d)"
    R"(| ?\p{L}+| ?\p{N}+)"
    "| ?[^" SPACES R"(\p{L}\p{N}]+)"
    "|" TRAILING_SPACES;

// As above, but any one character may lead letters, digits come in groups of at
// most `DIGITS`, and line ends stay with what is before them.
#define CL100K_LIKE(DIGITS)                                                           \
  "(?i:'(?:s|t|re|ve|m|ll|d))"                                                        \
  R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" DIGITS "| ?[^" SPACES R"(\p{L}\p{N}]+[\r\n]*)" \
  "|" SPACE R"(*[\r\n]+)"                                                             \
  "|" TRAILING_SPACES
constexpr char kLlama3Pattern[] = CL100K_LIKE("{1,3}");
constexpr char kQwen2Pattern[] = CL100K_LIKE("");

struct Kind {
  const char* name;
  const char* pattern;
  bool split_digits;  // first cut out every digit on its own
  bool ignore_merges;
  bool add_bos;
  std::vector<std::string_view> aliases;
};

const std::vector<Kind>& Kinds() {
  static const auto* const kinds = new std::vector<Kind>{
      {"smollm", kGpt2Pattern, true, false, false, {"starcoder", "refact", "command-r"}},
      {"gpt-2", kGpt2Pattern, false, false, false, {"phi-2"}},
      {"llama-bpe", kLlama3Pattern, false, true, true, {"llama3", "llama-v3", "falcon3"}},
      {"qwen2", kQwen2Pattern, false, false, false, {"deepseek-r1-qwen", "megrez"}},
  };
  return *kinds;
}

const Kind* FindKind(std::string_view name) {
  for (const Kind& kind : Kinds()) {
    if (kind.name == name ||
        std::find(kind.aliases.begin(), kind.aliases.end(), name) != kind.aliases.end()) {
      return &kind;
    }
  }
  return nullptr;
}

std::string KnownNames() {
  std::string names;
  for (const Kind& kind : Kinds()) {
    if (!names.empty()) names += ", ";
    names += kind.name;
    for (const std::string_view alias : kind.aliases) names.append(" = ").append(alias);
  }
  return names;
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;

// One expression, compiled to machine code where the platform allows that.
class Pattern {
 public:
  static Result<Pattern> Compile(const char* text) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text), PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &error, &offset, nullptr));
    if (code == nullptr) {
      return InternalError("The pre-tokenizer's expression does not compile: PCRE2 error " +
                           std::to_string(error) + " at " + std::to_string(offset) +
                           ". Is this PCRE2 built without Unicode?");
    }
    // Without JIT support matching is slower and gives the same.
    static_cast<void>(pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE));
    return Pattern(std::move(code));
  }

  const pcre2_code* code() const { return code_.get(); }

 private:
  explicit Pattern(Code code) : code_(std::move(code)) {}
  Code code_;
};

// Matches one pattern at successive places of a text.
class Matcher {
 public:
  Matcher(const Pattern& pattern, size_t text_size)
      : code_(pattern.code()),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    // The patterns need a few steps for each character; the limit is far above
    // that and only guards against a mistake in them.
    const uint64_t limit = 100000 + uint64_t{64} * text_size;
    if (context_ != nullptr) {
      pcre2_set_match_limit(context_.get(),
                            static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
    }
  }

  // The size of the match that starts exactly at text[at], 0 when none does.
  size_t SizeAt(std::string_view text, size_t at) { return Match(text, at, PCRE2_ANCHORED); }

  // The next match at or after `at`: its start, and its size in *size; text.size()
  // when there is none.
  size_t Find(std::string_view text, size_t at, size_t* size) {
    *size = Match(text, at, 0);
    return *size == 0 ? text.size() : pcre2_get_ovector_pointer(data_.get())[0];
  }

 private:
  size_t Match(std::string_view text, size_t at, uint32_t options) {
    if (data_ == nullptr) return 0;
    const int count = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  options | PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
    if (count < 0) return 0;
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data_.get());
    return range[1] - range[0];
  }

  const pcre2_code* code_;
  std::unique_ptr<pcre2_match_data, FreeMatchData> data_;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context_;
};

}  // namespace

struct Pretokenizer::Impl {
  const Kind* kind;
  Pattern words, digits;
};

Pretokenizer::Pretokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pretokenizer::~Pretokenizer() = default;

Result<std::unique_ptr<const Pretokenizer>> Pretokenizer::Create(std::string_view name) {
  const Kind* kind = FindKind(name);
  if (kind == nullptr) {
    return UnsupportedError("tokenizer.ggml.pre is '" + std::string(name) +
                            "'. Supported pre-tokenizers: " + KnownNames() + ".");
  }
  SPILLWAY_ASSIGN_OR_RETURN(Pattern words, Pattern::Compile(kind->pattern));
  SPILLWAY_ASSIGN_OR_RETURN(Pattern digits, Pattern::Compile(R"(\p{N})"));
  std::unique_ptr<const Pretokenizer> made(
      new Pretokenizer(std::make_unique<Impl>(Impl{kind, std::move(words), std::move(digits)})));
  return made;
}

bool Pretokenizer::ignore_merges() const { return impl_->kind->ignore_merges; }

bool Pretokenizer::DefaultAddBos(std::string_view name) {
  const Kind* kind = FindKind(name);
  return kind != nullptr && kind->add_bos;
}

void Pretokenizer::Split(std::string_view text,
                         const std::function<void(std::string_view)>& visit) const {
  Matcher words(impl_->words, text.size());
  const auto split_words = [&](std::string_view part) {
    for (size_t at = 0; at < part.size();) {
      size_t size = words.SizeAt(part, at);
      // The patterns match at every place. Should the library refuse (no memory),
      // single characters keep the text whole.
      if (size == 0) size = Utf8SizeAt(part, at);
      visit(part.substr(at, size));
      at += size;
    }
  };
  if (!impl_->kind->split_digits) {
    split_words(text);
    return;
  }
  Matcher digits(impl_->digits, text.size());
  for (size_t at = 0; at < text.size();) {
    size_t size = 0;
    const size_t digit = digits.Find(text, at, &size);
    split_words(text.substr(at, digit - at));
    if (size > 0) visit(text.substr(digit, size));
    at = digit + size;
  }
}

}  // namespace spillway
