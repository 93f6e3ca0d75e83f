// Proof at compile time that our structures lie in memory as the vendor's do.

#include <cstddef>

#include "qnn/api/abi.h"
#include "qnn/api/abi_system.h"

namespace spillway::qnn::abi {
namespace {

#define CHECK_SIZE(type, size, align) \
  static_assert(sizeof(type) == (size) && alignof(type) == (align), #type)
#define CHECK_OFFSET(type, field, offset) \
  static_assert(offsetof(type, field) == (offset), #type "." #field)

CHECK_SIZE(Version, 12, 4);
CHECK_SIZE(ApiVersion, 24, 4);
CHECK_OFFSET(ApiVersion, backend, 12);
CHECK_SIZE(DataType, 4, 4);

CHECK_SIZE(ScaleOffset, 8, 4);
CHECK_OFFSET(ScaleOffset, offset, 4);
CHECK_SIZE(AxisScaleOffset, 16, 8);
CHECK_OFFSET(AxisScaleOffset, count, 4);
CHECK_OFFSET(AxisScaleOffset, scale_offsets, 8);
CHECK_SIZE(BwScaleOffset, 12, 4);
CHECK_OFFSET(BwScaleOffset, scale, 4);
CHECK_OFFSET(BwScaleOffset, offset, 8);
CHECK_SIZE(BwAxisScaleOffset, 32, 8);
CHECK_OFFSET(BwAxisScaleOffset, axis, 4);
CHECK_OFFSET(BwAxisScaleOffset, count, 8);
CHECK_OFFSET(BwAxisScaleOffset, scales, 16);
CHECK_OFFSET(BwAxisScaleOffset, offsets, 24);
CHECK_SIZE(BlockEncoding, 16, 8);
CHECK_OFFSET(BlockEncoding, scale_offsets, 8);
CHECK_SIZE(BlockwiseExpansion, 40, 8);
CHECK_OFFSET(BlockwiseExpansion, scale_offsets, 8);
CHECK_OFFSET(BlockwiseExpansion, blocks_per_axis, 16);
CHECK_OFFSET(BlockwiseExpansion, block_scale_bitwidth, 20);
CHECK_OFFSET(BlockwiseExpansion, storage_type, 24);
CHECK_OFFSET(BlockwiseExpansion, block_scales8, 32);
CHECK_OFFSET(BlockwiseExpansion, block_scales16, 32);
CHECK_SIZE(FloatScaleOffset, 8, 4);
CHECK_SIZE(FloatBlockEncoding, 16, 8);
CHECK_SIZE(BwFloatBlockEncoding, 24, 8);
CHECK_OFFSET(BwFloatBlockEncoding, block_size, 8);
CHECK_OFFSET(BwFloatBlockEncoding, scale_offsets, 16);

CHECK_SIZE(QuantizeParams, 40, 8);
CHECK_OFFSET(QuantizeParams, encoding, 4);
CHECK_OFFSET(QuantizeParams, scale_offset, 8);
CHECK_OFFSET(QuantizeParams, axis, 8);
CHECK_OFFSET(QuantizeParams, bw, 8);
CHECK_OFFSET(QuantizeParams, bw_axis, 8);
CHECK_OFFSET(QuantizeParams, block, 8);
CHECK_OFFSET(QuantizeParams, blockwise, 8);
CHECK_OFFSET(QuantizeParams, float_block, 8);
CHECK_OFFSET(QuantizeParams, bw_float_block, 8);

CHECK_SIZE(ClientBuffer, 16, 8);
CHECK_OFFSET(ClientBuffer, size, 8);
CHECK_SIZE(SparseParams, 12, 4);

CHECK_SIZE(TensorV1, 112, 8);
CHECK_SIZE(TensorV2, 136, 8);
#define CHECK_TENSOR(record)             \
  CHECK_OFFSET(record, id, 0);           \
  CHECK_OFFSET(record, name, 8);         \
  CHECK_OFFSET(record, type, 16);        \
  CHECK_OFFSET(record, data_format, 20); \
  CHECK_OFFSET(record, data_type, 24);   \
  CHECK_OFFSET(record, quantize, 32);    \
  CHECK_OFFSET(record, rank, 72);        \
  CHECK_OFFSET(record, dims, 80);        \
  CHECK_OFFSET(record, mem_type, 88);    \
  CHECK_OFFSET(record, client, 96);      \
  CHECK_OFFSET(record, mem_handle, 96)
CHECK_TENSOR(TensorV1);
CHECK_TENSOR(TensorV2);
CHECK_OFFSET(TensorV2, dynamic_dims, 112);
CHECK_OFFSET(TensorV2, sparse, 120);
CHECK_OFFSET(TensorV2, is_produced, 132);
CHECK_SIZE(Tensor, 144, 8);
CHECK_OFFSET(Tensor, v1, 8);
CHECK_OFFSET(Tensor, v2, 8);
CHECK_SIZE(TensorSet, 40, 8);
CHECK_OFFSET(TensorSet, num_inputs, 8);
CHECK_OFFSET(TensorSet, inputs, 16);
CHECK_OFFSET(TensorSet, num_outputs, 24);
CHECK_OFFSET(TensorSet, outputs, 32);

CHECK_SIZE(Scalar, 16, 8);
CHECK_OFFSET(Scalar, f32, 8);
CHECK_OFFSET(Scalar, b8, 8);
CHECK_OFFSET(Scalar, text, 8);
CHECK_SIZE(Param, 160, 8);
CHECK_OFFSET(Param, name, 8);
CHECK_OFFSET(Param, scalar, 16);
CHECK_OFFSET(Param, tensor, 16);
CHECK_SIZE(OpConfig, 80, 8);
CHECK_OFFSET(OpConfig, name, 8);
CHECK_OFFSET(OpConfig, package, 16);
CHECK_OFFSET(OpConfig, type, 24);
CHECK_OFFSET(OpConfig, num_params, 32);
CHECK_OFFSET(OpConfig, params, 40);
CHECK_OFFSET(OpConfig, num_inputs, 48);
CHECK_OFFSET(OpConfig, inputs, 56);
CHECK_OFFSET(OpConfig, num_outputs, 64);
CHECK_OFFSET(OpConfig, outputs, 72);
CHECK_SIZE(OperationName, 24, 8);
CHECK_OFFSET(OperationName, target, 16);

CHECK_SIZE(ErrorReporting, 8, 4);
CHECK_SIZE(BackendConfig, 16, 8);
CHECK_OFFSET(BackendConfig, custom, 8);
CHECK_SIZE(CoreInfo, 24, 8);
CHECK_OFFSET(CoreInfo, core_id, 8);
CHECK_OFFSET(CoreInfo, core_type, 12);
CHECK_OFFSET(CoreInfo, extension, 16);
CHECK_SIZE(HardwareDeviceInfo, 40, 8);
CHECK_OFFSET(HardwareDeviceInfo, device_id, 8);
CHECK_OFFSET(HardwareDeviceInfo, device_type, 12);
CHECK_OFFSET(HardwareDeviceInfo, num_cores, 16);
CHECK_OFFSET(HardwareDeviceInfo, cores, 24);
CHECK_OFFSET(HardwareDeviceInfo, extension, 32);
CHECK_SIZE(PlatformInfo, 24, 8);
CHECK_OFFSET(PlatformInfo, num_devices, 8);
CHECK_OFFSET(PlatformInfo, devices, 16);
CHECK_SIZE(DeviceConfig, 16, 8);
CHECK_OFFSET(DeviceConfig, custom, 8);
CHECK_SIZE(QueueDepth, 8, 4);
CHECK_SIZE(ContextConfig, 16, 8);
CHECK_OFFSET(ContextConfig, custom, 8);
CHECK_OFFSET(ContextConfig, priority, 8);
CHECK_OFFSET(ContextConfig, graph_names, 8);
CHECK_OFFSET(ContextConfig, memory_limit, 8);
CHECK_OFFSET(ContextConfig, flag, 8);
CHECK_SIZE(GraphConfig, 16, 8);
CHECK_OFFSET(GraphConfig, custom, 8);
CHECK_OFFSET(GraphConfig, priority, 8);
CHECK_OFFSET(GraphConfig, profile, 8);
CHECK_SIZE(Property, 16, 8);
CHECK_OFFSET(Property, custom, 8);
CHECK_SIZE(GlobalConfig, 8, 4);
CHECK_OFFSET(GlobalConfig, soc_model, 4);
CHECK_SIZE(ExecuteEnvironment, 48, 8);
CHECK_OFFSET(ExecuteEnvironment, tensors, 8);
CHECK_SIZE(NotifyStatus, 8, 8);
CHECK_SIZE(ContextBuffer, 32, 8);
CHECK_OFFSET(ContextBuffer, mem_type, 8);
CHECK_OFFSET(ContextBuffer, binary, 16);
CHECK_OFFSET(ContextBuffer, mem_handle, 16);
CHECK_SIZE(MemShape, 24, 8);
CHECK_OFFSET(MemShape, dims, 8);
CHECK_OFFSET(MemShape, config, 16);
CHECK_SIZE(DmaBuffer, 16, 8);
CHECK_OFFSET(DmaBuffer, data, 8);
CHECK_SIZE(MemDescriptor, 48, 8);
CHECK_OFFSET(MemDescriptor, data_type, 24);
CHECK_OFFSET(MemDescriptor, mem_type, 28);
CHECK_OFFSET(MemDescriptor, ion_fd, 32);
CHECK_OFFSET(MemDescriptor, custom, 32);
CHECK_OFFSET(MemDescriptor, dma, 32);
CHECK_SIZE(SignalConfig, 16, 8);
CHECK_OFFSET(SignalConfig, timeout_us, 8);

CHECK_SIZE(EventData, 24, 8);
CHECK_OFFSET(EventData, unit, 4);
CHECK_OFFSET(EventData, value, 8);
CHECK_OFFSET(EventData, identifier, 16);
CHECK_SIZE(ExtendedEventData, 56, 8);
CHECK_OFFSET(ExtendedEventData, type, 8);
CHECK_OFFSET(ExtendedEventData, unit, 12);
CHECK_OFFSET(ExtendedEventData, value, 16);
CHECK_OFFSET(ExtendedEventData, object, 16);
CHECK_OFFSET(ExtendedEventData, timestamp, 40);
CHECK_OFFSET(ExtendedEventData, identifier, 48);
CHECK_SIZE(ProfileConfig, 16, 8);
CHECK_OFFSET(ProfileConfig, max_events, 8);

// 71 entries; the byte offset of entry i in the provider is 40 + 8 i.
CHECK_SIZE(Functions, 71 * 8, 8);
CHECK_SIZE(Interface, 608, 8);
CHECK_OFFSET(Interface, provider_name, 8);
CHECK_OFFSET(Interface, version, 16);
CHECK_OFFSET(Interface, fn, 40);
#define CHECK_ENTRY(name, index) CHECK_OFFSET(Functions, name, 8 * (index))
CHECK_ENTRY(property_has_capability, 0);
CHECK_ENTRY(backend_create, 1);
CHECK_ENTRY(backend_get_build_id, 4);
CHECK_ENTRY(backend_get_supported_operations, 6);
CHECK_ENTRY(backend_validate_op_config, 7);
CHECK_ENTRY(backend_free, 8);
CHECK_ENTRY(context_create, 9);
CHECK_ENTRY(context_get_binary_size, 11);
CHECK_ENTRY(context_get_binary, 12);
CHECK_ENTRY(context_create_from_binary, 13);
CHECK_ENTRY(context_free, 14);
CHECK_ENTRY(graph_create, 15);
CHECK_ENTRY(graph_add_node, 18);
CHECK_ENTRY(graph_finalize, 19);
CHECK_ENTRY(graph_retrieve, 20);
CHECK_ENTRY(graph_execute, 21);
CHECK_ENTRY(tensor_create_graph_tensor, 24);
CHECK_ENTRY(log_create, 25);
CHECK_ENTRY(log_free, 27);
CHECK_ENTRY(profile_create, 28);
CHECK_ENTRY(profile_get_events, 30);
CHECK_ENTRY(profile_get_sub_events, 31);
CHECK_ENTRY(profile_get_event_data, 32);
CHECK_ENTRY(profile_free, 34);
CHECK_ENTRY(mem_register, 35);
CHECK_ENTRY(device_get_platform_info, 37);
CHECK_ENTRY(device_get_infrastructure, 39);
CHECK_ENTRY(device_create, 40);
CHECK_ENTRY(device_free, 43);
CHECK_ENTRY(signal_create, 44);
CHECK_ENTRY(error_get_message, 48);
CHECK_ENTRY(graph_get_property, 53);
CHECK_ENTRY(context_validate_binary, 54);
CHECK_ENTRY(context_create_from_binary_list_async, 56);
CHECK_ENTRY(backend_get_property, 62);
CHECK_ENTRY(context_finalize, 66);
CHECK_ENTRY(global_config_set, 67);
CHECK_ENTRY(context_free_binary_section_update, 70);

CHECK_SIZE(GraphInfoV1, 40, 8);
CHECK_SIZE(GraphInfoV2, 56, 8);
CHECK_SIZE(GraphInfoV3, 80, 8);
#define CHECK_GRAPH_INFO(type)         \
  CHECK_OFFSET(type, num_inputs, 8);   \
  CHECK_OFFSET(type, inputs, 16);      \
  CHECK_OFFSET(type, num_outputs, 24); \
  CHECK_OFFSET(type, outputs, 32)
CHECK_GRAPH_INFO(GraphInfoV1);
CHECK_GRAPH_INFO(GraphInfoV2);
CHECK_GRAPH_INFO(GraphInfoV3);
CHECK_OFFSET(GraphInfoV2, num_updateable, 40);
CHECK_OFFSET(GraphInfoV2, updateable, 48);
CHECK_OFFSET(GraphInfoV3, num_updateable, 40);
CHECK_OFFSET(GraphInfoV3, updateable, 48);
CHECK_OFFSET(GraphInfoV3, blob_size, 56);
CHECK_OFFSET(GraphInfoV3, blob, 64);
CHECK_OFFSET(GraphInfoV3, start_op, 72);
CHECK_OFFSET(GraphInfoV3, end_op, 76);
CHECK_SIZE(GraphInfo, 88, 8);
CHECK_OFFSET(GraphInfo, v1, 8);

CHECK_SIZE(BinaryInfoV1, 128, 8);
CHECK_SIZE(BinaryInfoV2, 136, 8);
#define CHECK_OLD_BINARY_INFO(type)             \
  CHECK_OFFSET(type, build_id, 8);              \
  CHECK_OFFSET(type, core, 16);                 \
  CHECK_OFFSET(type, backend, 28);              \
  CHECK_OFFSET(type, soc_version, 40);          \
  CHECK_OFFSET(type, hw_blob_version, 48);      \
  CHECK_OFFSET(type, context_blob_version, 60); \
  CHECK_OFFSET(type, hw_blob_size, 72);         \
  CHECK_OFFSET(type, hw_blob, 80);              \
  CHECK_OFFSET(type, context_blob_size, 88);    \
  CHECK_OFFSET(type, num_context_tensors, 96);  \
  CHECK_OFFSET(type, context_tensors, 104);     \
  CHECK_OFFSET(type, num_graphs, 112);          \
  CHECK_OFFSET(type, graphs, 120)
CHECK_OLD_BINARY_INFO(BinaryInfoV1);
CHECK_OLD_BINARY_INFO(BinaryInfoV2);
CHECK_OFFSET(BinaryInfoV2, platform, 128);
CHECK_SIZE(BinaryInfoV3, 136, 8);
CHECK_OFFSET(BinaryInfoV3, build_id, 8);
CHECK_OFFSET(BinaryInfoV3, core, 16);
CHECK_OFFSET(BinaryInfoV3, backend, 28);
CHECK_OFFSET(BinaryInfoV3, soc_version, 40);
CHECK_OFFSET(BinaryInfoV3, context_blob_version, 48);
CHECK_OFFSET(BinaryInfoV3, context_blob_size, 64);
CHECK_OFFSET(BinaryInfoV3, num_context_tensors, 72);
CHECK_OFFSET(BinaryInfoV3, context_tensors, 80);
CHECK_OFFSET(BinaryInfoV3, num_graphs, 88);
CHECK_OFFSET(BinaryInfoV3, graphs, 96);
CHECK_OFFSET(BinaryInfoV3, platform, 104);
CHECK_OFFSET(BinaryInfoV3, metadata_size, 112);
CHECK_OFFSET(BinaryInfoV3, metadata, 120);
CHECK_OFFSET(BinaryInfoV3, soc_model, 128);
CHECK_SIZE(BinaryInfo, 144, 8);
CHECK_OFFSET(BinaryInfo, v1, 8);

CHECK_SIZE(GraphBlobV1, 40, 8);
CHECK_OFFSET(GraphBlobV1, spill_fill_bytes, 8);
CHECK_OFFSET(GraphBlobV1, vtcm_bytes, 16);
CHECK_OFFSET(GraphBlobV1, optimization_level, 20);
CHECK_OFFSET(GraphBlobV1, dlbc, 24);
CHECK_OFFSET(GraphBlobV1, hvx_threads, 32);
CHECK_SIZE(GraphBlobV2, 72, 8);
CHECK_OFFSET(GraphBlobV2, native_k_channels, 8);
CHECK_OFFSET(GraphBlobV2, native_v_channels, 16);
CHECK_OFFSET(GraphBlobV2, is_safe_to_share_io, 24);
CHECK_OFFSET(GraphBlobV2, io_tensor_bytes, 32);
CHECK_OFFSET(GraphBlobV2, op_data_bytes, 40);
CHECK_OFFSET(GraphBlobV2, const_bytes, 48);
CHECK_OFFSET(GraphBlobV2, ddr_tensor_bytes, 56);
CHECK_OFFSET(GraphBlobV2, shared_weight_bytes, 64);
CHECK_SIZE(HwBlob, 24, 8);
CHECK_OFFSET(HwBlob, graph_index, 8);
CHECK_OFFSET(HwBlob, spill_fill_bytes, 16);
CHECK_SIZE(ContextBlob, 8, 4);
CHECK_OFFSET(ContextBlob, dsp_arch, 4);

CHECK_SIZE(SystemFunctions, 16 * 8, 8);
CHECK_SIZE(SystemInterface, 160, 8);
CHECK_OFFSET(SystemInterface, version, 16);
CHECK_OFFSET(SystemInterface, fn, 32);
CHECK_OFFSET(SystemFunctions, context_get_binary_info, 8);
CHECK_OFFSET(SystemFunctions, context_get_metadata, 16);
CHECK_OFFSET(SystemFunctions, context_free, 24);
CHECK_OFFSET(SystemFunctions, tensor_get_memory_footprint, 32);
CHECK_OFFSET(SystemFunctions, log_free, 56);

}  // namespace
}  // namespace spillway::qnn::abi
