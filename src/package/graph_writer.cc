// Writing graphs.fb and weights.bin.

#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/file.h"
#include "package/graph_codes.h"
#include "package/graph_file.h"

namespace spillway {
namespace {

using flatbuffers::Offset;

bool SameValues(const ConstantData& a, const ConstantData& b) {
  if (&a == &b) return true;
  const auto x = a.bytes();
  const auto y = b.bytes();
  return a.layout() == b.layout() && x.size() == y.size() &&
         std::memcmp(x.data(), y.data(), x.size()) == 0;
}

class GraphFileWriter {
 public:
  explicit GraphFileWriter(AtomicFile weights) : weights_(std::move(weights)) {}

  Status AddShard(const std::vector<std::shared_ptr<const Graph>>& graphs);
  // Stores the constant unless it is there already; its index in the table.
  Result<uint32_t> AddConstant(const Tensor& tensor);
  Status Finish(const std::string& folder);

 private:
  struct Entry {
    uint32_t index;
    const Tensor* tensor;
  };

  Result<Offset<fb::Graph>> AddGraph(const Graph& graph);
  Result<Offset<fb::Tensor>> AddTensor(const Tensor& tensor);
  Result<Offset<fb::Op>> AddOp(const Op& op);
  Result<uint32_t> AddBlob(const ConstantData& data);
  Offset<fb::Encoding> AddEncoding(const Encoding& encoding);
  Offset<flatbuffers::Vector<uint32_t>> AddNumbers(const std::vector<uint32_t>& numbers) {
    return builder_.CreateVector(numbers);
  }

  AtomicFile weights_;
  flatbuffers::FlatBufferBuilder builder_;
  std::vector<fb::Blob> blobs_;
  std::unordered_map<const ConstantData*, uint32_t> blob_of_;
  std::vector<Offset<fb::Constant>> constants_;
  std::unordered_map<std::string_view, Entry> constant_of_;
  std::vector<Offset<fb::Shard>> shards_;
};

Offset<fb::Encoding> GraphFileWriter::AddEncoding(const Encoding& encoding) {
  if (encoding.kind == Encoding::Kind::kNone) return 0;
  const auto channel_scales =
      encoding.channel_scales.empty() ? 0 : builder_.CreateVector(encoding.channel_scales);
  const auto block_scales =
      encoding.block_scales.empty() ? 0 : builder_.CreateVector(encoding.block_scales);
  return fb::CreateEncoding(builder_, *CodeOf(kEncodingCodes, encoding.kind), encoding.bits,
                            encoding.scale, encoding.offset, encoding.axis, channel_scales,
                            encoding.block_size, block_scales);
}

Result<uint32_t> GraphFileWriter::AddBlob(const ConstantData& data) {
  const auto [place, is_new] = blob_of_.emplace(&data, static_cast<uint32_t>(blobs_.size()));
  if (!is_new) return place->second;
  SPILLWAY_RETURN_IF_ERROR(weights_.Align(kWeightAlignment));
  blobs_.emplace_back(weights_.size(), data.bytes().size(), *CodeOf(kLayoutCodes, data.layout()));
  SPILLWAY_RETURN_IF_ERROR(weights_.Write(data.bytes()));
  return place->second;
}

Result<uint32_t> GraphFileWriter::AddConstant(const Tensor& tensor) {
  SPILLWAY_RETURN_IF_ERROR(CheckStoredTensor(tensor));
  const auto known = constant_of_.find(tensor.name);
  if (known != constant_of_.end()) {
    const Tensor& first = *known->second.tensor;
    if (first.dtype != tensor.dtype || first.shape != tensor.shape ||
        first.encoding != tensor.encoding || !SameValues(*first.data, *tensor.data)) {
      return InvalidArgumentError(fmt::format(
          "constant {} differs from another of that name; expected the same in every graph",
          tensor.name));
    }
    return known->second.index;
  }
  SPILLWAY_ASSIGN_OR_RETURN(const uint32_t blob, AddBlob(*tensor.data));
  const auto name = builder_.CreateString(tensor.name);
  const auto shape = AddNumbers(tensor.shape);
  const auto encoding = AddEncoding(tensor.encoding);
  const uint32_t index = static_cast<uint32_t>(constants_.size());
  constants_.push_back(
      fb::CreateConstant(builder_, name, *CodeOf(kTypeCodes, tensor.dtype), shape, encoding, blob));
  constant_of_.emplace(tensor.name, Entry{index, &tensor});
  return index;
}

Result<Offset<fb::Tensor>> GraphFileWriter::AddTensor(const Tensor& tensor) {
  Offset<flatbuffers::String> encoding_of;
  if (tensor.role == TensorRole::kConstant) {
    SPILLWAY_ASSIGN_OR_RETURN(const uint32_t constant, AddConstant(tensor));
    if (!tensor.encoding_of.empty()) encoding_of = builder_.CreateString(tensor.encoding_of);
    return fb::CreateTensor(builder_, constant, 0, fb::NumberType_None, 0, 0, encoding_of);
  }
  SPILLWAY_RETURN_IF_ERROR(CheckStoredTensor(tensor));
  if (!tensor.encoding_of.empty()) encoding_of = builder_.CreateString(tensor.encoding_of);
  const auto name = builder_.CreateString(tensor.name);
  const auto shape = AddNumbers(tensor.shape);
  const auto encoding = AddEncoding(tensor.encoding);
  fb::TensorBuilder stored(builder_);
  stored.add_name(name);
  stored.add_type(*CodeOf(kTypeCodes, tensor.dtype));
  stored.add_shape(shape);
  stored.add_encoding(encoding);
  stored.add_encoding_of(encoding_of);
  return stored.Finish();
}

Result<Offset<fb::Op>> GraphFileWriter::AddOp(const Op& op) {
  const std::optional<fb::OpCode> code = CodeOf(kOpCodes, op.type);
  if (!code) {
    return InternalError(fmt::format("operation {} ({}) has no code in the package format", op.name,
                                     OpTypeName(op.type)));
  }
  const auto name = builder_.CreateString(op.name);
  const auto inputs = AddNumbers(op.inputs);
  const auto outputs = AddNumbers(op.outputs);
  const auto ints = op.attributes.ints.empty() ? 0 : AddNumbers(op.attributes.ints);
  return fb::CreateOp(builder_, *code, name, inputs, outputs, op.attributes.epsilon,
                      op.attributes.axis, ints);
}

Result<Offset<fb::Graph>> GraphFileWriter::AddGraph(const Graph& graph) {
  SPILLWAY_RETURN_IF_ERROR(graph.Validate());
  std::vector<Offset<fb::Tensor>> tensors;
  for (const Tensor& tensor : graph.tensors()) {
    SPILLWAY_ASSIGN_OR_RETURN(const auto stored, AddTensor(tensor));
    tensors.push_back(stored);
  }
  std::vector<Offset<fb::Op>> ops;
  std::unordered_set<std::string_view> op_names;
  for (const Op& op : graph.ops()) {
    if (!op_names.insert(op.name).second) {
      return InvalidArgumentError(fmt::format("two operations have the name {}", op.name));
    }
    SPILLWAY_ASSIGN_OR_RETURN(const auto stored, AddOp(op));
    ops.push_back(stored);
  }
  const auto name = builder_.CreateString(graph.name());
  const auto tensor_list = builder_.CreateVector(tensors);
  const auto op_list = builder_.CreateVector(ops);
  const auto inputs = AddNumbers(graph.inputs());
  const auto outputs = AddNumbers(graph.outputs());
  return fb::CreateGraph(builder_, name, tensor_list, op_list, inputs, outputs);
}

Status GraphFileWriter::AddShard(const std::vector<std::shared_ptr<const Graph>>& graphs) {
  std::vector<Offset<fb::Graph>> stored_graphs;
  std::unordered_set<std::string_view> names;
  for (const std::shared_ptr<const Graph>& graph : graphs) {
    if (!names.insert(graph->name()).second) {
      return InvalidArgumentError(fmt::format("two graphs have the name {}", graph->name()));
    }
    Result<Offset<fb::Graph>> stored = AddGraph(*graph);
    if (!stored.ok()) return stored.status().WithContext("graph " + graph->name());
    stored_graphs.push_back(*stored);
  }
  shards_.push_back(fb::CreateShard(builder_, builder_.CreateVector(stored_graphs)));
  return OkStatus();
}

Status GraphFileWriter::Finish(const std::string& folder) {
  const auto blobs = builder_.CreateVectorOfStructs(blobs_);
  const auto constants = builder_.CreateVector(constants_);
  const auto shards = builder_.CreateVector(shards_);
  fb::FinishGraphFileBuffer(
      builder_, fb::CreateGraphFile(builder_, kGraphFileVersion, blobs, constants, shards));
  SPILLWAY_RETURN_IF_ERROR(weights_.Commit());
  return WriteFileAtomically(
      JoinPath(folder, kGraphsFile),
      {reinterpret_cast<const char*>(builder_.GetBufferPointer()), builder_.GetSize()});
}

}  // namespace

Status WriteGraphFiles(const std::string& folder, const ShardGraphs& graphs,
                       const std::vector<Tensor>& extra) {
  SPILLWAY_ASSIGN_OR_RETURN(AtomicFile weights, AtomicFile::Create(JoinPath(folder, kWeightsFile)));
  GraphFileWriter writer(std::move(weights));
  if (graphs.empty()) return InvalidArgumentError("no shards to store; expected at least one");
  for (size_t shard = 0; shard < graphs.size(); ++shard) {
    const std::string context = fmt::format("shard {}", shard);
    if (graphs[shard].empty()) {
      return InvalidArgumentError(context + " has no graphs; expected at least one");
    }
    SPILLWAY_RETURN_IF_ERROR(writer.AddShard(graphs[shard]).WithContext(context));
  }
  for (const Tensor& tensor : extra) {
    if (tensor.role != TensorRole::kConstant) {
      return InvalidArgumentError("tensor " + tensor.name + " is not a constant; expected one");
    }
    const Result<uint32_t> index = writer.AddConstant(tensor);
    if (!index.ok()) return index.status();
  }
  return writer.Finish(folder);
}

}  // namespace spillway
