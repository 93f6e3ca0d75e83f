#include "qnn/api/binary_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/log.h"
#include "qnn/api/abi_tensor.h"
#include "qnn/api/errors.h"
#include "qnn/api/handle_counts.h"

namespace spillway::qnn {
namespace {

constexpr uint32_t kMostGraphs = 4096;
constexpr uint32_t kMostTensors = 65536;

// The record at `offset` of a blob as a T, by copy: blobs need not be aligned.
template <typename T>
std::optional<T> RecordAt(std::span<const std::byte> blob, size_t offset) {
  if (offset > blob.size() || blob.size() - offset < sizeof(T)) return std::nullopt;
  T record;
  std::memcpy(&record, blob.data() + offset, sizeof(T));
  return record;
}

std::span<const std::byte> BlobSpan(const void* data, uint32_t size) {
  if (data == nullptr) return {};
  return {static_cast<const std::byte*>(data), size};
}

Status CutShort(const std::string& graph, size_t offset, size_t size) {
  return CorruptDataError(
      fmt::format("graph '{}': the HTP record at byte {} does not fit into its blob of {} bytes",
                  graph, offset, size));
}

// A graph's blob: records one after the other, each with its version first.
Status ReadGraphBlob(std::span<const std::byte> blob, BinaryGraph* graph) {
  GraphMemory memory;
  bool any = false;
  size_t offset = 0;
  while (offset < blob.size()) {
    const auto version = RecordAt<uint32_t>(blob, offset);
    if (!version) return CutShort(graph->name, offset, blob.size());
    if (*version == 1) {
      const auto record = RecordAt<abi::GraphBlobV1>(blob, offset);
      if (!record) return CutShort(graph->name, offset, blob.size());
      memory.spill_fill_bytes = record->spill_fill_bytes;
      memory.vtcm_bytes = record->vtcm_bytes;
      memory.optimization_level = record->optimization_level;
      memory.dlbc = record->dlbc != 0;
      memory.hvx_threads = record->hvx_threads;
      offset += sizeof(*record);
    } else if (*version == 2) {
      const auto record = RecordAt<abi::GraphBlobV2>(blob, offset);
      if (!record) return CutShort(graph->name, offset, blob.size());
      memory.native_k_channels = record->native_k_channels;
      memory.native_v_channels = record->native_v_channels;
      memory.safe_to_share_io = record->is_safe_to_share_io != 0;
      memory.io_tensor_bytes = record->io_tensor_bytes;
      memory.op_data_bytes = record->op_data_bytes;
      memory.const_bytes = record->const_bytes;
      memory.ddr_tensor_bytes = record->ddr_tensor_bytes;
      memory.shared_weight_bytes = record->shared_weight_bytes;
      offset += sizeof(*record);
    } else {
      return UnsupportedError(fmt::format(
          "graph '{}': HTP record of version {} at byte {} of its blob, known are 1 and 2. Use a "
          "QAIRT release up to 2.51, or a newer Spillway.",
          graph->name, *version, offset));
    }
    any = true;
  }
  if (any) graph->memory = memory;
  return OkStatus();
}

Status ReadTensors(const abi::Tensor* tensors, uint32_t count, std::vector<TensorInfo>* out) {
  if (count > kMostTensors || (count > 0 && tensors == nullptr)) {
    return CorruptDataError(fmt::format("{} tensors without a description", count));
  }
  for (uint32_t i = 0; i < count; ++i) {
    SPILLWAY_ASSIGN_OR_RETURN(out->emplace_back(), ReadAbiTensor(tensors[i]));
  }
  return OkStatus();
}

Result<BinaryGraph> ReadGraph(const abi::GraphInfo& raw) {
  if (raw.version < 1 || raw.version > 3) {
    return UnsupportedError(
        fmt::format("a graph description of version {}, known are 1, 2 and 3", raw.version));
  }
  const abi::GraphInfoV1& v1 = raw.v1;  // all versions begin with these fields
  BinaryGraph graph;
  graph.name = v1.name == nullptr ? "" : v1.name;
  const std::string context = fmt::format("graph '{}'", graph.name);
  const Status inputs = ReadTensors(v1.inputs, v1.num_inputs, &graph.inputs);
  if (!inputs.ok()) return inputs.WithContext(context + " inputs");
  const Status outputs = ReadTensors(v1.outputs, v1.num_outputs, &graph.outputs);
  if (!outputs.ok()) return outputs.WithContext(context + " outputs");
  if (raw.version == 3) {
    SPILLWAY_RETURN_IF_ERROR(ReadGraphBlob(BlobSpan(raw.v3.blob, raw.v3.blob_size), &graph));
  }
  return graph;
}

Status ReadGraphs(const abi::GraphInfo* graphs, uint32_t count, BinaryInfo* info) {
  if (count > kMostGraphs || (count > 0 && graphs == nullptr)) {
    return CorruptDataError(fmt::format("{} graphs without a description", count));
  }
  for (uint32_t i = 0; i < count; ++i) {
    SPILLWAY_ASSIGN_OR_RETURN(BinaryGraph graph, ReadGraph(graphs[i]));
    if (graph.memory) {
      info->spill_fill_bytes = std::max(info->spill_fill_bytes, graph.memory->spill_fill_bytes);
    }
    info->graphs.push_back(std::move(graph));
  }
  return OkStatus();
}

// Versions 1 and 2 keep the spill-fill size in records of the hardware blob, one
// a graph.
Status ReadHwBlob(std::span<const std::byte> blob, BinaryInfo* info) {
  for (size_t offset = 0; offset < blob.size(); offset += sizeof(abi::HwBlob)) {
    const auto record = RecordAt<abi::HwBlob>(blob, offset);
    if (!record) {
      return CorruptDataError(
          fmt::format("the hardware record at byte {} does not fit into its blob of {} bytes",
                      offset, blob.size()));
    }
    if (record->version != 1) {
      return UnsupportedError(
          fmt::format("a hardware record of version {}, known is 1", record->version));
    }
    info->spill_fill_bytes = std::max(info->spill_fill_bytes, record->spill_fill_bytes);
    if (record->graph_index < info->graphs.size()) {
      BinaryGraph& graph = info->graphs[record->graph_index];
      if (!graph.memory) graph.memory.emplace();
      graph.memory->spill_fill_bytes = record->spill_fill_bytes;
    }
  }
  return OkStatus();
}

// Version 3 keeps what is said of the whole context in a record of its own.
Status ReadContextBlob(std::span<const std::byte> blob, BinaryInfo* info) {
  if (blob.empty()) return OkStatus();
  const auto record = RecordAt<abi::ContextBlob>(blob, 0);
  if (!record) {
    return CorruptDataError(
        fmt::format("the context's record of {} bytes does not fit into its blob of {} bytes",
                    sizeof(abi::ContextBlob), blob.size()));
  }
  if (record->version != 1) {
    return UnsupportedError(
        fmt::format("a context record of version {}, known is 1", record->version));
  }
  info->dsp_arch = record->dsp_arch;
  return OkStatus();
}

std::string TextOf(const char* text) { return text == nullptr ? "" : text; }

Result<BinaryInfo> ReadOld(const abi::BinaryInfoV1& raw, BinaryInfo info) {
  info.backend_id = raw.backend_id;
  info.build_id = TextOf(raw.build_id);
  info.core_api = raw.core;
  info.backend_api = raw.backend;
  info.soc_version = TextOf(raw.soc_version);
  info.context_blob_version = raw.context_blob_version;
  info.context_blob_bytes = raw.context_blob_size;
  SPILLWAY_RETURN_IF_ERROR(ReadGraphs(raw.graphs, raw.num_graphs, &info));
  SPILLWAY_RETURN_IF_ERROR(ReadHwBlob(BlobSpan(raw.hw_blob, raw.hw_blob_size), &info));
  return info;
}

Result<BinaryInfo> ReadNew(const abi::BinaryInfoV3& raw, BinaryInfo info) {
  info.backend_id = raw.backend_id;
  info.build_id = TextOf(raw.build_id);
  info.core_api = raw.core;
  info.backend_api = raw.backend;
  info.soc_version = TextOf(raw.soc_version);
  info.soc_model = raw.soc_model;
  info.context_blob_version = raw.context_blob_version;
  info.context_blob_bytes = raw.context_blob_size;
  SPILLWAY_RETURN_IF_ERROR(ReadContextBlob(BlobSpan(raw.metadata, raw.metadata_size), &info));
  SPILLWAY_RETURN_IF_ERROR(ReadGraphs(raw.graphs, raw.num_graphs, &info));
  return info;
}

// Frees the vendor's reader at the end of a scope; the raw information dies with it.
class SystemContext {
 public:
  explicit SystemContext(const SystemLibrary& library) : library_(library) {}
  SystemContext(const SystemContext&) = delete;
  SystemContext& operator=(const SystemContext&) = delete;
  ~SystemContext() {
    if (handle_ == nullptr) return;
    const abi::Error error = library_.fn().context_free(handle_);
    if (error == 0) {
      CountFreed(HandleKind::kSystemContext);
    } else {
      Log(LogLevel::kWarning, "freeing a vendor system context: {}", DescribeError(error));
    }
  }

  Status Open() {
    const abi::Error error = library_.fn().context_create(&handle_);
    if (error != 0) {
      handle_ = nullptr;
      return VendorFailure("creating a system context", error, {});
    }
    CountCreated(HandleKind::kSystemContext);
    return OkStatus();
  }
  abi::Handle handle() const { return handle_; }

 private:
  const SystemLibrary& library_;
  abi::Handle handle_ = nullptr;
};

}  // namespace

const BinaryGraph* BinaryInfo::FindGraph(std::string_view name) const {
  for (const BinaryGraph& graph : graphs) {
    if (graph.name == name) return &graph;
  }
  return nullptr;
}

Result<BinaryInfo> ReadBinaryInfo(const abi::BinaryInfo& raw) {
  BinaryInfo info;
  info.version = raw.version;
  switch (raw.version) {
    case 1:
    case 2:  // only adds the platform, which says nothing on x86-64
      return ReadOld(raw.v1, std::move(info));
    case 3:
      return ReadNew(raw.v3, std::move(info));
    default:
      return UnsupportedError(fmt::format(
          "the binary's description has version {}, known are 1, 2 and 3. Use a libQnnSystem.so "
          "of QAIRT 2.43 to 2.51, or a newer Spillway.",
          raw.version));
  }
}

Result<BinaryInfo> ReadBinaryInfo(const SystemLibrary& library, std::span<const std::byte> binary,
                                  const std::string& what) {
  if (binary.empty()) return CorruptDataError(what + ": the context binary is empty");
  SystemContext context(library);
  const Status opened = context.Open();
  if (!opened.ok()) return opened.WithContext(what);
  const abi::BinaryInfo* raw = nullptr;
  const abi::Error error =
      library.fn().context_get_metadata(context.handle(), binary.data(), binary.size(), &raw);
  if (error != 0) {
    const Status failure =
        VendorFailure(what + ": reading the context binary's description", error, {});
    const bool damaged = error == 30001 || error == 30010;
    return damaged ? CorruptDataError(failure.message()) : failure;
  }
  if (raw == nullptr) {
    return VendorError(what + ": the vendor gave no description of the context binary");
  }
  Result<BinaryInfo> info = ReadBinaryInfo(*raw);
  if (!info.ok()) return info.status().WithContext(what);
  return info;
}

Result<BinaryInfo> ReadBinaryInfoFile(const SystemLibrary& library, const std::string& path) {
  SPILLWAY_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return ReadBinaryInfo(library, file.bytes(), path);
}

}  // namespace spillway::qnn
