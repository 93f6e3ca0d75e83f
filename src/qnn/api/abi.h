// The vendor's C ABI in our own words: the structures and function tables that
// libQnnHtp.so and libQnnSystem.so exchange with their caller.
//
// Layouts are those of core API 2.32 (LP64, natural alignment), which every
// library from core 2.32 to 2.40 accepts. Sizes and offsets are checked at
// compile time in abi_layout.cc. A function table is read through the
// provider's pointer only: later libraries append entries, so it is never
// copied. Config lists are arrays of pointers that end with a null pointer. Where
// the vendor nests a structure behind a version word, alignas keeps its place.
// Nothing outside src/qnn needs this header.

#ifndef SPILLWAY_QNN_API_ABI_H_
#define SPILLWAY_QNN_API_ABI_H_

#include <cstdarg>
#include <cstdint>

namespace spillway::qnn::abi {

// 0 is success; the low 16 bits are the code (errors.h has the words).
using Error = uint64_t;
// Every object of the vendor is an opaque pointer.
using Handle = void*;

inline constexpr uint32_t kUndefined = 0x7fffffff;
inline constexpr uint32_t kHtpBackendId = 6;

struct Version {
  uint32_t major, minor, patch;
};

struct ApiVersion {
  Version core, backend;
};

// ---- Tensors -------------------------------------------------------------

enum class DataType : uint32_t {
  kInt8 = 0x0008,
  kInt16 = 0x0016,
  kInt32 = 0x0032,
  kInt64 = 0x0064,
  kUint8 = 0x0108,
  kUint16 = 0x0116,
  kUint32 = 0x0132,
  kUint64 = 0x0164,
  kFloat16 = 0x0216,
  kBfloat16 = 0x0226,
  kFloat32 = 0x0232,
  kFloat64 = 0x0264,
  kSfixed4 = 0x0304,  // refused by every library tried; see TensorEncoding
  kSfixed8 = 0x0308,
  kSfixed16 = 0x0316,
  kSfixed32 = 0x0332,
  kUfixed4 = 0x0404,
  kUfixed8 = 0x0408,
  kUfixed16 = 0x0416,
  kUfixed32 = 0x0432,
  kBool8 = 0x0508,
  kString = 0x0608,
};

enum TensorType : uint32_t {
  kAppWrite = 0,
  kAppRead = 1,
  kAppReadWrite = 2,
  kNative = 3,
  kStatic = 4,
  kNullTensor = 5,
};

enum TensorMemType : uint32_t { kMemRaw = 0, kMemHandle = 1, kMemRetrieveRaw = 2 };

enum Definition : uint32_t { kImplGenerated = 0, kDefined = 1, kUndefinedDefinition = kUndefined };

enum QuantizationEncoding : uint32_t {
  kScaleOffset = 0,
  kAxisScaleOffset = 1,
  kBwScaleOffset = 2,
  kBwAxisScaleOffset = 3,
  kBlock = 4,
  kBlockwiseExpansion = 5,
  kVector = 6,
  kUndefinedEncoding = kUndefined,
};

// real = scale * (q + offset)
struct ScaleOffset {
  float scale;
  int32_t offset;
};

struct AxisScaleOffset {
  int32_t axis;
  uint32_t count;
  ScaleOffset* scale_offsets;
};

struct BwScaleOffset {
  uint32_t bitwidth;
  float scale;
  int32_t offset;
};

struct BwAxisScaleOffset {
  uint32_t bitwidth;
  int32_t axis;
  uint32_t count;
  float* scales;
  int32_t* offsets;
};

struct BlockEncoding {
  uint32_t* block_size;
  ScaleOffset* scale_offsets;
};

// A float scale per channel, times an unsigned integer per (channel, block).
struct BlockwiseExpansion {
  int32_t axis;
  ScaleOffset* scale_offsets;  // [channels]
  uint32_t blocks_per_axis;
  uint32_t block_scale_bitwidth;
  uint32_t storage_type;  // 0: 8 bit, 1: 16 bit
  union {
    uint8_t* block_scales8;  // [channels][blocks_per_axis]
    uint16_t* block_scales16;
  };
};

struct FloatScaleOffset {
  float scale, offset;
};

struct FloatBlockEncoding {
  uint32_t* block_size;
  FloatScaleOffset* scale_offsets;
};

struct BwFloatBlockEncoding {
  uint32_t bitwidth;
  uint32_t* block_size;
  FloatScaleOffset* scale_offsets;
};

struct QuantizeParams {
  Definition definition;
  QuantizationEncoding encoding;
  union {
    ScaleOffset scale_offset;
    AxisScaleOffset axis;
    BwScaleOffset bw;
    BwAxisScaleOffset bw_axis;
    BlockEncoding block;
    BlockwiseExpansion* blockwise;
    void* pointer;
    FloatBlockEncoding float_block;
    BwFloatBlockEncoding bw_float_block;
  };
};

struct ClientBuffer {
  void* data;
  uint32_t size;
};

struct SparseParams {
  uint32_t type;  // kUndefined for a dense tensor
  uint32_t specified_elements, sparse_dimensions;
};

struct TensorV1 {
  uint32_t id;
  const char* name;
  TensorType type;
  uint32_t data_format;  // 0: dense
  DataType data_type;
  QuantizeParams quantize;
  uint32_t rank;
  uint32_t* dims;
  TensorMemType mem_type;
  union {
    ClientBuffer client;
    Handle mem_handle;
  };
};

// V1 with more at the end.
struct TensorV2 {
  uint32_t id;
  const char* name;
  TensorType type;
  uint32_t data_format;
  DataType data_type;
  QuantizeParams quantize;
  uint32_t rank;
  uint32_t* dims;
  TensorMemType mem_type;
  union {
    ClientBuffer client;
    Handle mem_handle;
  };
  uint8_t* dynamic_dims;
  SparseParams sparse;
  uint8_t is_produced;
};

struct Tensor {
  uint32_t version;  // 1 or 2
  union {
    TensorV1 v1;
    TensorV2 v2;
  };
};

struct TensorSet {
  uint32_t version;  // 1
  alignas(8) uint32_t num_inputs;
  Tensor* inputs;
  uint32_t num_outputs;
  Tensor* outputs;
};

// ---- Operations ----------------------------------------------------------

enum ParamType : uint32_t { kScalarParam = 0, kTensorParam = 1 };

struct Scalar {
  DataType data_type;
  union {
    float f32;
    double f64;
    uint64_t u64;
    int64_t i64;
    uint32_t u32;
    int32_t i32;
    uint16_t u16;
    int16_t i16;
    uint8_t u8;
    int8_t i8;
    uint8_t b8;
    const char* text;
  };
};

struct Param {
  ParamType type;
  const char* name;
  union {
    Scalar scalar;
    Tensor tensor;
  };
};

// Passed by value, 80 bytes.
struct OpConfig {
  uint32_t version;  // 1
  const char* name;
  const char* package;
  const char* type;
  uint32_t num_params;
  Param* params;
  uint32_t num_inputs;
  Tensor* inputs;
  uint32_t num_outputs;
  Tensor* outputs;
};

struct OperationName {
  const char* package;
  const char* name;
  const char* target;
};

// ---- Log -----------------------------------------------------------------

enum LogLevel : uint32_t {
  kLogError = 1,
  kLogWarn = 2,
  kLogInfo = 3,
  kLogVerbose = 4,
  kLogDebug = 5,
};

// printf format, level, time stamp, arguments. There is no user pointer.
using LogCallback = void (*)(const char*, LogLevel, uint64_t, va_list);

// ---- Configurations ------------------------------------------------------

struct ErrorReporting {
  uint32_t level, storage_limit;
};

struct BackendConfig {
  uint32_t option;  // 0 custom, 1 error reporting, 2 platform
  union {
    void* custom;
    ErrorReporting error;
    const char* platform;
  };
};

struct CoreInfo {
  uint32_t version;  // 1
  alignas(8) uint32_t core_id;
  uint32_t core_type;
  void* extension;
};

struct HardwareDeviceInfo {
  uint32_t version;  // 1
  alignas(8) uint32_t device_id;
  uint32_t device_type, num_cores;
  CoreInfo* cores;
  void* extension;
};

struct PlatformInfo {
  uint32_t version;  // 1
  alignas(8) uint32_t num_devices;
  HardwareDeviceInfo* devices;
};

struct DeviceConfig {
  uint32_t option;  // 0 custom, 1 platform info
  union {
    void* custom;
    PlatformInfo* platform;
  };
};

enum Priority : uint32_t {
  kPriorityLow = 0,
  kPriorityNormal = 100,
  kPriorityNormalHigh = 150,
  kPriorityHigh = 200,
};

enum ContextOption : uint32_t {
  kContextCustom = 0,
  kContextPriority = 1,
  kContextErrorReporting = 2,
  kContextOemString = 3,
  kContextQueueDepth = 4,
  kContextEnableGraphs = 5,
  kContextMemoryLimitHint = 6,
  kContextPersistentBinary = 7,
  kContextBinaryCompatibility = 8,
  kContextDeferGraphInit = 9,
  kContextGraphRetentionOrder = 10,
};

struct QueueDepth {
  uint32_t type, depth;
};

struct ContextConfig {
  ContextOption option;
  union {
    void* custom;
    Priority priority;
    ErrorReporting error;
    const char* oem_string;
    QueueDepth queue_depth;
    const char* const* graph_names;
    uint64_t memory_limit;
    uint8_t flag;
    uint32_t compatibility;
  };
};

enum GraphOption : uint32_t {
  kGraphCustom = 0,
  kGraphPriority = 3,
  kGraphProfileHandle = 4,
  kGraphProfilingState = 5,
  kGraphProfilingExecutions = 6,
  kGraphBinarySectionWeights = 7,
};

struct GraphConfig {
  GraphOption option;
  union {
    void* custom;
    Priority priority;
    Handle profile;
    uint32_t number;
    uint8_t flag;
  };
};

// What contextGetProperty, graphGetProperty and backendGetProperty fill.
struct Property {
  uint32_t option;  // 0 custom
  void* custom;
};

struct GlobalConfig {
  uint32_t option;  // 0 SoC model
  uint32_t soc_model;
};

struct ExecuteEnvironment {
  uint32_t option;
  TensorSet tensors;
};

struct NotifyStatus {
  Error error;
};
using NotifyCallback = void (*)(void*, NotifyStatus);

struct ContextParams;  // lists of contexts: not used
struct ContextBinaryCallback;

struct ContextBuffer {
  uint32_t version;  // 1
  alignas(8) uint32_t mem_type;
  union {
    struct {
      void* data;
      uint64_t size;
    } binary;
    Handle mem_handle;
  };
};

struct MemShape {
  uint32_t rank;
  uint32_t* dims;
  const char* config;
};

struct DmaBuffer {
  int32_t fd;
  void* data;
};

struct MemDescriptor {
  MemShape shape;
  DataType data_type;
  uint32_t mem_type;  // 1 ION, 2 custom, 3 DMA buffer
  union {
    int32_t ion_fd;
    void* custom;
    DmaBuffer dma;
  };
};

struct SignalConfig {
  uint32_t option;
  union {
    void* custom;
    uint64_t timeout_us;
  };
};

// ---- Profile -------------------------------------------------------------

enum ProfileLevel : uint32_t {
  kProfileBasic = 1,
  kProfileDetailed = 2,
  kProfileHtpLinting = 7001,
};

enum ProfileUnit : uint32_t {
  kUnitMicroseconds = 1,
  kUnitBytes = 2,
  kUnitCycles = 3,
  kUnitCount = 4,
  kUnitObject = 5,
  kUnitNone = 6,
};

using EventId = uint64_t;

struct EventData {
  uint32_t type;
  uint32_t unit;
  uint64_t value;
  const char* identifier;
};

struct ExtendedEventData {
  uint32_t version;  // 1
  alignas(8) uint32_t type;
  uint32_t unit;
  union {
    Scalar value;
    struct {
      void* data;
      uint64_t size;
      const char* file;
    } object;
  };
  uint64_t timestamp;
  const char* identifier;
};

struct ProfileConfig {
  uint32_t option;  // 0 custom, 1 most events, 2 operation trace
  union {
    void* custom;
    uint64_t max_events;
    uint8_t enable_optrace;
  };
};

// ---- Function tables -----------------------------------------------------

// In the order of core API 2.32.
struct Functions {
  Error (*property_has_capability)(uint32_t);
  Error (*backend_create)(Handle, const BackendConfig**, Handle*);
  Error (*backend_set_config)(Handle, const BackendConfig**);
  Error (*backend_get_api_version)(ApiVersion*);
  Error (*backend_get_build_id)(const char**);
  Error (*backend_register_op_package)(Handle, const char*, const char*, const char*);
  Error (*backend_get_supported_operations)(Handle, uint32_t*, const OperationName**);
  Error (*backend_validate_op_config)(Handle, OpConfig);
  Error (*backend_free)(Handle);
  Error (*context_create)(Handle, Handle, const ContextConfig**, Handle*);
  Error (*context_set_config)(Handle, const ContextConfig**);
  Error (*context_get_binary_size)(Handle, uint64_t*);
  Error (*context_get_binary)(Handle, void*, uint64_t, uint64_t*);
  Error (*context_create_from_binary)(Handle, Handle, const ContextConfig**, const void*, uint64_t,
                                      Handle*, Handle);
  Error (*context_free)(Handle, Handle);
  Error (*graph_create)(Handle, const char*, const GraphConfig**, Handle*);
  Error (*graph_create_subgraph)(Handle, const char*, Handle*);
  Error (*graph_set_config)(Handle, const GraphConfig**);
  Error (*graph_add_node)(Handle, OpConfig);
  Error (*graph_finalize)(Handle, Handle, Handle);
  Error (*graph_retrieve)(Handle, const char*, Handle*);
  Error (*graph_execute)(Handle, const Tensor*, uint32_t, Tensor*, uint32_t, Handle, Handle);
  Error (*graph_execute_async)(Handle, const Tensor*, uint32_t, Tensor*, uint32_t, Handle, Handle,
                               NotifyCallback, void*);
  Error (*tensor_create_context_tensor)(Handle, Tensor*);
  Error (*tensor_create_graph_tensor)(Handle, Tensor*);
  Error (*log_create)(LogCallback, LogLevel, Handle*);
  Error (*log_set_level)(Handle, LogLevel);
  Error (*log_free)(Handle);
  Error (*profile_create)(Handle, uint32_t, Handle*);
  Error (*profile_set_config)(Handle, const ProfileConfig**);
  Error (*profile_get_events)(Handle, const EventId**, uint32_t*);
  Error (*profile_get_sub_events)(EventId, const EventId**, uint32_t*);
  Error (*profile_get_event_data)(EventId, EventData*);
  Error (*profile_get_extended_event_data)(EventId, ExtendedEventData*);
  Error (*profile_free)(Handle);
  Error (*mem_register)(Handle, const MemDescriptor*, uint32_t, Handle*);
  Error (*mem_deregister)(const Handle*, uint32_t);
  Error (*device_get_platform_info)(Handle, const PlatformInfo**);
  Error (*device_free_platform_info)(Handle, const PlatformInfo*);
  // Writes a pointer to a static structure; see abi_htp.h.
  Error (*device_get_infrastructure)(const void**);
  Error (*device_create)(Handle, const DeviceConfig**, Handle*);
  Error (*device_set_config)(Handle, const DeviceConfig**);
  Error (*device_get_info)(Handle, const PlatformInfo**);
  Error (*device_free)(Handle);
  Error (*signal_create)(Handle, const SignalConfig**, Handle*);
  Error (*signal_set_config)(Handle, const SignalConfig**);
  Error (*signal_trigger)(Handle);
  Error (*signal_free)(Handle);
  Error (*error_get_message)(Error, const char**);
  Error (*error_get_verbose_message)(Error, const char**);
  Error (*error_free_verbose_message)(const char*);
  Error (*graph_prepare_execution_environment)(Handle, ExecuteEnvironment**, uint32_t);
  Error (*graph_release_execution_environment)(Handle, const ExecuteEnvironment**, uint32_t);
  Error (*graph_get_property)(Handle, Property**);
  Error (*context_validate_binary)(Handle, Handle, const ContextConfig**, const void*, uint64_t);
  Error (*context_create_from_binary_with_signal)(Handle, Handle, const ContextConfig**,
                                                  const void*, uint64_t, Handle*, Handle, Handle);
  Error (*context_create_from_binary_list_async)(Handle, Handle, const ContextParams**,
                                                 const ContextConfig**, Handle);
  Error (*tensor_update_graph_tensors)(Handle, const Tensor**, uint64_t);
  Error (*tensor_update_context_tensors)(Handle, const Tensor**, uint64_t);
  Error (*context_get_binary_section_size)(Handle, Handle, uint32_t, uint64_t*);
  Error (*context_get_binary_section)(Handle, Handle, uint32_t, const ContextBuffer*, uint64_t*,
                                      Handle, Handle);
  Error (*context_apply_binary_section)(Handle, Handle, uint32_t, const ContextBuffer*, Handle,
                                        Handle);
  Error (*backend_get_property)(Handle, Property**);
  Error (*context_get_property)(Handle, Property**);
  Error (*context_get_incremental_binary)(Handle, const void**, uint64_t*, uint64_t*);
  Error (*context_release_incremental_binary)(Handle, const void*, uint64_t);
  Error (*context_finalize)(Handle, Handle);
  Error (*global_config_set)(const GlobalConfig**);
  Error (*context_create_from_binary_with_callback)(Handle, Handle, const ContextConfig**,
                                                    const ContextBinaryCallback*, const void*,
                                                    uint64_t, Handle*, Handle, Handle);
  Error (*context_get_binary_section_update)(const ContextBuffer*, const ContextBuffer*,
                                             const Tensor**, uint64_t, uint8_t, Handle, Handle,
                                             Handle, ContextBuffer*);
  Error (*context_free_binary_section_update)(ContextBuffer, Handle);
};

// What QnnInterface_getProviders hands out.
struct Interface {
  uint32_t backend_id;
  const char* provider_name;
  ApiVersion version;
  Functions fn;
};
using GetProviders = Error (*)(const Interface***, uint32_t*);
inline constexpr char kGetProvidersSymbol[] = "QnnInterface_getProviders";

}  // namespace spillway::qnn::abi

#endif  // SPILLWAY_QNN_API_ABI_H_
