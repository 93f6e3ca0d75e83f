// Compile: a GGUF file to a package.

#ifndef SPILLWAY_COMPILE_H_
#define SPILLWAY_COMPILE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/decoding.h"
#include "spillway/export.h"
#include "spillway/options.h"
#include "spillway/status.h"

namespace spillway {

// Whether to make context binaries with the vendor's compiler.
enum class HtpBuild {
  kAuto,  // when the vendor libraries are found; otherwise say so and go on
  kOn,    // fail without them
  kOff,   // a package for the host only
};

struct CompileOptions {
  std::string model_path;
  std::string output_path;  // the package folder; replaced as a whole

  // "hybrid": prefill_forward with prefill_ar_len tokens a call and kv_forward
  // with one; "kv": kv_forward only; "lookahead": as hybrid, with the AR length that
  // lookahead decoding needs for kv_forward.
  std::string mode = "hybrid";
  uint32_t prefill_ar_len = 32;
  LookaheadSizes lookahead = {3, 4, 4};  // of mode lookahead
  uint32_t context_len = 512;            // columns of the attention mask
  std::string io_profile = "spillway";

  // A built-in recipe or a JSON file (docs/recipes.md).
  std::string recipe = "16a8w";
  // Mixed precision: raises weights of the recipe from 4 to 8 bits where it pays most, while
  // they have at most so many bits on average, those raised have at most so many bytes, and until
  // the logits have that SQNR in dB; all 0: what the recipe says.
  double target_bits = 0;
  uint64_t max_raised_bytes = 0;
  double target_sqnr_db = 0;
  // File that the recipe is written to as it was used, rules found included; empty: none.
  std::string recipe_output;
  uint32_t kv_bits = 0;  // 8 or 16; 0: what the recipe says
  // Files to calibrate with, like what the model will see: text, or conversations
  // (*.json, *.jsonl: messages with "role" and "content"). Empty: the built-in text.
  std::vector<std::string> calib_paths;
  // At most so many; 0: 1024, or 4096 for a recipe whose weights are chosen with
  // activations at hand.
  uint32_t calib_tokens = 0;

  // The leading tokens whose keys and values are computed in float and kept in the
  // cache as a constant: "auto" (the first token of the chat template when its
  // activations are massive), "none", or ids: "1" or "1,2".
  std::string prefix_tokens = "auto";

  // Set: also the graph that makes room in a full context on the HTP (attention sink), and
  // conversations with the package go on by default. With a prefix, that is the sink.
  std::optional<AttentionSink> attention_sink;

  // The layers are split, evenly by bytes, into so many shards, each a context of its
  // own; 0: the smallest number for which no context is estimated to need more than
  // shard_limit_bytes.
  uint32_t num_shards = 0;
  uint64_t shard_limit_bytes = 3'500'000'000;

  HtpBuild htp_build = HtpBuild::kAuto;
  HtpOptions htp;
  std::string qnn_lib_dir;         // empty: SPILLWAY_QNN_LIB_DIR, then .deps/
  bool with_simulator = false;     // also a plain context that the x86 simulator can load
  bool in_process = false;         // run the vendor library in this process
  double vendor_timeout_s = 3600;  // for one context; then its process is killed
  // Contexts that are compiled at the same time, each in a process of its own; 0: as
  // many as processors and free memory allow.
  uint32_t jobs = 0;
  // Finished contexts are kept in a folder, so that a compile that was interrupted goes
  // on where it was. Empty: see `spillway cache --help`.
  bool use_cache = true;
  std::string cache_dir;

  uint32_t threads = 0;  // 0: all processors
};

// What the SLC allocator did for a graph.
enum class SlcOutcome {
  kOff,
  kNothingToKeep,  // on, but the graph moves no data that could stay in the cache
  kMarked,         // on: transfers are marked to be kept
};

// How a compile decided on the SLC allocator.
struct SlcReport {
  SlcAllocator requested = SlcAllocator::kOff;
  bool used = false;
  // "yes", "no" or "unknown": whether the SoC is known to profit, and who says so.
  std::string soc_support, soc_source;
  std::string reason;  // why it is used or not, in one sentence
  // Graphs whose transfers were marked when it was tried: "shard 0, kv_forward".
  std::vector<std::string> marked_graphs;
};

// One event of the vendor's profile of a preparation. Events are trees: the parts of an
// event follow it, one level deeper.
struct ProfileRow {
  uint32_t depth = 0;
  uint32_t type = 0;  // the vendor's number of the event
  std::string name;   // may be empty
  uint64_t value = 0;
  std::string unit;  // "us", "cycles", "bytes", "count" or empty
};

struct GraphReport {
  std::string name;
  uint64_t spill_bytes = 0, fill_bytes = 0, read_bytes = 0, write_bytes = 0;  // DDR, a call
  double finalize_s = 0;
  uint64_t spill_fill_buffer_bytes = 0;
  uint64_t vtcm_bytes = 0;
  uint64_t nodes = 0;  // vendor nodes
  // The vendor's estimate of one call in microseconds; 0 where the SoC has none.
  double estimate_us = 0;
  SlcOutcome slc = SlcOutcome::kOff;
  std::vector<ProfileRow> profile;  // empty without HtpOptions::profile_level
};

struct ShardReport {
  uint32_t first_layer = 0, num_layers = 0;
  uint64_t spill_fill_bytes = 0;  // the largest of its graphs
  uint64_t context_bytes = 0;
  uint64_t weight_bytes = 0;
  bool from_cache = false;  // not compiled this time
  // What the vendor's saver wrote, with HtpOptions::saver_dir; then there is no context.
  std::vector<std::string> saver_files;
  std::vector<GraphReport> graphs;
};

// What the search for a recipe of mixed precision found.
struct MixedReport {
  double bits = 0;                  // of a weight of the decoder, on average; block scales counted
  double sqnr_db = 0;               // of the logits, weights quantised and activations float
  double base_sqnr_db = 0;          // the same before anything was raised
  bool target_met = true;           // of target_sqnr_db
  std::vector<std::string> raised;  // operations, those that it helps most first
};

// The graph attention_sink_evictor, a context of its own.
struct SPILLWAY_EXPORT EvictorReport {
  uint32_t sink = 0, batch = 0;  // as used: the sink is the prefix where there is one
  uint64_t context_bytes = 0;    // 0: no context
  std::string htp_left_out;      // why there is no context; empty when there is one
  GraphReport graph;

  std::string ToJson() const;  // one object
  std::string ToText() const;  // for people
};

struct SPILLWAY_EXPORT CompileReport {
  std::string package_path;
  std::string soc;
  std::vector<std::string> graphs;
  std::vector<ShardReport> shards;
  // The largest of all shards and graphs: the size of the buffer that they share.
  uint64_t max_spill_fill_bytes = 0;
  SlcReport slc;
  // Why there is no context binary; empty when there is one.
  std::string htp_left_out;
  std::vector<uint32_t> prefix_tokens;  // see CompileOptions; empty: none
  std::optional<MixedReport> mixed;     // of a recipe that was searched
  std::optional<EvictorReport> evictor;  // see CompileOptions::attention_sink
  std::string vendor_build_id;
  double wall_s = 0, calibrate_s = 0, quantize_s = 0, write_s = 0;
  double vendor_s = 0;           // everything in the vendor's process
  double vendor_finalize_s = 0;  // inside its graphFinalize
  uint64_t peak_rss_bytes = 0;   // this process and its children, summed
  uint64_t package_bytes = 0;

  std::string ToJson() const;  // one object
  std::string ToText() const;  // for people
};

// What a compile would need, without doing it.
struct SPILLWAY_EXPORT CompileEstimate {
  std::string model_name, architecture, soc;
  uint32_t shards = 1;
  uint64_t parameters = 0;
  uint64_t weight_bytes = 0;   // quantised, in the package
  uint64_t context_bytes = 0;  // of the context binaries, all
  uint64_t package_bytes = 0;
  uint64_t kv_cache_bytes = 0;
  uint64_t peak_rss_bytes = 0;  // of the compile
  double wall_s = 0;
  std::string ToJson() const;
  std::string ToText() const;
};

// Called with what is being done and the fraction of it that is done (negative:
// unknown). May be called from several threads, one at a time.
using ProgressCallback = std::function<void(std::string_view stage, double fraction)>;

// Compiles. Blocks; may be called from several threads for different outputs.
// On failure nothing is left at or beside the output path.
SPILLWAY_EXPORT Result<CompileReport> Compile(const CompileOptions& options,
                                              const ProgressCallback& progress = nullptr);

struct AddEvictorOptions {
  std::string package_path;
  AttentionSink sink;
  HtpBuild htp_build = HtpBuild::kAuto;
  std::string qnn_lib_dir;  // empty: SPILLWAY_QNN_LIB_DIR, then .deps/
  bool in_process = false;  // run the vendor library in this process
  double vendor_timeout_s = 3600;
};

// Gives a package what CompileOptions::attention_sink gives it, in place of an evictor that
// it has. The package is replaced at once; on failure it stays as it was.
SPILLWAY_EXPORT Result<EvictorReport> AddEvictor(const AddEvictorOptions& options,
                                                 const ProgressCallback& progress = nullptr);

// Checks the options and the model like Compile and says what it would take.
SPILLWAY_EXPORT Result<CompileEstimate> EstimateCompile(const CompileOptions& options);

}  // namespace spillway

#endif  // SPILLWAY_COMPILE_H_
