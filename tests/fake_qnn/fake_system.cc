// The fake libQnnSystem.so: describes the fake's binaries in any version of the
// vendor's structures.

#include <cstdlib>
#include <memory>
#include <vector>

#include "qnn/api/abi_system.h"
#include "tests/fake_qnn/fake_binary.h"
#include "tests/fake_qnn/recorder.h"

namespace fake_qnn {
namespace {

constexpr uint64_t kSpillFill = 4096;  // of the first graph; the next has twice that

struct GraphBlob {
  abi::GraphBlobV1 v1;
  abi::GraphBlobV2 v2;
};

// A description and all that it points at.
struct Description {
  FakeBinary binary;
  std::vector<std::vector<abi::Tensor>> tensors;
  std::vector<GraphBlob> blobs;
  std::vector<abi::HwBlob> hw_blobs;
  std::vector<abi::GraphInfo> graphs;
  abi::ContextBlob context = {1, 79};
  abi::BinaryInfo info = {};
};

abi::Tensor DescribeTensor(FakeTensor& source) {
  abi::Tensor tensor = {};
  tensor.version = 1;
  tensor.v1.id = source.id;
  tensor.v1.name = source.name.c_str();
  tensor.v1.data_type = static_cast<abi::DataType>(source.data_type);
  tensor.v1.rank = static_cast<uint32_t>(source.dims.size());
  tensor.v1.dims = source.dims.data();
  tensor.v1.quantize.definition = abi::kUndefinedDefinition;
  tensor.v1.quantize.encoding = abi::kUndefinedEncoding;
  if (source.encoded != 0) {
    tensor.v1.quantize.definition = abi::kDefined;
    tensor.v1.quantize.encoding = abi::kScaleOffset;
    tensor.v1.quantize.scale_offset = {source.scale, source.offset};
  }
  return tensor;
}

abi::Tensor* DescribeTensors(std::vector<FakeTensor>& sources, Description& out) {
  std::vector<abi::Tensor>& tensors = out.tensors.emplace_back();
  for (FakeTensor& source : sources) tensors.push_back(DescribeTensor(source));
  return tensors.data();
}

void DescribeGraph(FakeGraph& graph, size_t index, unsigned version, Description& out) {
  const uint64_t spill_fill = kSpillFill * (index + 1);
  GraphBlob& blob = out.blobs[index];
  blob = {};
  blob.v1 = {1, spill_fill, static_cast<uint32_t>(graph.vtcm_bytes), graph.level, 0, 0};
  blob.v2.version = 2;
  (out.binary.sharing != 0 ? blob.v2.shared_weight_bytes : blob.v2.const_bytes) = graph.const_bytes;
  out.hw_blobs.push_back({1, static_cast<uint32_t>(index), spill_fill});
  abi::GraphInfo info = {};
  info.version = version;
  info.v3.name = graph.name.c_str();  // earlier versions begin alike
  info.v3.num_inputs = static_cast<uint32_t>(graph.inputs.size());
  info.v3.inputs = DescribeTensors(graph.inputs, out);
  info.v3.num_outputs = static_cast<uint32_t>(graph.outputs.size());
  info.v3.outputs = DescribeTensors(graph.outputs, out);
  if (version == 3) {
    info.v3.blob_size = sizeof(blob);
    info.v3.blob = &blob;
  }
  out.graphs.push_back(info);
}

constexpr abi::Version kCore = {2, 40, 0};
constexpr abi::Version kBackend = {5, 51, 0};

template <typename Info>
void FillCommon(Info& info, Description& out) {
  info.backend_id = abi::kHtpBackendId;
  const char* build_id = std::getenv("FAKE_QNN_BINARY_BUILD_ID");
  info.build_id = build_id == nullptr ? "fake.1" : build_id;
  info.core = kCore;
  info.backend = kBackend;
  info.soc_version = "";
  info.context_blob_version = {4, 0, 6};
  info.num_graphs = static_cast<uint32_t>(out.graphs.size());
  info.graphs = out.graphs.data();
}

void Describe(Description& out) {
  const unsigned version = EnvNumber("FAKE_QNN_INFO_VERSION", 3);
  out.blobs.resize(out.binary.graphs.size());
  const unsigned graph_version = version > 3 ? 3 : version;
  for (size_t i = 0; i < out.binary.graphs.size(); ++i) {
    DescribeGraph(out.binary.graphs[i], i, graph_version, out);
  }
  out.info.version = version;
  if (version >= 3) {
    FillCommon(out.info.v3, out);
    out.info.v3.metadata_size = sizeof(out.context);
    out.info.v3.metadata = &out.context;
    out.info.v3.soc_model = out.binary.soc;
  } else {
    FillCommon(out.info.v1, out);
    out.info.v1.hw_blob_version = {1, 0, 0};
    out.info.v1.hw_blob_size = static_cast<uint32_t>(out.hw_blobs.size() * sizeof(abi::HwBlob));
    out.info.v1.hw_blob = out.hw_blobs.data();
  }
}

abi::Error ContextCreate(abi::Handle* handle) {
  if (const abi::Error error = Enter("systemContextCreate")) return error;
  *handle = new Description();
  return 0;
}

abi::Error GetMetadata(abi::Handle handle, const void* data, uint64_t size,
                       const abi::BinaryInfo** info) {
  if (const abi::Error error = Enter("systemContextGetMetaData")) return error;
  auto* description = static_cast<Description*>(handle);
  *description = Description();
  if (!ReadBinary(data, size, &description->binary)) return 30010;
  Describe(*description);
  *info = &description->info;
  return 0;
}

abi::Error GetBinaryInfo(abi::Handle handle, void* data, uint64_t size,
                         const abi::BinaryInfo** info, uint64_t* info_size) {
  *info_size = 0;
  return GetMetadata(handle, data, size, info);
}

abi::Error ContextFree(abi::Handle handle) {
  if (const abi::Error error = Enter("systemContextFree")) return error;
  delete static_cast<Description*>(handle);
  return 0;
}

}  // namespace
}  // namespace fake_qnn

extern "C" __attribute__((visibility("default"))) spillway::qnn::abi::Error
QnnSystemInterface_getProviders(const spillway::qnn::abi::SystemInterface*** list,
                                uint32_t* count) {
  namespace abi = spillway::qnn::abi;
  static abi::SystemInterface provider;
  static const abi::SystemInterface* providers[] = {&provider};
  provider = {};
  provider.provider_name = "FAKE_SYSTEM";
  provider.version = {fake_qnn::EnvNumber("FAKE_QNN_SYSTEM_MAJOR", 1), 15, 0};
  provider.fn.context_create = fake_qnn::ContextCreate;
  provider.fn.context_get_binary_info = fake_qnn::GetBinaryInfo;
  provider.fn.context_get_metadata = fake_qnn::GetMetadata;
  provider.fn.context_free = fake_qnn::ContextFree;
  *list = providers;
  *count = fake_qnn::EnvNumber("FAKE_QNN_PROVIDERS", 1);
  return fake_qnn::Enter("systemGetProviders");
}
