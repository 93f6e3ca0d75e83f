// The ABI of libQnnSystem.so: its function table, and the structures that
// describe the contents of a context binary, HTP's own records among them.
// See abi.h for the rules.

#ifndef SPILLWAY_QNN_API_ABI_SYSTEM_H_
#define SPILLWAY_QNN_API_ABI_SYSTEM_H_

#include <cstdint>

#include "qnn/api/abi.h"

namespace spillway::qnn::abi {

struct GraphInfoV1 {
  const char* name;
  uint32_t num_inputs;
  Tensor* inputs;
  uint32_t num_outputs;
  Tensor* outputs;
};

struct GraphInfoV2 {
  const char* name;
  uint32_t num_inputs;
  Tensor* inputs;
  uint32_t num_outputs;
  Tensor* outputs;
  uint32_t num_updateable;
  Tensor* updateable;
};

struct GraphInfoV3 {
  const char* name;
  uint32_t num_inputs;
  Tensor* inputs;
  uint32_t num_outputs;
  Tensor* outputs;
  uint32_t num_updateable;
  Tensor* updateable;
  uint32_t blob_size;
  void* blob;  // GraphBlob records
  uint32_t start_op, end_op;
};

struct GraphInfo {
  uint32_t version;  // 1, 2 or 3
  union {
    GraphInfoV1 v1;
    GraphInfoV2 v2;
    GraphInfoV3 v3;
  };
};

struct BinaryInfoV1 {
  uint32_t backend_id;
  const char* build_id;
  Version core, backend;
  const char* soc_version;
  Version hw_blob_version, context_blob_version;
  uint32_t hw_blob_size;
  void* hw_blob;  // HwBlob records
  uint64_t context_blob_size;
  uint32_t num_context_tensors;
  Tensor* context_tensors;
  uint32_t num_graphs;
  GraphInfo* graphs;
};

struct BinaryInfoV2 {
  uint32_t backend_id;
  const char* build_id;
  Version core, backend;
  const char* soc_version;
  Version hw_blob_version, context_blob_version;
  uint32_t hw_blob_size;
  void* hw_blob;
  uint64_t context_blob_size;
  uint32_t num_context_tensors;
  Tensor* context_tensors;
  uint32_t num_graphs;
  GraphInfo* graphs;
  PlatformInfo* platform;
};

struct BinaryInfoV3 {
  uint32_t backend_id;
  const char* build_id;
  Version core, backend;
  const char* soc_version;
  Version context_blob_version;
  uint64_t context_blob_size;
  uint32_t num_context_tensors;
  Tensor* context_tensors;
  uint32_t num_graphs;
  GraphInfo* graphs;
  PlatformInfo* platform;
  uint32_t metadata_size;
  void* metadata;  // ContextBlob
  uint32_t soc_model;
};

struct BinaryInfo {
  uint32_t version;  // 1, 2 or 3
  union {
    BinaryInfoV1 v1;
    BinaryInfoV2 v2;
    BinaryInfoV3 v3;
  };
};

// HTP's description of a graph. A graph's blob holds a version-1 record and,
// right behind it, a version-2 record.
struct GraphBlobV1 {
  uint32_t version;  // 1
  uint64_t spill_fill_bytes;
  uint32_t vtcm_bytes;
  uint32_t optimization_level;
  uint8_t dlbc;
  uint64_t hvx_threads;  // 0: the default
};

struct GraphBlobV2 {
  uint32_t version;  // 2
  uint64_t native_k_channels, native_v_channels;
  uint32_t is_safe_to_share_io;
  uint64_t io_tensor_bytes;
  uint64_t op_data_bytes;
  uint64_t const_bytes;
  uint64_t ddr_tensor_bytes;
  uint64_t shared_weight_bytes;
};

struct HwBlob {
  uint32_t version;  // 1
  alignas(8) uint32_t graph_index;
  uint64_t spill_fill_bytes;
};

struct ContextBlob {
  uint32_t version;  // 1
  uint32_t dsp_arch;
};

struct SystemFunctions {
  Error (*context_create)(Handle*);
  Error (*context_get_binary_info)(Handle, void*, uint64_t, const BinaryInfo**, uint64_t*);
  Error (*context_get_metadata)(Handle, const void*, uint64_t, const BinaryInfo**);
  Error (*context_free)(Handle);
  Error (*tensor_get_memory_footprint)(Tensor, uint64_t*);
  Error (*log_create)(LogCallback, LogLevel, Handle*);
  Error (*log_set_level)(Handle, LogLevel);
  Error (*log_free)(Handle);
  // Model container and profile serialisation: eight entries, not used.
  void* unused[8];
};

// What QnnSystemInterface_getProviders hands out.
struct SystemInterface {
  uint32_t backend_id;
  const char* provider_name;
  Version version;
  SystemFunctions fn;
};
using GetSystemProviders = Error (*)(const SystemInterface***, uint32_t*);
inline constexpr char kGetSystemProvidersSymbol[] = "QnnSystemInterface_getProviders";

}  // namespace spillway::qnn::abi

#endif  // SPILLWAY_QNN_API_ABI_SYSTEM_H_
