// Reading graphs.fb and weights.bin.
//
// The FlatBuffers verifier makes sure that every table, vector and string lies
// inside the file; everything that it does not know (numbers of enumerations,
// indices, sizes, names) is checked here before a Graph is built.

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>

#include "base/file.h"
#include "package/graph_codes.h"
#include "package/graph_file.h"

namespace spillway {
namespace {

constexpr flatbuffers::uoffset_t kMaxDepth = 16;
constexpr flatbuffers::uoffset_t kMaxTables = 1'000'000;
// How many graphs may use each constant, on average.
constexpr uint64_t kMaxConstantCopies = 64;
constexpr uint32_t kNotConstant = 0xFFFFFFFF;

// A range of the mapped weights.
class MappedConstant : public ConstantData {
 public:
  MappedConstant(std::shared_ptr<const MappedFile> file, std::span<const std::byte> bytes,
                 DataLayout layout)
      : file_(std::move(file)), bytes_(bytes), layout_(layout) {}
  std::span<const std::byte> bytes() const override { return bytes_; }
  DataLayout layout() const override { return layout_; }

 private:
  std::shared_ptr<const MappedFile> file_;
  std::span<const std::byte> bytes_;
  DataLayout layout_;
};

template <typename... Args>
Status Bad(fmt::format_string<Args...> format, Args&&... args) {
  return CorruptDataError(fmt::format(format, std::forward<Args>(args)...));
}

// Keeps the code for damage, whatever a check for callers said.
Status AsDamage(const Status& status) {
  return status.ok() ? status : CorruptDataError(status.message());
}

class GraphFileReader {
 public:
  GraphFileReader(const fb::GraphFile& file, size_t file_bytes,
                  std::shared_ptr<const MappedFile> weights)
      : file_(file),
        budget_(file_bytes),
        constant_budget_(kMaxConstantCopies * file_bytes),
        weights_(std::move(weights)) {}

  Result<StoredGraphs> Read();

 private:
  Status ReadBlobs();
  Status ReadConstants();
  Result<Tensor> ReadConstant(const fb::Constant& stored);
  Status ReadSums(uint32_t blob, Tensor& tensor);
  Result<Tensor> CopyConstant(const fb::Tensor& stored);
  Result<Tensor> ReadTensor(const fb::Tensor& stored);
  Result<Op> ReadOp(const fb::Op& stored, size_t tensor_count);
  Result<Encoding> ReadEncoding(const fb::Encoding* stored);
  Result<Graph> ReadGraph(const fb::Graph& stored);
  Status AddTensors(const fb::Graph& stored, Graph& graph);
  Status AddOps(const fb::Graph& stored, Graph& graph);
  Status MarkOutputs(const fb::Graph& stored, Graph& graph);

  // Copies of strings and vectors. Damage can make many tables share one large
  // vector; the copies of a sound file are never more bytes than the file.
  Status Take(uint64_t bytes) {
    if (bytes > budget_) return Bad("parts of the file overlap");
    budget_ -= bytes;
    return OkStatus();
  }
  Status Copy(const flatbuffers::String* from, std::string& to) {
    if (from == nullptr) return OkStatus();
    SPILLWAY_RETURN_IF_ERROR(Take(from->size()));
    to.assign(from->data(), from->size());
    return OkStatus();
  }
  template <typename T>
  Status Copy(const flatbuffers::Vector<T>* from, std::vector<T>& to) {
    if (from == nullptr) return OkStatus();
    SPILLWAY_RETURN_IF_ERROR(Take(uint64_t{from->size()} * sizeof(T)));
    to.assign(from->begin(), from->end());
    return OkStatus();
  }

  const fb::GraphFile& file_;
  uint64_t budget_;
  uint64_t constant_budget_;
  std::shared_ptr<const MappedFile> weights_;
  std::vector<std::shared_ptr<const ConstantData>> blobs_;
  std::vector<Tensor> constants_;
};

Status GraphFileReader::ReadBlobs() {
  const uint64_t file_size = weights_->bytes().size();
  uint64_t end = 0;
  // The verifier wants a multiple of 4 of every vector, whatever its elements are.
  if (reinterpret_cast<uintptr_t>(file_.blobs()->Data()) % alignof(fb::Blob) != 0) {
    return Bad("the table of the ranges of {} starts at no multiple of {}", kWeightsFile,
               alignof(fb::Blob));
  }
  for (const fb::Blob* blob : *file_.blobs()) {
    const uint64_t offset = blob->offset();
    const size_t index = blobs_.size();
    if (offset % kWeightAlignment != 0 || offset < end) {
      return Bad("range {} of {} starts at {}; expected a multiple of {} from {} on", index,
                 kWeightsFile, offset, kWeightAlignment, end);
    }
    if (blob->bytes() == 0 || offset > file_size || blob->bytes() > file_size - offset) {
      return Bad("range {} has {} bytes at {}, but {} has {}", index, blob->bytes(), offset,
                 kWeightsFile, file_size);
    }
    const std::optional<DataLayout> layout = ValueOf(kLayoutCodes, blob->layout());
    if (!layout) {
      return Bad("range {} has layout {}, which is not known", index,
                 static_cast<int>(blob->layout()));
    }
    blobs_.push_back(std::make_shared<MappedConstant>(
        weights_, weights_->bytes().subspan(offset, blob->bytes()), *layout));
    end = offset + blob->bytes();
  }
  return OkStatus();
}

Result<Encoding> GraphFileReader::ReadEncoding(const fb::Encoding* stored) {
  Encoding encoding;
  if (stored == nullptr) return encoding;
  const std::optional<Encoding::Kind> kind = ValueOf(kEncodingCodes, stored->kind());
  if (!kind) return Bad("encoding kind {} is not known", static_cast<int>(stored->kind()));
  encoding.kind = *kind;
  encoding.bits = stored->bits();
  encoding.scale = stored->scale();
  encoding.offset = stored->offset();
  encoding.axis = stored->axis();
  encoding.block_size = stored->block_size();
  SPILLWAY_RETURN_IF_ERROR(Copy(stored->channel_scales(), encoding.channel_scales));
  SPILLWAY_RETURN_IF_ERROR(Copy(stored->block_scales(), encoding.block_scales));
  return encoding;
}

Result<Tensor> GraphFileReader::ReadConstant(const fb::Constant& stored) {
  Tensor tensor;
  tensor.role = TensorRole::kConstant;
  SPILLWAY_RETURN_IF_ERROR(Copy(stored.name(), tensor.name));
  SPILLWAY_RETURN_IF_ERROR(Copy(stored.shape(), tensor.shape));
  const std::optional<DType> dtype = ValueOf(kTypeCodes, stored.type());
  if (!dtype) return Bad("type {} is not known", static_cast<int>(stored.type()));
  tensor.dtype = *dtype;
  if (stored.blob() >= blobs_.size()) {
    return Bad("range {} of {} is not there; the file has {}", stored.blob(), kWeightsFile,
               blobs_.size());
  }
  tensor.data = blobs_[stored.blob()];
  SPILLWAY_ASSIGN_OR_RETURN(tensor.encoding, ReadEncoding(stored.encoding()));
  SPILLWAY_RETURN_IF_ERROR(AsDamage(CheckStoredTensor(tensor)));
  if (stored.sums() != kNoSums) {
    SPILLWAY_RETURN_IF_ERROR(ReadSums(stored.sums(), tensor));
  }
  return tensor;
}

Status GraphFileReader::ReadSums(uint32_t blob, Tensor& tensor) {
  if (tensor.data->layout() == DataLayout::kRowMajor) {
    return Bad("{} has sums but no packed weights", tensor.name);
  }
  if (blob >= blobs_.size()) {
    return Bad("range {} of {} is not there; the file has {}", blob, kWeightsFile, blobs_.size());
  }
  const uint64_t expected = uint64_t{tensor.shape[0]} * sizeof(int32_t);
  const ConstantData& data = *blobs_[blob];
  if (data.layout() != DataLayout::kRowMajor || data.bytes().size() != expected) {
    return Bad("the sums of {} have {} bytes; expected {}", tensor.name, data.bytes().size(),
               expected);
  }
  tensor.sums = blobs_[blob];
  return OkStatus();
}

Status GraphFileReader::ReadConstants() {
  std::unordered_set<std::string> names;
  for (const fb::Constant* stored : *file_.constants()) {
    Result<Tensor> tensor = ReadConstant(*stored);
    if (!tensor.ok()) return tensor.status().WithContext(fmt::format("constant {}", names.size()));
    if (!names.insert(tensor->name).second) return Bad("two constants are named {}", tensor->name);
    constants_.push_back(std::move(tensor).value());
  }
  return OkStatus();
}

Result<Tensor> GraphFileReader::CopyConstant(const fb::Tensor& stored) {
  if (stored.constant() >= constants_.size()) {
    return Bad("constant {} is not there; the file has {}", stored.constant(), constants_.size());
  }
  const Tensor& constant = constants_[stored.constant()];
  const uint64_t bytes = constant.name.size() + sizeof(uint32_t) * constant.shape.size() +
                         sizeof(float) * constant.encoding.channel_scales.size() +
                         constant.encoding.block_scales.size();
  if (bytes > constant_budget_) return Bad("too many graphs use constant {}", constant.name);
  constant_budget_ -= bytes;
  Tensor tensor = constant;
  SPILLWAY_RETURN_IF_ERROR(Copy(stored.encoding_of(), tensor.encoding_of));
  return tensor;
}

Result<Tensor> GraphFileReader::ReadTensor(const fb::Tensor& stored) {
  if (stored.constant() != kNotConstant) return CopyConstant(stored);
  Tensor tensor;
  SPILLWAY_RETURN_IF_ERROR(Copy(stored.name(), tensor.name));
  SPILLWAY_RETURN_IF_ERROR(Copy(stored.shape(), tensor.shape));
  SPILLWAY_RETURN_IF_ERROR(Copy(stored.encoding_of(), tensor.encoding_of));
  const std::optional<DType> dtype = ValueOf(kTypeCodes, stored.type());
  if (!dtype) return Bad("type {} is not known", static_cast<int>(stored.type()));
  tensor.dtype = *dtype;
  SPILLWAY_ASSIGN_OR_RETURN(tensor.encoding, ReadEncoding(stored.encoding()));
  SPILLWAY_RETURN_IF_ERROR(AsDamage(CheckStoredTensor(tensor)));
  return tensor;
}

// Adds the tensors of `stored` with the numbers that they have there.
Status GraphFileReader::AddTensors(const fb::Graph& stored, Graph& graph) {
  const auto& inputs = *stored.inputs();
  flatbuffers::uoffset_t next_input = 0;
  for (const fb::Tensor* stored_tensor : *stored.tensors()) {
    const TensorId id = static_cast<TensorId>(graph.tensors().size());
    Result<Tensor> tensor = ReadTensor(*stored_tensor);
    if (!tensor.ok()) return tensor.status().WithContext(fmt::format("tensor number {}", id));
    if (graph.Find(tensor->name)) return Bad("two tensors are named {}", tensor->name);
    if (next_input == inputs.size() || inputs[next_input] != id) {
      graph.AddTensor(std::move(tensor).value());
      continue;
    }
    if (tensor->role == TensorRole::kConstant) return Bad("input {} is a constant", tensor->name);
    ++next_input;
    graph.AddInput(tensor->name, tensor->dtype, tensor->shape);
    graph.mutable_tensor(id).encoding = std::move(tensor->encoding);
    graph.mutable_tensor(id).encoding_of = std::move(tensor->encoding_of);
  }
  if (next_input != inputs.size()) {
    return Bad("input {} is tensor number {}; expected rising numbers below {}", next_input,
               inputs[next_input], graph.tensors().size());
  }
  return OkStatus();
}

Result<Op> GraphFileReader::ReadOp(const fb::Op& stored, size_t tensor_count) {
  Op op;
  SPILLWAY_RETURN_IF_ERROR(Copy(stored.name(), op.name));
  const std::optional<OpType> type = ValueOf(kOpCodes, stored.code());
  if (!type) return Bad("operation code {} is not known", static_cast<int>(stored.code()));
  op.type = *type;
  SPILLWAY_RETURN_IF_ERROR(Copy(stored.inputs(), op.inputs));
  SPILLWAY_RETURN_IF_ERROR(Copy(stored.outputs(), op.outputs));
  for (const auto* ids : {&op.inputs, &op.outputs}) {
    for (const TensorId id : *ids) {
      if (id >= tensor_count) {
        return Bad("tensor number {} is not there; the graph has {}", id, tensor_count);
      }
    }
  }
  op.attributes.epsilon = stored.epsilon();
  op.attributes.axis = stored.axis();
  SPILLWAY_RETURN_IF_ERROR(Copy(stored.ints(), op.attributes.ints));
  if (!(op.attributes.epsilon >= 0.0f && op.attributes.epsilon <= 1.0f)) {
    return Bad("epsilon {}; expected 0 to 1", op.attributes.epsilon);
  }
  return op;
}

Status GraphFileReader::AddOps(const fb::Graph& stored, Graph& graph) {
  std::unordered_set<std::string> names;
  for (const fb::Op* stored_op : *stored.ops()) {
    Result<Op> op = ReadOp(*stored_op, graph.tensors().size());
    if (!op.ok()) {
      return op.status().WithContext(fmt::format("operation number {}", names.size()));
    }
    if (!names.insert(op->name).second) return Bad("two operations are named {}", op->name);
    graph.AppendOp(std::move(op).value());
  }
  return OkStatus();
}

Status GraphFileReader::MarkOutputs(const fb::Graph& stored, Graph& graph) {
  for (const TensorId id : *stored.outputs()) {
    if (id >= graph.tensors().size()) {
      return Bad("output number {} is not there; the graph has {} tensors", id,
                 graph.tensors().size());
    }
    if (graph.tensor(id).role != TensorRole::kInternal) {
      return Bad("output {} is an input, a constant or an output already", graph.tensor(id).name);
    }
    graph.MarkOutput(id);
  }
  return OkStatus();
}

Result<Graph> GraphFileReader::ReadGraph(const fb::Graph& stored) {
  std::string name;
  SPILLWAY_RETURN_IF_ERROR(Copy(stored.name(), name));
  Graph graph(std::move(name));
  SPILLWAY_RETURN_IF_ERROR(AddTensors(stored, graph));
  SPILLWAY_RETURN_IF_ERROR(AddOps(stored, graph));
  SPILLWAY_RETURN_IF_ERROR(MarkOutputs(stored, graph));
  SPILLWAY_RETURN_IF_ERROR(AsDamage(graph.Validate()));
  return graph;
}

Result<StoredGraphs> GraphFileReader::Read() {
  SPILLWAY_RETURN_IF_ERROR(ReadBlobs());
  SPILLWAY_RETURN_IF_ERROR(ReadConstants());
  StoredGraphs result;
  for (const fb::Shard* shard : *file_.shards()) {
    std::vector<std::shared_ptr<const Graph>> graphs;
    std::unordered_set<std::string> names;
    for (const fb::Graph* stored : *shard->graphs()) {
      Result<Graph> graph = ReadGraph(*stored);
      if (!graph.ok()) {
        return graph.status().WithContext(
            fmt::format("shard {}, graph {}", result.graphs.size(), graphs.size()));
      }
      if (!names.insert(graph->name()).second) return Bad("two graphs are named {}", graph->name());
      graphs.push_back(std::make_shared<const Graph>(std::move(graph).value()));
    }
    if (graphs.empty()) return Bad("shard {} has no graphs", result.graphs.size());
    result.graphs.push_back(std::move(graphs));
  }
  if (result.graphs.empty()) return Bad("the file has no shards");
  result.constants = std::move(constants_);
  return result;
}

Result<const fb::GraphFile*> OpenGraphFile(std::span<const std::byte> bytes) {
  if (bytes.size() >= FLATBUFFERS_MAX_BUFFER_SIZE) {
    return Bad("{} bytes are too many", bytes.size());
  }
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  if (bytes.size() < 8 || !fb::GraphFileBufferHasIdentifier(data)) {
    return Bad("this is no graph file: the mark {} is missing", fb::GraphFileIdentifier());
  }
  flatbuffers::Verifier verifier(data, bytes.size(), kMaxDepth, kMaxTables);
  if (!fb::VerifyGraphFileBuffer(verifier)) return Bad("the file's structure is damaged");
  const fb::GraphFile* file = fb::GetGraphFile(data);
  if (file->version() > kGraphFileVersion) {
    return UnsupportedError(fmt::format("version {} of the graph file; this program reads up to {}",
                                        file->version(), kGraphFileVersion));
  }
  if (file->version() == 0) return Bad("version 0; expected 1 to {}", kGraphFileVersion);
  return file;
}

}  // namespace

Result<StoredGraphs> ReadGraphFiles(const MappedFile& graphs,
                                    std::shared_ptr<const MappedFile> weights) {
  const Result<const fb::GraphFile*> file = OpenGraphFile(graphs.bytes());
  if (!file.ok()) return file.status().WithContext("'" + graphs.path() + "'");
  GraphFileReader reader(**file, graphs.bytes().size(), std::move(weights));
  Result<StoredGraphs> result = reader.Read();
  if (!result.ok()) return result.status().WithContext("'" + graphs.path() + "'");
  return result;
}

Result<StoredGraphs> ReadGraphFiles(const std::string& folder, const GraphFiles& files) {
  SPILLWAY_ASSIGN_OR_RETURN(const MappedFile graphs,
                            MappedFile::Open(JoinPath(folder, files.graphs)));
  SPILLWAY_ASSIGN_OR_RETURN(MappedFile weights, MappedFile::Open(JoinPath(folder, files.weights)));
  return ReadGraphFiles(graphs, std::make_shared<const MappedFile>(std::move(weights)));
}

}  // namespace spillway
