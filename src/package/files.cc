#include "package/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <unordered_set>

#include "base/hash.h"

namespace spillway {
namespace {

Result<std::string> HashOf(const std::string& folder, const std::string& name,
                           const MappedFiles& mapped) {
  const auto found = mapped.find(name);
  return found == mapped.end() ? HashFile(JoinPath(folder, name))
                               : HashBytes(found->second->bytes());
}

Result<Tensor> FindEmbedding(const PackageManifest& manifest,
                             const std::vector<Tensor>& constants) {
  const std::string& name = manifest.embedding_tensor;
  // Graphs that take token ids look the rows up themselves.
  if (name.empty() && manifest.io_profile != "spillway") return Tensor();
  const auto found = std::find_if(constants.begin(), constants.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  if (found == constants.end()) {
    return CorruptDataError(fmt::format(
        "field graphs.embedding_tensor: found '{}', which is no constant of {}; expected "
        "the name of one",
        name, kGraphsFile));
  }
  const Shape expected = {manifest.config.vocab_size, manifest.config.hidden_dim};
  const bool is_s8 = found->dtype == DType::kS8 &&
                     found->encoding.kind == Encoding::Kind::kPerChannel &&
                     found->encoding.axis == 0;
  if ((!is_s8 && found->dtype != DType::kF16) || found->shape != expected) {
    return CorruptDataError(fmt::format(
        "the embedding {} is {} {} with encoding {}; expected {}, f16 or s8 per channel on axis 0",
        name, DTypeName(found->dtype), ShapeToString(found->shape), found->encoding.ToString(),
        ShapeToString(expected)));
  }
  return *found;
}

// The prefix's constants of every layer, checked against the model's shape.
Result<std::vector<Tensor>> FindPrefix(const PackageManifest& manifest, bool is_k,
                                       const std::vector<Tensor>& constants) {
  std::vector<Tensor> tensors;
  const auto count = static_cast<uint32_t>(manifest.prefix_tokens.size());
  const ModelConfig& config = manifest.config;
  const Shape expected = is_k ? Shape{1, config.num_kv_heads, config.head_dim, count}
                              : Shape{1, config.num_kv_heads, count, config.head_dim};
  for (uint32_t layer = 0; layer < config.num_layers && count > 0; ++layer) {
    const std::string name = fmt::format("prefix.{}.{}", is_k ? "k" : "v", layer);
    const auto found = std::find_if(constants.begin(), constants.end(),
                                    [&](const Tensor& tensor) { return tensor.name == name; });
    if (found == constants.end() || found->shape != expected || found->dtype != manifest.kv_dtype) {
      return CorruptDataError(fmt::format(
          "field graphs.prefix_tokens has {} tokens, but {} has no constant {} {} {}", count,
          kGraphsFile, name, DTypeName(manifest.kv_dtype), ShapeToString(expected)));
    }
    tensors.push_back(*found);
  }
  return tensors;
}

Result<TokenizerData> ReadTokenizer(const MappedFile& file, const PackageManifest& manifest) {
  const auto bytes = file.bytes();
  Result<TokenizerData> data =
      TokenizerData::Parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!data.ok()) return data.status().WithContext("'" + file.path() + "'");
  if (data->tokens.size() > manifest.config.vocab_size) {
    return CorruptDataError(fmt::format("'{}': {} tokens; expected at most vocab_size {}",
                                        file.path(), data->tokens.size(),
                                        manifest.config.vocab_size));
  }
  return data;
}

}  // namespace

std::vector<std::string> FilesToRead(const PackageManifest& manifest) {
  std::vector<std::string> names = {kGraphsFile, kWeightsFile, kTokenizerFile};
  if (manifest.evictor.has_value()) {
    names.insert(names.end(), {kEvictorFiles.graphs, kEvictorFiles.weights});
  }
  return names;
}

Result<MappedFiles> MapFiles(const std::string& folder, const PackageManifest& manifest) {
  MappedFiles files;
  for (const std::string& name : FilesToRead(manifest)) {
    SPILLWAY_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(JoinPath(folder, name)));
    files.emplace(name, std::make_shared<const MappedFile>(std::move(file)));
  }
  return files;
}

Status MeasureFiles(const std::string& folder, const MappedFiles& mapped,
                    std::vector<PackageFile>& files) {
  std::vector<PackageFile*> largest_first;
  for (PackageFile& file : files) {
    SPILLWAY_ASSIGN_OR_RETURN(file.bytes, FileSize(JoinPath(folder, file.name)));
    largest_first.push_back(&file);
  }
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [](const PackageFile* a, const PackageFile* b) { return a->bytes > b->bytes; });
  std::vector<Status> errors(files.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < largest_first.size(); i = next++) {
      Result<std::string> hash = HashOf(folder, largest_first[i]->name, mapped);
      errors[i] = hash.status();
      if (hash.ok()) largest_first[i]->hash = std::move(hash).value();
    }
  };
  std::thread helper(work);
  work();
  helper.join();
  for (const Status& error : errors) SPILLWAY_RETURN_IF_ERROR(error);
  return OkStatus();
}

Status CheckFileList(const PackageManifest& manifest, const std::string& path) {
  std::unordered_set<std::string_view> names;
  for (const PackageFile& file : manifest.files) {
    if (!names.insert(file.name).second) {
      return CorruptDataError(fmt::format("'{}': file {} is listed twice", path, file.name));
    }
  }
  std::vector<std::string_view> needed = {kGraphsFile, kWeightsFile, kTokenizerFile};
  for (const ShardInfo& shard : manifest.shards) {
    if (!shard.context_file.empty()) needed.push_back(shard.context_file);
    if (!shard.plain_file.empty()) needed.push_back(shard.plain_file);
  }
  if (manifest.evictor.has_value()) {
    needed.insert(needed.end(), {kEvictorFiles.graphs, kEvictorFiles.weights});
    if (!manifest.evictor->context_file.empty()) needed.push_back(manifest.evictor->context_file);
  }
  for (const std::string_view name : needed) {
    if (names.contains(name)) continue;
    return CorruptDataError(fmt::format("'{}': file {} is not in the list of files", path, name));
  }
  return OkStatus();
}

Result<std::shared_ptr<const Graph>> OnlyEvictor(const StoredGraphs& stored,
                                                 const std::string& path) {
  if (stored.graphs.size() == 1 && stored.graphs[0].size() == 1 &&
      stored.graphs[0][0]->name() == kEvictorGraphName) {
    return stored.graphs[0][0];
  }
  return CorruptDataError(
      fmt::format("'{}' holds other graphs than the one {}", path, kEvictorGraphName));
}

namespace {

// The evictor's graph, checked against what the manifest says of cache and sink.
Result<std::shared_ptr<const Graph>> FindEvictor(const MappedFiles& files,
                                                 const PackageManifest& manifest) {
  const MappedFile& file = *files.at(kEvictorFiles.graphs);
  SPILLWAY_ASSIGN_OR_RETURN(StoredGraphs stored,
                            ReadGraphFiles(file, files.at(kEvictorFiles.weights)));
  SPILLWAY_ASSIGN_OR_RETURN(std::shared_ptr<const Graph> graph, OnlyEvictor(stored, file.path()));
  const ModelConfig& config = manifest.config;
  const uint32_t columns = manifest.context_len - 1;
  const Shape k = {1, config.num_kv_heads, config.head_dim, columns};
  const Shape v = {1, config.num_kv_heads, columns, config.head_dim};
  const size_t layers = config.num_layers;
  const auto fits = [&](const std::vector<TensorId>& ids) {
    bool all = ids.size() == 2 * layers;
    for (size_t i = 0; all && i < ids.size(); ++i) {
      const Tensor& tensor = graph->tensor(ids[i]);
      all = tensor.shape == (i < layers ? k : v) && tensor.dtype == manifest.kv_dtype;
    }
    return all;
  };
  if (fits(graph->inputs()) && fits(graph->outputs())) return graph;
  return CorruptDataError(
      fmt::format("'{}': the graph {} does not take and give keys {} {} and values {} of {} layers",
                  file.path(), graph->name(), DTypeName(manifest.kv_dtype), ShapeToString(k),
                  ShapeToString(v), layers));
}

}  // namespace

Result<PackageContents> ReadContents(const std::string& folder, const PackageManifest& manifest,
                                     const MappedFiles& files) {
  SPILLWAY_ASSIGN_OR_RETURN(StoredGraphs stored,
                            ReadGraphFiles(*files.at(kGraphsFile), files.at(kWeightsFile)));
  const std::string manifest_path = JoinPath(folder, kManifestFile);
  if (stored.graphs.size() != manifest.shards.size()) {
    return CorruptDataError(fmt::format("'{}': found {} shards, but {} has {}", manifest_path,
                                        manifest.shards.size(), kGraphsFile, stored.graphs.size()));
  }
  PackageContents contents;
  Result<Tensor> embedding = FindEmbedding(manifest, stored.constants);
  if (!embedding.ok()) return embedding.status().WithContext("'" + manifest_path + "'");
  contents.embedding = std::move(embedding).value();
  for (const bool is_k : {true, false}) {
    Result<std::vector<Tensor>> prefix = FindPrefix(manifest, is_k, stored.constants);
    if (!prefix.ok()) return prefix.status().WithContext("'" + manifest_path + "'");
    (is_k ? contents.prefix_k : contents.prefix_v) = std::move(prefix).value();
  }
  SPILLWAY_ASSIGN_OR_RETURN(TokenizerData tokenizer,
                            ReadTokenizer(*files.at(kTokenizerFile), manifest));
  contents.tokenizer = std::make_shared<const TokenizerData>(std::move(tokenizer));
  if (manifest.evictor.has_value()) {
    SPILLWAY_ASSIGN_OR_RETURN(contents.evictor, FindEvictor(files, manifest));
  }
  contents.graphs = std::move(stored.graphs);
  return contents;
}

}  // namespace spillway
