// Opening packages.

#include "package/package.h"

#include <fmt/format.h>

#include <thread>

#include "package/files.h"
#include "package/json_fields.h"

namespace spillway {
namespace {

constexpr std::string_view kAdvice = "compile the model again";

Result<PackageManifest> ReadManifestFile(const std::string& folder) {
  if (!FileExists(folder)) {
    return NotFoundError(
        fmt::format("there is no package at '{}'; give the folder that compile wrote", folder));
  }
  if (!IsDirectory(folder)) {
    return InvalidArgumentError(fmt::format(
        "'{}' is a file; a package is a folder, give the one that compile wrote", folder));
  }
  const std::string path = JoinPath(folder, kManifestFile);
  if (!FileExists(path)) {
    return InvalidArgumentError(
        fmt::format("'{}' is not a package: it has no {}; give the folder that compile wrote",
                    folder, kManifestFile));
  }
  SPILLWAY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return PackageManifest::FromJson(text, path);
}

Status CheckFiles(const std::string& folder, const PackageManifest& manifest) {
  std::vector<PackageFile> found = manifest.files;
  for (const PackageFile& file : manifest.files) {
    if (FileExists(JoinPath(folder, file.name))) continue;
    return CorruptDataError(
        fmt::format("'{}' is missing from the package", JoinPath(folder, file.name)));
  }
  SPILLWAY_RETURN_IF_ERROR(MeasureFiles(folder, false, found));
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].bytes == manifest.files[i].bytes) continue;
    return CorruptDataError(fmt::format("'{}' has {} bytes; expected {}",
                                        JoinPath(folder, found[i].name), found[i].bytes,
                                        manifest.files[i].bytes));
  }
  return OkStatus();
}

Status CheckHashes(const std::string& folder, const PackageManifest& manifest) {
  std::vector<PackageFile> found = manifest.files;
  SPILLWAY_RETURN_IF_ERROR(MeasureFiles(folder, true, found));
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].hash == manifest.files[i].hash) continue;
    return CorruptDataError(fmt::format("'{}' is damaged: its hash is {}; expected {}",
                                        JoinPath(folder, found[i].name), found[i].hash,
                                        manifest.files[i].hash));
  }
  return OkStatus();
}

Status WithAdvice(const Status& status) {
  if (status.code() != StatusCode::kCorruptData) return status;
  return CorruptDataError(fmt::format("{}; {}", status.message(), kAdvice));
}

}  // namespace

Result<std::shared_ptr<const Package>> Package::Open(const std::string& path, OpenOptions options) {
  Result<PackageManifest> manifest = ReadManifestFile(path);
  if (!manifest.ok()) return WithAdvice(manifest.status());
  SPILLWAY_RETURN_IF_ERROR(WithAdvice(CheckFileList(*manifest, JoinPath(path, kManifestFile))));
  SPILLWAY_RETURN_IF_ERROR(WithAdvice(CheckFiles(path, *manifest)));
  // The readers stand damaged files, so hashing need not come first.
  Status hashes;
  std::thread hashing;
  if (options.verify) hashing = std::thread([&] { hashes = CheckHashes(path, *manifest); });
  Result<PackageContents> contents = ReadContents(path, *manifest);
  if (hashing.joinable()) hashing.join();
  SPILLWAY_RETURN_IF_ERROR(WithAdvice(hashes));
  if (!contents.ok()) return WithAdvice(contents.status());
  const std::shared_ptr<Package> package(new Package());
  package->path_ = path;
  package->manifest_ = std::move(manifest).value();
  package->graphs_ = std::move(contents->graphs);
  package->evictor_ = std::move(contents->evictor);
  package->embedding_ = std::move(contents->embedding);
  package->prefix_k_ = std::move(contents->prefix_k);
  package->prefix_v_ = std::move(contents->prefix_v);
  package->tokenizer_ = std::move(contents->tokenizer);
  return std::shared_ptr<const Package>(package);
}

Result<std::shared_ptr<const Graph>> Package::FindGraph(uint32_t shard,
                                                        std::string_view name) const {
  if (shard >= graphs_.size()) {
    return NotFoundError(fmt::format("package '{}' has no shard {}; it has {} (from 0 on)", path_,
                                     shard, graphs_.size()));
  }
  std::string known;
  for (const std::shared_ptr<const Graph>& graph : graphs_[shard]) {
    if (graph->name() == name) return graph;
    known += (known.empty() ? "" : ", ") + graph->name();
  }
  return NotFoundError(fmt::format("shard {} of package '{}' has no graph {}; it has {}", shard,
                                   path_, name, known));
}

std::string Package::PathOf(const std::string& name) const { return JoinPath(path_, name); }

bool Package::HasFile(const std::string& name) const {
  return IsPlainFileName(name) && FileExists(PathOf(name));
}

Result<std::vector<std::vector<std::shared_ptr<const Graph>>>> ReadGraphs(
    const std::string& folder) {
  SPILLWAY_ASSIGN_OR_RETURN(StoredGraphs stored, ReadGraphFiles(folder));
  return std::move(stored.graphs);
}

Result<std::shared_ptr<const Graph>> ReadEvictor(const std::string& folder) {
  SPILLWAY_ASSIGN_OR_RETURN(StoredGraphs stored, ReadGraphFiles(folder, kEvictorFiles));
  if (stored.graphs.size() == 1 && stored.graphs[0].size() == 1 &&
      stored.graphs[0][0]->name() == kEvictorGraphName) {
    return stored.graphs[0][0];
  }
  return CorruptDataError(fmt::format("'{}' holds other graphs than the one {}",
                                      JoinPath(folder, kEvictorFiles.graphs), kEvictorGraphName));
}

}  // namespace spillway
