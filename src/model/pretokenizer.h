// Pretokenizer: cuts text into the pieces that BPE never joins across.

#ifndef SPILLWAY_MODEL_PRETOKENIZER_H_
#define SPILLWAY_MODEL_PRETOKENIZER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "spillway/status.h"

namespace spillway {

class Pretokenizer {
 public:
  // `name` is the value of tokenizer.ggml.pre. Another name than the known ones
  // is kUnsupported; the message lists them.
  static Result<std::unique_ptr<const Pretokenizer>> Create(std::string_view name);
  ~Pretokenizer();

  // Calls `visit` with the pieces of `text`, which is valid UTF-8, in order. They
  // cover it without gaps. Const and safe from several threads.
  void Split(std::string_view text, const std::function<void(std::string_view)>& visit) const;

  // A piece that is itself a token becomes it without merging (llama-bpe).
  bool ignore_merges() const;
  // Whether BOS is put before a prompt when the file does not say.
  static bool DefaultAddBos(std::string_view name);

 private:
  struct Impl;
  explicit Pretokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway

#endif  // SPILLWAY_MODEL_PRETOKENIZER_H_
