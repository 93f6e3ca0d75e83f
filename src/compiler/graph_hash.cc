#include "compiler/graph_hash.h"

#include <cstring>
#include <map>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/hash.h"

namespace spillway {
namespace {

// Lengths go before what varies in length, so that no two inputs look alike.
class GraphHasher {
 public:
  void AddGraph(const Graph& graph) {
    Text(graph.name());
    Number(graph.tensors().size());
    for (const Tensor& tensor : graph.tensors()) AddTensor(tensor);
    Number(graph.ops().size());
    for (const Op& op : graph.ops()) {
      Text(op.name);
      Number(op.type);
      List(op.inputs);
      List(op.outputs);
      Number(op.attributes.epsilon);
      Number(op.attributes.axis);
      List(op.attributes.ints);
    }
    List(graph.inputs());
    List(graph.outputs());
  }
  std::string Finish() const { return hasher_.Finish(); }

 private:
  template <typename T>
  void Number(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    hasher_.Add(std::as_bytes(std::span<const T>(&value, 1)));
  }
  template <typename T>
  void List(const std::vector<T>& values) {
    Number(values.size());
    hasher_.Add(std::as_bytes(std::span<const T>(values)));
  }
  void Text(std::string_view text) {
    Number(text.size());
    hasher_.Add(text);
  }

  void AddTensor(const Tensor& tensor) {
    Text(tensor.name);
    Number(tensor.dtype);
    List(tensor.shape);
    Number(tensor.role);
    const Encoding& encoding = tensor.encoding;
    Number(encoding.kind);
    Number(encoding.bits);
    Number(encoding.scale);
    Number(encoding.offset);
    Number(encoding.axis);
    List(encoding.channel_scales);
    Number(encoding.block_size);
    List(encoding.block_scales);
    if (tensor.data != nullptr) AddValues(tensor.data);
  }

  // Graphs share constants; the place of the first mention stands for the others.
  void AddValues(const std::shared_ptr<const ConstantData>& data) {
    const auto [place, is_new] = seen_.emplace(data, seen_.size());
    Number(place->second);
    if (!is_new) return;
    Number(data->layout());
    Number(data->bytes().size());
    hasher_.Add(data->bytes());
  }

  Hasher hasher_;
  std::map<std::shared_ptr<const ConstantData>, size_t> seen_;
};

}  // namespace

std::string HashGraphs(const std::vector<std::shared_ptr<const Graph>>& graphs) {
  GraphHasher hasher;
  for (const auto& graph : graphs) hasher.AddGraph(*graph);
  return hasher.Finish();
}

}  // namespace spillway
