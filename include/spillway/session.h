// Session: opens a package and answers prompts.
//
//   spillway::SessionOptions options;
//   options.package_path = "pkg";
//   SPILLWAY_ASSIGN_OR_RETURN(auto session, spillway::Session::Open(options));
//   SPILLWAY_ASSIGN_OR_RETURN(
//       spillway::Answer answer,
//       session->Generate("Hello", {}, [](std::string_view piece) {
//         std::cout << piece << std::flush;
//         return true;
//       }));

#ifndef SPILLWAY_SESSION_H_
#define SPILLWAY_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/decoding.h"
#include "spillway/export.h"
#include "spillway/options.h"
#include "spillway/status.h"

namespace spillway {

// How executor htp runs a package. What is not set is as the package says: the
// options that it was compiled with.
struct HtpRunOptions {
  std::optional<GraphPriority> priority;
  std::optional<PdSession> pd_session;
  // From the load until the session ends.
  std::optional<PerformanceMode> performance;
  std::optional<uint32_t> rpc_polling_us, rpc_control_latency_us, sleep_latency_us;
  // See RunStats::graphs.
  std::optional<ProfileLevel> profile_level;
  std::optional<VendorLogLevel> log_level;
  // Build the graphs where they run instead of loading context binaries: seconds to
  // minutes, for any package, also one whose binaries the x86-64 simulator cannot load
  // (shared weights, SLC allocator). Packages compiled for it always do.
  bool online_prepare = false;

  friend bool operator==(const HtpRunOptions&, const HtpRunOptions&) = default;
};

struct SessionOptions {
  std::string package_path;
  // "host": the model's integers on this CPU; always there. "htp": the vendor's
  // library, on x86-64 its simulator.
  std::string executor = "host";
  uint32_t threads = 0;  // of executor host; 0: all processors
  // Compare the hashes of the files that the executor reads; sizes are compared always.
  bool verify = true;

  // Set: a conversation goes on when the context is full, and a prompt may be longer; a batch
  // of 0: not. Not set: as the package was compiled (its evictor), otherwise not. The package's
  // evictor does the work where sink and batch are those it was made for, this process's own
  // code where not.
  std::optional<AttentionSink> attention_sink;
  // Sizes of lookahead decoding, which gives the same answers in fewer calls; at most what
  // the package's kv_forward takes. Not set: as the package was compiled (mode lookahead),
  // otherwise none. An n-gram of 0: none.
  std::optional<LookaheadSizes> lookahead;

  // Executor htp only.
  std::string qnn_lib_dir;          // empty: SPILLWAY_QNN_LIB_DIR, then .deps/
  bool in_process = false;          // no child process: a crash of the vendor library is ours
  double load_timeout_s = 600;      // for the context binaries; then their process is killed
  double prepare_timeout_s = 3600;  // for online prepare; likewise
  double execute_timeout_s = 120;   // for one call of a graph; likewise
  HtpRunOptions htp;

  // Not empty: every tensor that a step computes is written there, as
  // <step>/<graph>/<tensor>.bin (little-endian, row-major) with their names, types,
  // shapes and encodings in tensors.json beside them. Both executors give a tensor the
  // same name. On htp only tensors that the compiler made outputs: packages compiled with
  // HtpOptions::dump_intermediates, or online_prepare. The folder must be new or empty.
  std::string dump_dir;

  // Called while Open loads: what is being done and the fraction done (negative:
  // unknown). From any thread, one call at a time.
  std::function<void(std::string_view stage, double fraction)> progress;
};

struct ChatTurn {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct RunOptions {
  uint32_t max_new_tokens = 0;  // 0: up to the end of the context
  // How the next token is picked from the logits, in this order. The n-th token of an
  // answer depends on the logits, these options and the seed only: the same on every
  // executor that gives the same logits.
  //
  // Repetition: a positive logit of a token of the prompt or the answer is divided by
  // it, another one multiplied. 1: none; 0, negative and not finite: an error.
  double repetition_penalty = 1.0;
  // Taken off the logit of every token that the answer has. 0: none; not finite: an error.
  double presence_penalty = 0.0;
  // Added to logits, by token id; -infinity bans a token. A token outside the vocabulary,
  // +infinity and NaN: an error.
  std::vector<std::pair<uint32_t, float>> logit_bias;
  // 0: the best token always (the lower id of equals), and what follows does nothing.
  // Negative or not finite: an error.
  double temperature = 0.8;
  uint32_t top_k = 40;  // the k best tokens; 0: all
  // The best tokens that together reach this probability. 1 and more: all; 0 and less:
  // the best one; NaN: an error.
  double top_p = 0.95;
  // Tokens with at least this share of the best one's probability. 0 and less: all;
  // 1 and more: the best one and its equals; NaN: an error.
  double min_p = 0.0;
  uint64_t seed = 0;
  bool ignore_eos = false;  // go on after an end token
  // Text only: put before the user's turn.
  std::optional<std::string> system_prompt;
  // Text only: no chat template; the text itself is continued (after BOS when the
  // model wants one).
  bool raw_prompt = false;
  // With raw_prompt: the texts of control tokens in the prompt become control
  // tokens. Never for text of users.
  bool parse_special = false;
  // Asked before every call of a graph, also while the prompt is processed; true ends
  // the answer ("cancelled") and keeps what there is of it. Called on the caller's thread.
  std::function<bool()> should_stop;
  // Called while the prompt is processed: a name and the fraction done.
  std::function<void(std::string_view stage, double fraction)> progress;
};

// What the vendor's profile says of all calls of one graph in one shard. On the x86-64
// simulator the cycles are the host's and mean nothing for a device.
struct GraphProfile {
  std::string graph;  // "kv_forward"
  uint32_t shard = 0;
  uint64_t calls = 0;
  // Sums; 0 where the vendor says nothing.
  uint64_t total_us = 0, accelerator_us = 0, cycles = 0;
  // At level kDetailed: the vendor's operations that took most cycles, at most 20.
  std::vector<std::pair<std::string, uint64_t>> operations;
};

struct SPILLWAY_EXPORT RunStats {
  double load_s = 0;  // Session::Open
  // From the call of Generate to the first token.
  double time_to_first_token_s = 0;
  uint32_t prefill_tokens = 0;  // of the prompt that were run
  uint32_t reused_tokens = 0;   // of the prompt that were still cached
  double prefill_s = 0, prefill_tokens_per_s = 0;
  uint32_t decode_steps = 0;   // calls of the decode graph after the prompt
  uint32_t decode_tokens = 0;  // picked in them: more than steps with lookahead decoding
  double tokens_per_step = 0;
  double decode_s = 0, decode_tokens_per_s = 0;
  // Of weights that a decode step reads, and how fast they went by.
  uint64_t weight_bytes = 0;
  double weight_bytes_per_s = 0;
  // Tokens in the cache after the answer (the prefix included), of how many.
  uint32_t context_used = 0, context_len = 0;
  // Of this conversation: tokens that the attention sink has forgotten, in how many goes.
  uint32_t evicted_tokens = 0, evictions = 0;
  uint64_t kv_cache_bytes = 0;       // of all layers, as the executor holds it
  uint64_t peak_rss_bytes = 0;       // of this process
  std::string executor;              // "host, 16a8w, 2 threads"
  std::vector<GraphProfile> graphs;  // executor htp with a profile level only

  std::string ToJson() const;  // one object with the names of these fields
};

struct Answer {
  std::vector<uint32_t> prompt_tokens;
  std::vector<uint32_t> tokens;  // without the end token
  // Ill-formed UTF-8 of the model is U+FFFD in it.
  std::string text;
  // "end_of_text", "context_full", "max_new_tokens" or "cancelled".
  std::string stop_reason;
  RunStats stats;
};

// Called with each new piece of text (whole UTF-8 characters); false stops.
using TextCallback = std::function<bool(std::string_view piece)>;

// One conversation at a time; not thread-safe. The cache of keys and values is
// kept between calls: a prompt that begins like the one before (the next turn of
// a conversation) runs only what is new.
class SPILLWAY_EXPORT Session {
 public:
  // Loads everything. Errors name the file or option that is wrong.
  static Result<std::unique_ptr<Session>> Open(const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Answers the last turn of a conversation, rendered with the model's own chat
  // template. What a turn says never becomes a control token. kInvalidArgument:
  // an option is wrong or the prompt has as many tokens as the context or more
  // (says both numbers).
  Result<Answer> Generate(std::span<const ChatTurn> turns, const RunOptions& options,
                          const TextCallback& on_text = nullptr);
  // One user turn, or with RunOptions::raw_prompt the text itself.
  Result<Answer> Generate(std::string_view text, const RunOptions& options,
                          const TextCallback& on_text = nullptr);
  // Continues these tokens.
  Result<Answer> GenerateFromTokens(std::span<const uint32_t> prompt, const RunOptions& options,
                                    const TextCallback& on_text = nullptr);

  // The tokens that Generate would start with.
  Result<std::vector<uint32_t>> PromptTokens(std::span<const ChatTurn> turns) const;
  Result<std::vector<uint32_t>> PromptTokens(std::string_view text,
                                             const RunOptions& options) const;

  // Forgets the cached conversation.
  void Reset();

  uint32_t context_len() const;
  uint32_t vocab_size() const;
  // What runs the model: "host, 16a8w, 2 threads".
  std::string Describe() const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway

#endif  // SPILLWAY_SESSION_H_
