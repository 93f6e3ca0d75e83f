#include "runtime/step_graphs.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "package/key_rotation.h"

namespace spillway {
namespace {

Status Misfit(const std::string& what, std::string_view found, std::string_view expected) {
  return CorruptDataError(
      fmt::format("{} is {}; the graph contract asks for {}", what, found, expected));
}

std::string TensorText(const Tensor& tensor) {
  return std::string(DTypeName(tensor.dtype)) + " " + ShapeToString(tensor.shape);
}

Status CheckShape(const std::string& where, const Tensor& tensor, const Shape& expected) {
  if (tensor.shape == expected) return OkStatus();
  return Misfit(fmt::format("{}, tensor \"{}\"", where, tensor.name), ShapeToString(tensor.shape),
                ShapeToString(expected));
}

Status CheckSame(const std::string& where, const Tensor& a, const Tensor& b) {
  if (a.dtype == b.dtype && a.encoding == b.encoding) return OkStatus();
  return CorruptDataError(
      fmt::format("{}: tensors \"{}\" ({}, {}) and \"{}\" ({}, {}) must have one type and encoding",
                  where, a.name, DTypeName(a.dtype), a.encoding.ToString(), b.name,
                  DTypeName(b.dtype), b.encoding.ToString()));
}

// Counts and the three leading inputs; fills in the numbers of `step`.
Status ReadLeadingInputs(const std::string& where, StepGraph& step) {
  const Graph& graph = *step.graph;
  const size_t outputs = graph.outputs().size(), inputs = graph.inputs().size();
  if (outputs < 1 || outputs % 2 != 1) {
    return Misfit(where, fmt::format("a graph with {} outputs", outputs),
                  "logits or hidden states, then k and v of each layer");
  }
  step.layers = static_cast<uint32_t>((outputs - 1) / 2);
  const size_t with_cache = 3 + 2 * size_t{step.layers};
  if (inputs != 3 && inputs != with_cache) {
    return Misfit(where, fmt::format("a graph with {} inputs", inputs),
                  fmt::format("{} ({} layers), or 3 when AR equals the context length", with_cache,
                              step.layers));
  }
  const Tensor& mask = step.input(StepGraph::kMask);
  const Shape& m = mask.shape;
  if (m.size() != 4 || m[0] != 1 || m[1] != 1 || m[2] == 0 || m[2] > m[3]) {
    return Misfit(fmt::format("{}, mask \"{}\"", where, mask.name), ShapeToString(m),
                  "[1, 1, AR, CL] with 1 <= AR <= CL");
  }
  step.ar_len = m[2];
  step.context_len = m[3];
  step.has_cache = step.ar_len < step.context_len;
  if (step.layers > 0 && step.has_cache != (inputs == with_cache)) {
    return Misfit(where, fmt::format("a graph with {} inputs", inputs),
                  fmt::format("{} for AR {} of {}", step.has_cache ? with_cache : 3, step.ar_len,
                              step.context_len));
  }
  const Tensor& positions = step.input(StepGraph::kPositions);
  if (positions.dtype != DType::kI32) {
    return Misfit(fmt::format("{}, positions \"{}\"", where, positions.name), TensorText(positions),
                  "i32 [1, AR]");
  }
  return CheckShape(where, positions, {1, step.ar_len});
}

// AR rows and nothing else before the last dimension: [1, AR, W], [1, 1, AR, W].
Status CheckRows(const std::string& where, const Tensor& tensor, uint32_t ar_len) {
  const Shape& shape = tensor.shape;
  if (shape.size() >= 2 && shape[shape.size() - 2] == ar_len &&
      NumElements(shape) == uint64_t{ar_len} * shape.back()) {
    return OkStatus();
  }
  return Misfit(fmt::format("{}, tensor \"{}\"", where, tensor.name), ShapeToString(shape),
                fmt::format("[1, ..., {}, width]", ar_len));
}

// Hidden states or token ids in, hidden states or logits out.
Status CheckMainTensors(const std::string& where, const StepGraph& step, bool first) {
  const Tensor& in = step.input(StepGraph::kHidden);
  if (first && in.dtype == DType::kI32) {
    SPILLWAY_RETURN_IF_ERROR(CheckShape(where, in, {1, step.ar_len}));
  } else {
    SPILLWAY_RETURN_IF_ERROR(CheckRows(where, in, step.ar_len));
  }
  return CheckRows(where, step.output(StepGraph::kMainOutput), step.ar_len);
}

Status CheckCacheTensors(const std::string& where, const StepGraph& step, const KvShape& kv) {
  const uint32_t h = kv.kv_heads, d = kv.head_dim;
  const uint32_t ar = step.ar_len, past = step.context_len - step.ar_len;
  for (uint32_t layer = 0; layer < step.layers; ++layer) {
    const Tensor& k_new = step.output(step.KOutput(layer));
    const Tensor& v_new = step.output(step.VOutput(layer));
    SPILLWAY_RETURN_IF_ERROR(CheckShape(where, k_new, {1, h, d, ar}));
    SPILLWAY_RETURN_IF_ERROR(CheckShape(where, v_new, {1, h, ar, d}));
    if (k_new.dtype != kv.dtype || v_new.dtype != kv.dtype) {
      return Misfit(fmt::format("{}, tensor \"{}\"", where, k_new.name), DTypeName(k_new.dtype),
                    fmt::format("one type ({}) for all keys and values", DTypeName(kv.dtype)));
    }
    if (!step.has_cache) continue;
    const Tensor& k = step.input(step.KInput(layer));
    const Tensor& v = step.input(step.VInput(layer));
    SPILLWAY_RETURN_IF_ERROR(CheckShape(where, k, {1, h, d, past}));
    SPILLWAY_RETURN_IF_ERROR(CheckShape(where, v, {1, h, past, d}));
    SPILLWAY_RETURN_IF_ERROR(CheckSame(where, k, k_new));
    SPILLWAY_RETURN_IF_ERROR(CheckSame(where, v, v_new));
  }
  return OkStatus();
}

// Heads and sizes of the cache, from the first layer that there is.
Result<KvShape> ReadKvShape(const std::vector<StepGraph>& steps) {
  KvShape kv;
  kv.context_len = steps[0].context_len;
  for (const StepGraph& step : steps) {
    if (step.layers > 0 && kv.layers == 0) {
      const Tensor& k_new = step.output(step.KOutput(0));
      if (k_new.shape.size() != 4) {
        return Misfit(fmt::format("tensor \"{}\"", k_new.name), ShapeToString(k_new.shape),
                      "[1, kv_heads, head_dim, AR]");
      }
      kv.kv_heads = k_new.shape[1];
      kv.head_dim = k_new.shape[2];
      kv.dtype = k_new.dtype;
    }
    kv.layers += step.layers;
  }
  return kv;
}

Status CheckChain(const char* name, const std::vector<StepGraph>& steps) {
  SPILLWAY_ASSIGN_OR_RETURN(const KvShape kv, ReadKvShape(steps));
  for (size_t s = 0; s < steps.size(); ++s) {
    const std::string where = fmt::format("shard {}, graph {}", s, name);
    const StepGraph& step = steps[s];
    SPILLWAY_RETURN_IF_ERROR(CheckMainTensors(where, step, s == 0));
    SPILLWAY_RETURN_IF_ERROR(CheckCacheTensors(where, step, kv));
    if (s == 0) continue;
    if (step.ar_len != steps[0].ar_len || step.context_len != steps[0].context_len) {
      return CorruptDataError(fmt::format("{} takes {} tokens of {}, but shard 0 takes {} of {}",
                                          where, step.ar_len, step.context_len, steps[0].ar_len,
                                          steps[0].context_len));
    }
    const Tensor& from = steps[s - 1].output(StepGraph::kMainOutput);
    const Tensor& to = step.input(StepGraph::kHidden);
    SPILLWAY_RETURN_IF_ERROR(CheckShape(where, to, from.shape));
    SPILLWAY_RETURN_IF_ERROR(CheckSame(where, from, to));
    SPILLWAY_RETURN_IF_ERROR(
        CheckSame(where, steps[0].input(StepGraph::kMask), step.input(StepGraph::kMask)));
  }
  return OkStatus();
}

// The graph `name` of every shard; empty when no shard has it.
Result<std::vector<StepGraph>> ReadChain(
    const char* name, const std::vector<std::vector<std::shared_ptr<const Graph>>>& shards) {
  std::vector<StepGraph> steps;
  for (size_t s = 0; s < shards.size(); ++s) {
    for (const std::shared_ptr<const Graph>& graph : shards[s]) {
      if (graph->name() != name) continue;
      StepGraph step;
      step.graph = graph;
      SPILLWAY_RETURN_IF_ERROR(ReadLeadingInputs(fmt::format("shard {}, graph {}", s, name), step));
      steps.push_back(std::move(step));
    }
  }
  if (!steps.empty() && steps.size() != shards.size()) {
    return CorruptDataError(fmt::format("{} of {} shards have a graph {}; all or none must",
                                        steps.size(), shards.size(), name));
  }
  if (!steps.empty()) SPILLWAY_RETURN_IF_ERROR(CheckChain(name, steps));
  return steps;
}

Result<ModelIo> ReadIo(const std::vector<StepGraph>& steps) {
  ModelIo io;
  SPILLWAY_ASSIGN_OR_RETURN(io.kv, ReadKvShape(steps));
  const Tensor& hidden = steps.front().input(StepGraph::kHidden);
  const Tensor& logits = steps.back().output(StepGraph::kMainOutput);
  io.vocab_size = logits.shape.back();
  io.hidden_dim = hidden.dtype == DType::kI32 ? 1 : hidden.shape.back();
  io.hidden_dtype = hidden.dtype;
  io.hidden_encoding = hidden.encoding;
  io.mask_dtype = steps.front().input(StepGraph::kMask).dtype;
  io.logits_dtype = logits.dtype;
  io.logits_encoding = logits.encoding;
  for (const StepGraph& step : steps) {
    if (step.layers > 0 && io.key_rotation.empty()) {
      SPILLWAY_ASSIGN_OR_RETURN(io.key_rotation, ReadKeyRotation(*step.graph, io.kv.head_dim));
    }
    for (uint32_t layer = 0; layer < step.layers; ++layer) {
      io.k_encodings.push_back(step.output(step.KOutput(layer)).encoding);
    }
  }
  return io;
}

// Prefill and decode share buffers, so their tensors must mean the same.
Status CheckPair(const std::vector<StepGraph>& prefill, const std::vector<StepGraph>& decode) {
  for (size_t s = 0; s < prefill.size(); ++s) {
    const StepGraph &a = prefill[s], &b = decode[s];
    const std::string where =
        fmt::format("shard {}, {} and {}", s, kPrefillGraphName, kDecodeGraphName);
    if (a.context_len != b.context_len || a.layers != b.layers) {
      return CorruptDataError(
          fmt::format("{}: contexts of {} and {}, {} and {} layers; both must "
                      "be equal",
                      where, a.context_len, b.context_len, a.layers, b.layers));
    }
    for (size_t i = 0; i < 2; ++i) {
      SPILLWAY_RETURN_IF_ERROR(CheckSame(where, a.input(i), b.input(i)));
      if (a.input(i).shape.back() != b.input(i).shape.back() && a.input(i).dtype != DType::kI32) {
        return Misfit(where + ", tensor \"" + b.input(i).name + "\"",
                      ShapeToString(b.input(i).shape), "the same width in both graphs");
      }
    }
    for (size_t i = 0; i < a.graph->outputs().size(); ++i) {
      SPILLWAY_RETURN_IF_ERROR(CheckSame(where, a.output(i), b.output(i)));
    }
    if (a.output(0).shape.back() != b.output(0).shape.back()) {
      return Misfit(where + ", tensor \"" + b.output(0).name + "\"",
                    ShapeToString(b.output(0).shape), "the same width in both graphs");
    }
  }
  return OkStatus();
}

uint64_t WeightBytes(const std::vector<StepGraph>& steps) {
  std::set<const ConstantData*> seen;
  uint64_t bytes = 0;
  for (const StepGraph& step : steps) {
    for (const Op& op : step.graph->ops()) {
      if (op.type == OpType::kGather) continue;
      for (const TensorId id : op.inputs) {
        const Tensor& tensor = step.graph->tensor(id);
        if (tensor.role == TensorRole::kConstant && seen.insert(tensor.data.get()).second) {
          const size_t stored = tensor.data->bytes().size();
          bytes += stored > 0 ? stored : tensor.Bytes();
        }
      }
    }
  }
  return bytes;
}

}  // namespace

Result<StepGraphs> ReadStepGraphs(
    const std::vector<std::vector<std::shared_ptr<const Graph>>>& shards) {
  StepGraphs graphs;
  SPILLWAY_ASSIGN_OR_RETURN(graphs.prefill, ReadChain(kPrefillGraphName, shards));
  SPILLWAY_ASSIGN_OR_RETURN(graphs.decode, ReadChain(kDecodeGraphName, shards));
  if (graphs.prefill.empty() && graphs.decode.empty()) {
    return CorruptDataError(fmt::format("the model has neither a graph {} nor {}",
                                        kPrefillGraphName, kDecodeGraphName));
  }
  SPILLWAY_ASSIGN_OR_RETURN(graphs.io, ReadIo(graphs.any()));
  if (!graphs.prefill.empty() && !graphs.decode.empty()) {
    SPILLWAY_RETURN_IF_ERROR(CheckPair(graphs.prefill, graphs.decode));
  }
  graphs.weight_bytes = WeightBytes(graphs.any());
  return graphs;
}

Result<StepGraphs> ReadStepGraphs(const Package& package) {
  std::vector<std::vector<std::shared_ptr<const Graph>>> shards;
  const PackageManifest& manifest = package.manifest();
  for (uint32_t s = 0; s < manifest.shards.size(); ++s) {
    std::vector<std::shared_ptr<const Graph>>& graphs = shards.emplace_back();
    if (manifest.prefill_ar_len > 0) {
      SPILLWAY_ASSIGN_OR_RETURN(graphs.emplace_back(), package.FindGraph(s, kPrefillGraphName));
    }
    SPILLWAY_ASSIGN_OR_RETURN(graphs.emplace_back(), package.FindGraph(s, kDecodeGraphName));
  }
  Result<StepGraphs> graphs = ReadStepGraphs(shards);
  if (!graphs.ok()) return graphs.status().WithContext(package.path());
  KvPrefix& prefix = graphs->io.prefix;
  prefix.tokens = manifest.prefix_tokens;
  if (prefix.tokens.size() + 1 >= graphs->io.kv.context_len) {
    return CorruptDataError(fmt::format("{}: a prefix of {} tokens for a context of {}",
                                        package.path(), prefix.tokens.size(),
                                        graphs->io.kv.context_len));
  }
  for (const Tensor& tensor : package.prefix_k()) prefix.k.push_back(tensor.data);
  for (const Tensor& tensor : package.prefix_v()) prefix.v.push_back(tensor.data);
  return graphs;
}

}  // namespace spillway
