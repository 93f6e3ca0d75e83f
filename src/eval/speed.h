// How fast the host executor runs a package: prompts, tokens one by one, and those
// after many others, alone or in turns with llama.cpp.

#ifndef SPILLWAY_EVAL_SPEED_H_
#define SPILLWAY_EVAL_SPEED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "package/package.h"
#include "spillway/status.h"

namespace spillway {

class LlamaCpp;

// What is timed: a prompt of `prompt` tokens from an empty context (0: none), or
// `decode` tokens fed one by one when `depth` tokens are there. Tokens are arbitrary; only
// the last one of a prompt gets logits. The names are llama-bench's.
struct SpeedTest {
  uint32_t prompt = 0;
  uint32_t decode = 0;
  uint32_t depth = 0;

  uint32_t tokens() const { return prompt + decode; }
  std::string name() const;  // "pp128", "tg128", "tg32 @ d512"
  friend bool operator==(const SpeedTest&, const SpeedTest&) = default;
};

// Of at least one value.
struct Spread {
  double min = 0, median = 0, max = 0;
  static Spread Of(std::vector<double> values);
};

struct SpeedFigure {
  SpeedTest test;
  Spread tokens_per_s;
  double ms_per_token = 0;  // of the median
  // Prompts: multiply-adds of the weight products a second (the median's), the output
  // head's for one token. Padding and attention are not counted.
  double multiply_adds_per_s = 0;
  // Single tokens: weight bytes read a second (the median's).
  double weight_bytes_per_s = 0;
  // With a peer: its figures, and of ours over its, round by round.
  std::optional<Spread> peer_tokens_per_s, ratio;
};

struct ThreadSpeed {
  size_t threads = 0;
  std::string executor;  // "host, 16a8w, 2 threads"
  std::vector<SpeedFigure> figures;
  // Bytes a second; 0 when not measured. From memory: a buffer larger than any cache; like
  // the weights: one as large as the weights, of which a large cache may keep a part.
  double memory_bandwidth = 0, weights_bandwidth = 0;
  uint64_t peak_rss_bytes = 0;  // of this process while the tests ran (see ResetPeakRss)
};

struct SpeedReport {
  std::vector<ThreadSpeed> threads;
  std::vector<std::string> remarks;  // what was left out or runs in another way, and why
  uint64_t weight_bytes = 0;         // that one decode step reads
  uint64_t kv_cache_bytes = 0;
  uint64_t bandwidth_buffer_bytes = 0;
  std::string peer;  // what it is and runs: program, version, model; empty: none
};

struct SpeedOptions {
  std::vector<uint32_t> threads = {0};  // 0: all processors
  uint32_t repetitions = 5;             // rounds; each runs all tests once
  std::vector<uint32_t> prompts = {32, 128, 512};
  uint32_t decode = 128;  // 0: none
  // Single tokens when so many are there (the prefix counts), and how many of them.
  std::vector<uint32_t> depths;
  uint32_t depth_tokens = 32;
  // Buffer for the bandwidth of memory; not set: twice the last cache, at least 256 MiB;
  // 0: do not measure.
  std::optional<uint64_t> bandwidth_bytes;
  const LlamaCpp* peer = nullptr;  // runs the same tests, in turns with ours
};

// Each test runs once before it counts. Tests that the context has no room for are left
// out and said so in `remarks`; kInvalidArgument when none is left.
Result<SpeedReport> MeasureSpeed(std::shared_ptr<const Package> package,
                                 const SpeedOptions& options, Progress* progress);

}  // namespace spillway

#endif  // SPILLWAY_EVAL_SPEED_H_
