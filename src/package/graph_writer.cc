// Writing graphs.fb and weights.bin.

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/file.h"
#include "base/hash.h"
#include "package/graph_codes.h"
#include "package/graph_file.h"

namespace spillway {
namespace {

using flatbuffers::Offset;

// What a stored constant is, without its values.
struct Stored {
  uint32_t index;
  DType dtype;
  Shape shape;
  Encoding encoding;
  uint32_t blob;
};

class Writer : public GraphFileWriter {
 public:
  Writer(std::string graphs_path, AtomicFile weights)
      : graphs_path_(std::move(graphs_path)), weights_(std::move(weights)) {}

  Status AddShard(const std::vector<std::shared_ptr<const Graph>>& graphs) override;
  Status AddExtra(const Tensor& tensor) override;
  Status Finish() override;

 private:
  Result<Offset<fb::Graph>> AddGraph(const Graph& graph);
  Result<Offset<fb::Tensor>> AddTensor(const Tensor& tensor);
  Result<Offset<fb::Op>> AddOp(const Op& op);
  // Stores the constant unless it is there already; its index in the table.
  Result<uint32_t> AddConstant(const Tensor& tensor);
  Result<uint32_t> AddBlob(const ConstantData& data);
  Offset<fb::Encoding> AddEncoding(const Encoding& encoding);
  Offset<flatbuffers::Vector<uint32_t>> AddNumbers(const std::vector<uint32_t>& numbers) {
    return builder_.CreateVector(numbers);
  }

  std::string graphs_path_;
  AtomicFile weights_;
  flatbuffers::FlatBufferBuilder builder_;
  std::vector<fb::Blob> blobs_;
  // By the hash of the values: those of earlier shards are gone.
  std::unordered_map<std::string, uint32_t> blob_of_;
  std::vector<Offset<fb::Constant>> constants_;
  std::unordered_map<std::string, Stored> constant_of_;
  std::vector<Offset<fb::Shard>> shards_;
};

Offset<fb::Encoding> Writer::AddEncoding(const Encoding& encoding) {
  if (encoding.kind == Encoding::Kind::kNone) return 0;
  const auto channel_scales =
      encoding.channel_scales.empty() ? 0 : builder_.CreateVector(encoding.channel_scales);
  const auto block_scales =
      encoding.block_scales.empty() ? 0 : builder_.CreateVector(encoding.block_scales);
  return fb::CreateEncoding(builder_, *CodeOf(kEncodingCodes, encoding.kind), encoding.bits,
                            encoding.scale, encoding.offset, encoding.axis, channel_scales,
                            encoding.block_size, block_scales);
}

Result<uint32_t> Writer::AddBlob(const ConstantData& data) {
  const auto layout = *CodeOf(kLayoutCodes, data.layout());
  std::string key = HashBytes(data.bytes());
  key += fmt::format(".{}.{}", data.bytes().size(), static_cast<int>(layout));
  const auto [place, is_new] =
      blob_of_.emplace(std::move(key), static_cast<uint32_t>(blobs_.size()));
  if (!is_new) return place->second;
  SPILLWAY_RETURN_IF_ERROR(weights_.Align(kWeightAlignment));
  blobs_.emplace_back(weights_.size(), data.bytes().size(), layout);
  SPILLWAY_RETURN_IF_ERROR(weights_.Write(data.bytes()));
  return place->second;
}

Result<uint32_t> Writer::AddConstant(const Tensor& tensor) {
  SPILLWAY_RETURN_IF_ERROR(CheckStoredTensor(tensor));
  const bool is_4_bit =
      tensor.encoding.bits == 4 && tensor.data->layout() == DataLayout::kPackedN16K4;
  const std::shared_ptr<const ConstantData> data = is_4_bit ? PackNibbles(tensor) : tensor.data;
  SPILLWAY_ASSIGN_OR_RETURN(const uint32_t blob, AddBlob(*data));
  uint32_t sums = kNoSums;
  if (data->layout() != DataLayout::kRowMajor) {
    SPILLWAY_ASSIGN_OR_RETURN(sums, AddBlob(*MakeConstantOf(ChannelSums(tensor))));
  }
  const auto known = constant_of_.find(tensor.name);
  if (known != constant_of_.end()) {
    const Stored& first = known->second;
    if (first.dtype != tensor.dtype || first.shape != tensor.shape ||
        first.encoding != tensor.encoding || first.blob != blob) {
      return InvalidArgumentError(fmt::format(
          "constant {} differs from another of that name; expected the same in every graph",
          tensor.name));
    }
    return first.index;
  }
  const auto name = builder_.CreateString(tensor.name);
  const auto shape = AddNumbers(tensor.shape);
  const auto encoding = AddEncoding(tensor.encoding);
  const uint32_t index = static_cast<uint32_t>(constants_.size());
  constants_.push_back(fb::CreateConstant(builder_, name, *CodeOf(kTypeCodes, tensor.dtype), shape,
                                          encoding, blob, sums));
  constant_of_.emplace(tensor.name,
                       Stored{index, tensor.dtype, tensor.shape, tensor.encoding, blob});
  return index;
}

Result<Offset<fb::Tensor>> Writer::AddTensor(const Tensor& tensor) {
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

Result<Offset<fb::Op>> Writer::AddOp(const Op& op) {
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

Result<Offset<fb::Graph>> Writer::AddGraph(const Graph& graph) {
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

Status Writer::AddShard(const std::vector<std::shared_ptr<const Graph>>& graphs) {
  const std::string context = fmt::format("shard {}", shards_.size());
  if (graphs.empty()) {
    return InvalidArgumentError(context + " has no graphs; expected at least one");
  }
  std::vector<Offset<fb::Graph>> stored_graphs;
  std::unordered_set<std::string_view> names;
  for (const std::shared_ptr<const Graph>& graph : graphs) {
    if (!names.insert(graph->name()).second) {
      return InvalidArgumentError(
          fmt::format("{}: two graphs have the name {}", context, graph->name()));
    }
    Result<Offset<fb::Graph>> stored = AddGraph(*graph);
    if (!stored.ok()) {
      return stored.status().WithContext(context + ": graph " + graph->name());
    }
    stored_graphs.push_back(*stored);
  }
  shards_.push_back(fb::CreateShard(builder_, builder_.CreateVector(stored_graphs)));
  return OkStatus();
}

Status Writer::AddExtra(const Tensor& tensor) {
  if (tensor.role != TensorRole::kConstant) {
    return InvalidArgumentError("tensor " + tensor.name + " is not a constant; expected one");
  }
  return AddConstant(tensor).status();
}

Status Writer::Finish() {
  if (shards_.empty()) return InvalidArgumentError("no shards to store; expected at least one");
  const auto blobs = builder_.CreateVectorOfStructs(blobs_);
  const auto constants = builder_.CreateVector(constants_);
  const auto shards = builder_.CreateVector(shards_);
  fb::FinishGraphFileBuffer(
      builder_, fb::CreateGraphFile(builder_, kGraphFileVersion, blobs, constants, shards));
  SPILLWAY_RETURN_IF_ERROR(weights_.Commit());
  return WriteFileAtomically(
      graphs_path_,
      {reinterpret_cast<const char*>(builder_.GetBufferPointer()), builder_.GetSize()});
}

}  // namespace

Result<std::unique_ptr<GraphFileWriter>> GraphFileWriter::Create(const std::string& folder,
                                                                 const GraphFiles& files) {
  SPILLWAY_ASSIGN_OR_RETURN(AtomicFile weights,
                            AtomicFile::Create(JoinPath(folder, files.weights)));
  return std::unique_ptr<GraphFileWriter>(
      new Writer(JoinPath(folder, files.graphs), std::move(weights)));
}

}  // namespace spillway
