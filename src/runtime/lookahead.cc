#include "runtime/lookahead.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/sampler.h"

namespace spillway {
namespace {

// n-grams that are remembered: more than a context gives, and small.
constexpr uint32_t kPoolSize = 1 << 14;

}  // namespace

Result<LookaheadDecoder> LookaheadDecoder::Create(Generator* generator,
                                                  const LookaheadSizes& sizes) {
  const std::string name = fmt::format("lookahead {},{},{}", sizes.ngram, sizes.window, sizes.gcap);
  if (sizes.ngram < 2 || sizes.window == 0 || sizes.gcap == 0) {
    return InvalidArgumentError(
        name + ": expected an n-gram of 2 or more tokens, a window and a cap of 1 or more");
  }
  const uint64_t rows = (uint64_t{sizes.ngram} - 1) * (uint64_t{sizes.window} + sizes.gcap);
  // The first comparison keeps the product above from passing for a small one.
  if (sizes.ngram > generator->decode_ar() || rows > generator->decode_ar()) {
    return InvalidArgumentError(fmt::format(
        "{} needs {} tokens a call, but the package's kv_forward takes {}; take smaller sizes or "
        "compile with --mode lookahead --lookahead {},{},{}",
        name, rows, generator->decode_ar(), sizes.ngram, sizes.window, sizes.gcap));
  }
  return LookaheadDecoder(generator, sizes, generator->token_count());
}

LookaheadDecoder::LookaheadDecoder(Generator* generator, const LookaheadSizes& sizes,
                                   uint32_t vocab_size)
    : generator_(generator),
      sizes_(sizes),
      pool_(sizes.ngram, vocab_size, kPoolSize),
      window_(levels() * sizes.window),
      candidates_(size_t{sizes.gcap} * levels()) {
  const auto rows = size_t{sizes.ArLen()};
  tokens_.reserve(rows);
  ahead_.reserve(rows);
  kept_.reserve(sizes.ngram);
  picked_.reserve(sizes.ngram);
  text_.reserve(sizes.ngram);
  ngram_.reserve(sizes.ngram);
  sees_.reserve(rows * rows);
  MakeVisibility();
}

// Which row sees which, and how far ahead of the context it is.
void LookaheadDecoder::MakeVisibility() {
  const auto rows = sizes_.ArLen();
  all_sees_.assign(size_t{rows} * rows, 0);
  const auto see = [&](uint32_t row, uint32_t other) { all_sees_[row * rows + other] = 1; };
  ahead_.resize(rows);
  for (uint32_t level = 0; level < levels(); ++level) {
    for (uint32_t place = 0; place < sizes_.window; ++place) {
      const uint32_t row = WindowRow(level, place);
      ahead_[row] = level + place;
      // The places before in the first level, then its own levels.
      for (uint32_t p = 0; p <= place; ++p) see(row, WindowRow(0, p));
      for (uint32_t l = 1; l <= level; ++l) see(row, WindowRow(l, place));
    }
  }
  for (uint32_t candidate = 0; candidate < sizes_.gcap; ++candidate) {
    for (uint32_t depth = 0; depth < levels(); ++depth) {
      const uint32_t row = CheckRow(candidate, depth);
      ahead_[row] = depth + 1;
      see(row, 0);
      for (uint32_t d = 0; d <= depth; ++d) see(row, CheckRow(candidate, d));
    }
  }
}

void LookaheadDecoder::StartAnswer(std::span<const uint32_t> prompt) {
  text_.clear();
  starts_ = true;
  for (const uint32_t token : prompt) Remember(token);
  // Any tokens will do to begin with; those of the prompt are likelier than others.
  for (size_t i = 0; i < window_.size(); ++i) {
    window_[i] = prompt.empty() ? 0 : prompt[i * 7 % prompt.size()];
  }
}

void LookaheadDecoder::Remember(uint32_t token) {
  if (text_.size() == sizes_.ngram) text_.erase(text_.begin());
  text_.push_back(token);
  if (text_.size() == sizes_.ngram) pool_.Add(text_);
}

std::optional<uint32_t> LookaheadDecoder::PickOne(const Pick& pick, std::span<const float> logits) {
  const std::optional<uint32_t> token = pick(logits);
  if (!token.has_value()) return token;
  ++stats_.tokens;
  Remember(*token);
  return token;
}

void LookaheadDecoder::MakeRows(uint32_t token) {
  window_[0] = token;
  candidates_found_ = pool_.Find(token, sizes_.gcap, candidates_.data());
  tokens_ = window_;
  tokens_.insert(tokens_.end(), candidates_.begin(),
                 candidates_.begin() + std::ptrdiff_t{candidates_found_} * levels());
  // Only the rows that are there.
  const size_t rows = tokens_.size(), all = ahead_.size();
  sees_.resize(rows * rows);
  for (size_t row = 0; row < rows; ++row) {
    std::copy_n(all_sees_.begin() + static_cast<std::ptrdiff_t>(row * all), rows,
                sees_.begin() + static_cast<std::ptrdiff_t>(row * rows));
  }
}

Result<std::optional<uint32_t>> LookaheadDecoder::Step(uint32_t token, const Pick& pick) {
  ++stats_.steps;
  if (starts_) Remember(token);
  starts_ = false;
  if (!generator_->CanBranch()) {
    SPILLWAY_RETURN_IF_ERROR(generator_->Feed({&token, 1}));
    return PickOne(pick, generator_->logits());
  }
  MakeRows(token);
  SPILLWAY_RETURN_IF_ERROR(
      generator_->RunBranches(tokens_, std::span(ahead_).first(tokens_.size()), sees_));
  const std::optional<uint32_t> last = Verify(pick);
  AdvanceWindow();
  generator_->KeepRows(kept_);
  return last;
}

std::optional<uint32_t> LookaheadDecoder::Verify(const Pick& pick) {
  kept_.assign(1, 0);
  picked_.clear();
  while (true) {
    const std::optional<uint32_t> next = PickOne(pick, generator_->BranchLogits(kept_.back()));
    if (!next.has_value() || picked_.size() == levels() || kept_.size() == generator_->room()) {
      return next;
    }
    picked_.push_back(*next);
    const std::optional<uint32_t> candidate = CandidateWith(picked_);
    if (!candidate.has_value()) return next;
    kept_.push_back(CheckRow(*candidate, static_cast<uint32_t>(picked_.size()) - 1));
  }
}

std::optional<uint32_t> LookaheadDecoder::CandidateWith(std::span<const uint32_t> picked) const {
  for (uint32_t candidate = 0; candidate < candidates_found_; ++candidate) {
    const auto tokens = candidates_.begin() + std::ptrdiff_t{candidate} * levels();
    if (std::equal(picked.begin(), picked.end(), tokens)) return candidate;
  }
  return std::nullopt;
}

// The last level's rows say what comes after each place's guesses: an n-gram for the
// pool, and the newest level of the next call.
void LookaheadDecoder::AdvanceWindow() {
  for (uint32_t place = 0; place < sizes_.window; ++place) {
    const uint32_t next = ArgMax(generator_->BranchLogits(WindowRow(levels() - 1, place)));
    ngram_.clear();
    for (uint32_t level = 0; level < levels(); ++level) {
      ngram_.push_back(window_[WindowRow(level, place)]);
    }
    ngram_.push_back(next);
    pool_.Add(ngram_);
    for (uint32_t level = 0; level < levels(); ++level) {
      window_[WindowRow(level, place)] = ngram_[level + 1];
    }
  }
}

}  // namespace spillway
