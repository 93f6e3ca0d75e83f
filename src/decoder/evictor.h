// The graph that makes room in a full cache: attention sink (runtime/evict.h) as
// operations of the HTP.

#ifndef SPILLWAY_DECODER_EVICTOR_H_
#define SPILLWAY_DECODER_EVICTOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "model/config.h"
#include "spillway/status.h"

namespace spillway {

struct EvictorOptions {
  std::string name;  // of the graph
  uint32_t kv_heads = 0, head_dim = 0;
  // Tokens that a cache input has room for: the context length less one.
  uint32_t columns = 0;
  // Columns [sink, sink + batch) go; sink + batch < columns, batch at least 1.
  uint32_t sink = 0, batch = 0;
  DType dtype = DType::kU8;    // of the cache: kU8, kU16 or kF16
  std::vector<Encoding> k, v;  // a layer; of kU8 and kU16
  uint32_t layers = 0;
  RopeConfig rope;
  // Not empty: cached keys are rotary keys k times this orthogonal matrix O [head_dim,
  // head_dim], row-major: cached_n = sum_d O[n, d] k_d.
  std::vector<float> key_rotation;
};

// Inputs: k_cache_<layer> [1, kv_heads, head_dim, columns] of each layer, then
// v_cache_<layer> [1, kv_heads, columns, head_dim]. Outputs k_kept_<layer> and
// v_kept_<layer> in that order, of the same shapes, types and encodings: columns from
// sink + batch on moved to sink, keys turned back by `batch` positions; what the last
// `batch` columns hold means nothing. Quantised from the start, and legal on the HTP:
// 8-bit keys are turned in 1/256 of their step and rounded to it, so that the result is
// that of KvCache::Evict, bit for bit without a key_rotation. kInvalidArgument names what
// is out of range.
Result<Graph> BuildEvictor(const EvictorOptions& options);

}  // namespace spillway

#endif  // SPILLWAY_DECODER_EVICTOR_H_
