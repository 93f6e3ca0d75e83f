// What is inside a context binary, read with the vendor's system library or from
// its raw structures. Works for every binary, also those that this machine
// cannot load.

#ifndef SPILLWAY_QNN_API_BINARY_INFO_H_
#define SPILLWAY_QNN_API_BINARY_INFO_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qnn/api/abi_system.h"
#include "qnn/api/library.h"
#include "qnn/api/tensor.h"
#include "spillway/status.h"

namespace spillway::qnn {

// HTP's own account of a graph; older libraries leave parts of it out.
struct GraphMemory {
  uint64_t spill_fill_bytes = 0;  // the DDR buffer for values that VTCM has no room for
  uint64_t vtcm_bytes = 0;
  uint32_t optimization_level = 0;
  bool dlbc = false;
  uint64_t hvx_threads = 0;  // 0: the default
  // Of the vendor's own layout for KV caches, which our graphs do not use.
  uint64_t native_k_channels = 0, native_v_channels = 0;
  bool safe_to_share_io = false;  // inputs and outputs may lie in the same memory
  uint64_t io_tensor_bytes = 0;
  uint64_t op_data_bytes = 0;
  uint64_t const_bytes = 0;  // weights of this graph alone
  uint64_t ddr_tensor_bytes = 0;
  uint64_t shared_weight_bytes = 0;  // weights shared with the context's other graphs
};

struct BinaryGraph {
  std::string name;
  std::vector<TensorInfo> inputs, outputs;  // in the graph's own order
  std::optional<GraphMemory> memory;
};

struct BinaryInfo {
  uint32_t version = 0;  // of the vendor's structure: 1, 2 or 3
  uint32_t backend_id = 0;
  std::string build_id;  // of the library that made it
  abi::Version core_api = {}, backend_api = {};
  std::string soc_version;
  uint32_t soc_model = 0;  // 0 when not said (versions 1 and 2)
  uint32_t dsp_arch = 0;   // like 79; 0 when not said
  abi::Version context_blob_version = {};
  uint64_t context_blob_bytes = 0;
  std::vector<BinaryGraph> graphs;
  // The largest of the graphs: they run one after the other and share it.
  uint64_t spill_fill_bytes = 0;

  // Null when there is none of that name.
  const BinaryGraph* FindGraph(std::string_view name) const;
};

// From the vendor's structure. kUnsupported for a version that is not known (the
// message has the found and the known ones), kCorruptData for counts without
// data or records that end behind their blob. `raw` and all that it points at
// must be readable.
Result<BinaryInfo> ReadBinaryInfo(const abi::BinaryInfo& raw);

// From the bytes of a context binary, through the system library. `what` names
// the bytes in errors, for example the path of their file.
Result<BinaryInfo> ReadBinaryInfo(const SystemLibrary& library, std::span<const std::byte> binary,
                                  const std::string& what);

// From a file.
Result<BinaryInfo> ReadBinaryInfoFile(const SystemLibrary& library, const std::string& path);

}  // namespace spillway::qnn

#endif  // SPILLWAY_QNN_API_BINARY_INFO_H_
