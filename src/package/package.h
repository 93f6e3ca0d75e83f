// The package: what `compile` writes and `run` opens. A folder:
//
//   manifest.json    what it is, for which model, SoC and options; the size and
//                    hash of every other file but report.json
//   graphs.fb        the quantised, legalised graphs (FlatBuffers, graphs.fbs)
//   weights.bin      the constants, each at a 64-byte boundary, as the graphs
//                    say: Linear weights in kPackedN16K4, the rest row-major
//   tokenizer.bin    TokenizerData
//   context_<i>.bin  the vendor's context binary of shard i
//   plain_<i>.bin    the same without weight sharing and SLC, which the x86
//                    simulator can load (only when asked for)
//   evictor.fb, evictor_weights.bin, evictor.bin
//                    the graph attention_sink_evictor, its constants and its context
//                    (only when asked for)
//   report.json      sizes, times and memory of the compile; not verified
//
// The format is written down in docs/package-format.md.

#ifndef SPILLWAY_PACKAGE_PACKAGE_H_
#define SPILLWAY_PACKAGE_PACKAGE_H_

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "graph/graph.h"
#include "model/config.h"
#include "model/tokenizer.h"
#include "spillway/status.h"

namespace spillway {

inline constexpr int kPackageVersion = 1;
inline constexpr char kPrefillGraphName[] = "prefill_forward";
inline constexpr char kDecodeGraphName[] = "kv_forward";
inline constexpr char kEvictorGraphName[] = "attention_sink_evictor";

struct PackageFile {
  std::string name;
  uint64_t bytes = 0;
  std::string hash;  // base/hash.h
};

// One context: the layers [first_layer, first_layer + num_layers).
struct ShardInfo {
  uint32_t first_layer = 0, num_layers = 0;
  std::string context_file;  // empty when compiled without the vendor libraries
  std::string plain_file;    // empty unless asked for
  uint64_t spill_fill_bytes = 0;
  // The largest spill_fill_bytes of all shards, the size of the buffer that their
  // contexts share on the device; the same in all shards. A manifest without it
  // reads as that maximum.
  uint64_t max_spill_fill_bytes = 0;
  uint64_t context_bytes = 0;
  uint64_t weight_bytes = 0;  // of its graphs, shared ones once
};

// The graph that makes room in a full cache (attention sink), for all layers.
struct EvictorInfo {
  uint32_t sink = 0, batch = 0;  // what it was made for
  std::string context_file;      // empty when compiled without the vendor libraries
  uint64_t context_bytes = 0;
};

struct PackageManifest {
  int version = kPackageVersion;
  std::string producer;  // "spillway 0.1.0"

  // The model.
  ModelConfig config;
  std::string model_file;  // base name of the GGUF
  std::string model_hash;

  // The graphs.
  std::string io_profile = "spillway";
  std::string mode;  // "kv" (decode only), "hybrid", "lookahead"
  uint32_t context_len = 0;
  uint32_t prefill_ar_len = 0;  // 0 in mode kv
  uint32_t decode_ar_len = 1;
  // Mode lookahead: the n-gram length, window and cap that decode_ar_len was made for.
  uint32_t lookahead_ngram = 0, lookahead_window = 0, lookahead_gcap = 0;
  std::string recipe;       // "16a8w"
  std::string recipe_json;  // the whole of it: one JSON object, as quantize writes it
  DType kv_dtype = DType::kU8;
  // Name of the constant [vocab, hidden], s8 per channel on axis 0, whose rows
  // are the token embeddings (the output head's weight when tied).
  std::string embedding_tensor;
  // Tokens whose keys and values are constants at the start of the cache. Those
  // are the constants "prefix.k.<layer>" [1, kv_heads, head_dim, P] and
  // "prefix.v.<layer>" [1, kv_heads, P, head_dim], in kv_dtype.
  std::vector<uint32_t> prefix_tokens;

  // The target.
  std::string soc;               // "SM8750"
  std::string htp_options_json;  // one JSON object, as qnn/htp writes it
  bool slc_allocator = false;
  bool weight_sharing = false;
  // What the vendor compiler said of itself: one JSON object, empty without it.
  std::string vendor_json;

  std::vector<ShardInfo> shards;
  std::optional<EvictorInfo> evictor;
  std::vector<PackageFile> files;

  std::string ToJson() const;
  // Checks types, ranges and that names are plain file names.
  static Result<PackageManifest> FromJson(std::string_view text, const std::string& path);
};

class GraphFileWriter;

// Fills a package folder and puts it in place at once. Not thread-safe.
class PackageWriter {
 public:
  static Result<PackageWriter> Create(const std::string& path);
  // Starts with the files of the package at `path`, which it will replace: graphs and
  // tokenizer are there, and AddShard and FinishGraphs are not possible. An evictor is left
  // behind.
  static Result<PackageWriter> Extend(const std::string& path, const PackageManifest& manifest);

  PackageWriter(PackageWriter&& other) noexcept;
  ~PackageWriter();

  // The graphs of the next shard, in order. Their constants are in weights.bin when
  // this returns and need not stay in memory; equal ones are stored once.
  Status AddShard(const std::vector<std::shared_ptr<const Graph>>& graphs);
  // Once, after the last shard: completes graphs.fb and weights.bin. `extra` are
  // constants that no graph uses (an untied embedding).
  Status FinishGraphs(const std::vector<Tensor>& extra);
  Status AddTokenizer(const TokenizerData& data);
  // The graph of PackageManifest::evictor; after FinishGraphs.
  Status AddEvictor(const std::shared_ptr<const Graph>& graph);
  Status AddFile(const std::string& name, std::string_view contents);
  // Where a child process may put a file named `name` of the package.
  std::string PathOf(const std::string& name) const;

  // Hashes the files, writes the manifest (its `files` are filled in here) and
  // exchanges the folder with its place.
  Status Commit(PackageManifest manifest);

 private:
  PackageWriter(AtomicFolder folder, std::unique_ptr<GraphFileWriter> graphs);
  AtomicFolder folder_;
  std::unique_ptr<GraphFileWriter> graphs_;  // writes into folder_; null when finished
};

struct OpenOptions {
  // Compare the hashes of files, not only their sizes.
  bool verify = true;
  // Check the vendor's context binaries, too, which the host does not read: without, they need
  // not even be there.
  bool verify_contexts = true;
  // Open() returns while hashes are still being compared: ask Verified() before what the
  // package gives is shown or kept.
  bool verify_in_background = false;
};

// An opened package. The files stay mapped while it lives. Const methods are
// thread-safe. Destruction waits for a comparison of hashes.
class Package {
 public:
  // Errors say which file is wrong, what was found and what was expected.
  static Result<std::shared_ptr<const Package>> Open(const std::string& path,
                                                     OpenOptions options = {});

  // Waits until the hashes are compared: kCorruptData names a file that is damaged. OK
  // when they are not to be compared.
  Status Verified() const;

  const std::string& path() const { return path_; }
  const PackageManifest& manifest() const { return manifest_; }
  // The graph `name` of a shard; kNotFound lists those that exist. Constants
  // point into the mapped weights and keep the mapping alive.
  Result<std::shared_ptr<const Graph>> FindGraph(uint32_t shard, std::string_view name) const;
  // The graph of manifest().evictor; null without one.
  const std::shared_ptr<const Graph>& evictor() const { return evictor_; }
  // The tensor that manifest().embedding_tensor names.
  const Tensor& embedding() const { return embedding_; }
  // One a layer; empty without prefix_tokens.
  const std::vector<Tensor>& prefix_k() const { return prefix_k_; }
  const std::vector<Tensor>& prefix_v() const { return prefix_v_; }
  const std::shared_ptr<const TokenizerData>& tokenizer_data() const { return tokenizer_; }
  std::string PathOf(const std::string& name) const;
  bool HasFile(const std::string& name) const;

 private:
  Package() = default;
  std::string path_;
  PackageManifest manifest_;
  std::vector<std::vector<std::shared_ptr<const Graph>>> graphs_;
  std::shared_ptr<const Graph> evictor_;
  Tensor embedding_;
  std::vector<Tensor> prefix_k_, prefix_v_;
  std::shared_ptr<const TokenizerData> tokenizer_;
  std::shared_future<Status> verified_;  // not valid: nothing to verify
};

// Only the graphs and weights of a package folder that may still be in the
// making (no manifest needed): what a compiling child process reads.
Result<std::vector<std::vector<std::shared_ptr<const Graph>>>> ReadGraphs(
    const std::string& folder);
// Likewise the evictor's graph, which must be there.
Result<std::shared_ptr<const Graph>> ReadEvictor(const std::string& folder);

}  // namespace spillway

#endif  // SPILLWAY_PACKAGE_PACKAGE_H_
